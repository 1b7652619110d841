//! Keys that come later: the wheel between the threads that set delays, the clock and the one that delivers: P8 to P10, P12,
//! I8, I9.
//!
//! Two clocks. [`Clock::mock`] says exactly what is due, but its `advance` wakes every driver, whatever that waits for. Whether
//! the driver is woken for a *delay* is seen with the other one: an [`HOUR`] never ends, and what comes [`SOON`] is due at the
//! next look.
#![cfg(loom)]

use keyqueue::{AddOptions, Added, Clock, DelayConflict, DelayedAdd, Driver, MockClock, TryGetError, WorkQueue};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{Nosy, check, check_with, ns, rest, with};
use std::hash::Hash;
use std::task::{Context, Waker};
use std::time::Duration;

/// Never over: nobody is here in an hour.
const HOUR: Duration = Duration::from_secs(3600);
/// Over at the next look at the clock.
const SOON: Duration = ns(1);
/// Comes due in one batch too many for the driver (see `BATCH` in the crate).
const BATCHES: [u64; 3] = [1, 2, 3];

/// A queue that delivers when somebody turns, and its time.
fn by_hand<K: Hash + Eq + Clone + Send + Sync + 'static>(policy: DelayedAdd) -> (WorkQueue<K>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(policy).build(), time)
}

/// As before, with keys that are due now, and not delivered yet. All were in one slot of the wheel's second level.
fn due<const N: usize>(policy: DelayedAdd, keys: [u64; N]) -> (WorkQueue<u64>, MockClock) {
    let (queue, time) = by_hand(policy);
    for key in keys {
        assert_eq!(queue.add_after(key, ns(100)), Added::Delayed);
    }
    time.advance(ns(100));
    (queue, time)
}

/// A queue with a driver thread, and its time. To be shut down in the end, or the driver never ends.
fn by_thread() -> (WorkQueue<u64>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).build(), time)
}

/// A queue with a driver thread and the clock that passes. To be shut down in the end.
///
/// It has had a key, and does not grow: a new hint where its buckets are (`foresee` in the crate) would be one more relaxed
/// value, of which loom tries all.
fn real() -> WorkQueue<u64> {
    let queue = WorkQueue::builder().capacity(8).build();
    queue.add(0);
    queue.get().unwrap().done();
    queue
}

/// I8: the driver sleeps for long, or is about to, and a delay is set that ends sooner.
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

/// I8: two such delays at a time. One wake-up will do, if the driver looks again before it sleeps.
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

/// I8: a delay is moved to an earlier time, of the key for which the driver sleeps.
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

/// The time moves on, in two steps, while the driver starts, looks, and goes to sleep.
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

/// One clock, two drivers.
#[test]
fn clock_wakes_all_drivers() {
    // With a third one it takes six seconds.
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

/// Two threads set the first delay: one driver is started (loom has no room for a fourth thread), and delivers both.
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

/// The first delay may be that of a key in work.
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

/// A due key is moved while somebody turns: it comes at the old time or at the new one, not at both, not at neither.
#[test]
fn stale_delay_is_ignored() {
    check(|| {
        let (queue, time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        let moved = queue.add_with(3, AddOptions::new().after(ns(10)).conflict(DelayConflict::Replace));
        assert_eq!(moved, Added::Delayed, "moved, or set anew");
        let fired = turner.join().unwrap();
        assert_eq!(rest(&queue), &BATCHES[..fired]);
        time.advance(ns(9));
        assert_eq!(queue.turn(), 0, "too early");
        time.advance(ns(1));
        assert_eq!(queue.turn(), 1);
        assert_eq!(rest(&queue), [3]);
        let stats = queue.stats();
        assert_eq!((stats.delays, stats.expired, stats.delayed), (4, fired as u64 + 1, 0));
    });
}

/// P9: of two delays that are set at a time, the earlier one counts.
#[test]
fn earlier_of_two_wins() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        let other = with(&queue, |queue| queue.add_after(1_u64, ns(5)));
        let late = queue.add_after(1, ns(10));
        assert_eq!(other.join().unwrap(), Added::Delayed, "set, or moved");
        assert!(matches!(late, Added::Delayed | Added::Coalesced), "{late:?}");
        time.advance(ns(5));
        assert_eq!(queue.turn(), 1);
        time.advance(ns(5));
        assert_eq!(queue.turn(), 0);
        assert_eq!(queue.stats().delays, if late == Added::Delayed { 2 } else { 1 });
    });
}

/// Cancelled, and never delivered; or delivered by the time that `cancel` says no.
#[test]
fn cancel_races_expiry() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        let cancelled = queue.cancel(&3);
        if !cancelled {
            assert_eq!(queue.stats().expired, 3, "it is in line already");
        }
        let fired = turner.join().unwrap();
        assert_eq!(fired, if cancelled { 2 } else { 3 });
        assert_eq!(rest(&queue), &BATCHES[..fired]);
        assert_eq!((queue.delayed_len(), queue.turn()), (0, 0));
        assert_eq!(queue.add(3), Added::Queued);
    });
}

/// P12: a shut-down, while the driver starts, looks, or sleeps: the driver ends, the getter too, and the delay is still there.
#[test]
fn shutdown_with_parked_driver() {
    check(|| {
        let (queue, _time) = by_thread();
        queue.add_after(1, ns(10));
        let getter = with(&queue, |queue| assert!(queue.get().is_none()));
        queue.shut_down();
        getter.join().unwrap();
        assert_eq!(queue.delayed_len(), 1);
        assert_eq!(queue.take_delayed(), [(1, ns(10))]);
        assert_eq!(queue.delayed_len(), 0);
    });
}

/// P12: the first delay and the shut-down at a time: refused, or kept; and no driver stays.
#[test]
fn first_delay_races_shutdown() {
    check(|| {
        let (queue, time) = by_thread();
        let other = with(&queue, |queue| queue.add_after(1, ns(10)));
        queue.shut_down();
        let taken = queue.take_delayed();
        time.advance(ns(10));
        match other.join().unwrap() {
            Added::Delayed => assert_eq!(taken, [(1, ns(10))]),
            Added::Rejected => assert_eq!(taken, []),
            other => unreachable!("{other:?}"),
        }
        assert!(queue.get().is_none());
        assert_eq!(queue.delayed_len(), 0, "none comes after the shut-down");
    });
}

/// P12: a shut-down between two batches: what was delivered by then is handed out, the rest is kept.
#[test]
fn shutdown_cuts_off_a_turn() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        queue.shut_down();
        let delivered = std::iter::from_fn(|| queue.get()).count();
        assert_eq!(queue.delayed_len(), 3 - delivered);
        assert_eq!(turner.join().unwrap(), delivered);
        assert_eq!(queue.turn(), 0);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown, "who was told the end, can rely on it");
    });
}

/// As before, and the driver delivers.
#[test]
fn shutdown_cuts_off_the_driver() {
    check(|| {
        let (queue, time) = by_thread();
        for key in BATCHES {
            queue.add_after(key, ns(10));
        }
        let other = thread::spawn(move || time.advance(ns(10)));
        queue.shut_down();
        let delivered = std::iter::from_fn(|| queue.get()).count();
        assert_eq!(queue.delayed_len(), 3 - delivered);
        other.join().unwrap();
        assert_eq!(queue.take_delayed().len(), 3 - delivered);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown, "who was told the end, can rely on it");
    });
}

/// Each key is taken or delivered.
#[test]
fn take_delayed_races_expiry() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, BATCHES);
        let turner = with(&queue, WorkQueue::turn);
        let taken = queue.take_delayed();
        assert_eq!(queue.delayed_len(), 0);
        let fired = turner.join().unwrap();
        assert_eq!(fired + taken.len(), 3);
        let delivered = rest(&queue);
        assert!(taken.iter().all(|(_, left)| left.is_zero()));
        let taken: Vec<_> = taken.into_iter().map(|(key, _)| key).collect();
        assert!(delivered.is_sorted() && taken.is_sorted(), "in order: {delivered:?}, {taken:?}");
        let mut keys = [delivered, taken].concat();
        keys.sort_unstable();
        assert_eq!(keys, BATCHES);
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.expired, queue.turn()), (0, fired as u64, 0));
    });
}

/// Who cancels, who takes, who turns: one of them has the delay.
#[test]
fn one_caller_gets_the_delay() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, [1]);
        let turner = with(&queue, WorkQueue::turn);
        let taker = with(&queue, |queue| queue.take_delayed().len());
        let cancelled = usize::from(queue.cancel(&1));
        let fired = turner.join().unwrap();
        assert_eq!((fired + taker.join().unwrap() + cancelled, rest(&queue).len()), (1, fired));
        assert_eq!(queue.delayed_len(), 0);
    });
}

/// P1, P2, P3: the delay of a key that is in work ends about when the work does. It is handed out once more, after that, and what
/// the first holder did is there.
#[test]
fn expiry_races_get_and_done() {
    fn work(cell: &UnsafeCell<usize>) -> usize {
        cell.with_mut(|n| {
            // SAFETY: what is being checked: loom panics before this if two holders are here, or do not see each other's work.
            unsafe {
                *n += 1;
                *n
            }
        })
    }
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add(1_u64);
        let item = queue.get().unwrap();
        queue.add_after(1, ns(10));
        time.advance(ns(10));
        let cell = Arc::new(UnsafeCell::new(0));
        let turner = with(&queue, WorkQueue::turn);
        let next = with(&queue, {
            let cell = Arc::clone(&cell);
            move |queue| {
                let item = queue.get().unwrap();
                assert_eq!(work(&cell), 2);
                item.done();
            }
        });
        work(&cell);
        item.done();
        next.join().unwrap();
        assert_eq!(turner.join().unwrap(), 1);
        let stats = queue.stats();
        assert_eq!((stats.handed_out, stats.len, stats.processing, stats.delayed), (2, 0, 0, 0));
        assert_eq!((stats.queued + stats.deferred, stats.coalesced), (2, 0));
    });
}

/// An add of a key whose delay ends. It is handed out after the add, which is visible then; no hand-out is for nothing, and the
/// delay is used up.
fn add_races_expiry(policy: DelayedAdd) {
    check(move || {
        let (queue, _time) = due(policy, [1]);
        let data = Arc::new(AtomicUsize::new(0));
        let adder = with(&queue, {
            let data = Arc::clone(&data);
            move |queue| {
                data.store(1, Relaxed);
                queue.add(1)
            }
        });
        let fired = queue.turn();
        let item = queue.try_get().expect("delivered, or added");
        let seen = data.load(Relaxed);
        item.done();
        let added = adder.join().unwrap();
        let again = rest(&queue).len();
        assert!(seen == 1 || again == 1, "no hand-out sees the add: {added:?}");
        match added {
            Added::Coalesced => assert_eq!((fired, seen, again), (1, 1, 0)),
            Added::Deferred => assert_eq!((fired, again), (1, 1)),
            // Before the expiry, which finds the key in line, or no delay; or after `done`.
            Added::Queued if again == 0 => assert_eq!(fired, usize::from(policy == DelayedAdd::Independent)),
            Added::Queued => assert_eq!((fired, again), (1, 1)),
            other => unreachable!("{other:?}"),
        }
        if policy == DelayedAdd::Strict {
            assert!(added != Added::Queued || again == 1, "past the delay");
        }
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.expired), (0, fired as u64));
        assert_eq!(stats.queued + stats.deferred + stats.coalesced, stats.expired + 1);
        assert_eq!((stats.queued + stats.deferred, queue.turn()), (stats.handed_out, 0));
    });
}

#[test]
fn add_races_expiry_independent() {
    add_races_expiry(DelayedAdd::Independent);
}

#[test]
fn add_races_expiry_promote() {
    add_races_expiry(DelayedAdd::Promote);
}

#[test]
fn add_races_expiry_strict() {
    add_races_expiry(DelayedAdd::Strict);
}

/// An add that waits for a delay is let through by who ends the delay: time, or `cancel`.
#[test]
fn strict_add_is_never_lost() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Strict, [1]);
        let turner = with(&queue, WorkQueue::turn);
        let canceller = with(&queue, |queue| queue.cancel(&1));
        let added = queue.add(1);
        let fired = turner.join().unwrap();
        assert_eq!(canceller.join().unwrap(), fired == 0);
        assert!(matches!(added, Added::Queued | Added::Coalesced), "{added:?}");
        assert_eq!(rest(&queue), [1]);
        assert_eq!(queue.delayed_len(), 0);
    });
}

/// Who turns takes the place of who turned before: every key once, and the line is in the order of deadlines.
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

/// Somebody turns beside the driver.
#[test]
fn turn_races_the_driver() {
    check(|| {
        let (queue, time) = by_thread();
        for key in BATCHES {
            queue.add_after(key, ns(10));
        }
        time.advance(ns(10));
        let fired = queue.turn();
        assert!(fired <= 3);
        let keys = [(); 3].map(|()| *queue.get().unwrap());
        assert_eq!(keys, BATCHES);
        assert_eq!((queue.stats().expired, queue.delayed_len()), (3, 0));
        queue.shut_down();
    });
}

/// W2: a thread that sleeps, or is about to, gets the key that the driver delivers.
#[test]
fn delay_wakes_parked_getter() {
    check(|| {
        let (queue, time) = by_thread();
        queue.add_after(1, ns(10));
        let getter = with(&queue, |queue| *queue.get().unwrap());
        time.advance(ns(10));
        assert_eq!(getter.join().unwrap(), 1);
        queue.shut_down();
    });
}

/// W2: a task does.
#[test]
fn delay_wakes_a_task() {
    check(|| {
        let (queue, time) = by_thread();
        queue.add_after(1, ns(10));
        let task = with(&queue, |queue| *block_on(queue.get_async()).unwrap());
        time.advance(ns(10));
        assert_eq!(task.join().unwrap(), 1);
        queue.shut_down();
    });
}

/// W2: a batch of keys that come due wakes a thread and a task.
#[test]
fn a_batch_wakes_every_getter_needed() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, [1, 2]);
        let thread = with(&queue, |queue| *queue.get().unwrap());
        let task = with(&queue, |queue| *block_on(queue.get_async()).unwrap());
        assert_eq!(queue.turn(), 2);
        let mut keys = [thread.join().unwrap(), task.join().unwrap()];
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

/// W2: of a batch as of adds: a task that was woken and is not polled holds up nobody.
#[test]
fn an_unpolled_task_holds_up_no_batch() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, [1, 2]);
        let mut late = Box::pin(queue.get_async());
        assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let sleeper = with(&queue, |queue| *queue.get().unwrap());
        assert_eq!(queue.turn(), 2);
        assert!([1, 2].contains(&sleeper.join().unwrap()));
        drop(late);
    });
}

/// W2: a delay that ends before its time puts the key in line for a getter that sleeps: cancelled with an add that waits for
/// it, or replaced by none.
#[test]
fn ending_a_delay_wakes_a_getter() {
    fn ends(end: impl Fn(&WorkQueue<u64>) + Copy + Send + Sync + 'static) {
        check(move || {
            let (queue, _time) = due(DelayedAdd::Strict, [1]);
            assert_eq!(queue.add(1), Added::Coalesced, "it waits");
            let getter = with(&queue, |queue| *queue.get().unwrap());
            end(&queue);
            assert_eq!(getter.join().unwrap(), 1);
            assert_eq!((queue.len(), queue.delayed_len()), (0, 0));
        });
    }
    ends(|queue| assert!(queue.cancel(&1)));
    ends(|queue| assert_eq!(queue.add_with(1, AddOptions::new().conflict(DelayConflict::Replace)), Added::Queued));
}

/// P12: a key that its holder puts off meets the shut-down: refused, or kept as delayed by the time that adds are refused; done
/// in either case, as a drain shows.
#[test]
fn requeue_after_races_shutdown() {
    check(|| {
        let (queue, _time) = by_thread();
        queue.add(1);
        let item = queue.get().unwrap();
        let drainer = with(&queue, |queue| {
            queue.shut_down();
            let taken = queue.take_delayed();
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
        assert_eq!(queue.delayed_len(), 0, "none comes after the shut-down");
    });
}

/// P7: a drain ends with the work, it does not wait for delays. That of a key which is put off is set by then.
#[test]
fn drain_does_not_wait_for_delays() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add(1_u64);
        queue.add_after(2, ns(10));
        let item = queue.get().unwrap();
        let drainer = with(&queue, |queue| {
            queue.shut_down_with_drain();
            let mut delayed = queue.take_delayed();
            delayed.sort_unstable();
            delayed.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        });
        let added = item.requeue_after(ns(10));
        time.advance(ns(10));
        let left = drainer.join().unwrap();
        assert_eq!(left, if added == Added::Delayed { vec![1, 2] } else { vec![2] });
        assert_eq!(queue.turn(), 0);
    });
}

/// P2: what came before the delay was set is visible when it is over.
#[test]
fn add_after_publishes() {
    check(|| {
        let queue = real();
        queue.add_after(2, HOUR);
        let data = Arc::new(AtomicUsize::new(0));
        let other = with(&queue, {
            let data = Arc::clone(&data);
            move |queue| {
                data.store(1, Relaxed);
                queue.add_after(1, SOON)
            }
        });
        assert_eq!(queue.get().as_deref(), Some(&1));
        assert_eq!(data.load(Relaxed), 1);
        other.join().unwrap();
        queue.shut_down();
    });
}

/// P2: also if it changed nothing, because an earlier delay stands.
#[test]
fn coalesced_add_after_publishes() {
    check(|| {
        let (queue, _time) = due(DelayedAdd::Independent, [1]);
        let data = Arc::new(AtomicUsize::new(0));
        let other = with(&queue, {
            let data = Arc::clone(&data);
            move |queue| {
                data.store(1, Relaxed);
                queue.add_after(1, ns(10))
            }
        });
        assert_eq!(queue.turn(), 1);
        let item = queue.try_get().unwrap();
        let seen = data.load(Relaxed);
        item.done();
        match other.join().unwrap() {
            Added::Coalesced => assert_eq!((seen, queue.delayed_len()), (1, 0)),
            Added::Delayed => assert_eq!(queue.delayed_len(), 1),
            other => unreachable!("{other:?}"),
        }
    });
}

/// Who moves the time publishes what came before, to who finds a key due by it.
#[test]
fn advance_publishes() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        queue.add_after(1_u64, ns(10));
        let data = Arc::new(AtomicUsize::new(0));
        // Orders nothing, but has loom try the advance before the turn (see `is_dirty_publishes`).
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

/// S2, S3: a key that is held and delayed, and then only delayed, keeps its slot, while others come and go beside it and
/// memory is given back.
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

/// I4: a key in work and delayed leaves when both are over, the work and the delay (cancelled, or taken), whichever is last.
#[test]
fn last_bit_frees_the_slot() {
    type Key = std::sync::Arc<u64>;
    fn ends(end: impl Fn(&WorkQueue<Key>, &Key) + Copy + Send + Sync + 'static) {
        check(move || {
            let (queue, _time) = by_hand(DelayedAdd::Independent);
            let key = Key::new(1);
            queue.add(Key::clone(&key));
            let item = queue.get().unwrap();
            queue.add_after(Key::clone(&key), ns(10));
            let other = with(&queue, {
                let key = Key::clone(&key);
                move |queue| end(queue, &key)
            });
            assert_eq!(**item, 1);
            item.done();
            other.join().unwrap();
            assert_eq!(Key::strong_count(&key), 1, "the queue has it no more");
            assert_eq!((queue.len(), queue.processing_len(), queue.delayed_len()), (0, 0, 0));
            assert_eq!(queue.add(key), Added::Queued);
        });
    }
    ends(|queue, key| assert!(queue.cancel(key)));
    ends(|queue, key| assert_eq!(queue.take_delayed(), [(Key::clone(key), ns(10))]));
}

/// Keys that are delayed, and keys that have just been delivered, go with the last handle.
#[test]
fn delayed_keys_are_dropped_with_the_queue() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        let keys = [1, 2, 3, 4].map(std::sync::Arc::new);
        for (key, delay) in keys.iter().zip([10, 10, 10, 1000]) {
            queue.add_after(std::sync::Arc::clone(key), ns(delay));
        }
        time.advance(ns(10));
        let turner = with(&queue, WorkQueue::turn);
        drop(queue);
        assert_eq!(turner.join().unwrap(), 3, "more than a batch");
        assert_eq!(keys.map(|key| std::sync::Arc::strong_count(&key)), [1; 4]);
    });
}

/// W4: who turns wakes without the lock, and keys are dropped without it: the copy that a delay did not need, and what `cancel`
/// and `take_delayed` take out.
#[test]
fn delays_wake_and_drop_without_the_lock() {
    check(|| {
        let (queue, time) = by_hand(DelayedAdd::Independent);
        let mut future = Box::pin(queue.get_async());
        let waker = Waker::from(std::sync::Arc::new(Nosy(0, queue.clone())));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        queue.add_after(Nosy(1, queue.clone()), ns(10));
        let other = with(&queue, |queue| {
            queue.add_after(Nosy(1, queue.clone()), ns(10));
            queue.add_after(Nosy(2, queue.clone()), ns(20));
            queue.cancel(&Nosy(1, queue.clone()));
        });
        time.advance(ns(10));
        queue.turn();
        other.join().unwrap();
        drop(future);
        drop(queue.take_delayed());
        queue.shut_down();
        while queue.get().is_some() {}
        assert_eq!(queue.delayed_len(), 0);
    });
}

/// W4: and the driver.
#[test]
fn driver_wakes_without_the_lock() {
    check(|| {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::<Nosy>::builder().clock(clock).build();
        let mut future = Box::pin(queue.get_async());
        let waker = Waker::from(std::sync::Arc::new(Nosy(0, queue.clone())));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        queue.add_after(Nosy(1, queue.clone()), ns(10));
        time.advance(ns(10));
        queue.shut_down();
        drop(future);
        drop((waker, queue.take_delayed()));
        while queue.get().is_some() {}
    });
}

/// An add is published through `is_dirty`, also if others write the key's word before the holder looks: who sets a delay of it,
/// drops one, or has an add wait for one.
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
                    // SAFETY: nobody looks before the add.
                    cell.with_mut(|cell| unsafe { *cell = 1 });
                    queue.add(1);
                }
            });
            let other = with(&queue, other);
            thread::yield_now();
            if item.is_dirty() {
                // SAFETY: written before the add, and not after.
                cell.with(|cell| assert_eq!(unsafe { *cell }, 1));
            }
            adder.join().unwrap();
            other.join().unwrap();
        });
    }
    model(DelayedAdd::Independent, false, |queue| assert_eq!(queue.add_after(1, ns(5)), Added::Delayed));
    model(DelayedAdd::Independent, true, |queue| assert!(queue.cancel(&1)));
}

/// I8 without a driver thread: a getter that parks is the driver, whether it parks before or after the delay is set, and before or
/// after the time comes.
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

/// The same, with an earlier delay that is set while the getter may be parked for a later one.
#[test]
fn an_earlier_delay_wakes_a_parked_getter() {
    check(|| {
        keyqueue::refuse_threads(true);
        let queue = WorkQueue::new();
        queue.add_after(2_u64, HOUR);
        let getter = with(&queue, |queue| *queue.get().unwrap());
        queue.add_after(1, SOON);
        assert_eq!(getter.join().unwrap(), 1);
        keyqueue::refuse_threads(false);
    });
}

/// A key is handed out for its add, or taken, and never both.
#[test]
fn a_key_is_taken_or_handed_out() {
    check(|| {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(keyqueue::Driver::Manual).build();
        queue.add_all([1_u64, 2]);
        queue.add_after(3, ns(5));
        let taker = with(&queue, |queue| {
            let taken = queue.take_where(|key| *key != 2);
            taken.queued.into_iter().chain(taken.delayed.into_iter().map(|(key, _)| key)).collect::<Vec<_>>()
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
