//! `take_where` takes queued and delayed keys out of the queue by a predicate.
//!
//! Checks: what is taken, in which order, and that it is taken once; keys that are processing stay; all counts add up; drains
//! and idle waits are woken; foreign code may panic or use the queue; threads that get, add and take at the same time lose no
//! key.

use keyqueue::{AddOptions, Added, Clock, DelayedKey, Driver, WorkQueue};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

const S: Duration = Duration::from_secs(1);

/// A queue with a manual driver, and its mock clock.
fn manual_queue() -> (WorkQueue<u32>, keyqueue::MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).build(), time)
}

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

#[test]
fn a_taken_key_can_be_added_again_and_goes_to_the_back() {
    let (queue, _) = manual_queue();
    queue.add_all([1, 2, 3]);
    assert_eq!(queue.take_where(|n| *n == 1).queued, [1]);
    assert_eq!(queue.add(1), Added::Queued);
    assert!(queue.get_many(9).iter().map(|item| **item).eq([2, 3, 1]));
}

#[test]
fn failures_stay_counted() {
    let (queue, _) = manual_queue();
    queue.add_rate_limited(1);
    queue.add(1);
    let taken = queue.take_where(|_| true);
    assert_eq!((taken.queued.len(), taken.delayed.len()), (1, 1));
    assert_eq!(queue.num_requeues(&1), 1);
    queue.forget(&1);
    assert_eq!(queue.stats().failing, 0);
    assert_eq!(queue.add_with(1, AddOptions::new().rate_limited()), Added::Delayed);
}

/// The wait of a taken key does not count for the next add of that key.
#[test]
fn a_wait_that_ended_without_a_hand_out_is_not_measured() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).measure(true).build();
    queue.add_rate_limited(1); // so that the key keeps its slot
    queue.add(1);
    time.advance(S);
    assert_eq!(queue.take_where(|_| true).queued, [1]);
    assert_eq!(queue.stats().oldest_queued, None);
    queue.add(1);
    time.advance(2 * S);
    assert_eq!(queue.stats().oldest_queued, Some(2 * S));
    assert_eq!(queue.get().unwrap().waited(), Some(2 * S));
}

#[test]
fn taking_the_last_keys_wakes_idle_waits_and_drains() {
    let (queue, _) = manual_queue();
    queue.add_all(0..600);
    queue.add_after(1000, S);
    thread::scope(|scope| {
        let idle = scope.spawn(|| queue.wait_idle());
        while queue.stats().drainers == 0 {
            thread::yield_now();
        }
        assert_eq!(queue.take_where(|n| *n < 600).queued.len(), 600);
        assert!(!idle.is_finished() || queue.delayed_len() == 0);
        assert_eq!(queue.take_where(|_| true).delayed.len(), 1);
        idle.join().unwrap();
    });
    queue.add(1);
    thread::scope(|scope| {
        let drain = scope.spawn(|| queue.shut_down_with_drain());
        while queue.stats().drainers == 0 {
            thread::yield_now();
        }
        assert_eq!(queue.take_where(|_| true).queued, [1]);
        drain.join().unwrap();
    });
}

/// Keys whose clones, and whose drops, panic while the flags are set.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fragile(u32);

static CLONES_PANIC: AtomicBool = AtomicBool::new(false);
static DROPS_PANIC: AtomicBool = AtomicBool::new(false);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.0 == 700 && CLONES_PANIC.load(Ordering::SeqCst) {
            resume_unwind(Box::new("a clone"));
        }
        Self(self.0)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.0 == 500 && DROPS_PANIC.swap(false, Ordering::SeqCst) {
            resume_unwind(Box::new("a drop"));
        }
    }
}

#[test]
fn a_panic_of_foreign_code_takes_nothing_or_loses_nothing() {
    let queue = WorkQueue::builder().driver(Driver::Manual).build();
    queue.add_all((0..900).map(Fragile));
    queue.add_after(Fragile(1000), S);
    for nth in [0, 450, 900] {
        let mut calls = 0;
        let predicate = |_: &Fragile| {
            calls += 1;
            if calls > nth { resume_unwind(Box::new("a predicate")) } else { true }
        };
        assert!(catch_unwind(AssertUnwindSafe(|| queue.take_where(predicate))).is_err());
        assert_eq!((queue.len(), queue.delayed_len()), (900, 1));
    }
    CLONES_PANIC.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.take_where(|_| true))).is_err());
    CLONES_PANIC.store(false, Ordering::SeqCst);
    assert_eq!((queue.len(), queue.delayed_len(), queue.stats().taken), (900, 1, 0));

    // The queue's own keys are dropped when their clones are returned.
    let armed = AtomicBool::new(false);
    let taken = queue.take_where(|key| {
        if key.0 == 1000 {
            armed.store(true, Ordering::SeqCst);
            DROPS_PANIC.store(true, Ordering::SeqCst);
        }
        true
    });
    assert!(armed.load(Ordering::SeqCst));
    assert_eq!((taken.queued.len(), taken.delayed.len(), queue.stats().caught_panics), (900, 1, 1));
}

/// The keys that are out of the queue must reach the caller, so the panic is caught; and counted, as all that are.
#[test]
fn a_delay_stays_if_eq_panics() {
    static EQ_PANICS: AtomicBool = AtomicBool::new(false);
    #[derive(Debug, Clone, Eq)]
    struct Key(u32);
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            if self.0 == 1 && EQ_PANICS.swap(false, Ordering::SeqCst) {
                resume_unwind(Box::new("an eq"));
            }
            self.0 == other.0
        }
    }
    let queue = WorkQueue::builder().driver(Driver::Manual).build();
    (0..3).for_each(|n| _ = queue.add_after(Key(n), S));
    EQ_PANICS.store(true, Ordering::SeqCst);
    assert_eq!(queue.take_where(|_| true).delayed.len(), 2);
    assert_eq!((queue.delayed_len(), queue.stats().caught_panics), (1, 1));
    assert_eq!(queue.take_where(|_| true).delayed[0].key, Key(1));
}

#[test]
fn the_predicate_may_use_the_queue() {
    let (queue, _) = manual_queue();
    queue.add_all(0..300);
    let taken = queue.take_where(|n| {
        queue.add(n + 1000);
        queue.try_get().map(|item| item.done()).is_ok() && n % 2 == 1
    });
    assert!(taken.queued.iter().all(|n| n % 2 == 1 || *n >= 1000));
    assert_adds_up(&queue);
}

/// Threads add, get and take at the same time: each key is handed out or taken, once for each time it was queued.
#[test]
fn each_key_goes_to_one_getter_or_to_the_taker() {
    const KEYS: u32 = 20_000;
    let queue = WorkQueue::new();
    let start = Barrier::new(4);
    let mut all = thread::scope(|scope| {
        let getters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    std::iter::from_fn(|| queue.get().map(|item| *item)).collect::<Vec<_>>()
                })
            })
            .collect();
        let taker = scope.spawn(|| {
            start.wait();
            let mut taken = Vec::new();
            while !queue.shutting_down() {
                taken.extend(queue.take_where(|n| n % 2 == 0).queued);
            }
            taken
        });
        start.wait();
        (0..KEYS).for_each(|n| assert_eq!(queue.add(n), Added::Queued));
        queue.shut_down();
        getters.into_iter().chain([taker]).flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_adds_up(&queue);
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..KEYS), "{} of {KEYS}", all.iter().collect::<BTreeSet<_>>().len());
}
