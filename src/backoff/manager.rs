//! A backoff that starts over after a quiet period.

use super::Backoff;
use crate::Clock;
use std::time::Duration;

/// An endless series of delays, which starts over after a quiet period.
///
/// An operation that seldom fails should not wait longer each time. So the series starts over when more than `reset` has passed since the
/// last delay (or since the manager was created).
///
/// It is also an endless iterator. With [`exponential`](Self::exponential) the delay grows up to its maximum; with [`new`](Self::new) it
/// no longer changes when the [`steps`](Backoff::steps) of the backoff are used up, and jitter exceeds the cap unless the backoff stays
/// [within it](Backoff::within_cap).
///
/// # Examples
/// ```
/// use keyqueue::Clock;
/// use keyqueue::backoff::BackoffManager;
/// use std::time::Duration;
///
/// let (clock, time) = Clock::mock();
/// let second = Duration::from_secs(1);
/// let mut manager = BackoffManager::exponential(second, 5 * second, 60 * second, 2.0, 0.0).clock(clock);
/// assert_eq!([(); 4].map(|()| manager.step().as_secs()), [1, 2, 4, 5]);
/// time.advance(61 * second);
/// assert_eq!(manager.step(), second);
/// ```
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
    #[doc(alias = "NewJitteredBackoffManager")]
    #[must_use]
    pub fn new(backoff: Backoff, reset: Duration) -> Self {
        let clock = Clock::default();
        let since = clock.now();
        Self { initial: backoff.clone(), backoff, reset, windowed: false, clock, since }
    }

    /// Creates a manager whose delays grow from `initial` by `factor` up to `max`, and that starts over when more than `reset_after` has
    /// passed since the last delay.
    ///
    /// This is client-go's `wait.NewExponentialBackoffManager`, with its order of arguments. The number of steps is not limited. A `max` of
    /// zero is no limit. `jitter`: see [`Backoff::jitter`]. The clock is the system's, see [`clock`](Self::clock).
    ///
    /// With jitter no delay exceeds `max`, unlike client-go's: delays count as `max / (1 + jitter)` if they are longer than that, so that
    /// they differ, see [`Backoff::within_cap`]. Without jitter an `initial` above `max` is returned once as it is, and with a factor of 0
    /// each time, as in client-go.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::backoff::BackoffManager;
    /// use std::time::Duration;
    ///
    /// let [initial, max, reset_after] = [800, 30_000, 120_000].map(Duration::from_millis);
    /// let mut manager = BackoffManager::exponential(initial, max, reset_after, 2.0, 0.0);
    /// let delays = [(); 7].map(|()| manager.step().as_millis());
    /// assert_eq!(delays, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    /// ```
    #[doc(alias = "exponentialBackoffManagerImpl")]
    #[doc(alias = "NewExponentialBackoffManager")]
    #[must_use]
    pub fn exponential(initial: Duration, max: Duration, reset_after: Duration, factor: f64, jitter: f64) -> Self {
        let backoff = Backoff { duration: initial, factor, jitter, steps: usize::MAX, cap: max };
        Self::new(if jitter > 0.0 { backoff.within_cap() } else { backoff }, reset_after)
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
    #[doc(alias = "getNextBackoff")]
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
