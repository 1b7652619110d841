//! The stand-in: while no driver thread can be started, one of the threads that wait does its work (W7).
//!
//! ```text
//!              a thread that waits is about to park             its step is done                an earlier deadline or report; a task;
//!  nobody ───────────────────────────────────────▶ it works ───────────────────▶ it is parked ──┐ the time `until`; a key; its time is up
//!    ▲ │ a thread that waits is woken                  ▲ │                                      │
//!    └─┴───────────────────────────────────────────────┼─┘ its wait ends, or there is a driver  │
//!                                                      └────────────────────────────────────────┘
//! ```
//!
//! `stand_in` of the hub has these states, in the words of the driver's: absent, running, parked. The step is the driver's, too. A thread
//! in a get, in a drain or in an idle wait takes the place, and keeps it until its wait ends. The others only park.
//!
//! **Why the place does not stay empty while threads sleep (W7).** A thread goes on its list, under the hub's lock, *before* it looks
//! whether there is a driver and takes the place. A thread that finds the place empty at the end of its wait, and the call whose start of
//! the driver fails, wake a thread *of a list*, which stays there. That thread has not looked yet, or its park ends at once and it looks
//! again; or its wait ends, and it wakes the next.

use super::Shared;
use super::hub::{Hub, HubGuard};
use crate::sync::{Arc, Parker};
use crate::time::driver::{ClockSubscription, NextStep, State};
use crate::wait::Waiter;
use std::time::Instant;

/// How a thread parks in one wait.
pub(super) struct Parking<'s, K> {
    shared: &'s Arc<Shared<K>>,
    /// This thread is the stand-in.
    stands_in: bool,
}

impl<'s, K> Parking<'s, K> {
    pub(super) fn new(shared: &'s Arc<Shared<K>>) -> Self {
        Self { shared, stands_in: false }
    }

    /// Parks a thread that is on a list. The stand-in first makes a step of the driver, and parks no longer than the driver would.
    pub(super) fn park(&mut self, parker: &Parker, deadline: Option<Instant>) {
        if !self.takes_place() {
            return parker.park(deadline);
        }
        Shared::ensure_driver(self.shared);
        let _subscription = ClockSubscription::new(&self.shared.settings.clock, parker);
        // The thread is on a list: an observer that panics must not make it leave without its wake-up.
        match self.shared.contain(|| Shared::drive(self.shared, parker, |hub| &mut hub.stand_in)) {
            Some(NextStep::Park(until)) => parker.park(deadline.into_iter().chain(until).min()),
            Some(NextStep::Again) | None => {}
            Some(NextStep::End) => {
                self.stands_in = false;
                parker.park(deadline);
            }
        }
    }

    /// Whether this thread is the stand-in. It becomes it if there is no driver and no other stand-in.
    fn takes_place(&mut self) -> bool {
        if !self.shared.is_driver_missing() {
            self.step_aside();
        } else if !self.stands_in {
            let mut hub = self.shared.hub();
            if matches!(hub.stand_in, State::Absent) {
                hub.stand_in = State::Running;
                self.stands_in = true;
            }
        }
        self.stands_in
    }

    /// Gives up the place, for one that waits. This thread is on no list, and takes the place again at its next park if nobody has it.
    pub(super) fn step_aside(&mut self) {
        if self.stands_in {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if self.stands_in || self.shared.is_driver_missing() {
            let mut hub = self.shared.hub();
            if std::mem::take(&mut self.stands_in) {
                hub.stand_in = State::Absent;
            }
            hub.call_stand_in();
        }
    }
}

impl<K> Drop for Parking<'_, K> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Hub {
    /// There is no driver, and no thread in its place.
    pub(super) fn lacks_stand_in(&self) -> bool {
        matches!((&self.driver, &self.stand_in), (State::Missing { .. }, State::Absent))
    }
}

impl HubGuard<'_> {
    /// If the place is empty, wakes a thread that waits, which takes it: the youngest getter, as a key wakes the oldest. If there is no
    /// such thread, wakes the tasks that rely on it (W5).
    pub(super) fn call_stand_in(&mut self) {
        if !self.lacks_stand_in() {
            return;
        }
        if let Some(thread) = self.getters.waiters.thread().or_else(|| self.life_cycle.drainers.thread()) {
            self.wakes.push(Waiter::Thread(thread));
        } else if self.getters.wake_at.is_some() {
            self.getters.forget_passed_by();
            self.wake_all_getters();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::observe::{Metrics, Observer};
    use crate::shared::hub::Flags;
    use crate::shared::start_driver_thread;
    use crate::shared::stopped::{SLOWER, until};
    use crate::sync::now;
    use crate::{Added, Clock, WorkQueue, WorkQueueBuilder};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);
    const LONG: Duration = Duration::from_secs(20 * SLOWER as u64);
    /// Later than the threads park.
    const SOON: Duration = Duration::from_millis(100 * SLOWER as u64);

    fn no_thread(_: &Arc<Shared<u32>>) -> std::io::Result<()> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }

    /// A queue with a delay and without a driver. No call tries again to start one, which would wake a stand-in as well.
    fn driverless(builder: WorkQueueBuilder<u32>) -> WorkQueue<u32> {
        let queue = builder.build_with(no_thread);
        queue.add_after(u32::MAX, HOUR);
        let mut hub = queue.shared.hub();
        assert!(hub.lacks_stand_in());
        hub.driver = State::Missing { retry_at: now() + HOUR };
        drop(hub);
        queue
    }

    /// The stand-in is parked, and this number of getters.
    fn until_parked(queue: &WorkQueue<u32>, getters: usize) {
        let stands_in = || matches!(queue.shared.hub().stand_in, State::Parked { .. });
        until("they park", || queue.stats().waiters == getters && stands_in());
        thread::sleep(Duration::from_millis(5)); // they are on the list, and about to park
    }

    /// Eight threads wait. A deadline comes that was set before. Then twenty come, each set while the stand-in is parked for longer.
    #[test]
    fn deadlines_wake_the_stand_in_alone() {
        let queue = driverless(WorkQueue::builder());
        queue.add(0);
        let held = queue.get().unwrap(); // its delays wake no getter for a key
        queue.add_after(0, 2 * SOON);
        thread::scope(|scope| {
            let idle = [(); 2].map(|()| scope.spawn(|| queue.wait_idle_timeout(LONG)));
            let getters = [(); 6].map(|()| scope.spawn(|| queue.get().is_none()));
            until("the idle waits park", || queue.shared.hub().life_cycle.drainers.len() == 2);
            until_parked(&queue, 6);
            let looks = || queue.shared.first.looks.load(Ordering::Relaxed);
            let before = looks();
            until("the delay expires", || held.is_dirty());
            thread::sleep(SOON / 10);
            let (before, come) = (looks(), looks() - before);
            for _ in 0..20 {
                queue.add_after(0, SOON / 20);
                thread::sleep(SOON / 10);
            }
            let (set, late) = (looks() - before, queue.delayed_len() - 1);
            let still_idle = idle.iter().all(|idle| !idle.is_finished());
            queue.shut_down();
            // Before the key, which is dirty, is queued: a getter that is late would take it.
            let no_keys = getters.map(|getter| getter.join().unwrap());
            held.done();
            drop(queue.get());
            assert!(still_idle && no_keys == [true; 6]);
            // Two for each wake-up, and those of the driver's step: 2 and 40 wake-ups at most.
            assert!(come <= 2 * 5 && set <= 40 * 5 && late == 0, "{come} and {set} looks, {late} late");
        });
    }

    /// A thread is parked beside the stand-in, whose wait ends before the key is due: it takes a key, or its time is up. The thread takes
    /// the place: a getter gets the key, and an idle wait queues it. With a clock that stands still, no getter adds the key but as a stand-in.
    #[test]
    fn a_stand_in_whose_wait_ends_wakes_the_next() {
        for (takes, next_is_idle) in [(false, false), (true, false), (false, true), (true, true)] {
            // Longer each time, until the wait ends as it is to: after the next thread is on its list.
            let ended = (0..10).any(|tries| a_wait_ends(takes, next_is_idle, Duration::from_millis(50 << tries)));
            assert!(ended, "takes {takes}, next is idle {next_is_idle}");
        }
    }

    /// Whether the wait has ended after the next thread was on its list, and the stand-in has the key that it was to take.
    fn a_wait_ends(takes: bool, next_is_idle: bool, timeout: Duration) -> bool {
        let (clock, time) = Clock::mock();
        let queue = driverless(WorkQueue::builder().clock(clock));
        let timeout = if takes { LONG } else { timeout };
        thread::scope(|scope| {
            let stand_in = scope.spawn(|| queue.get_timeout(timeout).map(|item| *item).ok());
            until("it stands in", || {
                matches!(queue.shared.hub().stand_in, State::Parked { .. }) || stand_in.is_finished()
            });
            queue.add_after(1, HOUR / 4);
            let next = scope.spawn(|| match next_is_idle {
                true => queue.wait_idle_timeout(LONG).is_err().into(),
                false => *queue.get_timeout(LONG).unwrap(),
            });
            let is_listed = || match next_is_idle {
                true => !queue.shared.hub().life_cycle.drainers.is_empty(),
                false => queue.stats().waiters == if stand_in.is_finished() { 1 } else { 2 },
            };
            until("the next is on its list", is_listed);
            let is_in_time = !stand_in.is_finished();
            if takes {
                queue.add(2);
            }
            if next_is_idle {
                let taken = stand_in.join().unwrap();
                assert_eq!(taken, takes.then_some(2));
                time.advance(HOUR / 4);
                until("the idle wait queues the key", || queue.len() == 1);
                queue.cancel(&u32::MAX);
                drop(queue.try_get());
                assert_eq!(next.join().unwrap(), 0);
                return is_in_time;
            }
            until("one wait ends", || stand_in.is_finished() || next.is_finished());
            time.advance(HOUR / 4);
            let (first, second) = (stand_in.join().unwrap(), next.join().unwrap());
            if takes {
                // The next one was not parked yet, and was faster.
                assert!(matches!((first, second), (Some(2), 1) | (Some(1), 2)), "{first:?} {second}");
                return first == Some(2);
            }
            assert_eq!((first, second), (None, 1));
            is_in_time
        })
    }

    /// An idle wait stands in, and then waits for a shard whose holder has stopped. A getter has the place meanwhile.
    #[test]
    fn an_idle_wait_that_waits_for_a_shard_does_not_stand_in() {
        let queue = WorkQueue::builder().shards(2).build_with(no_thread);
        let of_other = |key: &u32| queue.shared.shard_of(queue.shared.hash(key)).index == 1;
        let keys: Vec<u32> = (0..100).filter(of_other).take(2).collect();
        queue.add_after(keys[0], SOON);
        queue.shared.hub().driver = State::Missing { retry_at: now() + HOUR };
        thread::scope(|scope| {
            let idle = scope.spawn(|| queue.wait_idle_timeout(LONG));
            until("it stands in", || matches!(queue.shared.hub().stand_in, State::Parked { .. }));
            let get = || queue.get_timeout(LONG / 2).map(|item| *item).ok();
            let getters = [(); 2].map(|()| scope.spawn(get));
            until("they park", || queue.stats().waiters == 2);
            let stopped = queue.shared.first.lock();
            until("the first key comes", || getters.iter().any(|getter| getter.is_finished()));
            queue.add_after(keys[1], SOON);
            let mut got = getters.map(|getter| getter.join().unwrap());
            drop(stopped);
            got.sort_unstable();
            assert_eq!(got, [Some(keys[0]), Some(keys[1])]);
            assert!(idle.join().unwrap().is_ok());
        });
    }

    /// A thread that was woken to take the place, or has found it taken, leaves without it when nobody has it: it wakes the next.
    #[test]
    fn a_thread_that_leaves_an_empty_place_wakes_the_next() {
        let queue = driverless(WorkQueue::builder());
        queue.shared.hub().stand_in = State::Running; // another thread
        thread::scope(|scope| {
            let brief = scope.spawn(|| queue.get_timeout(Duration::from_millis(200)).is_err());
            let getter = scope.spawn(|| *queue.get_timeout(LONG).unwrap());
            until("they park", || queue.stats().waiters == 2);
            thread::sleep(Duration::from_millis(5));
            queue.shared.hub().stand_in = State::Absent;
            assert!(brief.join().unwrap());
            until_parked(&queue, 1);
            queue.add(1);
            assert_eq!(getter.join().unwrap(), 1);
        });
    }

    /// An observer panics in the step of the stand-in, which goes on: it gets its key, and the next getter the next.
    #[test]
    fn a_stand_in_goes_on_after_a_panic_of_the_observer() {
        struct Panics;
        impl Observer for Panics {
            fn added(&self, added: Added) {
                if added == Added::Queued {
                    std::panic::resume_unwind(Box::new("as planned"));
                }
            }
        }
        let (clock, time) = Clock::mock(); // with the real clock, it would add the keys as a getter
        let queue = driverless(WorkQueue::builder().clock(clock).observer(Panics));
        thread::scope(|scope| {
            let getters = [(); 2].map(|()| scope.spawn(|| *queue.get_timeout(LONG).unwrap()));
            until_parked(&queue, 2);
            for key in [1, 2] {
                queue.add_after(key, HOUR / 4);
                time.advance(HOUR / 4);
                until("it expires", || queue.delayed_len() == 1);
            }
            let mut keys = getters.map(|getter| getter.join().unwrap());
            keys.sort_unstable();
            assert_eq!(keys, [1, 2]);
        });
        assert_eq!(queue.stats().caught_panics, 2);
    }

    /// A stand-in tries to start the driver before each step.
    #[test]
    fn a_stand_in_starts_the_driver_when_that_is_possible_again() {
        static POSSIBLE: AtomicBool = AtomicBool::new(false);
        let queue = WorkQueue::builder().build_with(|shared: &Arc<Shared<u32>>| {
            if POSSIBLE.load(Ordering::SeqCst) { start_driver_thread(shared) } else { no_thread(shared) }
        });
        queue.add(0);
        let held = queue.get().unwrap();
        queue.add_after(0, SOON);
        thread::scope(|scope| {
            let getter = scope.spawn(|| *queue.get_timeout(LONG).unwrap());
            until_parked(&queue, 1);
            POSSIBLE.store(true, Ordering::SeqCst);
            until("the driver starts", || !queue.shared.is_driver_missing());
            held.done();
            assert_eq!(getter.join().unwrap(), 0);
        });
    }

    /// A report is a step of the driver. A drain makes it, too.
    #[test]
    #[cfg_attr(miri, ignore = "bounds by the clock how often a thread reports")]
    fn a_drain_reports_in_place_of_the_driver() {
        struct Reports(std::sync::Arc<AtomicUsize>);
        impl Observer for Reports {
            fn report(&self, _: &str, _: &Metrics) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            fn interval(&self) -> Option<Duration> {
                Some(Duration::from_millis(1))
            }
        }
        let reports = std::sync::Arc::<AtomicUsize>::default();
        let queue = WorkQueue::builder().observer(Reports(std::sync::Arc::clone(&reports))).build_with(no_thread);
        queue.add(0);
        let _held = queue.get().unwrap();
        assert!(queue.shut_down_with_drain_timeout(Duration::from_millis(50)).is_err());
        assert!(reports.load(Ordering::Relaxed) > 3);
    }

    /// The queue is shut down, so a thread that stands in has nothing more to do. It leaves the place when it parks, and does not clear it
    /// at the end of its wait, when another thread may have taken it.
    #[test]
    fn a_stand_in_with_nothing_to_do_leaves_the_place() {
        let queue = driverless(WorkQueue::builder());
        queue.add(0);
        let _held = queue.get().unwrap();
        queue.shared.begin_drain();
        queue.shared.hub().driver = State::Missing { retry_at: now() + HOUR };
        let mut parking = Parking::new(&queue.shared);
        parking.park(&Parker::new(), Some(now()));
        assert!(queue.shared.is_driver_missing() && matches!(queue.shared.hub().stand_in, State::Absent));
        queue.shared.hub().stand_in = State::Running;
        drop(parking);
        assert!(matches!(queue.shared.hub().stand_in, State::Running));
    }

    /// The driver has started: its stand-in leaves the place before it parks.
    #[test]
    fn a_stand_in_leaves_the_place_when_there_is_a_driver() {
        let queue = driverless(WorkQueue::builder());
        let mut parking = Parking::new(&queue.shared);
        let mut park = || {
            parking.park(&Parker::new(), Some(now()));
            std::mem::take(&mut queue.shared.hub().stand_in)
        };
        let first = park();
        assert!(matches!(first, State::Parked { .. }), "{first:?}");
        let mut hub = queue.shared.hub();
        (hub.driver, hub.stand_in) = (State::Running, first);
        hub.set(Flags::NO_DRIVER, false);
        drop(hub);
        assert!(matches!(park(), State::Absent));
    }
}
