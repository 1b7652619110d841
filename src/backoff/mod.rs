//! Waiting between attempts, without a queue: client-go's `wait.Backoff` and related functions.
//!
//! | | |
//! |---|---|
//! | [`Backoff`] | a series of delays, each longer than the one before |
//! | [`jitter`] | a delay, extended by a random part |
//! | [`BackoffManager`] | an endless series, which starts over after a quiet period |
//! | [`backoff_until`], [`backoff_until_async`] | call a function repeatedly, with such delays, until a stop |
//! | [`Stop`] | a signal that stops these functions, and other threads and tasks that wait |
//!
//! # Examples
//! Five attempts, 10, 20, 40 and 80 ms apart:
//! ```
//! use keyqueue::backoff::Backoff;
//! use std::time::Duration;
//!
//! # let mut failures = 2;
//! # let mut connect = || if failures == 0 { Ok(()) } else { failures -= 1; Err(()) };
//! let backoff = Backoff { duration: Duration::from_millis(10), factor: 2.0, steps: 4, ..Backoff::default() };
//! let mut result = connect();
//! for delay in backoff {
//!     if result.is_ok() {
//!         break;
//!     }
//!     std::thread::sleep(delay);
//!     result = connect();
//! }
//! # assert!(result.is_ok());
//! ```

mod manager;
mod stop;
mod until;

pub use manager::BackoffManager;
pub use stop::{Stop, StopWait};
pub use until::{Timing, backoff_until, backoff_until_async};

use crate::random::{from_nanos, longer_at_random, within};
use std::time::Duration;

/// A series of delays that grow by a factor.
///
/// Each [`step`](Self::step) returns the current delay, with jitter, and advances to the next. When no steps are left, the delay no
/// longer changes. As an iterator, the series ends there.
///
/// Delays are whole nanoseconds; products are computed in double precision and rounded down, as in client-go, and saturate at
/// [`Duration::MAX`].
///
/// # Examples
/// ```
/// use keyqueue::backoff::Backoff;
/// use std::time::Duration;
///
/// let [second, cap] = [1, 5].map(Duration::from_secs);
/// let mut backoff = Backoff { duration: second, factor: 2.0, jitter: 0.0, steps: 10, cap };
/// assert_eq!([(); 5].map(|()| backoff.step().as_secs()), [1, 2, 4, 5, 5]);
/// assert_eq!(backoff.steps, 0, "the cap ends it");
/// ```
#[doc(alias = "DelayFunc")]
#[doc(alias = "ExponentialBackoff")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backoff {
    /// The next delay. The cap does not apply to the first.
    pub duration: Duration,
    /// The delay is multiplied by this factor at each step. 0: the delay stays the same, and the cap is ignored. Negative or NaN counts
    /// as 0.
    pub factor: f64,
    /// Each returned delay is longer by a random part, up to this factor, see [`jitter`](fn@jitter). The next delay does not depend on the
    /// random part, and the random part does not depend on the cap, see [`within_cap`](Self::within_cap). 0, negative or NaN: no jitter.
    /// The generator is the thread's.
    pub jitter: f64,
    /// The number of steps left, after which the delay no longer changes. With 0, the default, it never grows: set it.
    pub steps: usize,
    /// A delay above the cap becomes the cap, and uses up all steps. Zero: no cap. As in client-go, the jitter comes on top of it: a cap of
    /// 5 s with a jitter of 0.5 leads to delays of up to 7.5 s.
    pub cap: Duration,
}

impl Backoff {
    /// No delay exceeds the cap: neither with jitter, nor the first, nor with a factor of 0.
    ///
    /// The [`cap`](Self::cap) becomes `cap / (1 + jitter)`, and the first delay is at most as long. So delays at the cap still differ, and
    /// the steps are used up when a delay reaches the new cap. Call this once, when the other fields are set. If the jitter is so large that
    /// the new cap would be less than a nanosecond, it is a nanosecond, with the largest jitter that fits.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::backoff::Backoff;
    /// use std::time::Duration;
    ///
    /// let [second, cap] = [1, 6].map(Duration::from_secs);
    /// let backoff = Backoff { duration: second, factor: 2.0, jitter: 0.5, steps: 10, cap };
    /// let mut within = backoff.clone().within_cap();
    /// assert_eq!(within.cap, 4 * second); // the longest delays are 4 to 6 s, and not 6 to 9 s
    /// assert!([(); 100].iter().all(|()| within.step() <= cap));
    /// ```
    #[must_use]
    pub fn within_cap(mut self) -> Self {
        if !self.cap.is_zero() {
            if self.jitter > 0.0 {
                (self.cap, self.jitter) = within(self.cap, self.jitter);
            }
            self.duration = self.duration.min(self.cap);
        }
        self
    }

    /// Returns the current delay, and advances to the next.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::backoff::Backoff;
    /// use std::time::Duration;
    ///
    /// let mut backoff = Backoff { duration: Duration::from_millis(10), factor: 2.0, steps: 5, ..Backoff::default() };
    /// assert_eq!([backoff.step(), backoff.step()], [10, 20].map(Duration::from_millis));
    /// ```
    #[doc(alias = "Step")]
    pub fn step(&mut self) -> Duration {
        let delay = self.duration;
        if self.steps > 0 {
            self.steps -= 1;
            if self.factor > 0.0 {
                self.duration = from_nanos(self.duration.as_nanos() as f64 * self.factor);
                if !self.cap.is_zero() && self.duration > self.cap {
                    self.duration = self.cap;
                    self.steps = 0;
                }
            }
        }
        if self.jitter > 0.0 { jitter(delay, self.jitter) } else { delay }
    }
}

/// Extends a delay at random: uniformly distributed in `[duration, duration + max_factor * duration)`, in whole nanoseconds, at most
/// `Duration::MAX`.
///
/// A factor that is 0, negative or NaN counts as 1, as in client-go. The random part is drawn from a
/// generator of the thread, which no seed sets: see [`rate_limiter::PerKey::seed`](crate::rate_limiter::PerKey::seed) for delays that are
/// the same each time.
///
/// # Examples
/// ```
/// use keyqueue::backoff::jitter;
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// assert!((second..second * 3 / 2).contains(&jitter(second, 0.5)));
/// ```
#[doc(alias = "Jitter")]
#[must_use]
pub fn jitter(duration: Duration, max_factor: f64) -> Duration {
    let max_factor = if max_factor > 0.0 { max_factor } else { 1.0 };
    longer_at_random(duration, max_factor)
}

/// The delays of a [`Backoff`] until its steps are used up.
#[derive(Debug, Clone)]
pub struct Steps(Backoff);

impl Iterator for Steps {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        (self.0.steps > 0).then(|| self.0.step())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.0.steps > 0), Some(self.0.steps))
    }
}

impl std::iter::FusedIterator for Steps {}

impl IntoIterator for Backoff {
    type Item = Duration;
    type IntoIter = Steps;

    fn into_iter(self) -> Steps {
        Steps(self)
    }
}
