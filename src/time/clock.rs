//! The time in nanoseconds: the system's, that of a test, or that of a function.
//!
//! The system's clock is read through `std::time::Instant`, because delays must not expire early. `quanta`, which reads the processor's
//! counter in half the time, measures its rate in less than a millisecond, so on a busy machine its time may run too fast, by up to a
//! millisecond for each second. It serves only [`now_coarse`](Clock::now_coarse) (feature `quanta`), where a tenth of a microsecond does
//! not matter.

#[cfg(all(feature = "quanta", not(loom)))]
use super::coarse_clock;
use super::{nanos, time_left};
use crate::panics::contained;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Unparker, now, now_real, start};
use crate::wait::{Ticket, WaitList, Waiter};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// The latest time that a clock shows. It is before [`NEVER`](crate::machine::NEVER), so that what has expired stays expired.
const LATEST: u64 = u64::MAX - 1;

/// The clock by which delays expire.
///
/// The default is the system's monotonic clock, as in [`Instant`], which on most systems stands still while the machine is suspended.
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
    Function(Arc<Function>),
}

struct Function {
    read: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The latest time that it has shown.
    latest: AtomicU64,
}

// A panic of the function is caught, and changes nothing.
impl RefUnwindSafe for Function {}

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
    /// For the crate's own tests: getters expire delays by this clock, as by the real one.
    #[cfg(test)]
    is_shared: bool,
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
        Self::with_mock(Mock {
            now: AtomicU64::new(0),
            #[cfg(test)]
            is_shared: false,
            subscribers: Mutex::new(WaitList::default()),
        })
    }

    /// A [`mock`](Self::mock) by which getters expire delays, as they do by the real clock.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn mock_for_getters() -> (Self, MockClock) {
        Self::with_mock(Mock { now: AtomicU64::new(0), is_shared: true, subscribers: Mutex::new(WaitList::default()) })
    }

    fn with_mock(mock: Mock) -> (Self, MockClock) {
        let mock = MockClock(Arc::new(mock));
        (Self(Kind::Mock(mock.clone())), mock)
    }

    /// A clock that shows what a function returns, which is the time since any fixed moment. It is meant for simulations, and for programs
    /// with a time of their own.
    ///
    /// Nothing tells a thread when the function will show a later time, so a queue with such a clock needs
    /// [`Driver::Manual`](crate::Driver::Manual). Otherwise [`try_build`](crate::WorkQueueBuilder::try_build) returns an error, and
    /// [`build`](crate::WorkQueueBuilder::build) panics. In [`backoff`](crate::backoff), a thread that waits by such a clock parks for as
    /// long in real time as the clock has to go, and then reads it again.
    ///
    /// **A clock never goes back.** If the function returns less than before, on any thread, the clock stands still until the function has
    /// caught up, so delays expire later and no key is lost. If the function panics, the clock shows the latest time that it has shown. The
    /// clock ends after 584 years.
    ///
    /// The queue may read the clock under a lock, and several threads may read it at the same time, so the function must not use the queue
    /// and must return soon.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use std::time::Duration;
    ///
    /// let tick = Arc::new(AtomicU64::new(0)); // the simulation's time, in seconds
    /// let shown = Arc::clone(&tick);
    /// let clock = Clock::from_fn(move || Duration::from_secs(shown.load(Ordering::Relaxed)));
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// queue.add_after("pod-1", Duration::from_secs(60));
    /// tick.store(60, Ordering::Relaxed);
    /// assert_eq!(queue.turn(), 1);
    /// ```
    #[must_use]
    pub fn from_fn(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Arc::new(Function { read: Box::new(read), latest: AtomicU64::new(0) })))
    }

    /// Nanoseconds since some moment, for 584 years. Callers read the time without the lock, and not in the order of their critical
    /// sections, so a critical section that compares times takes the maximum.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let now = match &self.0 {
            Kind::Real => now_real(),
            Kind::Mock(mock) => mock.now(),
            Kind::Function(function) => function.now(),
        };
        #[cfg(keyqueue_steps)]
        crate::steps::has_read(now);
        now
    }

    /// As [`now`](Self::now), for limiters and measurements. With the feature `quanta` it takes half the time, but it is off by up to about
    /// a tenth of a microsecond, and may go back by as much.
    #[inline]
    pub(crate) fn now_coarse(&self) -> u64 {
        match &self.0 {
            Kind::Mock(mock) => mock.now(),
            #[cfg(all(feature = "quanta", not(loom)))]
            kind => coarse_clock::now(matches!(kind, Kind::Real), || self.now()),
            #[cfg(not(all(feature = "quanta", not(loom))))]
            _ => self.now(),
        }
    }

    /// Whether the user has given another clock than the real one.
    #[inline]
    pub(crate) fn is_given(&self) -> bool {
        !matches!(self.0, Kind::Real)
    }

    /// Whether getters expire delays beside the driver. They do not by a given clock, because it stands still while the driver is late.
    #[inline]
    pub(crate) fn is_for_getters(&self) -> bool {
        match &self.0 {
            Kind::Real => true,
            #[cfg(test)]
            Kind::Mock(mock) => mock.0.is_shared,
            _ => false,
        }
    }

    pub(crate) fn is_function(&self) -> bool {
        matches!(self.0, Kind::Function(_))
    }

    /// Prepares [`now_coarse`](Self::now_coarse), whose first call in the process would otherwise take half a millisecond.
    pub(crate) fn calibrate(&self) {
        #[cfg(all(feature = "quanta", not(loom)))]
        if matches!(self.0, Kind::Real) {
            coarse_clock::counter();
        }
    }

    /// The [`Instant`] at which this clock shows `time`, or until which the caller parks before it reads the clock again. `None` means
    /// never, or only if a test moves the clock, or too late for the system.
    pub(crate) fn instant(&self, time: u64) -> Option<Instant> {
        match &self.0 {
            _ if time == u64::MAX => None,
            Kind::Real => start().checked_add(Duration::from_nanos(time)),
            Kind::Mock(_) => None,
            Kind::Function(function) => now().checked_add(time_left(time, function.now())),
        }
    }

    /// Makes each move of a mock clock unpark this thread, until it [unsubscribes](Self::unsubscribe).
    pub(crate) fn subscribe(&self, thread: Unparker) -> Option<Ticket> {
        match &self.0 {
            Kind::Real | Kind::Function(_) => None,
            Kind::Mock(mock) => Some(mock.0.subscribers.lock().push(Waiter::Thread(thread))),
        }
    }

    pub(crate) fn unsubscribe(&self, ticket: Option<Ticket>) {
        if let (Kind::Mock(mock), Some(ticket)) = (&self.0, ticket) {
            let _listed = mock.0.subscribers.lock().remove(ticket);
        }
    }
}

impl Function {
    #[cold]
    #[inline(never)]
    fn now(&self) -> u64 {
        let read = contained(|| nanos((self.read)())).unwrap_or(0).min(LATEST);
        // AcqRel: a thread that sees a time sees what happened before another thread read it.
        self.latest.fetch_max(read, Ordering::AcqRel).max(read)
    }
}

// No foreign code runs under its lock, so no panic leaves its data in a state between two steps.
impl UnwindSafe for MockClock {}
impl RefUnwindSafe for MockClock {}

impl MockClock {
    #[inline]
    fn now(&self) -> u64 {
        // Acquire: a thread that sees the time that `advance` set sees what happened before that call.
        self.0.now.load(Ordering::Acquire)
    }

    /// Advances the time. It stops 584 years after the start.
    ///
    /// A queue with [`Driver::Manual`](crate::Driver::Manual) sees the new time at its next [`turn`](crate::WorkQueue::turn). The driver
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
        let later = |now: u64| Some(now.saturating_add(by).min(LATEST));
        // The linearization point of an advance. AcqRel: pairs with the Acquire in `now`, and with other calls of this.
        #[allow(deprecated, reason = "its new name is newer than Rust 1.85")]
        let _was = self.0.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        // Under the lock, because all of them are threads, and no foreign code runs when a thread is unparked (P17).
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
            Kind::Function(function) => {
                // Relaxed: for display only.
                let latest = Duration::from_nanos(function.latest.load(Ordering::Relaxed));
                f.debug_struct("Clock").field("latest", &latest).finish_non_exhaustive()
            }
        }
    }
}

impl fmt::Debug for MockClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for display only.
        f.debug_tuple("MockClock").field(&Duration::from_nanos(self.0.now.load(Ordering::Relaxed))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with a given clock counts where it would read the time, and measures each key: the same twice (P27), but slower.
    #[test]
    fn only_the_real_clock_is_not_given() {
        assert!(!Clock::new().is_given());
        assert!(Clock::mock().0.is_given());
        assert!(Clock::from_fn(|| Duration::ZERO).is_given());
    }
}
