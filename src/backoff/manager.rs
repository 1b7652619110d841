//! A backoff that starts over after a quiet period.

use super::Backoff;
use crate::Clock;
use std::time::Duration;

/// An endless series of delays, which starts over after a quiet period.
///
/// An operation that seldom fails should not wait longer each time. So the series starts over when more than `reset` has passed since the
/// last delay (or since the manager was created).
///
/// It is also an endless iterator. When the [`steps`](Backoff::steps) of the backoff are used up, the delay no longer changes; for
/// a delay that always grows, set `usize::MAX`.
///
/// # Examples
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::{Backoff, BackoffManager};
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let second = Duration::from_secs(1);
/// let backoff = Backoff { duration: second, factor: 2.0, steps: usize::MAX, ..Backoff::default() };
/// let mut manager = BackoffManager::new(backoff, 60 * second).clock(clock);
/// assert_eq!([(); 3].map(|()| manager.step().as_secs()), [1, 2, 4]);
/// time.advance(61 * second);
/// assert_eq!(manager.step(), second);
/// ```
#[doc(alias = "NewExponentialBackoffManager")]
#[derive(Debug, Clone)]
pub struct BackoffManager {
    initial: Backoff,
    backoff: Backoff,
    reset: Duration,
    windowed: bool,
    pub(super) clock: Clock,
    /// The start of the period that is compared with `reset`.
    since: u64,
}

impl BackoffManager {
    /// Creates a manager that starts over when more than `reset` has passed since the last delay.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::backoff::{Backoff, BackoffManager};
    /// use std::time::Duration;
    ///
    /// let backoff = Backoff { duration: Duration::from_millis(10), factor: 2.0, steps: 5, ..Backoff::default() };
    /// let mut manager = BackoffManager::new(backoff, Duration::from_secs(60));
    /// assert_eq!([manager.step(), manager.step()], [10, 20].map(Duration::from_millis));
    /// ```
    #[must_use]
    pub fn new(backoff: Backoff, reset: Duration) -> Self {
        let clock = Clock::default();
        let since = clock.now();
        Self { initial: backoff.clone(), backoff, reset, windowed: false, clock, since }
    }

    /// Starts over when more than `reset` has passed since it last started over (or was created), even if delays came meanwhile. With a
    /// `reset` of zero it starts over each time. With a factor of 0, starting over has no effect. This is client-go's
    /// `Backoff.DelayWithReset`.
    #[doc(alias = "DelayWithReset")]
    #[must_use]
    pub fn windowed(mut self) -> Self {
        self.windowed = true;
        self
    }

    /// The clock that measures the quiet period: the system's by default. The period starts now.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.since = clock.now();
        self.clock = clock;
        self
    }

    /// Returns the next delay.
    #[doc(alias = "Backoff")]
    pub fn step(&mut self) -> Duration {
        let now = self.clock.now();
        let quiet = Duration::from_nanos(now.saturating_sub(self.since));
        let start_over = quiet > self.reset || (self.windowed && self.reset.is_zero());
        if start_over {
            self.backoff = self.initial.clone();
        }
        if start_over || !self.windowed {
            self.since = now;
        }
        self.backoff.step()
    }
}

impl Iterator for BackoffManager {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.step())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}
