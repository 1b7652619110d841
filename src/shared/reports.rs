//! Reports at the observer's [interval](crate::observe::Observer::interval), by the driver.
//!
//! ```text
//!             an add                            a report, and no key is left
//!   quiet ──────────────▶ scheduled for a time ─────────────────────────────▶ quiet
//!                              ▲          │
//!                              └──────────┘ a report, and keys are left
//! ```
//!
//! **No add is missed (W6).** A report first makes the queue quiet, and then reads the numbers of each shard under its lock. An add looks
//! whether the queue is quiet after its critical section. If the report reads later, it counts the key and schedules the next report, and
//! if the add comes later, it finds the queue quiet and schedules that report itself. In a lock-free queue two fences take the place of the
//! lock.

use super::Shared;
use crate::machine::NEVER;
use crate::sync::{Arc, Ordering, model_const};

/// The least interval. In the models, a time one step away has come at the next look.
const LEAST: u64 = model_const(1_000_000, 1) as u64;

impl<K> Shared<K> {
    /// When the next report is due. `NEVER`: none is scheduled.
    #[inline]
    pub(super) fn report_at(&self) -> u64 {
        self.report_at.load(Ordering::Relaxed) // Relaxed: the hub's lock, or that of a shard, orders it, see above
    }

    /// Read under the hub's lock.
    pub(super) fn is_report_due(&self, now: u64) -> bool {
        self.report_at() <= now && self.report_at() != NEVER
    }

    /// For an add that was accepted: schedules a report if none is, and wakes the driver or asks for it. The caller then calls
    /// [`ensure_driver`](Self::ensure_driver).
    pub(super) fn expect_report(&self) {
        if self.report_interval != NEVER && self.report_at() == NEVER {
            self.schedule_report(self.settings.clock.now());
        }
    }

    /// After a report, too, the driver is woken for the next one, because a `turn` may have made that report while the driver was parked.
    #[cold]
    fn schedule_report(&self, now: u64) {
        let mut hub = self.hub();
        if self.report_at() != NEVER {
            return;
        }
        let at = now.saturating_add(self.report_interval.max(LEAST));
        self.report_at.store(at, Ordering::Relaxed); // Relaxed: see `report_at`
        self.wake_driver_for(at, &mut hub);
    }

    /// Reports if that is due, and schedules the next report if keys are left. After the shut-down, delayed keys no longer count.
    #[cold]
    pub(super) fn report_if_due(this: &Arc<Self>, now: u64) {
        {
            let _hub = this.hub();
            if !this.is_report_due(now) {
                return;
            }
            this.report_at.store(NEVER, Ordering::Relaxed); // Relaxed: see `report_at`
        }
        let metrics = this.metrics();
        let stats = &metrics.stats;
        let delayed = if stats.shutting_down { 0 } else { stats.delayed };
        let has_keys = stats.len + stats.processing + delayed > 0;
        // The counts of a lock-free queue miss a key while it is between two of them, but its word always says what it is.
        #[cfg(feature = "lock-free")]
        let has_keys = has_keys || this.free().is_some_and(|free| free.count_active() != (0, 0));
        // Before the observer is called, because it may panic.
        if has_keys {
            this.schedule_report(now);
            Self::ensure_driver(this); // it may have ended meanwhile because no report was scheduled
        }
        this.tell(|observer| observer.report(&this.settings.name, &metrics));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::observe::{Metrics, Observer};
    use crate::shared::Shared;
    use crate::shared::driver::states::{DriverState, NextStep};
    use crate::shared::stopped::until;
    use crate::sync::{Arc, Parker};
    use crate::{Added, Clock, WorkQueue};
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
        assert!(matches!(queue.shared.hub().driver, DriverState::Absent), "no thread before the first add");
        let parked_until = || match queue.shared.hub().driver {
            DriverState::Parked { until, .. } => Some(until),
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
        until("the driver parks", || !matches!(queue.shared.hub().driver, DriverState::Running));
        assert!(parked_until().is_some(), "the thread does not end while a report is to come");
        time.advance(INTERVAL);
        assert_eq!(reports.recv_timeout(LONG), Ok(1));
        item.done();
        time.advance(INTERVAL);
        assert_eq!(reports.recv_timeout(LONG), Ok(0));
        until("the driver ends", || matches!(queue.shared.hub().driver, DriverState::Absent));
        queue.add(4);
        assert!(matches!(queue.shared.hub().driver, DriverState::Absent));
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

    /// While no thread can be started, turns report, alone or beside a getter that waits: one of them, once in each interval.
    #[test]
    fn turns_report_in_place_of_the_driver() {
        for waits in [false, true] {
            let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
            let (clock, time) = Clock::mock();
            let (send, reports) = mpsc::channel();
            let queue = WorkQueue::builder().clock(clock).observer(Reports(send)).build_with(start);
            queue.add(1);
            let mut item = queue.try_get().ok();
            std::thread::scope(|scope| {
                let getter = waits.then(|| scope.spawn(|| queue.get().is_none()));
                until("the getter waits", || queue.stats().waiters == usize::from(waits));
                let told = [true, true, true, false].map(|held| {
                    item = item.take().filter(|_| held);
                    time.advance(INTERVAL);
                    queue.turn();
                    reports.recv_timeout(LONG).ok()
                });
                queue.shut_down(); // before this thread may panic, or the getter stays
                assert!(getter.is_none_or(|getter| getter.join().unwrap()));
                assert_eq!(told, [Some(1), Some(1), Some(1), Some(0)]);
            });
            assert!(reports.try_recv().is_err());
        }
    }

    /// A turn reports, and makes the queue quiet before it reads the numbers. The driver thread looks in between, after the shut-down, and
    /// ends. As a key is left, the turn schedules the next report, and starts the thread again.
    #[test]
    fn a_report_by_a_turn_starts_a_driver_that_has_ended_meanwhile() {
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicUsize, Ordering};
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        static STEPS: [Barrier; 2] = [const { Barrier::new(2) }; 2];
        struct Stops(Reports);
        impl Observer for Stops {
            fn added(&self, _: Added) {
                if std::thread::current().name() == Some("turns") {
                    STEPS.iter().for_each(|step| _ = step.wait());
                }
            }
            fn report(&self, name: &str, metrics: &Metrics) {
                self.0.report(name, metrics);
            }
            fn interval(&self) -> Option<Duration> {
                self.0.interval()
            }
        }
        // This thread makes the steps of the driver.
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| {
            STARTS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let (clock, time) = Clock::mock();
        let (send, reports) = mpsc::channel();
        let queue = WorkQueue::builder().clock(clock).observer(Stops(Reports(send))).build_with(start);
        queue.add(0);
        let _item = queue.get().unwrap();
        queue.add_after(1, INTERVAL);
        time.advance(INTERVAL);
        std::thread::scope(|scope| {
            let turn = std::thread::Builder::new().name("turns".into());
            let turn = turn.spawn_scoped(scope, || queue.turn()).unwrap();
            STEPS[0].wait(); // it has visited the shard
            queue.shut_down();
            let before_the_numbers = queue.shared.first.lock();
            STEPS[1].wait();
            until("no report is scheduled", || queue.shared.report_at() == u64::MAX);
            let next = Shared::drive(&queue.shared, &Parker::new());
            assert!(matches!(next, NextStep::End));
            drop(before_the_numbers);
            assert_eq!(turn.join().unwrap(), 1);
        });
        assert_eq!(reports.try_recv(), Ok(1));
        assert_eq!(STARTS.load(Ordering::SeqCst), 2);
        assert!(!queue.shared.is_driver_missing());
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
