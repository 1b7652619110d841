//! A token bucket that reserves one token at a time for each key.

use super::keyed::KeyedStore;
use super::{Bucket, RateLimiter};
use crate::random::SplitMix;
use crate::time::{nanos, time_left};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A [`Bucket`] in which a key has at most one outstanding token. If a caller asks for a key before the key's token may be used, the answer
/// is the time that is left, and the caller spends nothing.
///
/// A plain bucket spends a token for each add, even if the key has an earlier delay and the queue drops the add. If keys are added faster
/// than the rate, the waits of all keys then grow without bound while the queue is empty.
///
/// [`forget`](RateLimiter::forget) forgets the outstanding token, which stays spent, so the next add of the key reserves another one.
///
/// # Memory
/// The limiter remembers a key until its token may be used. The key takes 1.3 to 2.7 times the size of its clone and 16 bytes, which is 32
/// to 64 bytes for a `u64`. When there are many keys, the limiter drops those whose tokens may be used, and
/// [`shrink_to_fit`](RateLimiter::shrink_to_fit) drops all of these.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::{Bucket, DedupingBucket, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = DedupingBucket::new(Bucket::new(1.0, 1));
/// assert_eq!(limiter.when(&"a"), Duration::ZERO);
/// for _ in 0..100 {
///     assert!(limiter.when(&"b") <= Duration::from_secs(1), "all wait for the same token");
/// }
/// assert!(limiter.when(&"c") <= Duration::from_secs(2));
/// ```
#[doc(alias = "DedupingBucketRateLimiter")]
pub struct DedupingBucket<K> {
    bucket: Bucket,
    /// For each key, the time at which its token may be used.
    outstanding: KeyedStore<K>,
}

impl<K> DedupingBucket<K> {
    /// A limiter that gives each key one token of this bucket at a time.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::rate_limiter::{Bucket, DedupingBucket};
    ///
    /// // 50 tokens a second, and 100 at once
    /// let limiter = DedupingBucket::<String>::new(Bucket::new(50.0, 100));
    /// ```
    #[must_use]
    pub fn new(bucket: Bucket) -> Self {
        Self { bucket, outstanding: KeyedStore::new().drop_elapsed() }
    }

    /// The number of keys that are remembered.
    #[must_use]
    pub fn tracked_len(&self) -> usize {
        self.outstanding.len()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync> RateLimiter<K> for DedupingBucket<K> {
    /// How long to wait for this key's outstanding token. If there is none, a token is spent.
    fn when(&self, key: &K) -> Duration {
        let now = self.bucket.clock().now_coarse();
        self.outstanding.update(key, now, |record| {
            if now < record.until {
                return time_left(record.until, now);
            }
            let (delay, _) = self.bucket.reserve_at(now);
            record.until = now.saturating_add(nanos(delay));
            delay
        })
    }

    fn forget(&self, key: &K) {
        self.outstanding.forget(key);
    }

    /// Always 0: failures are not counted.
    fn num_requeues(&self, _: &K) -> usize {
        0
    }

    /// Drops keys whose tokens may be used, and frees memory.
    fn shrink_to_fit(&self) {
        self.outstanding.shrink(self.bucket.clock().now_coarse());
    }

    fn reseed(&mut self, seed: u64) {
        self.outstanding.hash_with(SplitMix::new(seed).hasher());
    }
}

// For the same reason as `PerKey`.
impl<K: RefUnwindSafe> UnwindSafe for DedupingBucket<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for DedupingBucket<K> {}

impl<K> fmt::Debug for DedupingBucket<K> {
    /// The bucket and the number of keys that are remembered, but no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupingBucket")
            .field("bucket", &self.bucket)
            .field("tracked_len", &self.tracked_len())
            .finish()
    }
}
