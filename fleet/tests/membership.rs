//! Members join, leave and disappear: who owns what, and when.

use crate::common::{builder, join, millis, seconds, within};
use keyqueue::WorkQueue;
use keyqueue_fleet::{Event, Fleet, FleetError, MemoryStore, StableHasher, Store, Unhealthy};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

fn owners<'a>(fleets: impl IntoIterator<Item = &'a Fleet<u64>>) -> Vec<u32> {
    let mut all: Vec<u32> = fleets.into_iter().flat_map(Fleet::owned).collect();
    all.sort_unstable();
    all
}

#[tokio::test(start_paused = true)]
async fn one_member_owns_all() {
    let fleet = join(&MemoryStore::new(), "a").await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    let stats = fleet.stats();
    assert_eq!((stats.members, stats.wanted, stats.unowned, stats.lost), (1, 16, 0, 0));
    assert!(stats.member.starts_with("a#"));
    assert!((0..1000).all(|key| fleet.owns(&key) && fleet.add(key).is_mine()));
}

#[tokio::test(start_paused = true)]
async fn members_share_all_partitions_and_none_twice() {
    let store = MemoryStore::new();
    let mut fleets = Vec::new();
    for name in ["a", "b", "c", "d"] {
        fleets.push(join(&store, name).await.unwrap());
        within(seconds(1), || owners(&fleets) == (0..16).collect::<Vec<_>>()).await;
    }
    assert!(fleets.iter().all(|fleet| fleet.stats().owned > 0 && fleet.stats().lost == 0));
    // One leaves: the others have its partitions at once.
    fleets.pop().unwrap().leave().await;
    within(seconds(1), || owners(&fleets) == (0..16).collect::<Vec<_>>()).await;
    assert!(fleets.iter().all(|fleet| fleet.stats().members == 3));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_disappears_is_replaced_after_the_expiry() {
    let store = MemoryStore::new();
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(1), || owners([&a, &b]).len() == 16 && b.stats().owned > 0).await;
    drop(b);
    let took = within(seconds(20), || a.stats().owned == 16).await;
    // The last renewal was at most a third of a lease old.
    assert!((seconds(15) - seconds(10) / 3..=seconds(16)).contains(&took), "{took:?}");
    assert!(a.stats().longest_hand_over < millis(100), "wanted only since the record is gone");
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_when_partitions_change_hands() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let token = |fleet: &Fleet<u64>, key| fleet.enter(&key).ok().map(|permit| permit.token());
    let before: Vec<_> = (0..100).map(|key| token(&a, key).unwrap()).collect();
    let b = join(&store, "b").await.unwrap();
    within(seconds(1), || owners([&a, &b]).len() == 16 && b.stats().owned > 0).await;
    for key in 0..100 {
        match (token(&a, key), token(&b, key)) {
            (Some(same), None) => assert_eq!(same, before[key as usize]),
            (None, Some(higher)) => assert!(higher > before[key as usize]),
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_is_not_handed_over_while_a_handler_is_inside() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let permits: Vec<_> = (0..1000).map(|key| a.enter(&key).unwrap()).collect();
    let b = join(&store, "b").await.unwrap();
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(b.stats().owned, 0);
    assert_eq!(a.stats().releasing, b.stats().wanted);
    assert!(b.stats().wanted > 0 && permits.iter().all(|permit| !permit.is_lost()));
    drop(permits);
    within(seconds(1), || b.stats().owned == b.stats().wanted).await;
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_refused_and_a_dead_one_is_taken_over() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    assert!(matches!(join(&store, "a").await, Err(FleetError::NameTaken { name }) if name == "a"));
    within(seconds(1), || a.stats().owned == 16).await;
    drop(a);
    let start = tokio::time::Instant::now();
    let a = join(&store, "a").await.unwrap();
    assert!(start.elapsed() >= seconds(15), "not before its predecessor has expired");
    within(seconds(1), || a.stats().owned == 16).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_with_other_partitions_are_refused() {
    let store = MemoryStore::new();
    let _a = join(&store, "a").await.unwrap();
    let refused = builder(&store, "b").partitions(17).build(WorkQueue::<u64>::new()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, FleetError::PartitionsDiffer { ours: 17, theirs: 16 }));
    assert_eq!(
        error.to_string(),
        "this replica has 17 partitions, the fleet has 16: all replicas must have the same number"
    );
}

/// Names that end in a number, as those of a StatefulSet: each replica has some of them.
#[tokio::test(start_paused = true)]
async fn numbered_names_are_spread_over_partitions_unless_ranges_are_asked_for() {
    let store = MemoryStore::new();
    let settings = |name: &str| builder(&store, name).partitions(256);
    let mixed = settings("a").build(WorkQueue::<String>::new()).await.unwrap();
    let ranges = settings("b").fnv_ranges().build(WorkQueue::<String>::new()).await.unwrap();
    let of =
        |fleet: &Fleet<String>| (0..100).map(|i| fleet.partition(&format!("web-{i}"))).collect::<HashSet<_>>().len();
    // A hundred balls into 256 bins: 83 are hit, on average.
    assert!(of(&mixed) > 70, "in {} of 256 partitions", of(&mixed));
    assert!(of(&ranges) < 10, "in {} of 256 partitions", of(&ranges));
    assert_eq!(mixed.hashes(0), None);
    let uid = "0ee4-11".to_owned();
    let mut hasher = StableHasher::new();
    hasher.write(uid.as_bytes());
    assert!(ranges.hashes(ranges.partition(&uid)).unwrap().contains(&hasher.finish()));
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_refused() {
    let store = MemoryStore::new();
    for name in ["", "A", "a_b", "-a", "a.", &"a".repeat(64)] {
        let error = builder(&store, name).build(WorkQueue::<u64>::new()).await.unwrap_err();
        assert!(matches!(error, FleetError::InvalidArgument(_)), "{name}: {error}");
    }
    for builder in [
        builder(&store, "a").partitions(0),
        builder(&store, "a").partitions(4097),
        builder(&store, "a").lease(millis(59)),
        builder(&store, "a").lease(seconds(u64::MAX)),
        builder(&store, "a").grace(seconds(u64::MAX)),
    ] {
        assert!(matches!(builder.build(WorkQueue::<u64>::new()).await, Err(FleetError::InvalidArgument(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn events_tell_what_is_owned_to_late_listeners_too() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let mut events = a.events();
    let acquired: HashSet<_> = events.next_many().await.into_iter().collect();
    assert_eq!(acquired, (0..16).map(Event::Acquired).collect());
    let b = join(&store, "b").await.unwrap();
    within(seconds(1), || b.stats().owned == b.stats().wanted && b.stats().owned > 0).await;
    let released: HashSet<_> = events.next_many().await.into_iter().collect();
    assert_eq!(released, b.owned().into_iter().map(Event::Released).collect());
    a.leave().await;
    assert_eq!(events.next_many().await.len(), 16 - b.owned().len().min(released.len()));
    assert_eq!(events.next().await, None);
    assert!(a.events().next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_deleted_by_hand_is_lost_and_the_member_joins_again() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let permit = a.enter(&1).unwrap();
    let before = a.stats().member;
    let version = store.read("member-a").await.unwrap().unwrap().version;
    store.delete("member-a", version).await.unwrap();
    within(seconds(1), || a.stats().lost == 16).await;
    assert!(permit.is_lost());
    permit.lost().await;
    within(seconds(1), || a.stats().owned == 16).await;
    assert_ne!(a.stats().member, before);
    assert!(a.enter(&1).unwrap().token() > permit.token());
    assert!(permit.is_lost(), "the new life is not the old one's");
}

#[tokio::test(start_paused = true)]
async fn a_table_that_is_deleted_by_hand_is_made_anew() {
    let store = MemoryStore::new();
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(1), || owners([&a, &b]).len() == 16 && b.stats().owned > 0).await;
    let highest = |fleet: &Fleet<u64>| (0..100).filter_map(|key| Some(fleet.enter(&key).ok()?.token())).max().unwrap();
    let before = highest(&a).max(highest(&b));
    let version = store.read("owners").await.unwrap().unwrap().version;
    store.delete("owners", version).await.unwrap();
    tokio::time::sleep(seconds(20)).await;
    let c = join(&store, "c").await.unwrap(); // a reason to write the table
    within(seconds(20), || owners([&a, &b, &c]).len() == 16 && c.stats().owned > 0).await;
    assert!(highest(&c) > before, "tokens go on");
}

/// Each of the only member's partitions has a handler that hangs, and a replica comes and goes: all keys but those of the handlers are
/// handed out again.
#[tokio::test(start_paused = true)]
async fn a_replica_that_came_and_went_leaves_no_partition_closed() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().serving == 16).await;
    let mut events = a.events();
    events.next_many().await;
    let permits: Vec<_> = (0..400).map(|key| a.enter(&key).unwrap()).collect();
    let b = join(&store, "b").await.unwrap();
    within(seconds(1), || a.stats().releasing > 0).await;
    tokio::time::sleep(seconds(5)).await;
    let stats = a.stats();
    let moving = stats.releasing;
    assert_eq!((stats.owned, stats.serving, stats.unowned), (16, 16 - moving, 0));
    assert!((seconds(5)..seconds(7)).contains(&stats.releasing_for), "{:?}", stats.releasing_for);
    b.leave().await;
    within(seconds(1), || a.stats().serving == 16).await;
    assert_eq!((a.stats().releasing, a.stats().releasing_for, a.stats().lost), (0, seconds(0), 0));
    assert!((0..400).all(|key| a.add(key).is_mine()));
    let again: HashSet<_> = events.next_many().await.into_iter().collect();
    assert_eq!(again.len(), moving, "adds were refused, so the program lists");
    for permit in permits {
        let partition = permit.partition();
        let key = (0..400).find(|key| a.partition(key) == partition).unwrap();
        let token = a.enter(&key).unwrap().token();
        let claimed_in_place = again.contains(&Event::Acquired(partition));
        assert!(!permit.is_lost() && if claimed_in_place { token > permit.token() } else { token == permit.token() });
    }
}

/// A partition is claimed in place while a handler hangs: its key is not handed out a second time, another key of the partition is.
#[tokio::test(start_paused = true)]
async fn a_key_has_one_handler_when_its_partition_is_claimed_in_place() {
    let store = MemoryStore::new();
    let a = join(&store, "a").await.unwrap();
    within(seconds(1), || a.stats().serving == 16).await;
    let partition = moved_to_b().await;
    let mut keys = (0_u64..).filter(|key| a.partition(key) == partition);
    let (hangs, other) = (keys.next().unwrap(), keys.next().unwrap());
    let runs = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..4 {
        let runs = runs.clone();
        tokio::spawn(a.workers().build().run_async(async move |held| {
            runs.lock().unwrap().push((*held.key(), held.token()));
            if *held.key() == hangs {
                std::future::pending::<()>().await;
            }
        }));
    }
    a.add(hangs);
    within(seconds(1), || runs.lock().unwrap().len() == 1).await;
    let b = join(&store, "b").await.unwrap();
    within(seconds(1), || !a.owns(&hangs)).await;
    b.leave().await;
    within(seconds(1), || a.owns(&hangs)).await;
    a.add(hangs);
    a.add(other);
    tokio::time::sleep(seconds(30)).await;
    let runs = runs.lock().unwrap().clone();
    assert_eq!(runs.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [hangs, other]);
    assert!(runs[1].1 > runs[0].1, "{runs:?}");
}

/// A partition that a member `b` takes from a member `a`.
async fn moved_to_b() -> u32 {
    let store = MemoryStore::new();
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(1), || owners([&a, &b]).len() == 16 && b.stats().owned > 0).await;
    b.owned()[0]
}

/// Nobody would process the keys that the member keeps, so it hands its partitions over.
#[tokio::test(start_paused = true)]
async fn a_member_whose_queue_is_shut_down_leaves() {
    let store = MemoryStore::new();
    let (a, b) = (join(&store, "a").await.unwrap(), join(&store, "b").await.unwrap());
    within(seconds(1), || owners([&a, &b]).len() == 16 && a.stats().owned > 0 && b.stats().owned > 0).await;
    a.queue().shut_down();
    within(millis(100), || b.stats().serving == 16).await;
    within(millis(100), || b.stats().members == 1).await;
    assert_eq!(a.health(), Err(Unhealthy::Left));
    a.leave().await; // it has
    assert_eq!(b.health(), Ok(()));
    let queue = WorkQueue::<u64>::new();
    queue.shut_down();
    assert!(matches!(builder(&store, "c").build(queue).await, Err(FleetError::Left)));
}
