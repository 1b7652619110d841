//! A token bucket that reserves one token for a key at a time.

use super::keyed::Keyed;
use super::{Bucket, RateLimiter};
use crate::time::{nanos, rest};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A [`Bucket`] in which a key has one outstanding token at most: who asks for a key again before its last token may be used is
/// told the rest of that wait, and nothing is spent.
///
/// A plain bucket spends a token for each add, also for those that the queue then drops because the key has an earlier delay.
/// With keys that are added faster than the rate, the waits of all keys grow without end while the queue is empty.
///
/// [`forget`](RateLimiter::forget) forgets the outstanding token, which stays spent: the next add of the key reserves
/// another.
///
/// # Memory
/// A key is remembered until its token may be used, 30 to 70 bytes and the key itself, which is cloned. When room gets short,
/// keys that need not be remembered any more are dropped first; [`shrink_to_fit`](RateLimiter::shrink_to_fit) drops them all.
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
    /// Since when each key has its token.
    outstanding: Keyed<K>,
}

impl<K> DedupingBucket<K> {
    /// One token of this bucket for a key at a time.
    #[must_use]
    pub fn new(bucket: Bucket) -> Self {
        Self { bucket, outstanding: Keyed::new().drop_served() }
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn tracked_len(&self) -> usize {
        self.outstanding.len()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync> RateLimiter<K> for DedupingBucket<K> {
    /// How long to wait for this key's token: the outstanding one if there is one, else another, which is spent now.
    fn when(&self, key: &K) -> Duration {
        let now = self.bucket.clock().rough();
        self.outstanding.update(key, now, |memory| {
            if now < memory.until {
                return rest(memory.until, now);
            }
            let (delay, _) = self.bucket.reserve_at(now);
            memory.until = now.saturating_add(nanos(delay));
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

    /// Drops keys that need not be remembered any more, and gives back memory.
    fn shrink_to_fit(&self) {
        self.outstanding.shrink(self.bucket.clock().rough());
    }
}

// As for `PerKey`.
impl<K: RefUnwindSafe> UnwindSafe for DedupingBucket<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for DedupingBucket<K> {}

impl<K> fmt::Debug for DedupingBucket<K> {
    /// Shows no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DedupingBucket")
            .field("bucket", &self.bucket)
            .field("tracked_len", &self.tracked_len())
            .finish()
    }
}
