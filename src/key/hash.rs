//! What the queue keeps of a key's hash.

/// The part of a key's hash that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u32);

impl KeyHash {
    /// The index of the shard among this number of shards, a power of two up to 64. It comes from bits that the table does not use (until
    /// the shard has 2^23 buckets), because the tags are the three highest bits, and the buckets are chosen by the low ones.
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> 23) as usize & (shards - 1)
    }
}
