//! Delayed keys: threads that set delays, the clock, and the thread that expires them race for the wheel: P8 to P10, P12, I8, I9.
//!
//! There are two clocks. [`Clock::mock`] decides exactly which delays have expired, but its `advance` wakes every driver,
//! whatever the driver waits for. Whether a *delay* wakes the driver shows with the real clock: an [`HOUR`] never expires, and
//! [`SOON`] has expired when the clock is read next.

use keyqueue::{AddOptions, Added, Clock, DelayConflict, DelayedAdd, MockClock, TryGetError, WorkQueue};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{check, check_with, manual, ns, pairs, rest, with};
use std::hash::Hash;
use std::time::Duration;

/// A delay that never expires in a model.
const HOUR: Duration = Duration::from_secs(3600);
/// A delay that has expired when the clock is read next.
const SOON: Duration = ns(1);
/// Keys that take two batches to expire (see `BATCH` in the crate).
const BATCHES: [u64; 3] = [1, 2, 3];

/// A queue without a driver, which expires delays when a thread calls `turn`; and its clock.
fn by_hand<K: Hash + Eq + Clone + Send + Sync + 'static>(policy: DelayedAdd) -> (WorkQueue<K>, MockClock) {
    let (queue, time) = manual();
    (queue.delayed_add(policy).build(), time)
}

/// A queue as `by_hand` makes it, with delayed keys that the next `turn` queues. All are in one slot of the wheel's second level.
fn due<const N: usize>(policy: DelayedAdd, keys: [u64; N]) -> (WorkQueue<u64>, MockClock) {
    let (queue, time) = by_hand(policy);
    for key in keys {
        assert_eq!(queue.add_after(key, ns(100)), Added::Delayed);
    }
    time.advance(ns(100));
    (queue, time)
}

/// A queue with a driver thread, and its mock clock. The model must shut it down, because the driver does not end otherwise.
fn by_thread() -> (WorkQueue<u64>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).build(), time)
}

/// A queue with a driver thread and the real clock. The model must shut it down.
///
/// It has had a key, and its table does not grow: a new hint to the buckets (`Shared::buckets`) would be one more relaxed value,
/// and loom tries every value that a relaxed load may return.
fn real() -> WorkQueue<u64> {
    let queue = WorkQueue::builder().capacity(8).build();
    queue.add(0);
    queue.get().unwrap().done();
    queue
}

/// The driver parks for a long time, or is about to, and a thread sets a delay that expires earlier (I8).
#[test]
fn earlier_delay_rearms_driver() {
    check(|| {
        let queue = real();
        queue.add_after(1, HOUR);
        let other = with(&queue, |queue| queue.add_after(2, SOON));
        assert_eq!(queue.get().as_deref(), Some(&2));
        assert_eq!(other.join().unwrap(), Added::Delayed);
        assert_eq!(queue.delayed_len(), 1);
        queue.shut_down();
    });
}

/// Two threads set an earlier delay at the same time (I8). One wake-up suffices if the driver looks at the wheel again before it parks.
#[test]
fn two_earlier_delays_both_expire() {
    check(|| {
        let queue = real();
        queue.add_after(1, HOUR);
        let other = with(&queue, |queue| queue.add_after(2, SOON));
        queue.add_after(3, SOON);
        let mut keys = [queue.get(), queue.get()].map(|item| *item.unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [2, 3]);
        other.join().unwrap();
        queue.shut_down();
    });
}

/// The delay for which the driver is parked is moved to an earlier time (I8).
#[test]
fn moved_delay_rearms_driver() {
    check(|| {
        let queue = real();
        queue.add_after(1, HOUR);
        let other = with(&queue, |queue| queue.add_after(1, SOON));
        assert_eq!(queue.get().as_deref(), Some(&1));
        assert_eq!(other.join().unwrap(), Added::Delayed);
        assert_eq!(queue.delayed_len(), 0);
        queue.shut_down();
    });
}

/// The mock clock advances in two steps while the driver starts, looks at the wheel, and parks.
#[test]
fn clock_wakes_driver() {
    check(|| {
        let (queue, time) = by_thread();
        queue.add_after(1, ns(10));
        let other = thread::spawn(move || {
            time.advance(ns(9));
            time.advance(ns(1));
        });
        assert_eq!(queue.get().as_deref(), Some(&1));
        other.join().unwrap();
        queue.shut_down();
    });
}

/// One mock clock wakes the drivers of two queues.
#[test]
fn clock_wakes_all_drivers() {
    // With a third preemption the model takes six seconds.
    let few = |limits: &mut Builder| limits.preemption_bound = limits.preemption_bound.min(Some(2));
    check_with(few, || {
        let (clock, time) = Clock::mock();
        let queues = [(); 2].map(|()| WorkQueue::builder().clock(clock.clone()).build());
        for queue in &queues {
            queue.add_after(1_u64, ns(1));
        }
        time.advance(ns(1));
        for queue in queues {
            assert_eq!(queue.get().as_deref(), Some(&1));
            queue.shut_down();
        }
    });
}

/// Two threads set the first delay: one driver thread starts (a fourth thread would exceed loom's limit), and expires both.
#[test]
fn first_delay_starts_driver() {
    let no_more = |limits: &mut Builder| limits.max_threads = 3;
    check_with(no_more, || {
        let queue = real();
        let other = with(&queue, |queue| queue.add_after(1, SOON));
        queue.add_after(2, SOON);
        let mut keys = [queue.get(), queue.get()].map(|item| *item.unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
        other.join().unwrap();
        queue.shut_down();
    });
}

/// The first delay may come from `requeue_after`, of a key that is processing.
#[test]
fn requeue_after_starts_driver() {
    check(|| {
        let queue = real();
        queue.add(1);
        let item = queue.get().unwrap().into_owned();
        let other = thread::spawn(move || item.requeue_after(SOON));
        assert_eq!(queue.get().as_deref(), Some(&1));
        assert_eq!(other.join().unwrap(), Added::Delayed);
        queue.shut_down();
    });
}

/// A delay that has expired is moved while another thread calls `turn`: the key is queued at the old time or at the new one,
/// never at both or neither.
#[test]
fn stale_delay_is_ignored() {
    check(|| {
        let (queue, time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        let moved = queue.add_with(3, AddOptions::new().after(ns(10)).conflict(DelayConflict::Replace));
        assert_eq!(moved, Added::Delayed, "the delay is moved, or set again");
        let fired = turner.join().unwrap();
        assert_eq!(rest(&queue), &BATCHES[..fired]);
        time.advance(ns(9));
        assert_eq!(queue.turn(), 0, "the delay of 10 ns has not expired");
        time.advance(ns(1));
        assert_eq!(queue.turn(), 1);
        assert_eq!(rest(&queue), [3]);
        let stats = queue.stats();
        assert_eq!((stats.delays, stats.expired, stats.delayed), (4, fired as u64 + 1, 0));
    });
}

/// A shut-down while the driver starts, looks at the wheel, or parks: the driver ends, the getter returns, and the delay is kept (P12).
#[test]
fn shutdown_with_parked_driver() {
    check(|| {
        let (queue, _time) = by_thread();
        queue.add_after(1, ns(10));
        let getter = with(&queue, |queue| assert!(queue.get().is_none()));
        queue.shut_down();
        getter.join().unwrap();
        assert_eq!(queue.delayed_len(), 1);
        assert_eq!(pairs(queue.take_delayed()), [(1, ns(10))]);
        assert_eq!(queue.delayed_len(), 0);
    });
}

/// The first delay races the shut-down: it is rejected or kept, and no driver thread stays (P12).
#[test]
fn first_delay_races_shutdown() {
    check(|| {
        let (queue, time) = by_thread();
        let other = with(&queue, |queue| queue.add_after(1, ns(10)));
        queue.shut_down();
        let taken = pairs(queue.take_delayed());
        time.advance(ns(10));
        match other.join().unwrap() {
            Added::Delayed => assert_eq!(taken, [(1, ns(10))]),
            Added::Rejected => assert_eq!(taken, []),
            other => unreachable!("{other:?}"),
        }
        assert!(queue.get().is_none());
        assert_eq!(queue.delayed_len(), 0, "no delay is accepted after the shut-down");
    });
}

/// The same with the driver's batches (P12).
#[test]
fn shutdown_cuts_off_the_driver() {
    check(|| {
        let (queue, time) = by_thread();
        for key in BATCHES {
            queue.add_after(key, ns(10));
        }
        let other = thread::spawn(move || time.advance(ns(10)));
        queue.shut_down();
        let queued = std::iter::from_fn(|| queue.get()).count();
        assert_eq!(queue.delayed_len(), 3 - queued);
        other.join().unwrap();
        assert_eq!(queue.take_delayed().len(), 3 - queued);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown, "no key comes after `None`");
    });
}

/// `take_delayed` races a turn of two batches: each key is either taken or queued.
#[test]
fn take_delayed_races_expiry() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        let taken = pairs(queue.take_delayed());
        assert_eq!(queue.delayed_len(), 0);
        let fired = turner.join().unwrap();
        assert_eq!(fired + taken.len(), 3);
        let queued = rest(&queue);
        assert!(taken.iter().all(|(_, left)| left.is_zero()));
        let taken: Vec<_> = taken.into_iter().map(|(key, _)| key).collect();
        assert!(queued.is_sorted() && taken.is_sorted(), "not in order: {queued:?}, {taken:?}");
        let mut keys = [queued, taken].concat();
        keys.sort_unstable();
        assert_eq!(keys, BATCHES);
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.expired, queue.turn()), (0, fired as u64, 0));
    });
}

/// Two threads call `turn`: each key is queued once, and in the order of deadlines (P8).
#[test]
fn turn_races_turn() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        for (key, delay) in [(2_u64, 7), (3, 7), (1, 3), (4, 100)] {
            queue.add_after(key, ns(delay));
        }
        time.advance(ns(10));
        let turners = [(); 2].map(|()| with(&queue, WorkQueue::turn));
        let fired = turners.map(|turner| turner.join().unwrap());
        assert_eq!(fired[0] + fired[1], 3);
        assert_eq!(rest(&queue), BATCHES);
        let stats = queue.stats();
        assert_eq!((stats.expired, stats.delayed, stats.coalesced), (3, 1, 0));
    });
}

/// Two keys are due, one of them processing, and a task waits until that is dirty. A getter or the driver adds each: what the getter adds
/// wakes the task (W2), and what it leaves is the driver's (I8).
#[test]
fn a_getter_adds_due_keys_beside_the_driver() {
    fn model(due: [u64; 2]) {
        check(move || {
            let queue = real();
            queue.add(2);
            let item = queue.get().unwrap().into_owned();
            let holder = thread::spawn(move || {
                block_on(item.until_dirty());
                item.done();
            });
            due.into_iter().for_each(|key| _ = queue.add_after(key, SOON));
            let first = *queue.get().unwrap();
            holder.join().unwrap();
            assert_eq!([1, 2], if first == 1 { [1, *queue.get().unwrap()] } else { [*queue.get().unwrap(), 2] });
            assert_eq!((queue.stats().expired, queue.delayed_len()), (2, 0));
            queue.shut_down();
        });
    }
    model([1, 2]);
    model([2, 1]);
}

/// `requeue_after` races the shut-down: it is rejected, or the delay is kept by the time that adds are rejected (P12). In both cases the
/// key is done, as a drain shows.
#[test]
fn requeue_after_races_shutdown() {
    check(|| {
        let (queue, _time) = by_thread();
        queue.add(1);
        let item = queue.get().unwrap();
        let drainer = with(&queue, |queue| {
            queue.shut_down();
            let taken = pairs(queue.take_delayed());
            queue.shut_down_with_drain();
            assert_eq!(queue.processing_len(), 0);
            taken
        });
        let added = item.requeue_after(ns(10));
        let taken = drainer.join().unwrap();
        match added {
            Added::Delayed => assert_eq!(taken, [(1, ns(10))]),
            Added::Rejected => assert_eq!(taken, []),
            other => unreachable!("{other:?}"),
        }
        assert!(queue.get().is_none());
        assert_eq!(queue.delayed_len(), 0, "no delay is accepted after the shut-down");
    });
}

/// Writes before an `advance` are visible to a thread that finds a delay expired because of it.
#[test]
fn advance_publishes() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add_after(1_u64, ns(10));
        let data = Arc::new(AtomicUsize::new(0));
        // Orders nothing, but makes loom try the advance before the turn (see `is_dirty_publishes`).
        let hint = Arc::new(AtomicUsize::new(0));
        let other = thread::spawn({
            let (data, hint) = (Arc::clone(&data), Arc::clone(&hint));
            move || {
                data.store(1, Relaxed);
                time.advance(ns(10));
                hint.store(1, Relaxed);
            }
        });
        hint.load(Relaxed);
        if queue.turn() == 1 {
            assert_eq!(data.load(Relaxed), 1);
        }
        other.join().unwrap();
    });
}

/// A key that is held and delayed, and then only delayed, keeps its slot while other keys come and go beside it and `shrink_to_fit` frees
/// memory (S2, S3).
#[test]
fn delayed_key_keeps_its_slot() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add_all(["mine", "beside"].map(str::to_owned));
        let (mine, beside) = (queue.get().unwrap().into_owned(), queue.get().unwrap());
        queue.add_after("mine".to_owned(), ns(10));
        let holder = thread::spawn(move || {
            assert_eq!(*mine, "mine");
            mine.done();
        });
        let sweeper = with(&queue, |queue| {
            queue.shrink_to_fit();
            queue.add_after("late".to_owned(), ns(10));
        });
        beside.done();
        queue.add_all(["a", "b", "c"].map(str::to_owned));
        assert_eq!(rest(&queue), ["a", "b", "c"]);
        holder.join().unwrap();
        sweeper.join().unwrap();
        queue.shrink_to_fit();
        time.advance(ns(10));
        assert_eq!(queue.turn(), 2);
        assert_eq!(rest(&queue), ["mine", "late"]);
    });
}

/// `is_dirty` publishes the add even if another thread writes the state word between the add and the holder's read: a thread that
/// sets a delay of the key, or cancels one.
#[test]
fn is_dirty_publishes_past_a_delay() {
    fn model(policy: DelayedAdd, delayed: bool, other: fn(&WorkQueue<u64>)) {
        check(move || {
            let (queue, _time) = by_hand(policy);
            queue.add(1);
            let item = queue.get().unwrap();
            let cell = Arc::new(UnsafeCell::new(0));
            if delayed {
                queue.add_after(1, ns(5));
            }
            let adder = with(&queue, {
                let cell = Arc::clone(&cell);
                move |queue| {
                    // SAFETY: the holder reads the cell only after the add.
                    cell.with_mut(|cell| unsafe { *cell = 1 });
                    queue.add(1);
                }
            });
            let other = with(&queue, other);
            thread::yield_now();
            if item.is_dirty() {
                // SAFETY: the only write comes before the add.
                cell.with(|cell| assert_eq!(unsafe { *cell }, 1));
            }
            adder.join().unwrap();
            other.join().unwrap();
        });
    }
    model(DelayedAdd::Independent, false, |queue| assert_eq!(queue.add_after(1, ns(5)), Added::Delayed));
    model(DelayedAdd::Independent, true, |queue| assert!(queue.cancel(&1)));
}

/// W7: a parked getter expires delays, whether it parks before or after the delay is set, and before or after the delay expires.
#[test]
fn a_parked_getter_replaces_the_driver() {
    check(|| {
        keyqueue::refuse_threads(true);
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).build();
        let getter = with(&queue, |queue| *queue.get().unwrap());
        queue.add_after(1_u64, ns(5));
        time.advance(ns(5));
        assert_eq!(getter.join().unwrap(), 1);
        keyqueue::refuse_threads(false);
    });
}

/// `take_where` races gets and an expiry: each key is handed out or taken, never both.
#[test]
fn a_key_is_taken_or_handed_out() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add_all([1_u64, 2]);
        queue.add_after(3, ns(5));
        let taker = with(&queue, |queue| {
            let taken = queue.take_where(|key| *key != 2);
            taken.queued.into_iter().chain(taken.delayed.into_iter().map(|delayed| delayed.key)).collect::<Vec<_>>()
        });
        time.advance(ns(5));
        queue.turn();
        let got: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        let mut all = taker.join().unwrap();
        all.extend(got);
        all.extend(rest(&queue));
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}
