//! `delayed_keys` lists the keys with a delay, and changes nothing.
//!
//! Checks: the list of several shards, earliest first; foreign code may panic; a key that keeps its delay is listed once while other
//! threads set, move, cancel and expire delays. (What is listed, with which time and priority, is compared with the plain queue of
//! `reference/`.)

use keyqueue::{AddOptions, Clock, DelayConflict, DelayedKey, Driver, MockClock, WorkQueue};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

const S: Duration = Duration::from_secs(1);

/// A queue with a manual driver, and its mock clock.
fn manual_queue(shards: usize) -> (WorkQueue<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().shards(shards).clock(clock).driver(Driver::Manual).build(), time)
}

fn keys_and_times<K>(listed: Vec<DelayedKey<K>>) -> Vec<(K, Duration)> {
    listed.into_iter().map(|listed| (listed.key, listed.left)).collect()
}

#[test]
fn delays_of_all_shards_are_listed_earliest_first_and_none_is_taken() {
    for shards in [1, 4, 16] {
        let (queue, time) = manual_queue(shards);
        assert_eq!(queue.inspect().delayed_keys(), []);
        for n in 0..3000_u32 {
            queue.add_after(n, S * (5000 - n));
        }
        queue.add_all(3000..4000);
        time.advance(S * 10);
        let expected: Vec<_> = (0..3000).rev().map(|n| (n, S * (4990 - n))).collect();
        for _ in 0..2 {
            assert_eq!(keys_and_times(queue.inspect().delayed_keys()), expected, "{shards} shards");
        }
        assert_eq!((queue.len(), queue.delayed_len()), (1000, 3000));
        let taken = pairs(queue.take_delayed());
        assert_eq!(taken, expected, "the same as it lists");
        assert_eq!(queue.inspect().delayed_keys(), []);
    }
}

/// A clone panics: the call has no effect, and the lock is free.
#[test]
fn a_clone_that_panics_changes_nothing() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    #[derive(Debug, PartialEq, Eq, Hash)]
    struct Fragile(u32);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            if self.0 == 300 && PANICS.load(Ordering::SeqCst) {
                resume_unwind(Box::new("a clone"));
            }
            Self(self.0)
        }
    }
    let queue = WorkQueue::builder().driver(Driver::Manual).build();
    (0..500).for_each(|n| _ = queue.add_after(Fragile(n), S * 3600));
    PANICS.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.inspect().delayed_keys())).is_err());
    queue.add(Fragile(300)); // so that `take_delayed` clones it
    assert!(catch_unwind(AssertUnwindSafe(|| queue.take_delayed())).is_err());
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.delays), (500, 500), "no caller has set the delays that are set again");
    PANICS.store(false, Ordering::SeqCst);
    assert_eq!(queue.inspect().delayed_keys().len(), 500);
    assert_eq!(queue.take_delayed().len(), 500);
}

/// Keys that are delayed all the time are each listed once, though their deadlines move, while other keys come and go in the slots
/// around them.
#[test]
fn a_key_that_stays_delayed_is_listed_once() {
    const STAY: u32 = 2000;
    for shards in [1, 4] {
        let queue: WorkQueue<u32> = WorkQueue::builder().shards(shards).build();
        for n in 0..STAY {
            queue.add_after(2 * n, S * 1000);
            queue.add_after(2 * n + 1, S * 1000);
        }
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let later = |seconds| AddOptions::new().after(S * seconds).conflict(DelayConflict::Replace);
                for round in 0_u32.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let n = round.wrapping_mul(7919) % STAY;
                    queue.add_with(2 * n, later(1000 + round % 100));
                    // Odd keys expire at once, are handed out, or are cancelled, and come back.
                    if round % 2 == 0 {
                        queue.add_with(2 * n + 1, later(0));
                        drop(queue.try_get());
                    } else {
                        queue.cancel(&(2 * n + 1));
                    }
                    queue.add_after(2 * ((n + 5) % STAY) + 1, S * 1000);
                }
            });
            let rounds = if cfg!(miri) { 2 } else { 100 };
            // Asserted when the other thread has ended.
            let wrong = (0..rounds).find_map(|_| {
                let mut times = BTreeMap::new();
                for listed in queue.inspect().delayed_keys() {
                    *times.entry(listed.key).or_insert(0) += 1;
                    if listed.left <= S * 900 || listed.left > S * 1100 {
                        return Some((listed.key, listed.left));
                    }
                }
                let wrong = (0..STAY).map(|n| 2 * n).find(|key| times.get(key) != Some(&1))?;
                Some((wrong, Duration::ZERO))
            });
            over.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None, "{shards} shards");
        });
    }
}
