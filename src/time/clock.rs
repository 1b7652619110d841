//! The time in nanoseconds: the system's, or that of a test.
//!
//! The system's clock is read through `std::time::Instant`, in some 20 ns. `quanta`, which reads the processor's counter in 10 ns,
//! was used before, and was wrong: it measures the counter's rate in less than a millisecond. On a machine that was busy during
//! that millisecond the rate was off by up to 0.09 % (in 580 processes), and keys came early by a millisecond for each second of
//! their delay. Where a tenth of a microsecond does not matter, [`now_coarse`](Clock::now_coarse) reads the counter (feature `quanta`;
//! without it, the system's clock).

#[cfg(all(feature = "quanta", not(loom)))]
use super::coarse_clock;
use super::nanos;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Unparker, now};
use crate::wait::{Ticket, WaitList, Waiter};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The clock by which delays expire.
///
/// The real one is the system's monotonic clock, as in [`Instant`]. On most systems it stands still while the machine is
/// suspended.
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
///
/// # Examples
/// ```
/// use keyqueue::Clock;
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// time.advance(Duration::from_secs(1));
/// # let _ = clock;
/// ```
#[derive(Clone)]
pub struct MockClock(Arc<Mock>);

struct Mock {
    now: AtomicU64,
    /// Parked threads that a move of the time unparks.
    subscribers: Mutex<WaitList>,
}

impl Clock {
    /// The real clock.
    ///
    /// # Examples
    /// ```
    /// // the default
    /// let queue = keyqueue::WorkQueue::<u32>::builder().clock(keyqueue::Clock::new()).build();
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self(Kind::Real)
    }

    /// A clock for tests, which stands still until its [`MockClock`] moves it.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// queue.add_after("pod-1", Duration::from_secs(60));
    /// time.advance(Duration::from_secs(60));
    /// assert_eq!(queue.turn(), 1);
    /// ```
    #[must_use]
    pub fn mock() -> (Self, MockClock) {
        let mock = MockClock(Arc::new(Mock { now: AtomicU64::new(0), subscribers: Mutex::new(WaitList::default()) }));
        (Self(Kind::Mock(mock.clone())), mock)
    }

    /// Nanoseconds since some moment, for 584 years. Callers read it without the lock, so not in the order of their critical
    /// sections: a critical section that compares times takes the maximum.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let now = match &self.0 {
            Kind::Real => now_real(),
            // Acquire: a thread that sees the time that `advance` set sees what happened before that call.
            Kind::Mock(mock) => mock.0.now.load(Ordering::Acquire),
        };
        #[cfg(keyqueue_steps)]
        crate::steps::has_read(now);
        now
    }

    /// As [`now`](Self::now): for limiters and measurements. With the feature `quanta` it takes half the time. As a rule it is off by less
    /// than a tenth of a microsecond, and may go back by as much.
    #[inline]
    pub(crate) fn now_coarse(&self) -> u64 {
        match &self.0 {
            #[cfg(all(feature = "quanta", not(loom)))]
            Kind::Real => coarse_clock::now(|| self.now()),
            _ => self.now(),
        }
    }

    /// Whether this is a [`mock`](Self::mock).
    #[inline]
    pub(crate) fn is_mock(&self) -> bool {
        matches!(self.0, Kind::Mock(_))
    }

    /// Prepares [`now_coarse`](Self::now_coarse). Otherwise its first call in the process would take half a millisecond.
    pub(crate) fn calibrate(&self) {
        #[cfg(all(feature = "quanta", not(loom)))]
        if matches!(self.0, Kind::Real) {
            coarse_clock::counter();
        }
    }

    /// The [`Instant`] at which this clock shows `time`. `None`: never, or only if a test moves it, or too far for the system.
    pub(crate) fn instant(&self, time: u64) -> Option<Instant> {
        match &self.0 {
            Kind::Real if time == u64::MAX => None,
            Kind::Real => start().checked_add(Duration::from_nanos(time)),
            Kind::Mock(_) => None,
        }
    }

    /// From now on each move of a mock clock unparks this thread, until it [unsubscribes](Self::unsubscribe).
    pub(crate) fn subscribe(&self, thread: Unparker) -> Option<Ticket> {
        match &self.0 {
            Kind::Real => None,
            Kind::Mock(mock) => Some(mock.0.subscribers.lock().push(Waiter::Thread(thread))),
        }
    }

    pub(crate) fn unsubscribe(&self, ticket: Option<Ticket>) {
        if let (Kind::Mock(mock), Some(ticket)) = (&self.0, ticket) {
            let _listed = mock.0.subscribers.lock().remove(ticket);
        }
    }
}

/// The time of the real clock: nanoseconds since [`start`].
#[inline]
pub(crate) fn now_real() -> u64 {
    let since = now().saturating_duration_since(start());
    since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
}

/// The first reading of the system's clock: nanosecond zero of all queues.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(now)
}

// No foreign code runs under its lock, so no panic leaves its data in a state between two steps.
impl UnwindSafe for MockClock {}
impl RefUnwindSafe for MockClock {}

impl MockClock {
    /// Advances the time. It stops at `u64::MAX` nanoseconds from the start.
    ///
    /// Queues with [`Driver::Manual`](crate::Driver::Manual) see it at their next [`turn`](crate::WorkQueue::turn). The driver
    /// threads of other queues are woken, and queue the expired keys soon after.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::Clock;
    /// use std::time::Duration;
    ///
    /// let (_clock, time) = Clock::mock();
    /// time.advance(Duration::from_millis(1500));
    /// ```
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        let later = |now: u64| Some(now.saturating_add(by));
        // AcqRel: pairs with the Acquire in `now`, and with other calls of this. The update is never refused. **Linearization point of an advance.**
        let _was = self.0.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        // Under the lock, as all of them are threads: no foreign code runs when a thread is unparked (P17).
        self.0.subscribers.lock().iter().for_each(Waiter::unpark);
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
        // Relaxed: for display only.
        f.debug_tuple("MockClock").field(&Duration::from_nanos(self.0.now.load(Ordering::Relaxed))).finish()
    }
}
