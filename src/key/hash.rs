//! What the queue keeps of a key's hash.

/// The part of a key's hash that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u32);

impl KeyHash {
    /// The index of the shard, of this number of shards (a power of two, up to 64). From bits that the table does not use: its tags take
    /// the three highest, and its buckets the low ones (from 2^23 buckets a shard on, they share some).
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> 23) as usize & (shards - 1)
    }
}
