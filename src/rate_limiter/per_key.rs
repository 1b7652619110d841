//! Limiters that count the failures of each key, and choose the delay by that number.

use super::RateLimiter;
use super::keyed::{KeyedStore, Record};
use super::schedule::{Exponential, FastSlow, Schedule, ScheduleFn, StepTable};
use crate::Clock;
use crate::error::InvalidArgument;
use crate::random::{Jitter, SplitMix};
use crate::time::{nanos, time_left};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A limiter that counts the failures of each key, and chooses the delay by this number: [`ItemExponentialFailure`], [`ItemFastSlow`] or
/// [`Step`].
///
/// # Memory
/// The limiter remembers a key from its first `when` until it is forgotten. The key takes 1.3 to 2.7 times the size of its clone and 16
/// bytes, which is 32 to 64 bytes for a `u64`. Forgetting a key is O(1), and frees memory. For keys that vanish without a success and are
/// never forgotten, [`max_tracked`](Self::max_tracked) and [`retain_recent`](Self::retain_recent) bound the memory; both are off by
/// default.
///
/// If a queue [gets](crate::WorkQueueBuilder::rate_limiter) such a limiter without other settings, the queue counts the failures itself,
/// next to the key in its own table, and keeps the key until it is forgotten. [`Stats::failing`](crate::Stats::failing) has the number of
/// these keys in either case.
///
/// # Blocking
/// Hashes spread the keys over a number of locks, and a call holds one of them for some ten nanoseconds. `K`'s `Eq` runs under this lock,
/// so it must not use this limiter.
pub struct PerKey<K, S> {
    schedule: S,
    failures: KeyedStore<K>,
    clock: Clock,
    served_only: bool,
    jitter: Jitter,
    /// Whether a delay depends on the number of failures alone, and no clock is read, as in most limiters.
    plain: bool,
}

/// Waits `base * 2^failures`, up to `max`: the usual backoff of one key.
///
/// Delays are whole nanoseconds, exact after any number of failures, and at most `max`, with [jitter](PerKey::jitter) too. A `base` greater
/// than `max` counts as `max`.
///
/// See [`PerKey`] for memory, jitter and the other settings.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
/// use std::time::Duration;
///
/// let limiter =
///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(10));
/// assert_eq!(limiter.when(&"pod-2"), Duration::from_millis(5));
/// assert_eq!(limiter.num_requeues(&"pod-1"), 2);
/// limiter.forget(&"pod-1");
/// assert_eq!(limiter.when(&"pod-1"), Duration::from_millis(5));
/// ```
#[doc(alias = "TypedItemExponentialFailureRateLimiter")]
#[doc(alias = "ItemExponentialFailureRateLimiter")]
#[doc(alias = "NewItemExponentialFailureRateLimiter")]
#[doc(alias = "DefaultItemBasedRateLimiter")]
#[doc(alias = "DefaultTypedItemBasedRateLimiter")]
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
#[doc(alias = "NewItemFastSlowRateLimiter")]
#[doc(alias = "NewTypedItemFastSlowRateLimiter")]
pub type ItemFastSlow<K> = PerKey<K, FastSlow>;

/// Waits as long as a table says for the number of failures of the key.
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
#[doc(alias = "StepRateLimiter")]
pub type Step<K> = PerKey<K, StepTable>;

impl<K> ItemExponentialFailure<K> {
    /// Waits `base` after the first failure, and twice as long after each further one, at most `max`. The limiter remembers each key until
    /// it is forgotten: see [`PerKey`].
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter =
    ///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_millis(15));
    /// let delays = [0; 3].map(|_| limiter.when(&"pod-1").as_millis());
    /// assert_eq!(delays, [5, 10, 15]);
    /// ```
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self::by(Exponential::new(base, max))
    }
}

impl<K> ItemFastSlow<K> {
    /// Waits `fast` after each of the first `max_fast_attempts` failures, and then `slow`. The limiter remembers each key until it is
    /// forgotten: see [`PerKey`].
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemFastSlow, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter = ItemFastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 2);
    /// let delays = [0; 3].map(|_| limiter.when(&"pod-1").as_millis());
    /// assert_eq!(delays, [5, 5, 10_000]);
    /// ```
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, max_fast_attempts: usize) -> Self {
        Self::by(FastSlow::new(fast, slow, max_fast_attempts))
    }
}

impl<K> Step<K> {
    /// A row `(n, d)` means that a key waits `d` after `n` earlier failures, up to the next row. The first row also holds for fewer
    /// failures. The limiter remembers each key until it is forgotten: see [`PerKey`].
    ///
    /// # Panics
    /// If there is no row, or the numbers do not ascend. See [`try_new`](Self::try_new).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{RateLimiter, Step};
    /// use std::time::Duration;
    ///
    /// let limiter = Step::new([(0, Duration::from_secs(1)), (2, Duration::from_secs(5))]);
    /// let delays = [0; 3].map(|_| limiter.when(&"pod-1").as_secs());
    /// assert_eq!(delays, [1, 1, 5]);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(rows: impl IntoIterator<Item = (usize, Duration)>) -> Self {
        Self::try_new(rows).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`new`](Self::new), for an untrusted table, as from a configuration.
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
            failures: KeyedStore::new(),
            clock: Clock::default(),
            served_only: false,
            jitter: Jitter::default(),
            plain: true,
        }
    }

    /// Makes each delay longer by a random part: a delay `d` is spread evenly in `[d, d + factor * d)`, so that keys that fail at one
    /// moment are not all tried again at one moment.
    ///
    /// With [`ItemExponentialFailure`] no delay exceeds the maximum, and the longest ones differ as well, because a delay that is longer
    /// than `max / (1 + factor)` counts as that, even the first one. A maximum of 60 s and a factor of 0.5, for example, make the longest
    /// delays 40 to 60 s. A maximum of `Duration::MAX` is none, and the other two limiters have no maximum. A factor of 0 is no jitter, and
    /// the larger it is, the shorter the shortest delay.
    ///
    /// [`seed`](Self::seed) says where the random parts come from.
    ///
    /// # Panics
    /// If the factor is negative, infinite or not a number. See [`try_jitter`](Self::try_jitter).
    ///
    /// # Examples
    /// A constant delay with jitter: keys that fail together are tried again over 20 seconds.
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let limiter = ItemExponentialFailure::new(minute, minute).jitter(0.5);
    /// assert!((0..1000).all(|key| (minute * 2 / 3..minute).contains(&limiter.when(&key))));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn jitter(self, factor: f64) -> Self {
        self.try_jitter(factor).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`jitter`](Self::jitter), for an untrusted factor, as from a configuration.
    ///
    /// # Errors
    /// If the factor is negative, infinite or not a number.
    pub fn try_jitter(mut self, factor: f64) -> Result<Self, InvalidArgument> {
        let factor = InvalidArgument::check_finite("factor", factor)?.abs(); // -0 is 0
        self.jitter.set(factor, self.schedule.cap());
        Ok(self.set())
    }

    /// Makes the limiter draw its random numbers from this seed: those of the [jitter](Self::jitter), and the hashes that choose which keys
    /// a [bounded limiter](Self::max_tracked) forgets. The same sequence of calls then gets the same answers, in each process on this
    /// machine.
    ///
    /// Without it, a limiter that a queue [owns](crate::WorkQueueBuilder::rate_limiter) draws from the queue's
    /// [seed](crate::WorkQueueBuilder::seed), if it has one. Any other limiter draws from a generator of the calling thread, and its hashes
    /// differ from process to process. A limiter in an [`Arc`](std::sync::Arc) is not owned, because it may have other users. Call this
    /// before the limiter is used.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let [base, max] = [1, 60].map(Duration::from_secs);
    /// let delays = || {
    ///     let limiter = ItemExponentialFailure::new(base, max).jitter(0.5).seed(7);
    ///     [0; 4].map(|_| limiter.when(&"pod-1"))
    /// };
    /// assert_eq!(delays(), delays());
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.draw_from(seed);
        self
    }

    fn draw_from(&mut self, seed: u64) {
        let numbers = SplitMix::new(seed);
        self.failures.hash_with(numbers.hasher());
        self.jitter.numbers = Some(numbers);
    }

    /// Counts a failure only if the delay after the last failure has elapsed. An event may lead to a run before that. If this run fails,
    /// the key waits for the rest of the delay, and its next delay does not get longer. The key is not given up then, even if it is out of
    /// [retries](crate::WorkersBuilder::max_retries), because the retry that is still to come decides. If the run itself asks for a longer
    /// delay, by [`RetryAfter`](crate::Outcome::RetryAfter), the longer one counts.
    ///
    /// Off by default, as in client-go, where events that add a failing key during its backoff drive it to the longest delay, though it
    /// waits for none.
    #[must_use]
    pub fn served_only(mut self) -> Self {
        self.served_only = true;
        self.clock.calibrate();
        self.set()
    }

    /// Remembers at most this number of keys, and at least two. At this number it forgets one half of them, those that failed longest ago,
    /// so it always remembers the latest half.
    ///
    /// A forgotten key begins with the first delay again. From 1024 keys on, the limiter spreads the keys over shards, each of which has
    /// its share of the bound, and a shard that gets more keys by chance forgets a little earlier. Call this before the limiter is used,
    /// because it forgets all keys.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter =
    ///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000))
    ///         .max_tracked(1000);
    /// (0..1_000_000).for_each(|key| _ = limiter.when(&key));
    /// assert!(limiter.tracked_len() <= 1000);
    /// ```
    #[must_use]
    pub fn max_tracked(mut self, keys: usize) -> Self {
        self.failures = self.failures.max_tracked(keys);
        self
    }

    /// Forgets a key when it has not failed for `age`, or for twice `age` at the latest. If `age` is shorter than the longest delay with its
    /// [jitter](Self::jitter), that delay counts, so that the limiter never forgets a key that waits for its retry.
    ///
    /// Each [`when`](RateLimiter::when) does this work for the shard of its key. Once the calls stop, the limiter keeps its keys until
    /// [`shrink_to_fit`](RateLimiter::shrink_to_fit).
    #[must_use]
    pub fn retain_recent(mut self, age: Duration) -> Self {
        self.failures = self.failures.retain_recent(age.max(self.schedule.longest()));
        self.clock.calibrate();
        self.set()
    }

    /// The clock for [`served_only`](Self::served_only) and [`retain_recent`](Self::retain_recent), which is the real clock by default. If
    /// you set the queue's clock, give the limiter the same one. Without these two settings, the limiter reads no clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Called after each setting, because some depend on others: how long keys are remembered, and whether the limiter is plain.
    fn set(mut self) -> Self {
        self.failures.retain_for(self.jitter.longest(self.schedule.longest()));
        self.plain = self.jitter.is_none() && !self.served_only && !self.failures.needs_time();
        self
    }

    #[inline]
    fn now(&self) -> u64 {
        if self.served_only || self.failures.needs_time() { self.clock.now_coarse() } else { 0 }
    }
}

impl<K: Hash + Eq + Clone, S: Schedule> PerKey<K, S> {
    /// [`when`](RateLimiter::when) of a limiter that is not plain.
    #[inline(never)]
    fn when_with_settings(&self, key: &K) -> Duration {
        let now = self.now();
        let part = self.jitter.part();
        self.failures.update(key, now, |record| {
            if self.served_only && now < record.until {
                return time_left(record.until, now);
            }
            let delay = self.jitter.extend(self.schedule.delay(record.count()), part);
            if self.served_only {
                record.until = now.saturating_add(nanos(delay));
            }
            delay
        })
    }
}

impl<K, S> PerKey<K, S> {
    /// The number of keys that are remembered.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let limiter =
    ///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
    /// limiter.when(&"pod-1");
    /// assert_eq!(limiter.tracked_len(), 1);
    /// limiter.forget(&"pod-1");
    /// assert_eq!(limiter.tracked_len(), 0);
    /// ```
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
    /// Counts one more failure of this key, and returns how long to wait. Clones the key if it is new.
    #[inline]
    fn when(&self, key: &K) -> Duration {
        if !self.plain {
            return self.when_with_settings(key);
        }
        // The delay is chosen after the lock.
        let before = self.failures.update(key, 0, Record::count);
        self.schedule.delay(before)
    }

    #[inline]
    fn forget(&self, key: &K) {
        self.failures.forget(key);
    }

    /// The number of failures since the key was last forgotten.
    #[inline]
    fn num_requeues(&self, key: &K) -> usize {
        self.failures.get(key, self.now()).map_or(0, |record| record.failures as usize)
    }

    /// Forgets keys that are too old ([`retain_recent`](Self::retain_recent)), and frees memory.
    fn shrink_to_fit(&self) {
        self.failures.shrink(self.now());
    }

    fn failing(&self) -> usize {
        self.failures.len()
    }

    fn has_delay_left(&self, key: &K) -> bool {
        let now = self.now();
        self.served_only && self.failures.get(key, now).is_some_and(|record| now < record.until)
    }

    fn reseed(&mut self, seed: u64) {
        if self.jitter.numbers.is_none() {
            self.draw_from(seed);
        }
    }

    fn schedule(&self) -> Option<ScheduleFn> {
        (self.plain && !self.failures.is_bounded() && self.failures.len() == 0).then(|| self.schedule.to_function())
    }
}

// A panic in `Eq` or `Clone` leaves no table halfway through a change.
impl<K: RefUnwindSafe, S: RefUnwindSafe> UnwindSafe for PerKey<K, S> {}
impl<K: RefUnwindSafe, S: RefUnwindSafe> RefUnwindSafe for PerKey<K, S> {}

impl<K, S: fmt::Debug> fmt::Debug for PerKey<K, S> {
    /// The settings and the number of keys that are remembered, but no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerKey")
            .field("schedule", &self.schedule)
            .field("served_only", &self.served_only)
            .field("tracked_len", &self.tracked_len())
            .finish_non_exhaustive()
    }
}
