//! Reports at the observer's interval, which the queue makes by itself.
//!
//! Checks: the queue reports while keys are queued, processing or delayed, once more when there are none, and then not until the next
//! add; by its thread and by `turn`, with one shard and with several; after a shut-down until the last key is done. The reports
//! keep nothing alive, and an observer that panics stops neither them nor delays. That no thread runs after the last report is in
//! `tests/idle.rs`.

use keyqueue::observe::{Metrics, Observer};
use keyqueue::{Added, Clock, Driver, MockClock, WorkQueue};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// The interval of the observers here.
const INTERVAL: Duration = Duration::from_millis(500);
/// Longer than any wait of a test that passes.
const LONG: Duration = Duration::from_secs(60);

/// The numbers of queued, processing and delayed keys in a report.
type Seen = (usize, usize, usize);

/// Sends what is reported.
struct Reports {
    seen: Sender<Seen>,
    interval: Option<Duration>,
    /// Called after each.
    then: Box<dyn Fn() + Send + Sync>,
}

impl Observer for Reports {
    fn report(&self, queue: &str, metrics: &Metrics) {
        assert_eq!(queue, "pods");
        let stats = &metrics.stats;
        _ = self.seen.send((stats.len, stats.processing, stats.delayed));
        (self.then)();
    }

    fn interval(&self) -> Option<Duration> {
        self.interval
    }
}

/// A queue with a mock clock, and what it reports.
struct Observed {
    queue: WorkQueue<u32>,
    time: MockClock,
    reports: Receiver<Seen>,
    driver: Driver,
}

impl Observed {
    fn new(driver: Driver, shards: usize, interval: Option<Duration>) -> Self {
        let (clock, time) = Clock::mock();
        let (seen, reports) = mpsc::channel();
        let builder = WorkQueue::builder().name("pods").clock(clock).driver(driver).shards(shards);
        Self {
            queue: builder.observer(Reports { seen, interval, then: Box::new(|| {}) }).build(),
            time,
            reports,
            driver,
        }
    }

    /// Moves the clock. With `Driver::Manual`, the reports that this makes are there when it returns.
    fn advance(&self, by: Duration) {
        self.time.advance(by);
        if self.driver == Driver::Manual {
            self.queue.turn();
        }
    }

    fn next(&self) -> Seen {
        self.reports.recv_timeout(LONG).expect("a report comes")
    }

    /// No report has come. With a driver thread it may still come: then the next report is another one than the test expects.
    fn none(&self) {
        assert_eq!(self.reports.try_recv().ok(), None);
    }
}

#[test]
fn reports_come_while_there_are_keys_and_once_more() {
    for (driver, shards) in [(Driver::Manual, 1), (Driver::Manual, 4), (Driver::Thread, 1), (Driver::Thread, 4)] {
        let observed = Observed::new(driver, shards, Some(INTERVAL));
        let queue = &observed.queue;
        observed.advance(2 * INTERVAL);
        observed.none(); // no key was added
        queue.add_all([1, 2]);
        observed.advance(INTERVAL - MS);
        observed.none();
        observed.advance(MS);
        assert_eq!(observed.next(), (2, 0, 0));
        let items = [queue.get().unwrap(), queue.get().unwrap()];
        for _ in 0..3 {
            observed.advance(INTERVAL);
            assert_eq!(observed.next(), (0, 2, 0), "{driver:?}");
        }
        queue.add(1); // deferred
        items.into_iter().for_each(|item| item.done());
        let item = queue.get().unwrap();
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 1, 0));
        item.requeue_after(60 * INTERVAL);
        for _ in 0..3 {
            observed.advance(INTERVAL);
            assert_eq!(observed.next(), (0, 0, 1));
        }
        assert!(queue.cancel(&1));
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 0, 0), "once more");
        for _ in 0..10 {
            observed.advance(INTERVAL);
            observed.none();
        }
        // Each kind of add begins again, also one whose key is gone when the report comes.
        queue.add_after(3, 20 * INTERVAL);
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 0, 1));
        queue.cancel(&3);
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 0, 0));
        queue.add(4);
        queue.get().unwrap().done();
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 0, 0));
        queue.add_rate_limited(5);
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (1, 0, 0), "its delay of 5 ms has expired");
    }
}

#[test]
fn an_observer_without_an_interval_gets_no_report() {
    for interval in [None, Some(Duration::MAX)] {
        let observed = Observed::new(Driver::Manual, 1, interval);
        observed.queue.add(1);
        for _ in 0..10 {
            observed.advance(Duration::from_secs(3600));
        }
        observed.none();
        observed.advance(Duration::MAX);
        observed.none();
    }
}

/// A `turn` that comes late makes one report, and the next is due an interval after it. An interval of zero counts as a millisecond.
#[test]
fn a_late_turn_makes_one_report() {
    for (interval, counts_as) in [(INTERVAL, INTERVAL), (Duration::ZERO, MS)] {
        let observed = Observed::new(Driver::Manual, 1, Some(interval));
        observed.queue.add(1);
        observed.advance(10 * counts_as + MS / 2);
        assert_eq!(observed.next(), (1, 0, 0));
        observed.queue.turn();
        observed.advance(counts_as - Duration::from_nanos(1));
        observed.none();
        observed.advance(Duration::from_nanos(1));
        assert_eq!(observed.next(), (1, 0, 0));
    }
}

/// While `turn` reports, the driver thread finds that no report is due, and parks. The next report wakes it (W6).
#[test]
fn reports_go_on_beside_turns() {
    let (seen, reports) = mpsc::channel();
    let observer = Reports { seen, interval: Some(MS), then: Box::new(|| {}) };
    let queue = WorkQueue::builder().name("pods").shards(64).observer(observer).build();
    queue.add(1);
    for round in 0..3 {
        let begin = Instant::now();
        while begin.elapsed() < INTERVAL {
            queue.turn();
        }
        while reports.try_recv().is_ok() {}
        assert!(reports.recv_timeout(LONG / 2).is_ok(), "round {round}: no report after the last turn");
    }
}

#[test]
fn reports_end_with_the_last_key_of_the_shut_down() {
    for driver in [Driver::Manual, Driver::Thread] {
        let observed = Observed::new(driver, 2, Some(INTERVAL));
        let queue = &observed.queue;
        queue.add_all([1, 2]);
        queue.add_after(3, 100 * INTERVAL);
        queue.shut_down();
        assert_eq!(queue.add(4), Added::Rejected);
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (2, 0, 1));
        let items = [queue.get().unwrap(), queue.get().unwrap()];
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 2, 1));
        items.into_iter().for_each(|item| item.done());
        observed.advance(INTERVAL);
        assert_eq!(observed.next(), (0, 0, 1), "once more: the delay is cut off");
        assert_eq!(queue.add(4), Added::Rejected);
        for _ in 0..10 {
            observed.advance(INTERVAL);
            observed.none();
        }
        drop(observed.queue);
        assert_eq!(observed.reports.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }
}

/// The queue is dropped while keys are queued and the next report is an hour away; or while the driver thread reports all the time,
/// as the observer takes longer than its interval.
#[test]
fn an_interval_keeps_no_queue_alive() {
    for (interval, at_least) in [(60 * LONG, 0), (MS, 3)] {
        let (seen, reports) = mpsc::channel();
        let observer = Reports { seen, interval: Some(interval), then: Box::new(|| std::thread::sleep(5 * MS)) };
        let queue = WorkQueue::builder().name("pods").observer(observer).build();
        queue.add(1);
        for _ in 0..at_least {
            assert_eq!(reports.recv_timeout(LONG), Ok((1, 0, 0)));
        }
        drop(queue);
        // The observer is dropped with the queue, and its sender with it.
        let end = loop {
            match reports.recv_timeout(LONG) {
                Ok(_) => {}
                Err(end) => break end,
            }
        };
        assert_eq!(end, RecvTimeoutError::Disconnected);
    }
}

/// A report that panics passes through `turn`, and the driver thread goes on after it.
#[test]
fn an_observer_that_panics_is_called_again() {
    for driver in [Driver::Manual, Driver::Thread] {
        let (clock, time) = Clock::mock();
        let (seen, reports) = mpsc::channel();
        let has_panicked = AtomicBool::new(false);
        let panics_once = move || {
            if !has_panicked.swap(true, Ordering::SeqCst) {
                resume_unwind(Box::new("an exporter"));
            }
        };
        let observer = Reports { seen, interval: Some(INTERVAL), then: Box::new(panics_once) };
        let queue = WorkQueue::builder().name("pods").clock(clock).driver(driver).observer(observer).build();
        let advance = || {
            time.advance(INTERVAL);
            catch_unwind(AssertUnwindSafe(|| if driver == Driver::Manual { queue.turn() } else { 0 }))
        };
        queue.add(1);
        queue.add_after(2, 2 * INTERVAL);
        assert_eq!(advance().is_err(), driver == Driver::Manual);
        assert_eq!(reports.recv_timeout(LONG), Ok((1, 0, 1)));
        assert!(advance().is_ok());
        assert_eq!(reports.recv_timeout(LONG), Ok((2, 0, 0)), "delays expire before the report");
    }
}
