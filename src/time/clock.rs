//! What time it is, in nanoseconds: the processor's, or a test's.

use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Unparker};
use crate::wait::{Ticket, WaitList, Waiter};
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The clock by which delays come due.
///
/// The real one is `quanta`'s: the time stamp counter where that is reliable, the system's monotonic clock elsewhere. It is the same
/// for all queues, and made when it is first used, which takes up to 200 ms on some machines, and usually less than one;
/// [`Clock::new`] does it at a time of your choosing.
///
/// # Caveats
/// It keeps to the system's monotonic clock within a few parts in a million. Neither counts the time in which the machine is suspended, as a rule.
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

/// The real clock, and its reading when it was made.
fn real() -> &'static (quanta::Clock, u64) {
    static REAL: OnceLock<(quanta::Clock, u64)> = OnceLock::new();
    REAL.get_or_init(|| {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        (clock, start)
    })
}

impl Clock {
    /// The real clock.
    #[must_use]
    pub fn new() -> Self {
        real();
        Self(Kind::Real)
    }

    /// A clock that stands still until it is told to move, for tests.
    #[must_use]
    pub fn mock() -> (Self, MockClock) {
        let mock = MockClock(Arc::new(Mock { now: AtomicU64::new(0), drivers: Mutex::new(WaitList::default()) }));
        (Self(Kind::Mock(mock.clone())), mock)
    }

    /// As [`new`](Self::new), but made at its first use.
    pub(crate) const fn lazy() -> Self {
        Self(Kind::Real)
    }

    /// Nanoseconds since the clock was made. May step back a little between processors: who compares, takes the maximum.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.0 {
            Kind::Real => {
                let (clock, start) = real();
                clock.delta_as_nanos(*start, clock.raw())
            }
            // Acquire: who sees the time that `advance` set, sees what came before it.
            Kind::Mock(mock) => mock.0.now.load(Ordering::Acquire),
        }
    }

    /// When the system's clock will show what this one calls `time`. `None`: never by itself, or too far for the system.
    pub(crate) fn instant(&self, time: u64) -> Option<Instant> {
        match &self.0 {
            Kind::Real if time == u64::MAX => None,
            Kind::Real => Instant::now().checked_add(Duration::from_nanos(time.saturating_sub(self.now()))),
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

impl MockClock {
    /// Moves the time on. It stops at the end of time, `u64::MAX` nanoseconds from the start.
    ///
    /// Queues with [`Driver::Manual`](crate::Driver::Manual) see it at their next [`turn`](crate::WorkQueue::turn); the driver threads of others are woken, and
    /// deliver what is due soon after.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let later = |now: u64| Some(now.saturating_add(by));
        // AcqRel: as for `now`. The update is never refused.
        let _was = self.0.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        // Threads only, and no user code in waking one, so under the lock.
        self.0.drivers.lock().iter().for_each(Waiter::unpark);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::lazy()
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
