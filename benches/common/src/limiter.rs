//! Exponential backoff: keyqueue's, two rivals as one would write them in an hour, and the call that is timed in each.
//!
//! The rivals are client-go's design: one map of counts under one lock, and the delay from the count. [`ParkingLotLimiter`] has `ahash`,
//! [`StdLimiter`] the map as it comes.

use crate::Key;
use crate::threads::span;
use ahash::RandomState;
use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The delay after the first failure of a key.
pub const BASE: Duration = Duration::from_millis(5);
/// The longest delay.
pub const MAX: Duration = Duration::from_secs(1000);

/// An exponential backoff of each key.
pub trait Limiter<K>: Sync {
    /// The subject's name in the tables.
    const NAME: &'static str;

    fn make() -> Self;

    /// Counts a failure of the key, and returns how long to wait.
    fn when(&self, key: &K) -> Duration;

    fn forget(&self, key: &K);

    fn num_requeues(&self, key: &K) -> u64;
}

/// The delay after `failures` earlier failures. Computed in whole nanoseconds, which is faster than a `Duration` times a number.
#[inline]
pub fn delay(failures: u32) -> Duration {
    const BASE_NANOS: u64 = BASE.as_nanos() as u64;
    const MAX_NANOS: u64 = MAX.as_nanos() as u64;
    let factor = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    Duration::from_nanos(BASE_NANOS.saturating_mul(factor).min(MAX_NANOS))
}

/// Counts a failure, and returns the number of earlier failures of the key. The key is cloned only if it is new.
#[inline]
fn count<K: Key, S: BuildHasher>(failures: &mut HashMap<K, u32, S>, key: &K) -> u32 {
    if let Some(count) = failures.get_mut(key) {
        let before = *count;
        *count = before.saturating_add(1);
        return before;
    }
    failures.insert(key.clone(), 1);
    0
}

impl<K: Key> Limiter<K> for ItemExponentialFailure<K> {
    const NAME: &'static str = "keyqueue";

    fn make() -> Self {
        Self::new(BASE, MAX)
    }

    #[inline]
    fn when(&self, key: &K) -> Duration {
        RateLimiter::when(self, key)
    }

    #[inline]
    fn forget(&self, key: &K) {
        RateLimiter::forget(self, key);
    }

    fn num_requeues(&self, key: &K) -> u64 {
        RateLimiter::num_requeues(self, key) as u64
    }
}

macro_rules! rival {
    ($name:ident, $label:literal, $mutex:ty, |$lock:ident| $guard:expr) => {
        /// A rival: see the head of this file.
        pub struct $name<K>($mutex);

        impl<K: Key> Limiter<K> for $name<K> {
            const NAME: &'static str = $label;

            fn make() -> Self {
                Self(Default::default())
            }

            #[inline]
            fn when(&self, key: &K) -> Duration {
                let $lock = &self.0;
                let failures = count(&mut $guard, key);
                delay(failures)
            }

            #[inline]
            fn forget(&self, key: &K) {
                let $lock = &self.0;
                $guard.remove(key);
            }

            fn num_requeues(&self, key: &K) -> u64 {
                let $lock = &self.0;
                $guard.get(key).map_or(0, |count| u64::from(*count))
            }
        }
    };
}
rival!(ParkingLotLimiter, "parking_lot mutex", parking_lot::Mutex<HashMap<K, u32, RandomState>>, |mutex| mutex.lock());
rival!(StdLimiter, "std mutex, SipHash", std::sync::Mutex<HashMap<K, u32>>, |mutex| mutex.lock().unwrap());

/// The first `keys` keys, in `count` random orders.
pub fn orders<K: Key>(keys: u64, count: u64) -> Vec<Vec<K>> {
    let mut random = fastrand::Rng::with_seed(0);
    let mut order = || {
        let mut order: Vec<u64> = (0..keys).collect();
        for last in (1..keys).rev() {
            order.swap(last as usize, random.u64(0..last + 1) as usize);
        }
        order.into_iter().map(K::nth).collect()
    };
    (0..count).map(|_| order()).collect()
}

/// Failures of keys that failed before, each thread in an order of its own.
pub fn when<K: Key, L: Limiter<K>>(keys: u64, threads: u64, calls: u64) -> Vec<Duration> {
    let orders = orders::<K>(keys, threads);
    let limiter = L::make();
    for key in &orders[0] {
        limiter.when(key);
    }
    let calls = calls / threads;
    let (start, end) = span(threads, |thread| {
        for key in orders[thread as usize].iter().cycle().take(calls as usize) {
            black_box(limiter.when(key));
        }
    });
    let counted: u64 = orders[0].iter().map(|key| limiter.num_requeues(key)).sum();
    assert_eq!(counted, keys + calls * threads, "a failure was lost");
    vec![end - start]
}

/// New keys fail, then all are forgotten, in another order.
pub fn when_forget<K: Key, L: Limiter<K>>(keys: u64) -> Vec<Duration> {
    let orders = orders::<K>(keys, 2);
    let limiter = L::make();
    let start = Instant::now();
    for key in &orders[0] {
        black_box(limiter.when(key));
    }
    let failed = start.elapsed();
    assert!(orders[0].iter().all(|key| limiter.num_requeues(key) == 1), "a failure was lost");
    let start = Instant::now();
    for key in &orders[1] {
        limiter.forget(key);
    }
    let forgotten = start.elapsed();
    assert!(orders[0].iter().all(|key| limiter.num_requeues(key) == 0), "a key was not forgotten");
    vec![failed, forgotten]
}
