//! Limiters that count the failures of each key, and look up the delay by the count.

use super::RateLimiter;
use super::keyed::Keyed;
use super::schedule::{Exponential, FastSlow, Schedule, StepTable};
use crate::Clock;
use crate::error::InvalidArgument;
#[cfg(feature = "jitter")]
use crate::random::Jitter;
use crate::time::{nanos, rest};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A limiter that counts the failures of each key, and answers by the count: what [`ItemExponentialFailure`],
/// [`ItemFastSlow`] and [`Step`] have in common.
///
/// # Memory
/// A key is remembered from its first `when` until it is forgotten: 30 to 70 bytes and the key itself, which is cloned.
/// Forgetting is O(1), and memory comes back as keys are forgotten. Whoever does not forget keys, because they vanish without
/// a success, bounds what is remembered: [`max_tracked`](Self::max_tracked), [`retain_recent`](Self::retain_recent). Neither is
/// on by default.
///
/// A queue that is [given](crate::WorkQueueBuilder::rate_limiter) such a limiter, without any of the other settings, counts the
/// failures itself, in the place that it has for the key, and keeps the key as long ([`Stats::failing`](crate::Stats::failing)).
///
/// # Blocking
/// Keys are spread over a number of locks, by hash, each taken for some ten nanoseconds. `K`'s `Eq` is called under such a lock,
/// so it must not use this limiter.
pub struct PerKey<K, S> {
    schedule: S,
    failures: Keyed<K>,
    clock: Clock,
    served_only: bool,
    #[cfg(feature = "jitter")]
    jitter: Jitter,
}

/// Waits `base * 2^failures`, up to `max`: the usual backoff of one key.
///
/// In whole nanoseconds that saturate: exact after any number of failures, never past `max`. `base` greater than `max` counts as
/// `max`.
///
/// See [`PerKey`] for memory, jitter and the other settings.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(10));
/// assert_eq!(limiter.when(&"pod-2"), Duration::from_millis(5));
/// assert_eq!(limiter.num_requeues(&"pod-1"), 2);
/// limiter.forget(&"pod-1");
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(5));
/// ```
#[doc(alias = "TypedItemExponentialFailureRateLimiter")]
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[doc(alias = "NewTypedItemExponentialFailureRateLimiter")]
pub type ItemExponentialFailure<K> = PerKey<K, Exponential>;

/// Waits `fast` for the first `max_fast_attempts` failures of a key, and `slow` from then on.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{ItemFastSlow, RateLimiter};
/// use std::time::Duration;
///
/// let (fast, slow) = (Duration::from_millis(5), Duration::from_secs(10));
/// let limiter = ItemFastSlow::new(fast, slow, 2);
/// assert_eq!([(); 4].map(|()| limiter.when(&7)), [fast, fast, slow, slow]);
/// ```
#[doc(alias = "TypedItemFastSlowRateLimiter")]
#[doc(alias = "ItemFastSlowRateLimiter")]
#[doc(alias = "NewTypedItemFastSlowRateLimiter")]
pub type ItemFastSlow<K> = PerKey<K, FastSlow>;

/// Waits what a table says: after so many failures, this delay.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{RateLimiter, Step};
/// use std::time::Duration;
///
/// let [a, b, c] = [1, 10, 60].map(Duration::from_secs);
/// // The first two failures, from the third on, from the fifth on.
/// let limiter = Step::new([(0, a), (2, b), (4, c)]);
/// assert_eq!([(); 6].map(|()| limiter.when(&7)), [a, a, b, b, c, c]);
/// ```
pub type Step<K> = PerKey<K, StepTable>;

impl<K> ItemExponentialFailure<K> {
    /// `base` after the first failure, twice as long after each further one, at most `max`. All keys are remembered until they
    /// are forgotten, see [`PerKey`].
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self::by(Exponential::new(base, max))
    }
}

impl<K> ItemFastSlow<K> {
    /// `fast` after each of the first `max_fast_attempts` failures, then `slow`. All keys are remembered until they are
    /// forgotten, see [`PerKey`].
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, max_fast_attempts: usize) -> Self {
        Self::by(FastSlow::new(fast, slow, max_fast_attempts))
    }
}

impl<K> Step<K> {
    /// From each `(failures, delay)`: with so many failures *before* the present one, and up to the number of the next row, this
    /// delay. The first row also counts for fewer failures than it says. All keys are remembered until they are
    /// forgotten, see [`PerKey`].
    ///
    /// # Panics
    /// If there is no row, or the numbers do not ascend. See [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(rows: impl IntoIterator<Item = (usize, Duration)>) -> Self {
        Self::try_new(rows).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](Self::new), for tables that come from outside.
    ///
    /// # Errors
    /// If there is no row, or the numbers do not ascend.
    pub fn try_new(rows: impl IntoIterator<Item = (usize, Duration)>) -> Result<Self, InvalidArgument> {
        StepTable::new(rows).map(Self::by)
    }
}

impl<K, S: Schedule> PerKey<K, S> {
    pub(super) fn by(schedule: S) -> Self {
        Self {
            schedule,
            failures: Keyed::new(),
            clock: Clock::default(),
            served_only: false,
            #[cfg(feature = "jitter")]
            jitter: Jitter::default(),
        }
    }

    /// Makes each delay longer by a random part of it, up to this factor: evenly spread in `[d, d + factor * d)`. So that what
    /// failed at one moment is not tried again at one moment.
    ///
    /// With [`ItemExponentialFailure`], what would be longer than the longest delay is the longest delay: what has come so far
    /// is no longer spread, but what was spread before stays so.
    ///
    /// # Panics
    /// If the factor is negative, infinite or not a number. See [`try_jitter`](Self::try_jitter).
    #[cfg(feature = "jitter")]
    #[must_use]
    #[track_caller]
    pub fn jitter(self, factor: f64) -> Self {
        self.try_jitter(factor).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`jitter`](Self::jitter), for factors that come from outside.
    ///
    /// # Errors
    /// If the factor is negative, infinite or not a number.
    #[cfg(feature = "jitter")]
    pub fn try_jitter(mut self, factor: f64) -> Result<Self, InvalidArgument> {
        self.jitter.factor = InvalidArgument::check_finite("factor", factor)?.abs(); // -0 is 0
        Ok(self)
    }

    /// Draws the jitter from this seed: the same calls, one after the other, are answered the same. Without
    /// [`jitter`](Self::jitter) it does nothing.
    #[cfg(feature = "jitter")]
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.jitter.seed = Some(seed);
        self
    }

    /// A failure counts only if the delay of the one before was served, that is, is over by then. One that comes earlier, because
    /// an event led to a run in between, is told the rest of that delay, and does not make the next one longer.
    ///
    /// Off by default, as in client-go, where a key that is added by events while it backs off comes to the longest delay
    /// without having waited for any.
    #[must_use]
    pub fn served_only(mut self) -> Self {
        self.served_only = true;
        self.clock.prepare();
        self
    }

    /// Remembers at most this many keys, and at least two. When there are as many, it forgets half of them at a time, those
    /// that failed longest ago; of the keys that failed, the latest half is always remembered.
    ///
    /// A key that is forgotten begins with the first delay again. From 1024 keys on, the keys are spread over parts, and each has
    /// its share of the bound: one that happens to get more keys forgets a little earlier. Call it before the limiter is used:
    /// what was remembered is lost.
    #[must_use]
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.failures = self.failures.max_tracked(keys);
        self
    }

    /// Forgets keys that have not failed for this long; at the latest for twice as long. An `age` that is shorter than the
    /// longest delay of the schedule counts as that: what waits for its turn is not forgotten.
    ///
    /// The work is done by [`when`](RateLimiter::when) as it goes, each time for the part of the keys that its key is in. A limiter
    /// that is not asked any more keeps what it has until [`shrink_to_fit`](RateLimiter::shrink_to_fit).
    #[must_use]
    pub fn retain_recent(mut self, age: Duration) -> Self {
        self.failures = self.failures.retain_recent(age.max(self.schedule.longest()));
        self.clock.prepare();
        self
    }

    /// The clock for [`served_only`](Self::served_only) and [`retain_recent`](Self::retain_recent): the queue's, if that
    /// has one of its own. The real one by default. Without those two, no clock is read.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    #[inline]
    fn now(&self) -> u64 {
        if self.served_only || self.failures.needs_time() { self.clock.rough() } else { 0 }
    }
}

impl<K, S> PerKey<K, S> {
    /// How many keys are remembered.
    #[must_use]
    pub fn tracked_len(&self) -> usize {
        self.failures.len()
    }
}

impl<K, S> RateLimiter<K> for PerKey<K, S>
where
    K: Hash + Eq + Clone + Send + Sync,
    S: Schedule,
{
    /// One more failure of this key: how long to wait. The key is cloned if it is new.
    #[inline]
    fn when(&self, key: &K) -> Duration {
        let now = self.now();
        #[cfg(feature = "jitter")]
        let part = self.jitter.part();
        self.failures.update(key, now, |memory| {
            if self.served_only && now < memory.until {
                return rest(memory.until, now);
            }
            let delay = self.schedule.delay(memory.failures);
            #[cfg(feature = "jitter")]
            let delay = if part > 0.0 { crate::random::longer(delay, part).min(self.schedule.cap()) } else { delay };
            memory.failures = memory.failures.saturating_add(1);
            if self.served_only {
                memory.until = now.saturating_add(nanos(delay));
            }
            delay
        })
    }

    #[inline]
    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    /// How many failures were counted since the key was last forgotten.
    #[inline]
    fn num_requeues(&self, key: &K) -> usize {
        self.failures.look(key, self.now()).failures as usize
    }

    /// Forgets what is too old ([`retain_recent`](Self::retain_recent)), and gives back memory.
    fn shrink_to_fit(&self) {
        self.failures.shrink(self.now());
    }

    fn schedule(&self) -> Option<Box<dyn Schedule>> {
        #[cfg(feature = "jitter")]
        let plain = self.jitter.factor == 0.0;
        #[cfg(not(feature = "jitter"))]
        let plain = true;
        (plain && !self.served_only && !self.failures.is_bounded() && self.failures.len() == 0)
            .then(|| self.schedule.boxed())
    }
}

// A panic in `Eq` or `Clone` leaves no table half made.
impl<K: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for PerKey<K, S> {}
impl<K: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for PerKey<K, S> {}

impl<K, S: fmt::Debug> fmt::Debug for PerKey<K, S> {
    /// The settings, and how many keys are remembered. Shows no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKey")
            .field("schedule", &self.schedule)
            .field("served_only", &self.served_only)
            .field("tracked_len", &self.tracked_len())
            .finish_non_exhaustive()
    }
}
