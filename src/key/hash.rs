//! What the queue keeps of a key's hash.

/// The part of a key's hash that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(pub(crate) u32);

/// The lowest bit that names a shard, and all six.
const SHARD_AT: u32 = 23;
const SHARD: u32 = 63 << SHARD_AT;

impl KeyHash {
    /// The index of the shard among this number of shards, a power of two up to 64. It comes from bits that the table does not use (until
    /// the shard has 2^23 buckets), because the tags are the three highest bits, and the buckets are chosen by the low ones.
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> SHARD_AT) as usize & (shards - 1)
    }

    /// The hash of a key that is in the shard of this index, whatever its own hash says.
    #[inline]
    pub(crate) fn in_shard(self, index: usize) -> Self {
        Self(self.0 & !SHARD | (index as u32) << SHARD_AT)
    }

    /// The index of the shard in which [`in_shard`](Self::in_shard) has put it.
    #[inline]
    pub(crate) fn placed_in(self) -> usize {
        (self.0 & SHARD) as usize >> SHARD_AT
    }

    /// What is left of the hash if it does not name a shard. It is the same wherever the key is.
    #[inline]
    pub(crate) fn without_shard(self) -> u32 {
        self.0 & !SHARD
    }
}
