//! Who delivers keys when they are due: a thread of the queue's own, or whoever calls `turn`.
//!
//! ```text
//!              first delay              nothing due: sleeps until the next deadline, or without limit
//!   Absent ──────────────────▶ Awake ─────────────────────────────────────────────▶ Asleep { until }
//!     ▲                         │  ▲                                                   │
//!     └──── shut down ──────────┘  └── a delay that is due before `until`; shut down; ─┘
//!                                      the time has come; no reason at all
//! ```
//!
//! The state is under the queue's lock, so the hand-over needs no protocol of its own:
//!
//! * **I8** The driver goes to sleep in the critical section in which it found nothing due, until a time that is not later than
//!   the earliest delay. Who sets an earlier one, in a later critical section, sees `Asleep` and wakes it.
//!
//! While it is awake nobody has to wake it: it looks once more before it sleeps. So a burst of ever earlier delays costs one
//! wake-up. The thread has the queue only while it works; asleep it has a weak reference, and the last handle that is dropped
//! wakes it, to end.

use crate::shared::Shared;
use crate::sync::{Arc, Parker, Unparker, Weak, downgrade, spawn};
use crate::time::clock::Clock;
use crate::wait::{Ticket, Waiter, Wake};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Who delivers keys that are due.
///
/// # After a fork
/// Threads do not survive a `fork`. In the child, the driver thread of a queue that was made before is gone, the queue does not
/// notice, and its delayed keys are never delivered; and if another thread was using the queue at the fork, each call may wait
/// forever for a lock. Make queues after the fork, or call `exec` in the child. Only a queue with [`Driver::Manual`] that no other
/// thread was using goes on in the child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// A thread, named `keyqueue-delay`: starts with the first delay, sleeps while nothing is due, and ends when the queue is
    /// shut down or its last handle is dropped.
    #[default]
    Thread,
    /// Nobody but callers of [`turn`](crate::WorkQueue::turn): for tests, and for programs with a loop of their own.
    Manual,
}

/// The driver thread, seen from under the queue's lock.
#[derive(Debug)]
pub(crate) enum State {
    /// There is none: no delay yet, or shut down, or [`Driver::Manual`].
    Absent,
    /// It will look for what is due before it sleeps.
    Awake,
    /// It sleeps until then.
    Asleep { until: u64, driver: Unparker },
}

/// What is owed to the driver, to be paid after unlocking.
#[must_use = "an earlier delay that nobody looks at comes late"]
#[derive(Debug)]
pub(crate) enum Rouse {
    Nothing,
    Unpark(Wake),
    Start,
}

impl State {
    /// There is a delay with this deadline.
    #[inline]
    pub(crate) fn expect(&mut self, deadline: u64, driver: Driver) -> Rouse {
        match self {
            Self::Asleep { until, .. } if deadline < *until => Rouse::Unpark(self.wake()),
            Self::Absent if driver == Driver::Thread && deadline < u64::MAX => {
                *self = Self::Awake;
                Rouse::Start
            }
            _ => Rouse::Nothing,
        }
    }

    /// Wakes it if it sleeps.
    pub(crate) fn wake(&mut self) -> Wake {
        match std::mem::replace(self, Self::Awake) {
            Self::Asleep { driver, .. } => Wake::one(Some(Waiter::Thread(driver))),
            other => {
                *self = other;
                Wake::default()
            }
        }
    }
}

/// How the driver goes on.
pub(crate) enum Sleep {
    Until(u64),
    /// The queue is shut down.
    End,
}

/// Starts the thread.
pub(crate) fn start<K: Send + Sync + 'static>(shared: &Arc<Shared<K>>) -> std::io::Result<()> {
    let weak = downgrade(shared);
    spawn("keyqueue-delay", move || run(&weak)).map(drop) // nobody joins it
}

fn run<K>(weak: &Weak<Shared<K>>) {
    // Not the thread's own: a waker is user code, and might wait for a key here.
    let parker = Parker::new();
    let Some(shared) = weak.upgrade() else { return };
    let clock = shared.clock.clone();
    drop(shared);
    let _joined = Joined { clock: &clock, ticket: clock.join(parker.unparker()) };
    while let Some(shared) = weak.upgrade() {
        // A waker that panics has had its message printed; the keys that are still to come must not suffer.
        let sleep = catch_unwind(AssertUnwindSafe(|| shared.drive(&parker)));
        drop(shared);
        match sleep {
            Ok(Sleep::Until(time)) => parker.park(clock.instant(time)),
            Ok(Sleep::End) => return,
            // Its drop is user code too.
            Err(payload) => std::mem::forget(payload),
        }
    }
}

/// Leaves the clock when the thread ends.
struct Joined<'c> {
    clock: &'c Clock,
    ticket: Option<Ticket>,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.clock.leave(self.ticket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Nobody is woken or started for a delay that is not the earliest, or that never ends.
    #[test]
    fn a_driver_is_disturbed_by_an_earlier_delay_only() {
        let asleep = || State::Asleep { until: 10, driver: Parker::new().unparker() };
        for (deadline, wakes) in [(9, true), (10, false), (11, false)] {
            assert_eq!(matches!(asleep().expect(deadline, Driver::Thread), Rouse::Unpark(_)), wakes, "{deadline}");
        }
        for (deadline, driver, starts) in
            [(9, Driver::Thread, true), (u64::MAX, Driver::Thread, false), (9, Driver::Manual, false)]
        {
            assert_eq!(matches!(State::Absent.expect(deadline, driver), Rouse::Start), starts, "{deadline} {driver:?}");
        }
        assert!(matches!(State::Awake.expect(9, Driver::Thread), Rouse::Nothing), "it will look by itself");
    }

    /// A clock that goes on does not wake a driver that has ended.
    #[test]
    fn a_driver_that_ends_leaves_its_clock() {
        let (clock, time) = Clock::mock();
        let parker = Parker::new();
        drop(Joined { clock: &clock, ticket: clock.join(parker.unparker()) });
        time.advance(Duration::from_secs(1));
        let (begin, rest) = (Instant::now(), Duration::from_millis(20));
        parker.park(Some(begin + rest));
        assert!(begin.elapsed() >= rest, "woken");
    }
}
