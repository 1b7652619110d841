//! Groups that take turns, and the limit of what a group may have processing (P20), with more groups than the plain queue of `reference/`
//! has, which judges each hand-out.

use keyqueue::{AddOptions, Added, Priority, WorkQueue, WorkQueueBuilder};
use std::collections::{HashMap, HashSet};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

type Key = (u8, u32);

/// The first number of a key is its group.
fn fair() -> WorkQueueBuilder<Key> {
    WorkQueue::builder().fair_by(|&(group, _): &Key| group)
}

/// The first delay starts the driver thread, also while all getters are parked, so that no other call would start it.
#[test]
fn the_first_delay_starts_the_driver() {
    for shards in [1, 4] {
        let queue = fair().shards(shards).build();
        let begin = Instant::now();
        thread::scope(|scope| {
            let getter = scope.spawn(|| queue.get_timeout(Duration::from_secs(60)).is_ok());
            while queue.stats().waiters == 0 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20)); // it parks
            queue.add_after((1, 1), Duration::from_millis(1));
            assert!(getter.join().unwrap());
        });
        assert!(begin.elapsed() < Duration::from_secs(30), "the getter has found the key at its timeout");
    }
}

/// The function is asked once for a new key, not for one that is known, and under no lock.
#[test]
fn the_group_is_asked_once_under_no_lock() {
    [1, 16].into_iter().for_each(the_group_is_asked_once);
}

fn the_group_is_asked_once(shards: usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let (report, taken) = mpsc::channel::<WorkQueue<u32>>();
    let taken = std::sync::Mutex::new(taken);
    let queue = WorkQueue::builder()
        .shards(shards)
        .fair_by({
            let asked = Arc::clone(&asked);
            move |key: &u32| {
                asked.fetch_add(1, Ordering::Relaxed);
                // It may use the queue.
                let queue = taken.lock().unwrap().try_recv();
                queue.iter().for_each(|queue| _ = queue.add(*key + 100));
                *key
            }
        })
        .build();
    queue.add(1);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    queue.add(1);
    queue.add_after(1, Duration::from_secs(60));
    let item = queue.get().unwrap();
    queue.add(1);
    drop(item);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    report.send(queue.clone()).unwrap();
    queue.add(2);
    assert_eq!((asked.load(Ordering::Relaxed), queue.len()), (3, 3));
}

#[test]
fn bad_settings_are_errors() {
    let error = |builder: WorkQueueBuilder<Key>| builder.try_build().unwrap_err().to_string();
    let plain = WorkQueue::<Key>::builder;
    assert!(error(plain().group_weight(|_| 1)).contains("group_weight"));
    assert!(error(plain().max_processing_per_group(1)).contains("fair_by"));
    assert!(error(fair().max_processing_per_group(0)).contains("no key"));
    let message = catch_unwind(|| drop(fair().max_processing_per_group(0).build())).unwrap_err();
    assert!(message.downcast_ref::<String>().unwrap().contains("max_processing_per_group"));
    assert!(fair().max_processing_per_group(usize::MAX).group_weight(|_| 0).try_build().is_ok());
}

/// One group floods the queue, and ten others add a key now and then: each waits for a bounded number of hand-outs.
#[test]
fn a_flood_does_not_keep_small_groups_waiting() {
    for (shards, bound) in [(1, 22), (16, (16 + 1) * 96)] {
        let queue = fair().shards(shards).build();
        queue.add_all((0..100_000).map(|n| (0, n)));
        // Another thread adds: a getter prefers the shard to which its own thread has just added.
        let (to_add, adds) = mpsc::channel();
        let (report, added) = mpsc::channel();
        let adder = thread::spawn({
            let queue = queue.clone();
            move || adds.into_iter().for_each(|key| report.send(queue.add(key)).unwrap())
        });
        let mut random = fastrand::Rng::with_seed(5);
        let (mut added_at, mut worst, mut small) = (HashMap::new(), 0, 0);
        for turn in 0..60_000_u32 {
            if random.u8(0..40) == 0 {
                let group = random.u8(1..11);
                added_at.entry(group).or_insert_with(|| {
                    to_add.send((group, turn)).unwrap();
                    assert_eq!(added.recv(), Ok(Added::Queued));
                    turn
                });
            }
            let item = queue.try_get().unwrap();
            if let Some(added) = added_at.remove(&item.0) {
                worst = worst.max(turn - added);
                small += 1;
            }
        }
        drop(to_add);
        adder.join().unwrap();
        println!("{shards} shards: {small} keys of small groups waited for {worst} hand-outs at most");
        assert!(small > 500 && worst <= bound, "{shards} shards: {worst} hand-outs, and not {bound}");
    }
}

/// Group B always has HIGH keys, and group C keys at 50; group G has keys at NORMAL and one LOW key. One key of a group is processing at
/// most, and a handler of G takes as long as `hold` hand-outs. Returns the hand-outs before the LOW key that were made while G had room.
fn low_key_of_a_slow_group(hold: u32) -> Option<u32> {
    const PRIORITIES: [Priority; 3] = [Priority::HIGH, Priority(50), Priority::NORMAL];
    const SLOW: u8 = 2;
    let queue = fair().max_processing_per_group(1).build();
    let add = |key: Key, priority| _ = queue.add_with(key, AddOptions::new().priority(priority));
    for (group, priority) in (0..).zip(PRIORITIES) {
        (0..50).for_each(|n| add((group, n), priority));
    }
    add((SLOW, 50), Priority::LOW);
    let (mut slow, mut with_room) = (None, 0);
    for step in 0..200_000 {
        if let Some((item, _)) = slow.take_if(|(_, until)| *until <= step) {
            let _item: keyqueue::OwnedItem<Key> = item; // done
        }
        with_room += u32::from(slow.is_none());
        let item = queue.try_get().unwrap().into_owned();
        if item.priority() == Priority::LOW {
            return Some(with_room);
        }
        add(*item, PRIORITIES[usize::from(item.0)]); // when it is done
        if item.0 == SLOW {
            slow = Some((item, step + hold + 1));
        }
    }
    None
}

/// The turn of a lower level may come while its group is full, again and again. The key comes nevertheless (P19).
#[test]
fn a_low_key_of_a_slow_group_comes_while_its_group_has_room() {
    for hold in [0, 1, 5, 14, 15, 16, 17, 20, 31, 32, 33, 40, 64, 100, 127, 128, 333] {
        let waited = low_key_of_a_slow_group(hold);
        // At the latest with the 16th hand-out of the group, whose NORMAL keys have every other turn of the lower levels.
        assert!(
            waited.is_some_and(|waited| waited <= 16 * 2 * 16 + 64),
            "a handler holds for {hold} hand-outs: {waited:?}"
        );
    }
}

/// A group is known by 64 bits: of this number of groups, some pairs have the same lower 32 bits.
#[test]
fn groups_are_known_by_64_bits() {
    const GROUPS: u32 = 200_000;
    let queue = WorkQueue::<u32>::builder().seed(1).fair_by(|key| *key).build();
    queue.add_all(0..GROUPS);
    assert_eq!(queue.inspect().groups().len(), GROUPS as usize);
}

/// No critical section is long: growing and shrinking are done in small steps. How many places each verb visits is counted in
/// `src/machine/tests/memory.rs`. This is the time, also of page faults. The system may take the core away: a call is long if it is in each
/// of five rounds, which are all the same.
#[test]
#[ignore = "takes a minute and 2 GB, or five if other programs run: ci/test.sh --ignored, weekly"]
fn no_call_takes_a_millisecond_with_ten_million_groups() {
    const GROUPS: u32 = 10_000_000;
    let mut long: Option<HashSet<(&str, u32)>> = None;
    for round in 0..5 {
        let queue = WorkQueue::builder().seed(1).fair_by(|key: &u32| *key).build();
        let (mut items, mut now) = (Vec::with_capacity(GROUPS as usize), HashSet::new());
        for call in ["add", "get", "done"] {
            for key in 0..GROUPS {
                let start = Instant::now();
                match call {
                    "add" => _ = queue.add(key),
                    "get" => items.extend(queue.try_get().ok()),
                    _ => drop(items.pop()),
                }
                if start.elapsed() >= Duration::from_millis(1) {
                    now.insert((call, key));
                }
            }
        }
        let still = |before: HashSet<_>| before.intersection(&now).copied().collect();
        let still = long.map_or_else(|| now.clone(), still);
        println!("round {round}: {} calls took a millisecond, {} in each round", now.len(), still.len());
        if still.is_empty() {
            return;
        }
        long = Some(still);
    }
    panic!("these calls take a millisecond: {long:?}");
}
