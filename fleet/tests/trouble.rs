//! What a member does when its store, its clock, its handlers or other members are in trouble.

mod common;

use common::{builder, clock, join, millis, seconds, within};
use keyqueue::WorkQueue;
use keyqueue_fleet::store::{Deleted, MemoryStore, Store, StoreError, Stored, Version, Watch, Written};
use keyqueue_fleet::{Clock, Event, Fleet, FleetError, Held, NotAllowed};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

/// A store that counts requests, takes 5 ms for each, and can refuse.
#[derive(Clone)]
struct Troubled {
    store: MemoryStore,
    down: Arc<AtomicBool>,
    /// Refuses one of this many requests, 0: none. Which ones, is drawn: if every third one failed, a member that repeats three requests
    /// until all succeed would do so for ever.
    refuses_one_in: Arc<AtomicU64>,
    random: Arc<Mutex<fastrand::Rng>>,
    requests: Arc<AtomicU64>,
    deletions: Arc<AtomicU64>,
    /// Members' records cannot be written.
    read_only: Arc<AtomicBool>,
    /// The number of watches that panic.
    panics: Arc<AtomicU64>,
    watches: Arc<AtomicU64>,
}

impl Default for Troubled {
    fn default() -> Self {
        Self {
            store: MemoryStore::new(),
            down: Arc::default(),
            refuses_one_in: Arc::default(),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(1))),
            requests: Arc::default(),
            deletions: Arc::default(),
            read_only: Arc::default(),
            panics: Arc::default(),
            watches: Arc::default(),
        }
    }
}

impl Troubled {
    async fn request(&self) -> Result<(), StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(millis(5)).await;
        let one_in = self.refuses_one_in.load(Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) || one_in > 0 && self.random.lock().unwrap().u64(..one_in) == 0 {
            return Err(StoreError::message("the store is down"));
        }
        Ok(())
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

struct TroubledWatch {
    watch: <MemoryStore as Store>::Watch,
    troubled: Troubled,
}

impl Watch for TroubledWatch {
    async fn next(&mut self) -> Result<keyqueue_fleet::store::Change, StoreError> {
        let panics = &self.troubled.panics;
        if panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            panic!("the store's code panics");
        }
        while self.troubled.down.load(Ordering::Relaxed) {
            tokio::time::sleep(millis(50)).await;
        }
        self.watch.next().await
    }
}

impl Store for Troubled {
    type Watch = TroubledWatch;

    async fn read(&self, record: &str) -> Result<Option<Stored>, StoreError> {
        self.request().await?;
        self.store.read(record).await
    }

    async fn write(&self, record: &str, expected: Option<Version>, value: &[u8]) -> Result<Written, StoreError> {
        self.request().await?;
        if record.starts_with("member-") && self.read_only.load(Ordering::Relaxed) {
            return Err(StoreError::message("you may not write"));
        }
        self.store.write(record, expected, value).await
    }

    async fn delete(&self, record: &str, expected: Version) -> Result<Deleted, StoreError> {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.request().await?;
        self.store.delete(record, expected).await
    }

    async fn watch(&self) -> Result<TroubledWatch, StoreError> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        if self.down.load(Ordering::Relaxed) {
            return Err(StoreError::message("the store is down"));
        }
        Ok(TroubledWatch { watch: self.store.watch().await?, troubled: self.clone() })
    }
}

async fn alone(store: &Troubled) -> Fleet<u64> {
    let fleet = join(store, "a").await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    fleet
}

/// An outage shorter than the expiry: the member works until its deadline, and again when the store is back. It has lost nothing.
#[tokio::test(start_paused = true)]
async fn a_member_works_until_its_deadline_while_the_store_is_down() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    let permit = fleet.enter(&1).unwrap();
    store.down.store(true, Ordering::Relaxed);
    let down = Instant::now();
    tokio::time::sleep(seconds(6)).await;
    let stats = fleet.stats();
    assert!(!permit.is_lost() && fleet.enter(&2).is_ok(), "in the 6th second");
    assert!(stats.time_to_deadline > seconds(0) && stats.time_to_deadline <= seconds(4), "{stats:?}");
    assert!(stats.store_errors > 0 && stats.last_store_error.unwrap().contains("the store is down"));
    let lost = permit.lost();
    tokio::time::timeout(seconds(5), lost).await.unwrap();
    assert!(down.elapsed() <= seconds(10) + millis(300), "{:?}", down.elapsed());
    assert_eq!(fleet.enter(&2).unwrap_err(), NotAllowed::Late);
    assert_eq!(fleet.stats().time_to_deadline, seconds(0));
    assert_eq!(fleet.stats().late, 1);
    store.down.store(false, Ordering::Relaxed);
    within(seconds(2), || fleet.enter(&2).is_ok()).await;
    assert_eq!((fleet.stats().lost, fleet.stats().owned), (0, 16));
}

/// One replica loses the store, the other does not: its partitions move after the expiry, its keys are taken out, its handlers are told.
#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_reach_the_store_is_replaced_and_told_when_it_can() {
    let memory = MemoryStore::new();
    let cut_off = Troubled { store: memory.clone(), ..Troubled::default() };
    let a = alone(&cut_off).await;
    let b = join(&memory, "b").await.unwrap();
    within(seconds(1), || b.stats().owned > 0 && a.stats().owned + b.stats().owned == 16).await;
    let mut events = a.events();
    let had: Vec<Event> = events.next_many().await;
    let key = (0..).find(|key| a.owns(key)).unwrap();
    assert!(a.add(key).is_mine());
    let permit = a.enter(&key).unwrap();
    cut_off.down.store(true, Ordering::Relaxed);
    let took = within(seconds(20), || b.stats().owned == 16).await;
    assert!(took >= seconds(10) + seconds(2), "not before the deadline and the grace: {took:?}");
    assert!(permit.is_lost());
    let token = b.enter(&key).unwrap().token();
    assert!(token > permit.token());
    assert_eq!(a.stats().owned, had.len(), "it does not know yet");
    drop(permit);
    cut_off.down.store(false, Ordering::Relaxed);
    within(seconds(20), || a.stats().lost == had.len() as u64).await;
    assert!(a.queue().is_empty(), "the keys are another member's");
    let mut lost: Vec<Event> = events.next_many().await;
    lost.retain(|event| matches!(event, Event::Lost(_)));
    assert_eq!(lost.len(), had.len());
    within(seconds(20), || a.stats().owned > 0 && a.stats().owned + b.stats().owned == 16).await;
}

/// Ten members; the store is away for longer than the expiry, and comes back for one after the other. Nobody is evicted but the one that
/// has died.
#[tokio::test(start_paused = true)]
async fn an_outage_that_is_longer_than_the_expiry_evicts_only_members_that_have_died() {
    // The time of the outage, until when all have the store again, and how many requests are refused then.
    for (outage, spread, refuses) in [(9, 1, 0), (14, 1, 0), (20, 0, 0), (20, 1, 0), (20, 5, 3), (120, 5, 3)] {
        let case = format!("outage of {outage} s, spread over {spread} s, one in {refuses} refused");
        let memory = MemoryStore::new();
        let stores: Vec<Troubled> =
            (0..10).map(|_| Troubled { store: memory.clone(), ..Troubled::default() }).collect();
        let mut fleets = Vec::new();
        for (i, store) in stores.iter().enumerate() {
            *store.random.lock().unwrap() = fastrand::Rng::with_seed(i as u64);
            let member = Fleet::builder(store.clone()).member(format!("pod-{i}")).partitions(256).clock(clock());
            fleets.push(member.build(WorkQueue::<u64>::new()).await.unwrap());
        }
        within(seconds(20), || shared_out(&fleets)).await;
        tokio::time::sleep(millis(4321)).await;
        stores.iter().for_each(|store| store.down.store(true, Ordering::Relaxed));
        tokio::time::sleep(seconds(2)).await;
        fleets.pop(); // it dies
        tokio::time::sleep(seconds(outage - 2)).await;
        for store in &stores {
            store.down.store(false, Ordering::Relaxed);
            store.refuses_one_in.store(refuses, Ordering::Relaxed);
            tokio::time::sleep(millis(spread * 100)).await;
        }
        let lost = |fleets: &[Fleet<u64>]| fleets.iter().map(|fleet| fleet.stats().lost).sum::<u64>();
        let took = within(seconds(30), || shared_out(&fleets)).await;
        tokio::time::sleep(seconds(30)).await;
        within(seconds(5), || shared_out(&fleets)).await;
        assert_eq!(lost(&fleets), 0, "{case}");
        println!("{case}: the dead one's partitions have owners {took:?} after the outage");
        assert!(took <= seconds(15) + seconds(2), "{case}: {took:?}");
    }
}

/// The machine sleeps for a minute in the middle of a handler: the member sees at once that it is late, before any request.
#[tokio::test(start_paused = true)]
async fn after_a_suspend_a_member_hands_out_nothing_until_it_has_renewed() {
    let store = Troubled::default();
    let slept = Arc::new(AtomicU64::new(0));
    let (awake, sum) = (clock_nanos(), slept.clone());
    let suspended = Clock::new(move || awake() + sum.load(Ordering::Relaxed));
    let fleet = builder(&store, "a").clock(suspended).build(WorkQueue::<u64>::new()).await.unwrap();
    within(seconds(1), || fleet.stats().owned == 16).await;
    let permit = fleet.enter(&1).unwrap();
    slept.store(seconds(60).as_nanos() as u64, Ordering::Relaxed);
    assert!(permit.is_lost());
    assert_eq!(fleet.enter(&1).unwrap_err(), NotAllowed::Late);
    assert_eq!(fleet.stats().time_to_deadline, seconds(0));
    // No member has deleted its record, so it goes on with the same partitions.
    within(seconds(2), || fleet.enter(&1).is_ok()).await;
    assert_eq!(fleet.stats().lost, 0);
}

fn clock_nanos() -> impl Fn() -> u64 {
    let start = Instant::now();
    move || 1 + start.elapsed().as_nanos() as u64
}

/// Whether each member sees all, and owns what it should own.
fn shared_out(fleets: &[Fleet<u64>]) -> bool {
    let stats: Vec<_> = fleets.iter().map(Fleet::stats).collect();
    stats.iter().all(|stats| stats.members == fleets.len() && stats.owned == stats.wanted)
        && stats.iter().map(|stats| stats.owned).sum::<usize>() == 256
}

/// Sixty replicas of a deployment start at the same moment.
#[tokio::test(start_paused = true)]
async fn sixty_members_that_start_at_once_do_not_storm_the_store() {
    let store = Troubled::default();
    let start = Instant::now();
    let mut joining = tokio::task::JoinSet::new();
    for i in 0..60 {
        let store = store.clone();
        let member = Fleet::builder(store).member(format!("pod-{i}")).partitions(256).clock(clock());
        joining.spawn(async move { member.build(WorkQueue::<u64>::new()).await.unwrap() });
    }
    let mut fleets = joining.join_all().await;
    within(seconds(20), || shared_out(&fleets)).await;
    let (took, requests) = (start.elapsed(), store.requests());
    println!("60 members: {took:?}, {requests} requests");
    assert!(took < seconds(3), "{took:?}");
    assert!(requests < 1500, "{requests} requests, 25 per member");
    // One disappears: one or two delete its record, not 59.
    store.deletions.store(0, Ordering::Relaxed);
    fleets.pop();
    within(seconds(20), || shared_out(&fleets)).await;
    let deletions = store.deletions.load(Ordering::Relaxed);
    assert!((1..=4).contains(&deletions), "{deletions} deletions of one record");
}

/// The code of a store panics in a watch: the member begins another watch.
#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_begun_again() {
    let store = Troubled::default();
    let fleet = alone(&store).await;
    let before = store.watches.load(Ordering::Relaxed);
    store.panics.store(1, Ordering::Relaxed);
    within(seconds(10), || store.watches.load(Ordering::Relaxed) > before).await;
    let b = join(&store, "b").await.unwrap();
    within(seconds(20), || b.stats().owned > 0 && fleet.stats().owned + b.stats().owned == 16).await;
    assert_eq!(fleet.stats().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_a_third_of_all_requests_is_good_enough() {
    let store = Troubled::default();
    store.refuses_one_in.store(3, Ordering::Relaxed);
    let mut fleets = Vec::new();
    for name in ["a", "b", "c"] {
        fleets.push(join(&store, name).await.unwrap());
    }
    let owned = |fleets: &[Fleet<u64>]| fleets.iter().map(|fleet| fleet.stats().owned).sum::<usize>();
    within(seconds(20), || owned(&fleets) == 16 && fleets.iter().all(|fleet| fleet.stats().owned > 0)).await;
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(owned(&fleets), 16);
    assert!(fleets.iter().all(|fleet| fleet.stats().lost == 0));
    tokio::time::timeout(seconds(20), fleets.pop().unwrap().leave()).await.unwrap();
    within(seconds(20), || owned(&fleets) == 16).await;
}

/// A handler panics, another one hangs: the first one holds nothing up, and the second one is seen.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_holds_up_only_its_partition_and_is_seen() {
    let memory = MemoryStore::new();
    let a = join(&memory, "a").await.unwrap();
    within(seconds(1), || a.stats().owned == 16).await;
    let (hangs, panics) = (1_u64, (2..).find(|key| a.partition(key) != a.partition(&1)).unwrap());
    for _ in 0..2 {
        let workers = a.workers();
        tokio::spawn(workers.run(async move |key: &Held<'_, u64>| {
            assert!(*key.key() != panics, "this handler panics");
            std::future::pending::<()>().await;
        }));
    }
    a.add(hangs);
    a.add(panics);
    within(seconds(5), || a.queue().stats().processing == 1 && a.queue().stats().panics > 0).await;
    let late = tokio::time::timeout(seconds(30), a.leave()).await;
    assert!(late.is_err(), "a leave waits for the handler: put a timeout around it");
    assert_eq!((a.stats().owned, a.stats().releasing), (1, 1));
    let b = join(&memory, "b").await.unwrap();
    within(seconds(5), || b.stats().owned == 15).await;
    // The process exits.
    drop(a);
}

/// A store that never answers: joining fails after a lease, with what the store said.
#[tokio::test(start_paused = true)]
async fn joining_a_store_that_is_down_fails_after_a_lease() {
    let store = Troubled::default();
    store.down.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let error = join(&store, "a").await.unwrap_err();
    assert!(matches!(error, FleetError::Store(_)));
    assert_eq!(error.to_string(), "the fleet's store: the store is down");
    assert!((seconds(10)..seconds(21)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

/// A store that can be read, and that refuses to write the member's record: a missing permission, or a Lease that waits for a finalizer.
#[tokio::test(start_paused = true)]
async fn joining_without_the_permission_to_write_fails() {
    let store = Troubled::default();
    store.read_only.store(true, Ordering::Relaxed);
    let error = tokio::time::timeout(seconds(60), join(&store, "a")).await.expect("it gives up").unwrap_err();
    assert_eq!(error.to_string(), "the fleet's store: you may not write");
}

/// The grace is longer than the lease, so the predecessor's record outlives three leases, and the store refuses a third of all requests.
#[tokio::test(start_paused = true)]
async fn joining_waits_for_a_predecessor_over_a_store_that_refuses_now_and_then() {
    let store = Troubled::default();
    let times = || builder(&store, "a").lease(seconds(2)).grace(seconds(5));
    drop(times().build(WorkQueue::<u64>::new()).await.unwrap());
    store.refuses_one_in.store(3, Ordering::Relaxed);
    let start = Instant::now();
    times().build(WorkQueue::<u64>::new()).await.unwrap();
    assert!(start.elapsed() >= millis(8_750), "{:?}", start.elapsed());
}
