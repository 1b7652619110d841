//! Token buckets: keyqueue's and governor's, which have the same algorithm.
//!
//! governor's own clock is `quanta`, which reads the processor's counter.
//! With keys the work differs: governor has a bucket for each key, [`DedupingBucket`] has one for all keys and remembers which key has a
//! token. Both look the key up and take a step of a bucket.

use super::{Limit, Tokens};
use ahash::RandomState;
use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter as Limiter};
use keyqueue::rate_limiter::{Bucket, DedupingBucket, RateLimiter};
use std::num::NonZeroU32;

type Keyed = Limiter<u64, DashMapStateStore<u64, RandomState>, DefaultClock>;

fn bucket(limit: Limit) -> Bucket {
    Bucket::new(f64::from(limit.rate), limit.burst)
}

fn quota(limit: Limit) -> Quota {
    let [rate, burst] = [limit.rate, limit.burst].map(|number| NonZeroU32::new(number).expect("not zero"));
    Quota::per_second(rate).allow_burst(burst)
}

macro_rules! tokens {
    ($($(#[$doc:meta])* $name:ident($of:ty), $label:literal: |$limit:ident| $make:expr, |$bucket:ident, $key:ident| $take:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name($of);

        impl Tokens for $name {
            const NAME: &'static str = $label;

            fn make($limit: Limit) -> Self {
                Self($make)
            }

            #[inline]
            fn take(&self, $key: &u64) -> bool {
                let $bucket = &self.0;
                $take
            }
        }
    )*};
}

tokens! {
    /// keyqueue's `try_acquire`.
    Acquire(Bucket), "keyqueue": |limit| bucket(limit), |bucket, _key| bucket.try_acquire().is_ok();
    /// keyqueue's `when`.
    Reserve(Bucket), "keyqueue": |limit| bucket(limit), |bucket, _key| bucket.when(&()).is_zero();
    /// governor.
    Governor(DefaultDirectRateLimiter), "governor": |limit| Limiter::direct(quota(limit)), |bucket, _key| bucket.check().is_ok();
    /// keyqueue's bucket for keys.
    Deduping(DedupingBucket<u64>), "keyqueue": |limit| DedupingBucket::new(bucket(limit)), |bucket, key| bucket.when(key).is_zero();
    /// governor with a bucket for each key.
    KeyedGovernor(Keyed), "governor": |limit| Limiter::new(quota(limit), Default::default(), DefaultClock::default()), |bucket, key| bucket.check_key(key).is_ok();
}
