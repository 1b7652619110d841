//! The driver queues expired keys: it is a thread of the queue, or each thread that calls `turn`. It also reports, if the observer has an
//! interval (W6), and the thread wakes tasks that have passed by a busy shard (W5).
//!
//! ```text
//!    delay, task or report       a call starts it          no delay has expired
//!  Absent ───────────▶ Missing ───────────────────▶ Running ───────────────────▶ Parked { until }
//!    ▲                  │  ▲ │                       │   ▲                           │
//!    ├── no delay left ─┘  └─┘ the start fails       │   └── an earlier deadline or report; a task; ─┘
//!    └── shut down, and no task ─────────────────────┘       the time `until`; shut down; a spurious wake-up
//! ```
//!
//! When the process is out of threads or memory, the system cannot start the thread. Delays are still set. Until a later call starts the
//! thread, each getter that parks does the driver's work: it queues expired keys, and parks until the earliest deadline at most. An earlier
//! deadline wakes all parked getters. Tasks that have passed by a busy shard wake themselves meanwhile.
//!
//! The state is under the hub's lock. A call that sets a deadline earlier than any before in its shard counts it there, and wakes the driver
//! if it is parked for longer. The driver writes `Parked` only if none was counted since it began to visit the shards
//! ([I8](crate::guarantees#waiting-and-wake-ups)). A driver that runs needs no wake-up. So a burst of earlier and earlier deadlines costs one.
//!
//! Beside the driver, getters add keys that are due: see `src/shared/driver.rs`. That changes no state here: the driver finds at the time
//! `until` that there is nothing to do.
//!
//! The thread has a strong reference to the queue only while it works. While it is parked its reference is weak, and the drop of
//! the last handle wakes it, so that it ends.

use crate::sync::{Parker, Unparker, now};
use crate::time::clock::Clock;
use crate::wait::{Ticket, Waiter};
use std::time::{Duration, Instant};

/// Chooses the thread that queues keys whose delays have expired.
///
/// # After a fork
/// Threads do not survive a `fork`. The child has no driver thread of an older queue. The queue does not notice this, and never adds its
/// delayed keys. If another thread used the queue at the fork, each call may wait forever for a lock. Make queues after the fork, or call
/// `exec` in the child. In the child, an older queue works only with [`Driver::Manual`], and only if no other thread used it at the fork.
///
/// # Examples
/// ```
/// use keyqueue::{Driver, WorkQueue};
///
/// // No thread: calls of `turn` expire delays.
/// let queue = WorkQueue::<u32>::builder().driver(Driver::Manual).build();
/// assert_eq!(queue.turn(), 0);
/// ```
#[doc(alias = "waitingLoop")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of the name `keyqueue-delay`. It starts with the first delay, is parked while no delay has expired, and ends when the
    /// queue is shut down or its last handle is dropped.
    ///
    /// Getters also queue keys whose delays have expired, some at a time, unless the clock is [given](crate::Clock::mock): when they park,
    /// were woken, or read the clock anyway. So under load a key does not wait until the thread gets a core.
    ///
    /// If the observer has an [interval](crate::observe::Observer::interval), the thread also reports. It then starts with the first add.
    /// After the shut-down it ends with the last report.
    ///
    /// In a queue with several [shards](crate::WorkQueueBuilder::shards), another thread may hold the lock of a shard for long. The driver
    /// thread also wakes tasks that wait for such a shard. It starts with the first such task, if there was no delay before.
    ///
    /// If the process is out of threads or memory, the system cannot start the thread. Delays are still set. Threads that wait in
    /// [`get`](crate::WorkQueue::get) or [`wait_idle`](crate::WorkQueue::wait_idle) do the driver's work, and keys are on time while one of
    /// them waits. Calls that add, get or wait try again to start the thread, at most every ten milliseconds. A task cannot do the driver's
    /// work: if only tasks wait, the next such call does it. [`Stats::driver_failures`](crate::Stats::driver_failures) counts the failed
    /// starts, and each calls [`Observer::driver_failed`](crate::observe::Observer::driver_failed).
    #[default]
    Thread,
    /// Only callers of [`turn`](crate::WorkQueue::turn) add these keys: for tests, and for programs with an event loop.
    Manual,
}

/// The state of the driver thread, under the queue's lock.
#[derive(Debug)]
pub(crate) enum State {
    /// There is no thread (P16): no delay, task (W5) or report (W6) has asked for one yet, or the queue is shut down, or [`Driver::Manual`].
    Absent,
    /// It will look for expired delays before it parks.
    Running,
    /// It is parked until this time.
    Parked { until: u64, driver: Unparker },
    /// The thread is still to be started, or could not be: no call before `retry_at` tries again. Each getter that parks parks until the
    /// earliest deadline that it has found, and a new deadline wakes all.
    Missing { retry_at: Instant },
}

/// The time between two tries to start the driver thread. A failed try costs some ten microseconds.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

/// The action that a new deadline requires.
#[derive(Debug)]
pub(crate) enum Notice {
    Nothing,
    /// The driver thread is parked past the deadline and must be unparked.
    Driver(Waiter),
    /// There is no driver thread yet: the call that has set the delay starts one after the lock.
    Start,
    /// There is no driver thread: the parked getters must be woken, for the new deadline.
    Getters,
}

impl State {
    /// Called when a delay with this deadline is set, or a report is scheduled; for a task that is to be woken, with 0. Not in a queue with [`Driver::Manual`].
    pub(crate) fn on_new_deadline(&mut self, deadline: u64) -> Notice {
        match self {
            Self::Parked { until, .. } if deadline < *until => self.wake().map_or(Notice::Nothing, Notice::Driver),
            Self::Absent if deadline < u64::MAX => {
                *self = Self::Missing { retry_at: now() };
                Notice::Start
            }
            // Always: it is not known until when each getter is parked.
            Self::Missing { .. } => Notice::Getters,
            _ => Notice::Nothing,
        }
    }

    /// Whether the thread could not be started, and it is time to try again.
    pub(crate) fn is_time_to_retry(&self) -> bool {
        matches!(self, Self::Missing { retry_at } if *retry_at <= now())
    }

    /// Whether the caller is to try again to start the thread.
    pub(crate) fn retry(&mut self) -> bool {
        let retry = self.is_time_to_retry();
        if retry {
            *self = Self::Running;
        }
        retry
    }

    /// Called when no delay needs the thread that is still to be started.
    pub(crate) fn give_up(&mut self) {
        if matches!(self, Self::Missing { .. }) {
            *self = Self::Absent;
        }
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
    /// Until this time, or, if the time is a mock clock's, until that is moved.
    Park(Option<Instant>),
    /// It has reported. It looks again, and has let go of the queue before that.
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

    /// A delay that is not the earliest, or that never expires, wakes and starts no driver.
    #[test]
    fn only_an_earlier_delay_wakes_the_driver() {
        let parked = || State::Parked { until: 10, driver: Parker::new().unparker() };
        for (deadline, wakes) in [(9, true), (10, false), (11, false)] {
            let notice = parked().on_new_deadline(deadline);
            assert_eq!(matches!(notice, Notice::Driver(_)), wakes, "{deadline}");
        }
        for (deadline, starts) in [(9, true), (u64::MAX, false)] {
            assert_eq!(matches!(State::Absent.on_new_deadline(deadline), Notice::Start), starts, "{deadline}");
        }
        assert!(matches!(State::Running.on_new_deadline(9), Notice::Nothing), "it will look by itself");
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
