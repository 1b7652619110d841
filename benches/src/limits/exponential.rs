//! Exponential backoff as one would write it in an hour: a map of counts, the delay from the count.
//!
//! * [`ParkingLotLimiter`], [`StdLimiter`]: client-go's own design, one map under one lock; the first with `ahash`, the second as
//!   it comes.
//! * [`DashLimiter`]: another design, a concurrent map of counters.

use super::{BASE, Limiter, MAX};
use crate::Key;
use ahash::RandomState;
use dashmap::DashMap;
use keyqueue::rate_limiter::{ItemExponentialFailure, RateLimiter};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// See the module's head.
pub struct ParkingLotLimiter<K>(parking_lot::Mutex<HashMap<K, u32, RandomState>>);

/// See the module's head.
pub struct StdLimiter<K>(std::sync::Mutex<HashMap<K, u32>>);

/// See the module's head.
pub struct DashLimiter<K>(DashMap<K, AtomicU32, RandomState>);

/// In whole nanoseconds, which is faster than a `Duration` times a number.
#[inline]
fn delay(failures: u32) -> Duration {
    const BASE_NANOS: u64 = BASE.as_nanos() as u64;
    const MAX_NANOS: u64 = MAX.as_nanos() as u64;
    let factor = 1_u64.checked_shl(failures).unwrap_or(u64::MAX);
    Duration::from_nanos(BASE_NANOS.saturating_mul(factor).min(MAX_NANOS))
}

/// How often the key failed before. It is cloned only if it is new.
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

impl<K: Key> Limiter<K> for ParkingLotLimiter<K> {
    fn make() -> Self {
        Self(parking_lot::Mutex::default())
    }

    #[inline]
    fn when(&self, key: &K) -> Duration {
        let failures = count(&mut self.0.lock(), key);
        delay(failures)
    }

    #[inline]
    fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }

    fn num_requeues(&self, key: &K) -> u64 {
        self.0.lock().get(key).map_or(0, |count| u64::from(*count))
    }
}

impl<K: Key> Limiter<K> for StdLimiter<K> {
    fn make() -> Self {
        Self(std::sync::Mutex::default())
    }

    #[inline]
    fn when(&self, key: &K) -> Duration {
        let failures = count(&mut self.0.lock().unwrap(), key);
        delay(failures)
    }

    #[inline]
    fn forget(&self, key: &K) {
        self.0.lock().unwrap().remove(key);
    }

    fn num_requeues(&self, key: &K) -> u64 {
        self.0.lock().unwrap().get(key).map_or(0, |count| u64::from(*count))
    }
}

impl<K: Key> Limiter<K> for DashLimiter<K> {
    fn make() -> Self {
        Self(DashMap::default())
    }

    #[inline]
    fn when(&self, key: &K) -> Duration {
        let known = self.0.get(key).map(|count| count.fetch_add(1, Ordering::Relaxed));
        delay(known.unwrap_or_else(|| self.0.entry(key.clone()).or_default().fetch_add(1, Ordering::Relaxed)))
    }

    #[inline]
    fn forget(&self, key: &K) {
        self.0.remove(key);
    }

    fn num_requeues(&self, key: &K) -> u64 {
        self.0.get(key).map_or(0, |count| u64::from(count.load(Ordering::Relaxed)))
    }
}
