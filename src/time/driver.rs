//! The driver queues expired keys: it is a thread of the queue, or each thread that calls `turn`.
//!
//! ```text
//!              first delay              no delay has expired: parks until the next deadline, or without limit
//!   Absent ──────────────────▶ Awake ─────────────────────────────────────────────▶ Asleep { until }
//!     ▲                        │ │ ▲                                                   │
//!     └──── shut down ─────────┘ │ └── a delay that expires before `until`; shut down; ┘
//!                                │     the time `until`; a spurious wake-up
//!   the thread cannot be started │
//!                                ▼
//!                              Failed { retry_at } ── a call at or after `retry_at` ──▶ Awake
//! ```
//!
//! The thread cannot be started when the process is out of threads or memory. Delays are set in spite of that. Until a later call
//! starts the thread, each getter that parks does the driver's work: it queues expired keys, and parks until the earliest deadline
//! at most. An earlier deadline wakes all parked getters.
//!
//! The state is under the queue's lock. The driver writes `Asleep` in the critical section in which it found no expired delay, so a
//! later critical section that sets an earlier deadline sees it, and owes the wake-up ([I8](crate::guarantees#waiting-and-wake-ups)).
//! An awake driver needs no wake-up, as it looks again before it parks. So a burst of earlier and earlier deadlines costs one.
//!
//! The thread has a strong reference to the queue only while it works. While it is parked its reference is weak, and the drop of
//! the last handle wakes it, so that it ends.

use crate::panics::discard;
use crate::shared::Shared;
use crate::sync::{Arc, Parker, Unparker, Weak, downgrade, now, spawn};
use crate::time::clock::Clock;
use crate::wait::{Ticket, Waiter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What queues the keys of which the delay has expired.
///
/// # After a fork
/// Threads do not survive a `fork`. In the child, the driver thread of an older queue does not exist, the queue does not notice,
/// and its delayed keys are never queued. If another thread was using the queue at the fork, each call may wait forever for a lock.
/// Make queues after the fork, or call `exec` in the child. Only a queue with [`Driver::Manual`] that no other thread was using
/// works in the child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Driver {
    /// A thread of the name `keyqueue-delay`. It starts with the first delay, is parked while no delay has expired, and ends when the
    /// queue is shut down or its last handle is dropped.
    ///
    /// If the thread cannot be started, because the process is out of threads or memory, delays are set in spite of that. Then threads
    /// that wait in [`get`](crate::WorkQueue::get) or [`wait_idle`](crate::WorkQueue::wait_idle) do its work, and keys are on time
    /// while one of them waits. Calls that add, get or wait try again to start the thread, at most every ten milliseconds. A task
    /// cannot do this work: if only tasks wait, the next such call does it. [`Stats::driver_failures`](crate::Stats::driver_failures)
    /// counts the failures, and [`Observer::driver_failed`](crate::observe::Observer::driver_failed) is called for each.
    #[default]
    Thread,
    /// Only the callers of [`turn`](crate::WorkQueue::turn): for tests, and for programs that have a loop of their own.
    Manual,
}

/// The state of the driver thread, under the queue's lock.
#[derive(Debug)]
pub(crate) enum State {
    /// There is no thread (P16): no delay yet, or shut down, or [`Driver::Manual`].
    Absent,
    /// It will look for expired delays before it parks.
    Awake,
    /// It is parked until this time.
    Asleep { until: u64, driver: Unparker },
    /// The thread is still to be started, or could not be: no call before `retry_at` tries again. Parked getters wake at `until`.
    Failed { retry_at: Instant, until: u64 },
}

/// The time between two tries to start the driver thread. A failed try costs some ten microseconds.
pub(crate) const RETRY: Duration = Duration::from_millis(10);

/// What a new deadline asks for.
#[derive(Debug)]
pub(crate) enum Notice {
    Nothing,
    /// The driver thread is to be unparked: it sleeps past the deadline.
    Driver(Waiter),
    /// There is no driver thread yet: the call that has set the delay starts one after the lock.
    Start,
    /// There is no driver thread: the parked getters are to be woken, for the new deadline.
    Getters,
}

impl State {
    /// Whether [`on_new_deadline`](Self::on_new_deadline) is to be asked about this deadline.
    #[inline]
    pub(crate) fn is_waiting_past(&self, deadline: u64, driver: Driver) -> bool {
        match self {
            Self::Asleep { until, .. } | Self::Failed { until, .. } => deadline < *until,
            Self::Absent => driver == Driver::Thread && deadline < u64::MAX,
            Self::Awake => false,
        }
    }

    /// There is a delay with this deadline.
    pub(crate) fn on_new_deadline(&mut self, deadline: u64, driver: Driver) -> Notice {
        match self {
            Self::Asleep { until, .. } if deadline < *until => self.wake().map_or(Notice::Nothing, Notice::Driver),
            Self::Absent if driver == Driver::Thread && deadline < u64::MAX => {
                *self = Self::Failed { retry_at: now(), until: 0 };
                Notice::Start
            }
            Self::Failed { until, .. } if deadline < *until => {
                *until = deadline;
                Notice::Getters
            }
            _ => Notice::Nothing,
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

    /// No delay needs the thread that is still to be started.
    pub(crate) fn give_up(&mut self) {
        if matches!(self, Self::Failed { .. }) {
            *self = Self::Absent;
        }
    }

    /// Wakes it if it sleeps.
    pub(crate) fn wake(&mut self) -> Option<Waiter> {
        match std::mem::replace(self, Self::Awake) {
            Self::Asleep { driver, .. } => Some(Waiter::Thread(driver)),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// What the driver does next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sleep {
    /// It looks again: more delays may have expired.
    Not,
    Until(u64),
    /// The queue is shut down.
    End,
}

/// Starts the thread.
pub(crate) fn start<K: Send + Sync + 'static>(shared: &Arc<Shared<K>>) -> std::io::Result<()> {
    let weak = downgrade(shared);
    spawn("keyqueue-delay", move || run(&weak)).map(drop) // it is never joined
}

fn run<K>(weak: &Weak<Shared<K>>) {
    // Not the parker of the thread: a waker is foreign code that may park this thread, and would use up a wake-up of the driver.
    let parker = Parker::new();
    let Some(shared) = weak.upgrade() else { return };
    let clock = shared.clock.clone();
    drop(shared);
    let _subscription = ClockSubscription::new(&clock, &parker);
    while let Some(shared) = weak.upgrade() {
        // A panic, of an observer for example, has printed its message. The driver goes on, for the keys that expire later.
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
    use crate::WorkQueue;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};

    /// A delay that is not the earliest, or that never expires, wakes and starts no driver.
    #[test]
    fn only_an_earlier_delay_wakes_the_driver() {
        let asleep = || State::Asleep { until: 10, driver: Parker::new().unparker() };
        for (deadline, wakes) in [(9, true), (10, false), (11, false)] {
            assert_eq!(asleep().is_waiting_past(deadline, Driver::Thread), wakes, "{deadline}");
            let notice = asleep().on_new_deadline(deadline, Driver::Thread);
            assert_eq!(matches!(notice, Notice::Driver(_)), wakes, "{deadline}");
        }
        for (deadline, driver, starts) in
            [(9, Driver::Thread, true), (u64::MAX, Driver::Thread, false), (9, Driver::Manual, false)]
        {
            assert_eq!(State::Absent.is_waiting_past(deadline, driver), starts, "{deadline} {driver:?}");
            let notice = State::Absent.on_new_deadline(deadline, driver);
            assert_eq!(matches!(notice, Notice::Start), starts, "{deadline} {driver:?}");
        }
        assert!(!State::Awake.is_waiting_past(9, Driver::Thread), "it will look by itself");
    }

    /// The thread cannot be started at first. Later it can, and then each call that adds, gets or waits starts it, even one that sets
    /// no delay.
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
            ("wait_idle_async", |queue| {
                _ = pin!(queue.wait_idle_async()).poll(&mut Context::from_waker(Waker::noop()))
            }),
        ];
        for (name, call) in calls {
            POSSIBLE.store(false, Ordering::SeqCst);
            let queue = WorkQueue::builder().build_with(start);
            queue.add_after("key", Duration::from_secs(3600));
            assert!(queue.shared.is_driver_failed(), "{name}");
            let failures = queue.stats().driver_failures; // more than one, if this thread was descheduled for long
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

    /// While no thread can be started, an earlier delay wakes a parked getter, and so does a move of a mock clock.
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

    /// While no thread can be started, a getter queues an expired key, which wakes the getter itself. Then an observer on the same
    /// thread waits for a key of another queue. This wait must not use up the getter's wake-up.
    #[test]
    fn an_observer_that_waits_does_not_consume_the_wake_up_of_a_getter() {
        struct Waits(WorkQueue<u8>);
        impl crate::observe::Observer for Waits {
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
