//! Measured times, which are taken at one moment; and observers, which are called without the lock.

use keyqueue::observe::{Metrics, Observer};
use keyqueue::{Added, MockClock, WorkQueue};
use loom::sync::Notify;
use loom_tests::{check, manual, ns, with};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

/// A queue that measures, and its mock clock. With that clock every key is measured.
fn measuring_by_hand() -> (WorkQueue<u64>, MockClock) {
    let (builder, time) = manual();
    (builder.measure(true).build(), time)
}

/// Each hand-out has a wait, each `done` a work time, and all other hand-outs are processing.
fn adds_up(queue: &WorkQueue<u64>) {
    let Metrics { stats, queue_duration, work_duration, .. } = queue.inspect().metrics();
    assert_eq!(stats.adds(), stats.handed_out + stats.len as u64);
    assert_eq!(queue_duration.count(), stats.handed_out);
    assert_eq!(work_duration.count(), stats.handed_out - stats.processing as u64);
    if stats.processing == 0 {
        assert_eq!((stats.longest_running, stats.unfinished_work), (None, Some(Duration::ZERO)));
    }
    assert_eq!((stats.longest_running.is_some(), stats.oldest_queued.is_some()), (stats.processing > 0, stats.len > 0));
}

/// The ages of a snapshot are of one moment: the longest-running key has not run longer than all keys together.
#[test]
fn ages_are_one_snapshot() {
    check(|| {
        let queue = WorkQueue::builder().measure(true).build();
        // Each read of the clock but the first ones advances it by a microsecond. That is far enough apart for both keys to be
        // measured.
        let _looks = [(); 3].map(|()| queue.stats());
        queue.add_all([1_u64, 2]);
        let _old = queue.get().unwrap();
        let other = with(&queue, |queue| queue.get().unwrap().into_owned());
        let stats = queue.stats();
        assert!(stats.longest_running <= stats.unfinished_work, "{stats:?}");
        drop(other.join().unwrap());
    });
}

/// A snapshot adds up while other threads take keys and finish them.
#[test]
fn metrics_add_up() {
    check(|| {
        let (queue, _time) = measuring_by_hand();
        queue.add_all([1, 2]);
        let workers = [(); 2].map(|()| with(&queue, |queue| queue.get().unwrap().done()));
        adds_up(&queue);
        _ = workers.map(|worker| worker.join().unwrap());
        adds_up(&queue);
        assert_eq!(queue.stats().unfinished_work, Some(Duration::ZERO));
    });
}

/// An observer with an interval of a nanosecond, which keeps the number of queued keys. Once the model has asked for it, each report
/// waits until the model lets it go on. (The atomics are not loom's.)
#[derive(Default)]
struct Reported {
    reports: AtomicUsize,
    len: AtomicUsize,
    waits: AtomicBool,
    seen: Option<Notify>,
    go_on: Option<Notify>,
}

struct Interval(Arc<Reported>);

impl Observer for Interval {
    fn report(&self, _: &str, metrics: &Metrics) {
        self.0.reports.fetch_add(1, Relaxed);
        self.0.len.store(metrics.stats.len, Relaxed);
        if let (true, Some(seen), Some(go_on)) = (self.0.waits.load(Relaxed), &self.0.seen, &self.0.go_on) {
            seen.notify();
            go_on.wait();
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(ns(1))
    }
}

/// A report that finds no key meets an add: either this report counts the key, or the add schedules the next one.
#[test]
fn the_last_report_meets_an_add() {
    check(|| {
        let reported = Arc::new(Reported::default());
        let (builder, time) = manual();
        let queue = builder.observer(Interval(Arc::clone(&reported))).build();
        queue.add(0);
        queue.get().unwrap().done();
        time.advance(ns(1));
        let other = with(&queue, |queue| queue.add(1));
        queue.turn();
        assert_eq!(other.join().unwrap(), Added::Queued);
        time.advance(ns(1));
        queue.turn();
        assert_eq!((reported.reports.load(Relaxed), reported.len.load(Relaxed)), (2, 1), "the key is reported");
        queue.get().unwrap().done();
        for _ in 0..2 {
            time.advance(ns(1));
            queue.turn();
        }
        assert_eq!((reported.reports.load(Relaxed), reported.len.load(Relaxed)), (3, 0), "once more");
    });
}

/// The driver has made its last report, or is about to, and parks: an add wakes it for the next. (The clock is the real one: a mock
/// clock would wake the driver.)
#[test]
fn an_add_wakes_the_driver_for_a_report() {
    check(|| {
        let (seen, go_on) = (Some(Notify::new()), Some(Notify::new()));
        let reported = Arc::new(Reported { waits: AtomicBool::new(true), seen, go_on, ..Reported::default() });
        let queue = WorkQueue::builder().capacity(8).observer(Interval(Arc::clone(&reported))).build();
        queue.add(0); // starts the driver
        queue.get().unwrap().done();
        queue.add(1);
        while reported.waits.load(Relaxed) {
            reported.seen.as_ref().unwrap().wait();
            if reported.len.load(Relaxed) == 1 {
                queue.get().unwrap().done();
                reported.waits.store(false, Relaxed);
            }
            reported.go_on.as_ref().unwrap().notify();
        }
        queue.shut_down();
    });
}
