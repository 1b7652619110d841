//! Token buckets: keyqueue's and governor's, which have the same algorithm.
//!
//! governor's own clock is `quanta`, which reads the processor's counter. It is measured with the clock of the standard library too.
//! With keys the work differs: governor has a bucket for each key, [`DedupingBucket`] has one for all keys and remembers which key has a
//! token. Both look the key up and take a step of a bucket.

use super::{Limit, Tokens};
use ahash::RandomState;
use governor::clock::{Clock, DefaultClock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter as Limiter};
use keyqueue::rate_limiter::{Bucket, DedupingBucket, RateLimiter};
use std::num::NonZeroU32;

type Direct<C> = Limiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as Clock>::Instant>>;
type Keyed<C> = Limiter<u64, DashMapStateStore<u64, RandomState>, C, NoOpMiddleware<<C as Clock>::Instant>>;

fn bucket(limit: Limit) -> Bucket {
    Bucket::new(f64::from(limit.rate), limit.burst)
}

fn quota(limit: Limit) -> Quota {
    let [rate, burst] = [limit.rate, limit.burst].map(|number| NonZeroU32::new(number).expect("not zero"));
    Quota::per_second(rate).allow_burst(burst)
}

fn direct<C: Clock>(limit: Limit, clock: C) -> Direct<C> {
    Limiter::new(quota(limit), InMemoryState::default(), clock)
}

fn keyed<C: Clock>(limit: Limit, clock: C) -> Keyed<C> {
    Limiter::new(quota(limit), DashMapStateStore::default(), clock)
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
    Governor(Direct<DefaultClock>), "governor": |limit| direct(limit, DefaultClock::default()), |bucket, _key| bucket.check().is_ok();
    /// governor with the clock of the standard library.
    GovernorStd(Direct<MonotonicClock>), "governor, std clock": |limit| direct(limit, MonotonicClock), |bucket, _key| bucket.check().is_ok();
    /// keyqueue's bucket for keys.
    Deduping(DedupingBucket<u64>), "keyqueue": |limit| DedupingBucket::new(bucket(limit)), |bucket, key| bucket.when(key).is_zero();
    /// governor with a bucket for each key.
    KeyedGovernor(Keyed<DefaultClock>), "governor": |limit| keyed(limit, DefaultClock::default()), |bucket, key| bucket.check_key(key).is_ok();
    /// The same with the clock of the standard library.
    KeyedGovernorStd(Keyed<MonotonicClock>), "governor, std clock": |limit| keyed(limit, MonotonicClock), |bucket, key| bucket.check_key(key).is_ok();
}
