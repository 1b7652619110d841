//! Reports at the [interval](crate::observe::Observer::interval) of the observer, by the driver.
//!
//! ```text
//!             an add                            a report, and no key is left
//!   quiet ──────────────▶ scheduled for a time ─────────────────────────────▶ quiet
//!                              ▲          │
//!                              └──────────┘ a report, and keys are left
//! ```
//!
//! **No add is missed (W6).** A report makes the queue quiet *first*, and *then* reads the numbers of each shard under its lock. An add
//! reads whether the queue is quiet *after* its critical section. The lock of this shard orders the two: if the report reads the numbers
//! later, it counts the key, and schedules the next report; if the add comes later, it finds the queue quiet, and schedules that report
//! itself.

use super::Shared;
use super::hub::Hub;
use crate::machine::NEVER;
use crate::sync::{Ordering, model_const};
use crate::time::driver::Driver;
use crate::time::nanos;
use std::time::Duration;

/// The least interval. (In the models a time that is one step away has come at the next look.)
const LEAST: Duration = Duration::from_nanos(model_const(1_000_000, 1) as u64);

impl Hub {
    pub(super) fn is_report_due(&self, now: u64) -> bool {
        self.report_at <= now && self.report_at != NEVER
    }
}

impl<K> Shared<K> {
    /// An add was accepted: if no report is scheduled, schedules one, and wakes the driver or asks for it. The caller then calls
    /// [`ensure_driver`](Self::ensure_driver).
    pub(super) fn expect_report(&self) {
        // Relaxed, here and below: the lock of a shard orders it, see above.
        if self.report_interval.is_some() && !self.report_scheduled.load(Ordering::Relaxed) {
            self.schedule_report(self.clock.now());
        }
    }

    /// Also after a report, which may have been made beside the driver: the driver has found that none was due, and is parked.
    #[cold]
    fn schedule_report(&self, now: u64) {
        let mut hub = self.hub();
        if self.report_scheduled.load(Ordering::Relaxed) {
            return;
        }
        let interval = self.report_interval.map_or(NEVER, |interval| nanos(interval.max(LEAST)));
        hub.report_at = now.saturating_add(interval);
        self.report_scheduled.store(true, Ordering::Relaxed);
        // Else `turn` looks by itself.
        if self.driver != Driver::Manual {
            let called = hub.call_driver(hub.report_at);
            hub.wakes.append(called);
        }
    }

    /// Reports, if that is due now. Schedules the next report if keys are left: after the shut-down, delayed keys no longer count.
    #[cold]
    pub(super) fn report_if_due(&self, now: u64) {
        {
            let mut hub = self.hub();
            if !hub.is_report_due(now) {
                return;
            }
            hub.report_at = NEVER;
            self.report_scheduled.store(false, Ordering::Relaxed);
        }
        let metrics = self.metrics();
        let stats = &metrics.stats;
        let delayed = if stats.shutting_down { 0 } else { stats.delayed };
        // Before the observer is called, which may panic.
        if stats.len + stats.processing + delayed > 0 {
            self.schedule_report(now);
        }
        self.tell(|observer| observer.report(&self.name, &metrics));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::observe::{Metrics, Observer};
    use crate::shared::Shared;
    use crate::shared::stopped::until;
    use crate::sync::Arc;
    use crate::time::driver::State;
    use crate::{Clock, WorkQueue};
    use std::sync::mpsc::{self, Sender};
    use std::time::Duration;

    const INTERVAL: Duration = Duration::from_millis(500);
    const LONG: Duration = Duration::from_secs(60);

    /// Sends the number of processing keys.
    struct Reports(Sender<usize>);

    impl Observer for Reports {
        fn report(&self, _: &str, metrics: &Metrics) {
            _ = self.0.send(metrics.stats.processing);
        }

        fn interval(&self) -> Option<Duration> {
            Some(INTERVAL)
        }
    }

    /// The driver thread is parked without a deadline after the last report, ends after the last report of a shut-down, and is not
    /// started again.
    #[test]
    fn the_driver_parks_or_ends_after_the_last_report() {
        let (clock, time) = Clock::mock();
        let (send, reports) = mpsc::channel();
        let queue = WorkQueue::builder().clock(clock).observer(Reports(send)).build();
        assert!(matches!(queue.shared.hub().driver, State::Absent), "no thread before the first add");
        let parked_until = || match queue.shared.hub().driver {
            State::Parked { until, .. } => Some(until),
            _ => None,
        };
        for n in 1..=2_u64 {
            queue.add(n);
            queue.get().unwrap().done();
            until("the driver parks", || parked_until() == Some(n * INTERVAL.as_nanos() as u64));
            time.advance(INTERVAL);
            assert_eq!(reports.recv_timeout(LONG), Ok(0));
            until("the driver parks", || parked_until() == Some(u64::MAX));
        }
        queue.add(3);
        let item = queue.get().unwrap();
        until("the driver parks", || parked_until() == Some(3 * INTERVAL.as_nanos() as u64));
        queue.shut_down();
        until("the driver parks", || !matches!(queue.shared.hub().driver, State::Running));
        assert!(parked_until().is_some(), "the thread does not end while a report is to come");
        time.advance(INTERVAL);
        assert_eq!(reports.recv_timeout(LONG), Ok(1));
        item.done();
        time.advance(INTERVAL);
        assert_eq!(reports.recv_timeout(LONG), Ok(0));
        until("the driver ends", || matches!(queue.shared.hub().driver, State::Absent));
        queue.add(4);
        assert!(matches!(queue.shared.hub().driver, State::Absent));
    }

    /// While no thread can be started, a parked getter reports.
    #[test]
    fn a_parked_getter_reports_in_place_of_the_driver() {
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let (clock, time) = Clock::mock();
        let (send, reports) = mpsc::channel();
        let queue = WorkQueue::builder().clock(clock).observer(Reports(send)).build_with(start);
        std::thread::scope(|scope| {
            let parked = || until("the getter parks", || queue.stats().waiters > 0);
            let getter = scope.spawn(|| queue.get().is_none());
            parked();
            queue.add(1); // for the getter above, which ends
            assert!(!getter.join().unwrap());
            queue.add(2);
            let item = queue.get().unwrap();
            let getter = scope.spawn(|| queue.get().is_none());
            parked();
            for _ in 0..3 {
                time.advance(INTERVAL);
                assert_eq!(reports.recv_timeout(LONG), Ok(1));
            }
            item.done();
            time.advance(INTERVAL);
            assert_eq!(reports.recv_timeout(LONG), Ok(0));
            queue.shut_down();
            assert!(getter.join().unwrap());
        });
    }

    /// The thread cannot be started when the first key is added. A later call starts it, although there is no delay.
    #[test]
    fn a_later_call_starts_the_thread_for_a_report() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static POSSIBLE: AtomicBool = AtomicBool::new(false);
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |shared| match POSSIBLE.load(Ordering::SeqCst) {
            true => crate::shared::start_driver_thread(shared),
            false => Err(std::io::ErrorKind::WouldBlock.into()),
        };
        let (clock, time) = Clock::mock();
        let (send, reports) = mpsc::channel();
        let queue = WorkQueue::builder().clock(clock).observer(Reports(send)).build_with(start);
        queue.add(1);
        assert!(queue.shared.is_driver_missing());
        POSSIBLE.store(true, Ordering::SeqCst);
        let _item = queue.get().unwrap();
        until("the driver starts", || {
            queue.add(1);
            !queue.shared.is_driver_missing()
        });
        time.advance(INTERVAL);
        assert_eq!(reports.recv_timeout(LONG), Ok(1));
    }
}
