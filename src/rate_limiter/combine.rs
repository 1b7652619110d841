//! Limiters made of limiters.

use super::schedule::Exponential;
use super::{Bucket, PerKey, RateLimiter};
use crate::random::SplitMix;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// Asks several limiters each time, and answers with the longest wait.
///
/// Without limiters the answer is always zero.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, MaxOf, RateLimiter};
/// use std::time::Duration;
///
/// let backoff =
///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(60));
/// let limiter =
///     MaxOf::<u64>::new(vec![Box::new(backoff), Box::new(Bucket::new(100.0, 1000))]);
/// assert_eq!(limiter.when(&7), Duration::from_millis(5));
/// ```
#[doc(alias = "NewMaxOfRateLimiter")]
#[doc(alias = "NewTypedMaxOfRateLimiter")]
#[doc(alias = "TypedMaxOfRateLimiter")]
#[doc(alias = "MaxOfRateLimiter")]
pub struct MaxOf<K: ?Sized> {
    limiters: Box<[Box<dyn RateLimiter<K>>]>,
}

impl<K: ?Sized> MaxOf<K> {
    /// The longest wait of all of these.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, MaxOf, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let backoff =
    ///     ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
    /// let both = MaxOf::<&str>::new(vec![Box::new(backoff), Box::new(Bucket::new(10.0, 100))]);
    /// assert_eq!(both.when(&"pod-1"), Duration::from_millis(5));
    /// ```
    #[must_use]
    pub fn new(limiters: Vec<Box<dyn RateLimiter<K>>>) -> Self {
        Self { limiters: limiters.into() }
    }
}

impl<K: ?Sized> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K) -> Duration {
        self.limiters.iter().map(|limiter| limiter.when(key)).max().unwrap_or_default()
    }

    fn forget(&self, key: &K) {
        self.limiters.iter().for_each(|limiter| limiter.forget(key));
    }

    /// The largest count.
    fn num_requeues(&self, key: &K) -> usize {
        self.limiters.iter().map(|limiter| limiter.num_requeues(key)).max().unwrap_or_default()
    }

    fn shrink_to_fit(&self) {
        self.limiters.iter().for_each(|limiter| limiter.shrink_to_fit());
    }

    /// The largest count.
    fn failing(&self) -> usize {
        self.limiters.iter().map(|limiter| limiter.failing()).max().unwrap_or_default()
    }

    /// Whether one of them would not count a failure now.
    fn has_delay_left(&self, key: &K) -> bool {
        self.limiters.iter().any(|limiter| limiter.has_delay_left(key))
    }

    fn reseed(&mut self, seed: u64) {
        let seeds = SplitMix::new(seed);
        self.limiters.iter_mut().for_each(|limiter| limiter.reseed(seeds.next()));
    }
}

impl<K: ?Sized> fmt::Debug for MaxOf<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaxOf").field("limiters", &self.limiters.len()).finish()
    }
}

/// Limits the answers of a limiter to a maximum.
///
/// The inner limiter does not know the maximum, so a bucket goes on reserving tokens further and further ahead (see [`Bucket::max_ahead`]),
/// and delays that [jitter](PerKey::jitter) spreads beyond the maximum all become the maximum. Give an
/// [`ItemExponentialFailure`](super::ItemExponentialFailure) with jitter its own maximum instead.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{ItemFastSlow, RateLimiter, WithMaxWait};
/// use std::time::Duration;
///
/// let [fast, slow, max] = [1, 3600, 60].map(Duration::from_secs);
/// let limiter = WithMaxWait::new(ItemFastSlow::new(fast, slow, 1), max);
/// assert_eq!([(); 2].map(|()| limiter.when(&7)), [fast, max]);
/// ```
#[doc(alias = "NewWithMaxWaitRateLimiter")]
#[doc(alias = "NewTypedWithMaxWaitRateLimiter")]
#[doc(alias = "TypedWithMaxWaitRateLimiter")]
#[doc(alias = "WithMaxWaitRateLimiter")]
#[derive(Debug, Clone)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// The answers of `limiter`, but `max` at most.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter, WithMaxWait};
    /// use std::time::Duration;
    ///
    /// let backoff =
    ///     ItemExponentialFailure::new(Duration::from_secs(100), Duration::from_secs(1000));
    /// let limiter = WithMaxWait::new(backoff, Duration::from_secs(60));
    /// assert_eq!(limiter.when(&"pod-1"), Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&self, key: &K) -> Duration {
        self.limiter.when(key).min(self.max)
    }

    fn forget(&self, key: &K) {
        self.limiter.forget(key);
    }

    fn num_requeues(&self, key: &K) -> usize {
        self.limiter.num_requeues(key)
    }

    fn shrink_to_fit(&self) {
        self.limiter.shrink_to_fit();
    }

    fn failing(&self) -> usize {
        self.limiter.failing()
    }

    fn has_delay_left(&self, key: &K) -> bool {
        self.limiter.has_delay_left(key)
    }

    fn reseed(&mut self, seed: u64) {
        self.limiter.reseed(seed);
    }
}

/// client-go's default for controllers, which is the longer of two waits: a backoff for each key, of 5 ms to 1000 s, and the wait for one
/// bucket that all keys share, of 10 a second after a burst of 100.
///
/// This bucket is a bottleneck when many keys fail at once: 10 000 keys take a quarter of an hour, and each retry waits for all retries
/// before it. [`WorkQueue::new`](crate::WorkQueue::new) has no such bucket, like controller-runtime.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::rate_limiter::default_controller_rate_limiter;
///
/// let queue =
///     WorkQueue::<String>::builder().rate_limiter(default_controller_rate_limiter()).build();
/// ```
#[doc(alias = "DefaultTypedControllerRateLimiter")]
#[doc(alias = "DefaultControllerRateLimiter")]
#[must_use]
pub fn default_controller_rate_limiter<K: Hash + Eq + Clone + Send + Sync + 'static>() -> MaxOf<K> {
    MaxOf::new(vec![Box::new(PerKey::by(default_backoff())), Box::new(Bucket::new(10.0, 100))])
}

pub(crate) fn default_backoff() -> Exponential {
    Exponential::new(Duration::from_millis(5), Duration::from_secs(1000))
}
