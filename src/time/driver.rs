//! Who delivers keys when they are due: a thread of the queue's own, or whoever calls `turn`.
//!
//! ```text
//!              first delay              nothing due: sleeps until the next deadline, or without limit
//!   Absent ──────────────────▶ Awake ─────────────────────────────────────────────▶ Asleep { until }
//!     ▲                        │ │ ▲                                                   │
//!     └──── shut down ─────────┘ │ └── a delay that is due before `until`; shut down; ─┘
//!                                │     the time has come; no reason at all
//!   the thread cannot be started │
//!                                ▼
//!                              Failed { retry_at } ── a call at or after `retry_at` ──▶ Awake
//! ```
//!
//! A thread cannot be started when the process is out of threads or memory. The delay is set all the same. Until a later call
//! starts the thread, each getter that parks is a driver, too: it delivers what is due, and parks no longer than until the
//! earliest deadline that it knows. An earlier delay wakes all parked getters.
//!
//! The state is under the queue's lock, so the hand-over needs no protocol of its own:
//!
//! * **I8** The driver goes to sleep in the critical section in which it found nothing due, until a time that is not later than
//!   the earliest delay. Who sets an earlier one, in a later critical section, sees `Asleep` and wakes it.
//!
//! While it is awake nobody has to wake it: it looks once more before it sleeps. So a burst of ever earlier delays costs one
//! wake-up. The thread has the queue only while it works; asleep it has a weak reference, and the last handle that is dropped
//! wakes it, to end.

use crate::panics::discard;
use crate::shared::Shared;
use crate::sync::{Arc, Parker, Unparker, Weak, downgrade, now, spawn};
use crate::time::clock::Clock;
use crate::wait::{Ticket, Waiter, Wake};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

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
    ///
    /// If the thread cannot be started, because the process is out of threads or memory, delays are set all the same. Then threads
    /// that wait in [`get`](crate::WorkQueue::get) or [`wait_idle`](crate::WorkQueue::wait_idle) deliver the keys, on time as long
    /// as one of them waits; and calls that add, get or wait try again to start the thread, every ten milliseconds at most. A task
    /// cannot deliver: if only tasks wait, the next such call does. [`Stats::driver_failures`](crate::Stats::driver_failures)
    /// counts the failures, and [`Observer::driver_failed`](crate::Observer::driver_failed) is told of each.
    #[default]
    Thread,
    /// Nobody but callers of [`turn`](crate::WorkQueue::turn): for tests, and for programs with a loop of their own.
    Manual,
}

/// The driver thread, seen from under the queue's lock.
#[derive(Debug)]
pub(crate) enum State {
    /// There is none (P16): no delay yet, or shut down, or [`Driver::Manual`].
    Absent,
    /// It will look for what is due before it sleeps.
    Awake,
    /// It sleeps until then.
    Asleep { until: u64, driver: Unparker },
    /// The thread could not be started, and no call before `retry_at` tries again. Parked getters wake at `until`.
    Failed { retry_at: Instant, until: u64 },
}

/// How long a queue whose driver thread could not be started waits before a call tries again. A failed try costs some ten
/// microseconds.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

/// What is owed to the driver, to be paid after unlocking.
#[must_use = "an earlier delay that nobody looks at comes late"]
#[derive(Debug)]
pub(crate) enum Rouse {
    Nothing,
    Unpark(Wake),
    Start,
    /// There is no driver thread: the getters that are parked have to know of the deadline.
    Getters,
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
            Self::Failed { retry_at, .. } if deadline < u64::MAX && *retry_at <= now() => {
                *self = Self::Awake;
                Rouse::Start
            }
            Self::Failed { until, .. } if deadline < *until => {
                *until = deadline;
                Rouse::Getters
            }
            _ => Rouse::Nothing,
        }
    }

    /// Whether the caller is to try again to start the thread.
    pub(crate) fn retry(&mut self) -> bool {
        let retry = matches!(self, Self::Failed { retry_at, .. } if *retry_at <= now());
        if retry {
            *self = Self::Awake;
        }
        retry
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
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sleep {
    /// There is more to deliver.
    Not,
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
    let _joined = Joined::new(&clock, &parker);
    while let Some(shared) = weak.upgrade() {
        // A waker that panics has had its message printed; the keys that are still to come must not suffer.
        let sleep = catch_unwind(AssertUnwindSafe(|| shared.drive(&parker)));
        drop(shared);
        match sleep {
            Ok(Sleep::Until(time)) => parker.park(clock.instant(time)),
            Ok(Sleep::Not) => {}
            Ok(Sleep::End) => return,
            Err(payload) => discard(payload),
        }
    }
}

/// A thread that a [mock clock](Clock::mock) unparks whenever its time is moved, until this is dropped.
pub(crate) struct Joined<'c> {
    clock: &'c Clock,
    ticket: Option<Ticket>,
}

impl<'c> Joined<'c> {
    pub(crate) fn new(clock: &'c Clock, parker: &Parker) -> Self {
        Self { clock, ticket: clock.join(parker.unparker()) }
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.clock.leave(self.ticket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

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

    /// The thread cannot be started at first. Each call that adds, gets or waits tries again once it can be, whether or not it sets
    /// a delay.
    #[test]
    fn any_call_starts_the_thread_when_that_is_possible_again() {
        static POSSIBLE: AtomicBool = AtomicBool::new(false);
        let start: fn(&Arc<Shared<&'static str>>) -> std::io::Result<()> = |shared| {
            if POSSIBLE.load(Ordering::SeqCst) { start(shared) } else { Err(std::io::ErrorKind::WouldBlock.into()) }
        };
        type Call = fn(&WorkQueue<&'static str>);
        let calls: [(&str, Call); 9] = [
            ("add", |queue| _ = queue.add("other")),
            ("add_all", |queue| _ = queue.add_all(["other"])),
            ("add_after, not earlier", |queue| _ = queue.add_after("key", Duration::from_secs(7200))),
            ("add_rate_limited", |queue| _ = queue.add_rate_limited("other")),
            ("try_get", |queue| assert!(queue.try_get().is_err())),
            ("get_timeout", |queue| _ = queue.get_timeout(Duration::from_millis(1))),
            ("get_async", |queue| _ = pin!(queue.get_async()).poll(&mut Context::from_waker(Waker::noop()))),
            ("wait_idle_timeout", |queue| _ = queue.wait_idle_timeout(Duration::from_millis(1))),
            ("idle", |queue| _ = pin!(queue.idle()).poll(&mut Context::from_waker(Waker::noop()))),
        ];
        for (name, call) in calls {
            POSSIBLE.store(false, Ordering::SeqCst);
            let queue = WorkQueue::builder().build_with(start);
            queue.add_after("key", Duration::from_secs(3600));
            assert!(queue.shared.is_driver_failed(), "{name}");
            let failures = queue.stats().driver_failures; // more than one, if this thread was kept from its core for long
            assert!(failures >= 1, "{name}");
            POSSIBLE.store(true, Ordering::SeqCst);
            let begin = Instant::now();
            while queue.shared.is_driver_failed() {
                call(&queue);
                assert!(begin.elapsed() < Duration::from_secs(60), "{name} starts no thread");
            }
            queue.add_after("soon", Duration::from_millis(1));
            while queue.get().is_some_and(|key| *key != "soon") {}
            assert_eq!(queue.stats().driver_failures, failures, "{name}");
        }
    }

    /// While no thread can be started, an earlier delay reaches the getter that is parked, and so does the time of a mock clock.
    #[test]
    fn a_parked_getter_hears_of_an_earlier_delay() {
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let queue = WorkQueue::builder().build_with(start);
        let (clock, time) = Clock::mock();
        let mocked = WorkQueue::builder().clock(clock).build_with(start);
        std::thread::scope(|scope| {
            queue.add_after(1, Duration::from_secs(3600));
            let getter = scope.spawn(|| *queue.get().unwrap());
            let parked = |queue: &WorkQueue<u8>| while queue.stats().waiters == 0 {};
            parked(&queue);
            queue.add_after(2, Duration::from_millis(5));
            assert_eq!(getter.join().unwrap(), 2);

            mocked.add_after(1, Duration::from_secs(3600));
            let getter = scope.spawn(|| *mocked.get().unwrap());
            parked(&mocked);
            while !getter.is_finished() {
                time.advance(Duration::from_secs(3600));
                std::thread::yield_now();
            }
            assert_eq!(getter.join().unwrap(), 1);
        });
    }

    /// While no thread can be started, a getter delivers a key and wakes itself; then an observer, on the getter's thread, waits for a
    /// key of another queue. The wait must not consume the wake-up of the getter.
    #[test]
    fn an_observer_that_waits_does_not_consume_the_wake_up_of_a_getter() {
        struct Waits(WorkQueue<u8>);
        impl crate::Observer for Waits {
            fn added(&self, added: crate::Added) {
                if added == crate::Added::Queued {
                    assert!(self.0.get_timeout(Duration::from_millis(5)).is_err());
                }
            }
        }
        let start: fn(&Arc<Shared<u8>>) -> std::io::Result<()> = |_| Err(std::io::ErrorKind::WouldBlock.into());
        let queue = WorkQueue::builder().observer(Waits(WorkQueue::new())).build_with(start);
        queue.add_after(1, Duration::from_millis(50));
        let begin = Instant::now();
        assert_eq!(*queue.get_timeout(Duration::from_secs(5)).unwrap(), 1);
        assert!(begin.elapsed() < Duration::from_secs(3), "the key came after {:?}", begin.elapsed());
    }

    /// A clock that goes on does not wake a driver that has ended.
    #[test]
    fn a_driver_that_ends_leaves_its_clock() {
        let (clock, time) = Clock::mock();
        let parker = Parker::new();
        drop(Joined::new(&clock, &parker));
        time.advance(Duration::from_secs(1));
        let (begin, rest) = (Instant::now(), Duration::from_millis(20));
        parker.park(Some(begin + rest));
        assert!(begin.elapsed() >= rest, "woken");
    }
}
