//! Priorities (P19): that no level starves; and the first priority of a long queue. How long a key waits in several shards is a unit test,
//! where the choice of a shard is: a HIGH one in `src/shared/choose.rs`, a LOW one in `src/shared/lower.rs`; here it is with threads.
//!
//! What the tests of `pkg/controller/priorityqueue` in sigs.k8s.io/controller-runtime check is made and judged by the plain queue of
//! `reference/`. Ours differs from theirs in these points:
//! * A key that is queued and gets a delay has both: the promised run at that time is not lost (`DelayedAdd::Independent`; theirs drops it).
//!   The policy `DelayedAdd::Promote` is theirs: an add replaces the delay.
//! * After a shut-down the queued keys are handed out first, as in client-go (theirs returns at once, and drops them).
//! * Lower levels are handed out now and then, unless the queue is strict (theirs starve: controller-runtime#3496).

use keyqueue::{AddOptions, Added, Priority, WorkQueue};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const fn at(priority: i8) -> AddOptions {
    AddOptions::new().priority(Priority(priority))
}

/// Over 300 000 hand-outs, with three lower levels and a highest one that never ends, each lower level gets its part (P19).
#[test]
fn no_level_starves() {
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).build();
        for key in 0..3000_u64 {
            queue.add_with(key, at(-((key % 3) as i8)));
        }
        (3000..4000_u64).for_each(|key| _ = queue.add_with(key, at(100)));
        let (mut of_level, mut since) = (HashMap::<i8, u64>::new(), 0);
        for _ in 0..300_000 {
            let item = queue.try_get().unwrap();
            let priority = item.priority();
            *of_level.entry(priority.0).or_default() += 1;
            since = if priority == Priority::HIGH { since + 1 } else { 0 };
            assert!(shards > 1 || since < 16, "of 16 hand-outs one is of a lower level");
            let _queued = queue.add_with(*item, AddOptions::new().priority(priority));
        }
        let lower = [0, -1, -2].map(|level| of_level[&level]);
        assert!(lower.iter().all(|count| (5_400..7_200).contains(count)), "{shards} shards: {of_level:?}");
    }
}

/// LOW keys that come three at a time to NORMAL ones, which threads queue again at once (P19). A thread that the system takes off its core
/// keeps the key or the lock that it has, while the others go on: so one round in four may take longer.
#[test]
fn three_low_keys_come_in_time_with_threads() {
    const ROUNDS: usize = 40;
    let asleep = Duration::from_millis(2);
    for (shards, getters) in [(1, 2), (4, 2), (16, 4), (64, 2), (64, 8)] {
        let queue = WorkQueue::builder().shards(shards).build();
        queue.add_all(0..101_u64);
        let (handed_out, rounds, low_left) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let (added, waits) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for getter in 0..getters {
                let (queue, handed_out, rounds, low_left, added, waits) =
                    (&queue, &handed_out, &rounds, &low_left, &added, &waits);
                scope.spawn(move || {
                    while rounds.load(Relaxed) < ROUNDS {
                        let item = queue.get().unwrap();
                        let count = handed_out.fetch_add(1, Relaxed) + 1;
                        let key = *item;
                        if item.priority() == Priority::NORMAL {
                            if getter == 1 && count % 64 == 0 {
                                thread::sleep(asleep); // it holds no turn up
                            }
                            item.done();
                            queue.add(key);
                        } else if low_left.fetch_sub(1, Relaxed) == 1 {
                            waits.lock().unwrap().push(count.saturating_sub(added.load(Relaxed)));
                            rounds.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            for round in 1.. {
                if rounds.load(Relaxed) >= ROUNDS {
                    break;
                }
                low_left.store(3, Relaxed);
                (0..3)
                    .for_each(|key| _ = queue.add_with(1000 * round + key, AddOptions::new().priority(Priority::LOW)));
                added.store(handed_out.load(Relaxed), Relaxed);
                while rounds.load(Relaxed) < round as usize {
                    thread::yield_now();
                }
            }
        });
        let mut waits = waits.into_inner().unwrap();
        waits.sort_unstable();
        println!("{shards} shards, {getters} getters: {waits:?}");
        let bound = 64 + 4 * (shards + getters);
        assert!(waits[ROUNDS * 3 / 4] <= bound, "{shards} shards, {getters} getters: {waits:?}, not {bound}");
    }
}

/// The first priority of a queue with many keys: they keep their order, and others are not kept waiting for long.
#[test]
fn a_million_keys_move_when_the_first_priority_comes() {
    let queue = WorkQueue::new();
    queue.add_all(0..1_000_000_u32);
    queue.add_with(500_000, at(1));
    assert_eq!(*queue.get().unwrap(), 500_000);
    let rest = queue.get_many(usize::MAX);
    assert!(rest.iter().map(|item| **item).eq((0..1_000_000).filter(|key| *key != 500_000)));
}

/// A key that is raised in one of many shards comes next, as soon as the getter looks for another shard.
#[test]
fn a_raised_key_is_found_in_any_shard() {
    let queue = WorkQueue::builder().shards(64).strict_priorities(true).build();
    (0..20_000_u32).for_each(|key| _ = queue.add_with(key, at(if key % 2 == 0 { 0 } else { -1 })));
    for key in (19_001..19_500).step_by(20) {
        assert_eq!(queue.add_with(key, at(5)), Added::Coalesced);
        let before = (0..).take_while(|_| *queue.try_get().unwrap() != key).count();
        assert!(before < 8, "{before} keys came before");
    }
}

/// Where keys come fast, one add in eight is measured; not in a queue with priorities, where a rare key would get the wait of another one.
#[test]
fn each_wait_of_a_rare_priority_is_measured() {
    for is_fair in [false, true] {
        let builder = WorkQueue::builder().measure(true);
        let queue = if is_fair { builder.fair_by(|key: &u32| key % 3) } else { builder }.build();
        let get = || queue.get().unwrap().done();
        let fast = |keys: u32| {
            for key in 0..keys {
                queue.add(key);
                get();
            }
        };
        fast(1000);
        queue.add(7);
        queue.add_with(7, at(100)); // raised
        get();
        let wait = Duration::from_millis(2);
        for n in 0..10 {
            fast(1000 + n);
            queue.add_with(1_000_000, at(100));
            thread::sleep(wait);
            get();
        }
        let metrics = queue.inspect().metrics();
        let high = &metrics.levels[0].queue_duration;
        assert!((10..=11).contains(&high.count()) && high.sum() >= 10 * wait, "{metrics:?}");
        assert_eq!(metrics.queue_duration.count(), metrics.stats.handed_out, "{metrics:?}");
    }
}
