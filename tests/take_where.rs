//! `take_where`, and lists of delayed keys, with more keys than one step visits, and beside threads.
//!
//! What they take and list, and what is left after a panic, is compared with the plain queue of `reference/`.

mod support {
    pub(crate) mod manual;
}

use keyqueue::{AddOptions, DelayConflict, Priority, WorkQueue};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::manual::{manual, manual_queue, pairs};

const S: Duration = Duration::from_secs(1);

fn assert_adds_up(queue: &WorkQueue<u32>) {
    let stats = queue.stats();
    assert_eq!(stats.pushed + stats.deferred, stats.handed_out + stats.taken + stats.len as u64);
    assert_eq!(stats.depth(), stats.len as u64);
}

#[test]
fn matching_keys_are_taken_and_the_others_stay_in_order() {
    let (queue, time) = manual_queue();
    queue.add_all(0..1000);
    for n in 500..1500 {
        queue.add_after(n, S * (3000 - n));
    }
    time.advance(S);
    let taken = queue.take_where(|n| n % 3 == 0);
    assert!(taken.queued.iter().copied().eq((0..1000).filter(|n| n % 3 == 0)));
    let delayed = (500..1500).rev().filter(|n| n % 3 == 0).map(|n| (n, S * (2999 - n)));
    assert!(pairs(taken.delayed).into_iter().eq(delayed), "earliest first");
    assert_eq!(taken.processing, []);
    assert_adds_up(&queue);
    assert_eq!(queue.stats().taken, 334);
    assert!(queue.take_where(|n| n % 3 == 0).is_empty(), "taken once");

    time.advance(S * 3000);
    queue.turn();
    let rest = queue.get_many(usize::MAX);
    let want = (0..1000).chain((1000..1500).rev()).filter(|n| n % 3 != 0);
    assert!(rest.iter().map(|item| **item).eq(want));
}

thread_local! {
    /// The keys whose next clone, and whose next drop, panic.
    static CLONE_PANICS: Cell<Option<u32>> = const { Cell::new(None) };
    static DROP_PANICS: Cell<Option<u32>> = const { Cell::new(None) };
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if CLONE_PANICS.get() == Some(self.0) {
            CLONE_PANICS.set(None);
            resume_unwind(Box::new("a clone"));
        }
        Self(self.0)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if DROP_PANICS.get() == Some(self.0) {
            DROP_PANICS.set(None);
            resume_unwind(Box::new("a drop"));
        }
    }
}

/// In any step.
#[test]
fn a_panic_of_foreign_code_takes_nothing_or_loses_nothing() {
    let (queue, _) = manual_queue();
    queue.add_all((0..900).map(Fragile));
    (900..1400).for_each(|n| _ = queue.add_after(Fragile(n), S));
    for nth in [0, 450, 900, 1399] {
        let mut calls = 0;
        let predicate = |_: &Fragile| {
            calls += 1;
            if calls > nth { resume_unwind(Box::new("a predicate")) } else { true }
        };
        assert!(catch_unwind(AssertUnwindSafe(|| queue.take_where(predicate))).is_err());
        CLONE_PANICS.set(Some(nth));
        assert!(catch_unwind(AssertUnwindSafe(|| queue.take_where(|_| true))).is_err());
        CLONE_PANICS.set((nth >= 900).then_some(nth));
        let listed = catch_unwind(AssertUnwindSafe(|| queue.inspect().delayed_keys().len()));
        assert_eq!(listed.ok(), (nth < 900).then_some(500));
        let stats = queue.stats();
        assert_eq!((stats.len, stats.delayed, stats.delays, stats.taken), (900, 500, 500, 0), "{nth}");
    }
    // The queue's own keys are dropped when their clones are returned.
    let taken = queue.take_where(|key| {
        if key.0 == 1000 {
            DROP_PANICS.set(Some(500));
        }
        true
    });
    assert_eq!(DROP_PANICS.get(), None);
    assert_eq!((taken.queued.len(), taken.delayed.len(), queue.stats().caught_panics), (900, 500, 1));
    // The clone of a key that was handed out meanwhile is dropped.
    queue.add(Fragile(7));
    let mut held = None;
    let taken = queue.take_where(|_| {
        held = queue.try_get().ok();
        DROP_PANICS.set(Some(7));
        true
    });
    assert!(taken.is_empty() && held.is_some());
    assert_eq!((DROP_PANICS.get(), queue.stats().caught_panics), (None, 2));
}

/// The predicate gives the queue its first priority, while the keys that match are still being collected.
#[test]
fn keys_that_move_meanwhile_are_taken_out() {
    for after in [0, 600] {
        let queue = WorkQueue::new();
        queue.add_all(0..1000_u32);
        let taken = queue.take_where(|key| {
            if *key == after {
                queue.add_with(5000, AddOptions::new().priority(Priority::HIGH));
            }
            *key < 900
        });
        assert!(taken.queued.iter().copied().eq(0..900), "after {after}: {} keys", taken.queued.len());
        let left: Vec<u32> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        assert!(left.iter().copied().eq([5000].into_iter().chain(900..1000)));
    }
}

/// A key is done and added again while the call goes on, so that the call has seen it in two places. It is returned once.
#[test]
fn a_key_that_moves_meanwhile_is_one_key() {
    let queue = WorkQueue::new();
    queue.add(0);
    let mut item = queue.get();
    queue.add_all(1..1000_u32);
    let taken = queue.take_where(|key| {
        if *key == 500 {
            item.take();
            queue.add_all([1000, 0]); // 1000 comes into the place of 0
        }
        *key == 0
    });
    assert_eq!((&taken.queued, &taken.processing), (&vec![0], &vec![0]));
    assert!(taken.keys().eq([&0]) && taken.into_keys().eq([0]));
}

/// Of several shards as of one: by priority and then by age. In a list of one priority fewer than 64 keys of each other shard come before an
/// older key (P18), as in what a stop returns.
#[test]
fn keys_of_several_shards_are_returned_by_priority_and_then_by_age() {
    const KEYS: u32 = if cfg!(miri) { 500 } else { 50_000 };
    let levels = [Priority::LOW, Priority::NORMAL, Priority::HIGH];
    for shards in [1, 4, 16, 64] {
        for (with_levels, with_groups) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = format!("{shards} shards, levels: {with_levels}, groups: {with_groups}");
            let level_of = |key: u32| if with_levels { levels[key as usize % 3] } else { Priority::NORMAL };
            let filled = || {
                let builder = WorkQueue::builder().shards(shards);
                let queue = if with_groups { builder.fair_by(|key: &u32| key % 7) } else { builder }.build();
                // Keys behind which the lines of the shards do not begin anew, and that are gone.
                (KEYS..KEYS + 1000).for_each(|key| _ = queue.add(key));
                drop(queue.get_many(usize::MAX));
                (0..KEYS).for_each(|key| _ = queue.add_with(key, AddOptions::new().priority(level_of(key))));
                queue
            };
            let check = |call: &str, taken: &[u32]| {
                let all: BTreeMap<u32, ()> = taken.iter().map(|key| (*key, ())).collect();
                assert_eq!((taken.len(), all.len()), (KEYS as usize, KEYS as usize), "{case}, {call}");
                assert!(
                    taken.is_sorted_by_key(|key| std::cmp::Reverse(level_of(*key).0)),
                    "{case}, {call}: priorities"
                );
                let mut worst = 0;
                for level in taken.chunk_by(|one, next| level_of(*one) == level_of(*next)) {
                    let mut sorted = level.to_vec();
                    sorted.sort_unstable();
                    let (mut lowest, mut is_taken) = (0, vec![false; level.len()]);
                    for (count, key) in level.iter().enumerate() {
                        is_taken[sorted.binary_search(key).unwrap()] = true;
                        while is_taken.get(lowest) == Some(&true) {
                            lowest += 1;
                        }
                        worst = worst.max(count + 1 - lowest);
                    }
                }
                println!("{case}, {call}: a key is behind {worst} younger ones");
                assert!(worst <= (shards - 1) * 64, "{case}, {call}: a key is behind {worst} younger ones");
            };
            check("take_where", &filled().take_where(|_| true).queued);
            if !with_groups {
                let workers = filled().workers().build();
                check("stop", &workers.stop().queued);
            }
        }
    }
}

// ---- lists ----

#[test]
fn delays_of_all_shards_are_listed_earliest_first_and_none_is_taken() {
    const DELAYED: u32 = if cfg!(miri) { 300 } else { 3000 };
    for shards in [1, 4, 16] {
        let (builder, time) = manual(WorkQueue::builder().shards(shards));
        let queue = builder.build();
        assert_eq!(queue.inspect().delayed_keys(), []);
        for n in 0..DELAYED {
            queue.add_after(n, S * (5000 - n));
        }
        queue.add_all(3000..3000 + DELAYED / 3);
        time.advance(S * 10);
        let expected: Vec<_> = (0..DELAYED).rev().map(|n| (n, S * (4990 - n))).collect();
        for _ in 0..2 {
            assert_eq!(pairs(queue.inspect().delayed_keys()), expected, "{shards} shards");
        }
        assert_eq!((queue.len(), queue.delayed_len()), (DELAYED as usize / 3, DELAYED as usize));
        let taken = pairs(queue.take_delayed());
        assert_eq!(taken, expected, "the same as it lists");
        assert_eq!(queue.inspect().delayed_keys(), []);
    }
}

/// Keys that are delayed all the time are each listed once, though their deadlines move, while other keys come and go in the slots
/// around them.
#[test]
fn a_key_that_stays_delayed_is_listed_once() {
    const STAY: u32 = if cfg!(miri) { 200 } else { 2000 };
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

/// P18, with groups: keys that expire together have the time of their expiry.
#[test]
fn keys_that_expire_together_are_as_old_as_their_expiry() {
    for n in [1, 2, 40, 100, 200, 1000, 3000_u32] {
        let (builder, time) = manual(WorkQueue::builder());
        let queue = builder.shards(2).seed(1).fair_by(|key: &u32| key % 8).build();
        let shard = |key: &u32| queue.shard_index(key);
        let delayed: Vec<u32> = (0..).filter(|key| shard(key) == 0).take(n as usize).collect();
        let now = (0..).find(|key| shard(key) == 1).unwrap();
        delayed.iter().for_each(|key| _ = queue.add_after(*key, Duration::from_secs(1)));
        queue.add(now);
        time.advance(Duration::from_secs(1));
        queue.turn();
        let taken = queue.take_where(|_| true).queued;
        let place = taken.iter().position(|key| *key == now).unwrap();
        assert!(place <= 64, "{place} of {n} younger keys come first");
    }
}
