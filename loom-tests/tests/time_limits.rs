//! Time limits of the runs of workers: the limit beside the end of a run, and the driver that has to wake for it.

use keyqueue::{Clock, Item, WorkQueue};
use loom::future::{AtomicWaker, block_on};
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom_tests::{check, manual, ns, with};
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A handler waits for a thread, which comes at the limit: the run has succeeded, or it has timed out and its key is refused once. Whether
/// the driver or the loop finds that it is late, it is told of once.
#[test]
fn a_limit_meets_the_end_of_the_handler() {
    check(|| {
        let (builder, time) = manual();
        let queue = builder.build();
        let stuck = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = std::sync::Arc::clone(&stuck);
        let hook = move |_: &u64, age| {
            assert_eq!(age, ns(10));
            count.fetch_add(1, Relaxed);
        };
        let workers = queue.workers().time_limit(ns(10)).on_stuck(hook).build();
        let answer = Arc::new((AtomicBool::new(false), AtomicWaker::new()));
        let mut work = pin!(workers.run_async(async |_: &Item<'_, u64>| {
            let answered = |cx: &mut Context<'_>| {
                answer.1.register_by_ref(cx.waker());
                if answer.0.load(Acquire) { Poll::Ready(()) } else { Poll::Pending }
            };
            poll_fn(answered).await;
        }));
        queue.add(1);
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        queue.shut_down();
        let answers = with(&answer, |answer| {
            answer.0.store(true, Release);
            answer.1.wake();
        });
        let turns = with(&queue, move |queue| {
            time.advance(ns(10));
            queue.turn();
        });
        block_on(work);
        let (tally, left) = (workers.tally(), workers.stop());
        assert!(tally.late >= tally.timed_out, "it is told before the handler is dropped");
        assert_eq!((tally.succeeded + tally.timed_out, tally.refused), (1, tally.timed_out));
        assert_eq!((left.refused.len() as u64, left.processing.len()), (tally.timed_out, 0));
        answers.join().unwrap();
        turns.join().unwrap();
        let late = workers.tally().late;
        assert_eq!((late, queue.stats().processing), (stuck.load(Relaxed), 0));
        assert!(late == 1 || late == 0 && tally.timed_out == 0);
    });
}

/// The driver parks for a distant delay, is about to, or is not started, and a run begins whose limit comes sooner: it is woken (I8).
#[test]
fn a_run_that_begins_rearms_the_driver() {
    for has_driver in [false, true] {
        check(move || {
            let queue = WorkQueue::<u64>::new();
            if has_driver {
                queue.add_after(7, Duration::from_secs(3600));
            }
            queue.add(1);
            let workers = queue.workers().time_limit(ns(1)).build();
            let shut_down = queue.clone();
            let work = workers.run_async(async move |item: &Item<'_, u64>| {
                item.until_late().await;
                shut_down.shut_down();
            });
            block_on(work);
            assert_eq!((workers.tally().succeeded, workers.tally().late), (1, 1));
        });
    }
}

/// A handler hangs after the shut-down, when the driver has ended or was never started, and nothing but its limit wakes the task.
#[test]
fn a_handler_that_hangs_ends_at_its_limit() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        queue.add(1);
        queue.shut_down();
        let workers = queue.workers().time_limit(ns(1)).build();
        block_on(workers.run_async(async |_: &Item<'_, u64>| pending::<()>().await));
        assert_eq!((workers.tally().timed_out, workers.stop().refused), (1, vec![1]));
    });
}

/// The clock passes the limit while the run begins. The driver, which has looked at the clock before and is not parked, looks again before
/// it parks, because the clock may never move again (I8).
#[test]
fn a_clock_that_advances_as_a_run_begins() {
    check(|| {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::<u64>::builder().clock(clock).build();
        queue.add_after(7, Duration::from_secs(3600)); // starts the driver
        queue.add(1);
        let workers = queue.workers().time_limit(ns(10)).build();
        let advances = with(&time, |time| time.advance(ns(10)));
        let shut_down = queue.clone();
        block_on(workers.run_async(async move |item: &Item<'_, u64>| {
            if item.is_late() {
                item.until_late().await;
            }
            shut_down.shut_down();
        }));
        advances.join().unwrap();
        assert_eq!(workers.tally().succeeded, 1);
    });
}
