//! Exponential backoff in another design: a concurrent map of counters.

use ahash::RandomState;
use common::Key;
use common::limiter::{Limiter, delay};
use dashmap::DashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A counter for each key, in a concurrent map.
pub struct DashLimiter<K>(DashMap<K, AtomicU32, RandomState>);

impl<K: Key> Limiter<K> for DashLimiter<K> {
    const NAME: &'static str = "DashMap";

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
