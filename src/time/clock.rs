//! What time it is, in nanoseconds: the system's, or a test's.
//!
//! The system's is read through `std::time::Instant`, in some 20 ns. `quanta`, which reads the processor's counter in 10, was
//! here before, and it was wrong: it takes its measure of the counter in less than a millisecond, and on a machine that was
//! busy just then the result was off by up to 0.09 % (580 processes), so that a key came early by a millisecond for every
//! second of its delay. Where a tenth of a microsecond does not matter, [`rough`](Clock::rough) reads the counter all the same.

use super::{nanos, rough};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Unparker, now};
use crate::wait::{Ticket, WaitList, Waiter};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The clock by which delays come due.
///
/// The real one is the system's monotonic clock, the one of [`Instant`]. On most systems it does not count the time in which
/// the machine is suspended.
///
/// # Examples
/// ```
/// use keyqueue::{Clock, Driver, WorkQueue};
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
/// queue.add_after("pod-1", Duration::from_secs(3600));
/// time.advance(Duration::from_secs(3600));
/// assert_eq!(queue.turn(), 1);
/// assert_eq!(*queue.try_get().unwrap(), "pod-1");
/// ```
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    Real,
    Mock(MockClock),
}

/// Moves the time of a [`Clock::mock`]. Clones move the same time.
#[derive(Clone)]
pub struct MockClock(Arc<Mock>);

struct Mock {
    now: AtomicU64,
    /// Drivers that wait for time to move.
    drivers: Mutex<WaitList>,
}

impl Clock {
    /// The real clock.
    #[must_use]
    pub fn new() -> Self {
        Self(Kind::Real)
    }

    /// A clock that stands still until it is told to move, for tests.
    #[must_use]
    pub fn mock() -> (Self, MockClock) {
        let mock = MockClock(Arc::new(Mock { now: AtomicU64::new(0), drivers: Mutex::new(WaitList::default()) }));
        (Self(Kind::Mock(mock.clone())), mock)
    }

    /// Nanoseconds since some moment; 584 years of them. Read without the lock, so not in the order of its critical sections:
    /// who compares, takes the maximum.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.0 {
            Kind::Real => {
                let since = now().saturating_duration_since(start());
                since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
            }
            // Acquire: who sees the time that `advance` set, sees what came before it.
            Kind::Mock(mock) => mock.0.now.load(Ordering::Acquire),
        }
    }

    /// As [`now`](Self::now), in half the time, and as a rule less than a tenth of a microsecond off: for limiters. It may go
    /// back by as much.
    #[inline]
    pub(crate) fn rough(&self) -> u64 {
        match &self.0 {
            Kind::Real if !cfg!(loom) => rough::now(|| self.now()),
            _ => self.now(),
        }
    }

    /// It stands still until it is told to move.
    #[inline]
    pub(crate) fn is_mock(&self) -> bool {
        matches!(self.0, Kind::Mock(_))
    }

    /// Has [`rough`](Self::rough) ready: its first call of all would take half a millisecond.
    pub(crate) fn prepare(&self) {
        if matches!(self.0, Kind::Real) && !cfg!(loom) {
            rough::counter();
        }
    }

    /// When the system's clock will show what this one calls `time`. `None`: never by itself, or too far for the system.
    pub(crate) fn instant(&self, time: u64) -> Option<Instant> {
        match &self.0 {
            Kind::Real if time == u64::MAX => None,
            Kind::Real => start().checked_add(Duration::from_nanos(time)),
            Kind::Mock(_) => None,
        }
    }

    /// Has a driver woken whenever the time is moved by hand, until it [leaves](Self::leave).
    pub(crate) fn join(&self, driver: Unparker) -> Option<Ticket> {
        match &self.0 {
            Kind::Real => None,
            Kind::Mock(mock) => Some(mock.0.drivers.lock().push(Waiter::Thread(driver))),
        }
    }

    pub(crate) fn leave(&self, ticket: Option<Ticket>) {
        if let (Kind::Mock(mock), Some(ticket)) = (&self.0, ticket) {
            let _listed = mock.0.drivers.lock().remove(ticket);
        }
    }
}

/// When the system's clock was read first: all queues' nanosecond zero.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(now)
}

// No user code runs under its lock, so no panic can leave anything half made.
impl UnwindSafe for MockClock {}
impl RefUnwindSafe for MockClock {}

impl MockClock {
    /// Moves the time on. It stops at the end of time, `u64::MAX` nanoseconds from the start.
    ///
    /// Queues with [`Driver::Manual`](crate::Driver::Manual) see it at their next [`turn`](crate::WorkQueue::turn); the
    /// driver threads of others are woken, and deliver what is due soon after.
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        let later = |now: u64| Some(now.saturating_add(by));
        // AcqRel: as for `now`. The update is never refused.
        let _was = self.0.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        // Threads only, and no user code in waking one, so under the lock.
        self.0.drivers.lock().iter().for_each(Waiter::unpark);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Real => f.write_str("Clock"),
            Kind::Mock(mock) => mock.fmt(f),
        }
    }
}

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for the reader's eyes only.
        f.debug_tuple("MockClock").field(&Duration::from_nanos(self.0.now.load(Ordering::Relaxed))).finish()
    }
}
