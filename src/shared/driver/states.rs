//! Who drives a queue, and the states of the driver thread.
//!
//! ```text
//!    delay, task or report       a call starts it          no delay has expired
//!  Absent ───────────▶ Missing ───────────────────▶ Running ───────────────────▶ Parked { until }
//!    ▲                  │  ▲ │                       │   ▲                           │
//!    │                    └─┘ the start fails       │   └── an earlier deadline or report; a task; ─┘
//!    └── shut down, and no task ─────────────────────┘       the time `until`; shut down; a spurious wake-up
//! ```
//!
//! The state is under the hub's lock. A call that sets a deadline earlier than any before in its shard counts it there, and wakes the
//! driver if it is parked for longer. The driver writes `Parked` only if none was counted since it began to visit the shards (I8). While it
//! runs it needs no wake-up, so a burst of earlier and earlier deadlines costs one.

use crate::sync::{Parker, Unparker, now};
use crate::time::clock::Clock;
use crate::wait::{Ticket, Waiter};
use std::time::{Duration, Instant};

/// Chooses the thread that queues keys whose delays have expired.
///
/// # After a fork
/// Threads do not survive a `fork`, so in the child an older queue has no driver thread. The queue does not notice this, and never adds its
/// delayed keys. If another thread used the queue at the fork, each call may wait forever for a lock. Make queues after the fork, or call
/// `exec` in the child. An older queue works there only with [`Driver::Manual`], and only if no other thread used it at the fork.
///
/// # Examples
/// ```
/// use keyqueue::{Driver, WorkQueue};
///
/// // No thread: calls of `turn` expire delays.
/// let queue = WorkQueue::<u32>::builder().driver(Driver::Manual).build();
/// assert_eq!(queue.turn(), 0);
/// ```
#[doc(alias = "waitForPriorityQueue")]
#[doc(alias = "heartbeat")]
#[doc(alias = "maxWait")]
#[doc(alias = "waitingLoop")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of the name `keyqueue-delay`, which starts with the first delay, is parked while no delay has expired, and ends when the
    /// queue is shut down or its last handle is dropped. It also ends the runs that are past their
    /// [time limit](crate::WorkersBuilder::time_limit), and starts with the first of these runs.
    ///
    /// Getters also queue keys whose delays have expired, some at a time, when they park, were woken, or read the clock anyway, unless the
    /// clock is [given](crate::Clock::mock). Under load a key therefore does not wait until the thread gets a core.
    ///
    /// If the observer has an [interval](crate::observe::Observer::interval), the thread also reports. It then starts with the first add,
    /// and after the shut-down it ends with the last report.
    ///
    /// In a queue with several [shards](crate::WorkQueueBuilder::shards), another thread may hold the lock of a shard for long. The driver
    /// thread also wakes tasks that wait for such a shard, and starts with the first such task if there was no delay before. So it does for a
    /// task whose [batch](crate::Workers::run_batch_async) waits for more keys, when the batch has waited long enough.
    ///
    /// If the process is out of threads or memory, the system cannot start the thread. Delays are still set, and the threads that wait in
    /// [`get`](crate::WorkQueue::get), [`wait_idle`](crate::WorkQueue::wait_idle) or a drain do the driver's work every ten milliseconds,
    /// so that keys are late by at most that while one of them waits. Calls that add, get or wait try again to start the thread, at most
    /// every ten milliseconds, and so do these threads. A task cannot do the driver's work, so if only tasks wait, the next such call does
    /// it, and ends late runs. [`Stats::driver_failures`](crate::Stats::driver_failures) counts the failed starts, and each calls
    /// [`Observer::driver_failed`](crate::observe::Observer::driver_failed).
    #[default]
    Thread,
    /// Only callers of [`turn`](crate::WorkQueue::turn) add these keys: for tests, and for programs with an event loop.
    Manual,
}

/// The state of the driver thread, under the hub's lock.
#[derive(Debug, Default)]
pub(crate) enum DriverState {
    /// There is no thread (P16), because no delay, task (W5) or report (W6) has asked for one yet, the queue is shut down, or the driver is
    /// [`Driver::Manual`].
    #[default]
    Absent,
    /// It will look for expired delays before it parks.
    Running,
    /// It is parked until this time.
    Parked { until: u64, driver: Unparker },
    /// The thread was asked for, but is not started yet or could not be. No call tries before `retry_at`.
    Missing { retry_at: Instant },
}

/// The time between two tries to start the driver thread. A failed try costs some ten microseconds.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

impl DriverState {
    /// Unparks the thread if it is parked for longer than until this time. A task passes 0.
    pub(crate) fn wake_for(&mut self, deadline: u64) -> Option<Waiter> {
        if matches!(self, Self::Parked { until, .. } if deadline < *until) { self.wake() } else { None }
    }

    /// Whether the caller is to try to start the thread now.
    pub(crate) fn retry(&mut self) -> bool {
        let retry = matches!(self, Self::Missing { retry_at } if *retry_at <= now());
        if retry {
            *self = Self::Running;
        }
        retry
    }

    /// Unparks the driver if it is parked.
    pub(crate) fn wake(&mut self) -> Option<Waiter> {
        match std::mem::replace(self, Self::Running) {
            Self::Parked { driver, .. } => Some(Waiter::Thread(driver)),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What the driver does next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NextStep {
    /// Parks until this time, or, if it is a mock clock's, until that clock is moved.
    Park(Option<Instant>),
    /// Looks again, because it has reported or more delays have expired. It lets go of the queue in between.
    Again,
    /// The queue is shut down.
    End,
}

/// Until this is dropped, each move of a [mock clock](Clock::mock) unparks a thread.
pub(crate) struct ClockSubscription<'c> {
    clock: &'c Clock,
    ticket: Option<Ticket>,
}

impl<'c> ClockSubscription<'c> {
    pub(crate) fn new(clock: &'c Clock, parker: &Parker) -> Self {
        Self { clock, ticket: clock.subscribe(parker.unparker()) }
    }
}

impl Drop for ClockSubscription<'_> {
    fn drop(&mut self) {
        self.clock.unsubscribe(self.ticket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A delay that is not the earliest wakes no driver.
    #[test]
    fn only_an_earlier_delay_wakes_the_driver() {
        let parked = || DriverState::Parked { until: 10, driver: Parker::new().unparker() };
        for (deadline, wakes) in [(9, true), (10, false), (11, false)] {
            assert_eq!(parked().wake_for(deadline).is_some(), wakes, "{deadline}");
        }
        assert!(DriverState::Running.wake_for(9).is_none(), "it will look by itself");
    }

    /// A shut-down wakes the driver if it is parked. A driver that is missing stays so: a call is still to start it.
    #[test]
    fn only_a_parked_driver_is_woken() {
        let mut parked = DriverState::Parked { until: 10, driver: Parker::new().unparker() };
        assert!(parked.wake().is_some() && matches!(parked, DriverState::Running));
        let mut missing = DriverState::Missing { retry_at: now() };
        assert!(missing.wake().is_none() && matches!(missing, DriverState::Missing { .. }));
        let mut absent = DriverState::Absent;
        assert!(absent.wake().is_none() && matches!(absent, DriverState::Absent));
    }

    /// A move of the clock does not unpark a driver that has ended.
    #[test]
    fn a_driver_that_ends_unsubscribes_from_its_clock() {
        let (clock, time) = Clock::mock();
        let parker = Parker::new();
        drop(ClockSubscription::new(&clock, &parker));
        time.advance(Duration::from_secs(1));
        let (begin, timeout) = (Instant::now(), Duration::from_millis(20));
        parker.park(Some(begin + timeout));
        assert!(begin.elapsed() >= timeout, "unparked");
    }
}
