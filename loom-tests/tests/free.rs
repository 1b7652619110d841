//! The lock-free engine: its own steps. The models of the other files run on it, too: see `ci/lock-free.sh`. Loom does not see into the map and the
//! segment queue, which plain ones replace here.

use keyqueue::observe::{Metrics, Observer};
use keyqueue::{Added, Clock, Driver, WorkQueue};
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom_tests::{check, ns, with};
use std::time::Duration;

fn lock_free() -> WorkQueue<u64> {
    WorkQueue::builder().lock_free().driver(Driver::Manual).build()
}

/// A queue with two lines, and a key of each: in a model a key's line is its shard in the other engine.
fn two_lines() -> (WorkQueue<u64>, [u64; 2]) {
    let builder = || WorkQueue::builder().shards(2).seed(1).driver(Driver::Manual);
    let other = builder().build();
    let keys = [0, 1].map(|line| (1..).find(|key| other.shard_index(key) == line).expect("each line has keys"));
    (builder().lock_free().build(), keys)
}

/// Takes all that is queued, one key at a time.
fn take_all(queue: &WorkQueue<u64>) -> usize {
    std::iter::from_fn(|| queue.try_get().ok().map(drop)).count()
}

/// An add meets the `done` of its key: the key is queued again, or the add is one of a new hand-out (P2, P3).
#[test]
fn add_meets_done() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let adder = with(&queue, |queue| queue.add(1));
        item.done();
        let added = adder.join().unwrap();
        assert!(matches!(added, Added::Deferred | Added::Queued), "{added:?}");
        assert_eq!(take_all(&queue), 1);
    });
}

/// An add meets the eviction of its vacated node (F11): it takes the node back, or makes a new one.
#[test]
fn add_meets_an_eviction() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        queue.try_get().unwrap().done(); // in the cache, which has one place here
        queue.add(2);
        let item = queue.try_get().unwrap();
        let adder = with(&queue, |queue| queue.add(1));
        item.done(); // takes the place
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!((take_all(&queue), queue.len()), (1, 0));
        assert_eq!((queue.add(1), queue.add(2), take_all(&queue)), (Added::Queued, Added::Queued, 2));
    });
}

/// Two adds of a new key, one of which inserts it: it is queued once (P1).
#[test]
fn two_adds_of_a_new_key() {
    check(|| {
        let queue = lock_free();
        let adder = with(&queue, |queue| queue.add(1));
        let added = [queue.add(1), adder.join().unwrap()];
        assert_eq!(added.iter().filter(|added| **added == Added::Queued).count(), 1, "{added:?}");
        assert_eq!((queue.len(), take_all(&queue)), (1, 1));
    });
}

/// A get meets a `remove` and an add after it: the entry of the first add is live or dead (F2), and the key is handed out once.
#[test]
fn get_meets_remove_and_add() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let other = with(&queue, |queue| (queue.remove(&1), queue.add(1)));
        let got = queue.try_get().map(drop).is_ok();
        let (removed, added) = other.join().unwrap();
        let left = take_all(&queue);
        let expected = match (removed, added) {
            (true, Added::Queued) => 1,
            (false, Added::Queued) => 2,   // it was handed out before
            (false, Added::Deferred) => 2, // it was held
            other => unreachable!("{other:?}"),
        };
        assert_eq!(usize::from(got) + left, expected);
        assert_eq!((queue.len(), queue.processing_len()), (0, 0));
    });
}

/// A push meets a getter that parks (F10).
#[test]
fn push_meets_a_getter_that_parks() {
    check(|| {
        let queue = lock_free();
        let getter = with(&queue, |queue| *queue.get().unwrap());
        queue.add(1);
        assert_eq!(getter.join().unwrap(), 1);
    });
}

/// The `done` of a dirty key meets a getter that parks.
#[test]
fn done_meets_a_getter_that_parks() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        queue.add(1);
        let getter = with(&queue, |queue| *queue.get().unwrap());
        item.done();
        assert_eq!(getter.join().unwrap(), 1);
    });
}

/// An add meets the shut-down and the getter that is told of it: the key is handed out, or refused (F9, P6).
#[test]
fn add_meets_the_shut_down() {
    check(|| {
        let queue = lock_free();
        let adder = with(&queue, |queue| queue.add(1));
        queue.shut_down();
        let got = std::iter::from_fn(|| queue.get().map(drop)).count();
        let added = adder.join().unwrap();
        assert_eq!(got, usize::from(added == Added::Queued), "{added:?}");
        assert_eq!(queue.len(), 0);
    });
}

/// Two adds of one key meet the end of the queue: no add is coalesced into one that is refused.
#[test]
fn two_adds_meet_the_shut_down() {
    check(|| {
        let queue = lock_free();
        let adder = with(&queue, |queue| queue.add(1));
        let other = with(&queue, |queue| queue.add(1));
        queue.shut_down();
        let got = std::iter::from_fn(|| queue.get().map(drop)).count();
        let added = [adder.join().unwrap(), other.join().unwrap()];
        let accepted = added.iter().filter(|added| added.is_accepted()).count();
        assert!(got <= accepted && (accepted == 0 || got > 0), "{got} of {added:?}");
    });
}

/// An add of a held key meets a drain and the `done`: after the drain the key is not queued.
#[test]
fn add_of_a_held_key_meets_a_drain() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let adder = with(&queue, |queue| queue.add(1));
        let drainer = with(&queue, |queue| {
            queue.shut_down_with_drain();
            (queue.len(), queue.processing_len())
        });
        item.done();
        let is_accepted = adder.join().unwrap().is_accepted();
        assert_eq!(queue.try_get().map(drop).is_ok(), is_accepted);
        assert_eq!(drainer.join().unwrap(), (0, 0));
    });
}

/// Two drains mark one key (F5), and its `done` wakes both.
#[test]
fn two_drains_meet_done() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let drainers = [(); 2].map(|()| with(&queue, |queue| queue.shut_down_with_drain()));
        item.done();
        drainers.into_iter().for_each(|drainer| drainer.join().unwrap());
    });
}

/// An idle wait beside a holder that adds another key before it is done: the wait sees the end of both.
#[test]
fn idle_wait_meets_a_chain() {
    check(|| {
        let queue = lock_free();
        let finished = Arc::new(AtomicUsize::new(0));
        queue.add(1);
        let worker = with(&queue, {
            let finished = Arc::clone(&finished);
            move |queue| {
                let first = queue.try_get().unwrap();
                queue.add(2);
                first.done();
                let second = queue.try_get().unwrap();
                finished.store(1, Relaxed);
                second.done();
            }
        });
        queue.wait_idle();
        assert_eq!(finished.load(Relaxed), 1, "idle between the two keys");
        worker.join().unwrap();
    });
}

/// An idle wait beside a holder that delays its key, and a `cancel`: the key is active, delayed, or gone.
#[test]
fn idle_wait_meets_a_delay() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let cancelled = Arc::new(AtomicUsize::new(0));
        let worker = with(&queue, {
            let cancelled = Arc::clone(&cancelled);
            move |queue| {
                queue.try_get().unwrap().requeue_after(ns(u64::MAX));
                cancelled.store(1, Relaxed);
                assert!(queue.cancel(&1));
            }
        });
        queue.wait_idle();
        assert_eq!(cancelled.load(Relaxed), 1, "idle while the key was delayed");
        worker.join().unwrap();
    });
}

/// A `succeed` reads that the records do not know the key, and a caller delays it meanwhile: the delay stays (P29).
#[test]
fn succeed_meets_a_delay() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let caller = with(&queue, |queue| queue.add_after(1, ns(10)));
        item.succeed();
        assert_eq!(caller.join().unwrap(), Added::Delayed);
        assert_eq!((queue.delayed_len(), queue.len(), queue.processing_len()), (1, 0, 0));
        assert_eq!((queue.take_delayed().len(), take_all(&queue)), (1, 0));
    });
}

/// A `done` meets the expiry of its key: the key is handed out again, once.
#[test]
fn done_meets_an_expiry() {
    check(|| {
        let (clock, time) = keyqueue::Clock::mock();
        let queue = WorkQueue::builder().lock_free().clock(clock).driver(Driver::Manual).build();
        queue.add(1);
        queue.add_after(1, ns(1));
        time.advance(ns(1));
        let item = queue.try_get().unwrap();
        let turn = with(&queue, |queue| queue.turn());
        item.done();
        assert_eq!(turn.join().unwrap(), 1);
        assert_eq!((take_all(&queue), queue.delayed_len()), (1, 0));
    });
}

/// An expiry that has found the queue open meets the shut-down and a worker that leaves when it is told that nothing is left: the key was
/// handed out by then, or its delay is cut off (F9, P12).
#[test]
fn an_expiry_meets_the_shut_down() {
    check(|| {
        let (clock, time) = keyqueue::Clock::mock();
        let queue = WorkQueue::builder().lock_free().clock(clock).driver(Driver::Manual).build();
        queue.add_after(1, ns(1));
        time.advance(ns(1));
        let turn = with(&queue, |queue| queue.turn());
        let shut_down = with(&queue, |queue| queue.shut_down());
        while queue.get().is_some() {}
        let expired = turn.join().unwrap();
        shut_down.join().unwrap();
        assert_eq!((queue.len(), queue.delayed_len()), (0, 1 - expired));
    });
}

/// A getter meets a sweep (F8): the key that is queued all the time is handed out, also while the sweep has it in its hand.
#[test]
fn a_getter_meets_a_sweep() {
    check(|| {
        let queue = lock_free();
        (1..=3).for_each(|key| _ = queue.add(key));
        let getter = with(&queue, |queue| queue.try_get().map(|item| *item));
        // Two dead entries are enough for a sweep here.
        assert!(queue.remove(&2) && queue.remove(&3));
        assert_eq!(getter.join().unwrap(), Ok(1));
        assert_eq!((queue.len(), take_all(&queue)), (0, 0));
    });
}

/// With two lines, two pushes meet a getter that parks and looks into one line after the other (F10).
#[test]
fn pushes_into_two_lines_meet_a_getter_that_parks() {
    check(|| {
        let (queue, keys) = two_lines();
        let getter = with(&queue, |queue| *queue.get().unwrap());
        let adder = with(&queue, move |queue| queue.add(keys[1]));
        queue.add(keys[0]);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert!(keys.contains(&getter.join().unwrap()));
        assert_eq!((queue.len(), take_all(&queue)), (1, 1));
    });
}

/// With two lines, two adds meet the shut-down and the getter that is told of it (F9, P6).
#[test]
fn adds_into_two_lines_meet_the_shut_down() {
    check(|| {
        let (queue, keys) = two_lines();
        let adder = with(&queue, move |queue| keys.map(|key| usize::from(queue.add(key) == Added::Queued)));
        queue.shut_down();
        let got = std::iter::from_fn(|| queue.get().map(drop)).count();
        let [first, second] = adder.join().unwrap();
        assert_eq!((got, queue.len()), (first + second, 0));
    });
}

/// With two lines, a getter meets a sweep of both (F8, F12): the key of each line that is left is handed out, though the getter looks for the
/// oldest line while they change.
#[test]
fn a_getter_meets_a_sweep_of_two_lines() {
    check(|| {
        let (queue, keys) = two_lines();
        (1..=4).chain(keys).for_each(|key| _ = queue.add(key));
        let left = keys[1];
        let getter = with(&queue, |queue| queue.try_get().map(|item| *item));
        let all: std::collections::BTreeSet<_> = (1..=4).chain(keys).collect();
        let removed = all.iter().filter(|key| **key != left && queue.remove(*key)).count();
        let got = getter.join().unwrap();
        let rest = take_all(&queue);
        assert!(got.is_ok() && (got == Ok(left)) == (rest == 0), "{got:?}, and {rest}");
        assert_eq!(removed + 1 + rest, all.len(), "{got:?}");
    });
}

/// A task that waits until its key is dirty meets the add.
#[test]
fn until_dirty_meets_an_add() {
    check(|| {
        let queue = lock_free();
        queue.add(1);
        let item = queue.try_get().unwrap();
        let adder = with(&queue, |queue| queue.add(1));
        loom::future::block_on(item.until_dirty());
        assert_eq!(adder.join().unwrap(), Added::Deferred);
        item.done();
    });
}

/// Counts the reports. Its interval is a nanosecond.
struct Reports(Arc<AtomicUsize>);

impl Observer for Reports {
    fn report(&self, _: &str, _: &Metrics) {
        self.0.fetch_add(1, Relaxed);
    }

    fn interval(&self) -> Option<Duration> {
        Some(ns(1))
    }
}

/// A report meets a hand-out, or the end of the hand-out of a dirty key, and finds the key in no count: the next report is scheduled all the
/// same (W6).
#[test]
fn a_report_meets_a_key_between_two_counts() {
    for ends in [false, true] {
        check(move || {
            let (clock, time) = Clock::mock();
            let reports = Arc::new(AtomicUsize::new(0));
            let queue = WorkQueue::builder().lock_free().driver(Driver::Manual).clock(clock);
            let queue = queue.observer(Reports(Arc::clone(&reports))).build();
            queue.add(1);
            let held = ends.then(|| queue.try_get_owned().unwrap());
            if ends {
                queue.add(1);
            }
            time.advance(ns(1));
            let other = with(&queue, move |queue| match held {
                Some(item) => {
                    item.done();
                    None
                }
                None => queue.try_get_owned().ok(),
            });
            queue.turn();
            let _held = other.join().unwrap();
            time.advance(ns(1));
            queue.turn();
            assert_eq!(reports.load(Relaxed), 2);
        });
    }
}
