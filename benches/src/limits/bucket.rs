//! Token buckets: keyqueue's and governor's, which have the same algorithm.
//!
//! governor's own clock is `quanta`, which reads the processor's counter. It is measured with the clock of the standard library too.
//! With keys the work differs: governor has a bucket for each key, [`DedupingBucket`] has one for all keys and remembers which key has a
//! token. Both look the key up and take a step of a bucket.

use super::{KeyedTokens, Limit, Tokens};
use ahash::RandomState;
use governor::clock::{Clock, DefaultClock, MonotonicClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter as Limiter};
use keyqueue::rate_limiter::{Bucket, DedupingBucket, RateLimiter};
use std::num::NonZeroU32;

/// keyqueue's `try_acquire`.
pub struct Acquire(Bucket);

/// keyqueue's `when`.
pub struct Reserve(Bucket);

/// governor.
pub struct Governor(Direct<DefaultClock>);

/// governor with the clock of the standard library.
pub struct GovernorStd(Direct<MonotonicClock>);

/// governor with a bucket for each key.
pub struct KeyedGovernor(Keyed<DefaultClock>);

/// The same with the clock of the standard library.
pub struct KeyedGovernorStd(Keyed<MonotonicClock>);

type Direct<C> = Limiter<NotKeyed, InMemoryState, C, NoOpMiddleware<<C as Clock>::Instant>>;
type ByKey = DashMapStateStore<u64, RandomState>;
type Keyed<C> = Limiter<u64, ByKey, C, NoOpMiddleware<<C as Clock>::Instant>>;

fn bucket(limit: Limit) -> Bucket {
    Bucket::new(f64::from(limit.rate), limit.burst)
}

fn quota(limit: Limit) -> Quota {
    let [rate, burst] = [limit.rate, limit.burst].map(|number| NonZeroU32::new(number).expect("not zero"));
    Quota::per_second(rate).allow_burst(burst)
}

impl Tokens for Acquire {
    fn make(limit: Limit) -> Self {
        Self(bucket(limit))
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.try_acquire().is_ok()
    }
}

impl Tokens for Reserve {
    fn make(limit: Limit) -> Self {
        Self(bucket(limit))
    }

    #[inline]
    fn take(&self) -> bool {
        self.0.when(&()).is_zero()
    }
}

impl KeyedTokens for DedupingBucket<u64> {
    fn make(limit: Limit) -> Self {
        Self::new(bucket(limit))
    }

    #[inline]
    fn take(&self, key: &u64) -> bool {
        self.when(key).is_zero()
    }
}

macro_rules! governor {
    ($tokens:ident, $state:expr, $clock:ty) => {
        impl Tokens for $tokens {
            fn make(limit: Limit) -> Self {
                Self(Limiter::new(quota(limit), $state, <$clock>::default()))
            }

            #[inline]
            fn take(&self) -> bool {
                self.0.check().is_ok()
            }
        }
    };
    (keyed $tokens:ident, $clock:ty) => {
        impl KeyedTokens for $tokens {
            fn make(limit: Limit) -> Self {
                Self(Limiter::new(quota(limit), ByKey::default(), <$clock>::default()))
            }

            #[inline]
            fn take(&self, key: &u64) -> bool {
                self.0.check_key(key).is_ok()
            }
        }
    };
}

governor!(Governor, InMemoryState::default(), DefaultClock);
governor!(GovernorStd, InMemoryState::default(), MonotonicClock);
governor!(keyed KeyedGovernor, DefaultClock);
governor!(keyed KeyedGovernorStd, MonotonicClock);
