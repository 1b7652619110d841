//! The errors of the queue: one type for each method that can fail.

use std::error::Error;
use std::fmt;

/// Why [`WorkQueue::try_get`](crate::WorkQueue::try_get) has no key.
///
/// # Examples
/// ```
/// use keyqueue::{TryGetError, WorkQueue};
///
/// let queue = WorkQueue::<u32>::new();
/// match queue.try_get() {
///     Ok(item) => println!("{item}"),
///     Err(TryGetError::Empty) => println!("nothing to do"),
///     Err(error) => println!("{error}"), // shut down
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TryGetError {
    /// No key is queued now, or none may be handed out: see [`try_get`](crate::WorkQueue::try_get).
    Empty,
    /// No key is queued, and the queue is shutting down. A key that was added again while it was processing may still come back when
    /// its holder is done.
    ShutDown,
}

/// Why [`WorkQueue::get_timeout`](crate::WorkQueue::get_timeout) has no key.
///
/// # Examples
/// ```
/// use keyqueue::{GetTimeoutError, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<u32>::new();
/// match queue.get_timeout(Duration::from_millis(1)) {
///     Ok(item) => println!("{item}"),
///     Err(GetTimeoutError::Timeout) => println!("nothing for a millisecond"),
///     Err(error) => println!("{error}"), // shut down
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GetTimeoutError {
    /// No key was queued before the time-out. With several [shards](crate::how_it_works#several-shards), a key may be queued in a shard
    /// that another thread keeps locked.
    Timeout,
    /// No key is queued, and the queue is shutting down. A key that was added again while it was processing may still come back when
    /// its holder is done.
    ShutDown,
}

/// [`WorkQueue::shut_down_with_drain_timeout`](crate::WorkQueue::shut_down_with_drain_timeout) timed out before the queue was
/// drained. The queue stays shut down, and the caller may drain it again.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.add("pod-1"); // and no worker
/// if let Err(error) = queue.shut_down_with_drain_timeout(Duration::from_millis(1)) {
///     println!("{error}");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DrainTimeoutError {
    /// Keys that were queued at the time-out.
    pub queued: usize,
    /// Keys that were processing at the time-out.
    pub processing: usize,
}

/// [`WorkQueue::wait_idle_timeout`](crate::WorkQueue::wait_idle_timeout) timed out before the queue was idle.
///
/// All numbers may be 0, if the call found work that ended before it read the numbers.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.add("pod-1"); // and no worker
/// if let Err(error) = queue.wait_idle_timeout(Duration::from_millis(1)) {
///     println!("{error}");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct WaitIdleTimeoutError {
    /// Keys that were queued at the time-out.
    pub queued: usize,
    /// Keys that were processing at the time-out.
    pub processing: usize,
    /// Keys that were delayed at the time-out.
    pub delayed: usize,
}

/// A constructor argument was rejected.
///
/// Returned by the constructors whose names begin with `try_`; those without `try_` panic with the same message.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::Bucket;
///
/// let error = Bucket::try_new(-1.0, 100).unwrap_err();
/// assert_eq!(error.to_string(), "rate_per_second is -1: it must not be negative");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidArgument {
    argument: &'static str,
    value: String,
    why: &'static str,
}

impl InvalidArgument {
    /// Public for `keyqueue-fleet`.
    #[doc(hidden)]
    pub fn new(argument: &'static str, value: impl ToString, why: &'static str) -> Self {
        Self { argument, value: value.to_string(), why }
    }

    /// The name of the argument.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let error =
    ///     WorkQueue::<u32>::builder().max_processing_per_group(1).try_build().unwrap_err();
    /// println!("{error}"); // says what is wrong with it
    /// assert_eq!(error.argument(), "max_processing_per_group");
    /// ```
    #[must_use]
    pub fn argument(&self) -> &'static str {
        self.argument
    }

    /// Accepts a number that is zero or more.
    pub(crate) fn check(argument: &'static str, value: f64) -> Result<f64, Self> {
        match value {
            _ if value.is_nan() => Err(Self::new(argument, short(value), "it must be a number")),
            _ if value < 0.0 => Err(Self::new(argument, short(value), "it must not be negative")),
            _ => Ok(value),
        }
    }

    /// As [`check`](Self::check), but rejects infinity, too.
    pub(crate) fn check_finite(argument: &'static str, value: f64) -> Result<f64, Self> {
        match Self::check(argument, value)? {
            f64::INFINITY => Err(Self::new(argument, short(value), "it must be finite")),
            value => Ok(value),
        }
    }

    /// Accepts a rate and a burst of hand-outs.
    pub(crate) fn check_rate(argument: &'static str, rate: f64, burst: u32) -> Result<(), Self> {
        let why = if !rate.is_finite() || rate <= 0.0 {
            "the rate must be positive and finite"
        } else if rate < LOWEST_RATE {
            "the rate must be at least one in a year"
        } else if burst == 0 {
            "with a burst of 0 no key would be handed out"
        } else {
            return Ok(());
        };
        Err(Self::new(argument, format!("({rate:?}, {burst})"), why))
    }
}

/// The lowest rate of hand-outs, in a second. It is one in 366 days, so that one in 365 is accepted, however it was rounded.
const LOWEST_RATE: f64 = 1.0 / (366.0 * 86_400.0);

/// Formats a number in at most 25 characters: with an exponent if it is very large or very small, where `{}` writes up to 300 digits.
fn short(value: f64) -> String {
    let text = format!("{value:?}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

impl fmt::Display for InvalidArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { argument, value, why } = self;
        write!(f, "{argument} is {value}: {why}")
    }
}

impl Error for InvalidArgument {}

impl TryGetError {
    /// `true` if a later call may succeed.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// assert!(queue.try_get().unwrap_err().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::Empty
    }

    /// `true` if the queue is shutting down.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.shut_down();
    /// assert!(queue.try_get().unwrap_err().is_shut_down());
    /// ```
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self == Self::ShutDown
    }
}

impl GetTimeoutError {
    /// `true` if a later call may succeed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// assert!(queue.get_timeout(Duration::from_millis(1)).unwrap_err().is_timeout());
    /// ```
    #[must_use]
    pub fn is_timeout(self) -> bool {
        self == Self::Timeout
    }

    /// `true` if the queue is shutting down.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.shut_down();
    /// assert!(queue.get_timeout(Duration::MAX).unwrap_err().is_shut_down());
    /// ```
    #[must_use]
    pub fn is_shut_down(self) -> bool {
        self == Self::ShutDown
    }
}

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is queued",
            Self::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl fmt::Display for GetTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "no key was queued in time",
            Self::ShutDown => "the queue is shut down and empty",
        })
    }
}

impl fmt::Display for DrainTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not drained in time: {} queued, {} processing", self.queued, self.processing)
    }
}

impl fmt::Display for WaitIdleTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queued, processing, delayed } = self;
        write!(f, "not idle in time: {queued} queued, {processing} processing, {delayed} delayed")
    }
}

impl Error for TryGetError {}
impl Error for GetTimeoutError {}
impl Error for DrainTimeoutError {}
impl Error for WaitIdleTimeoutError {}
