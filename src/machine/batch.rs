//! Batches: many keys in one critical section.
//!
//! ```text
//!   add_all    hash all ─ lock ─ prefetch_bucket of each ─ prefetch_slot of each ─ add each, and the sum of what is owed ─ unlock
//!   get_many   lock ─ get, until there is none or some hundred are taken ─ unlock                   (a get prefetches by itself)
//! ```
//!
//! With many keys, what a look-up reads is in no cache. In a batch these misses overlap. If the table fits the cache, the prefetches only
//! cost time: [`is_large`](Machine::is_large). What the verbs owe is added up by [`Owed::and`](super::Owed::and); a caller that withholds
//! wake-ups looks at the sum.

use super::Machine;
use crate::key::Hash;

/// With this number of keys, they are not all in the second cache.
const LARGE: usize = 1 << 14;

impl<K> Machine<K> {
    /// The table is so large that a batch is faster with prefetches.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.keys.len() >= LARGE
    }

    /// Where the buckets are, and their number: for [`prefetch_bucket`](crate::key::prefetch_bucket) before the lock.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.keys.buckets()
    }

    /// Brings near the bucket that a look-up of this hash will read.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, hash: Hash) {
        self.keys.prefetch_bucket(hash);
    }

    /// Reads that bucket, and brings near the first slot of its chain.
    #[inline]
    pub(crate) fn prefetch_slot(&self, hash: Hash) {
        self.keys.prefetch_slot(hash);
    }
}
