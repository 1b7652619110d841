//! A hash that is the same on every machine, in every version: it decides which replica has a key.
//!
//! FNV-1a with 64 bits ([draft-eastlake-fnv](https://datatracker.ietf.org/doc/html/draft-eastlake-fnv)), and then [`mix`]: a partition is
//! the top bits of the hash, and in FNV-1a the last two bytes of a name hardly change them. Without the mix, a partition is a range of
//! FNV-1a values, as in Kubernetes' KEP-5866: see [`FleetBuilder::fnv_ranges`](crate::FleetBuilder::fnv_ranges).

use std::borrow::Cow;
use std::sync::Arc;

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a, 64 bits.
///
/// # Examples
/// ```
/// use keyqueue_fleet::StableHasher;
///
/// let mut hasher = StableHasher::new();
/// hasher.write(b"foobar");
/// assert_eq!(hasher.finish(), 0x8594_4171_f739_67e8);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StableHasher(u64);

impl StableHasher {
    /// The hash of no bytes.
    pub const fn new() -> Self {
        Self(OFFSET_BASIS)
    }

    /// Adds `bytes` to what is hashed.
    #[inline]
    pub const fn write(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(PRIME);
            at += 1;
        }
    }

    /// The hash of all that was written.
    pub const fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for StableHasher {
    fn default() -> Self {
        Self::new()
    }
}

/// Keys whose hash is the same in each replica. (`std::hash::Hash` promises that for one program only.)
///
/// Implemented for strings, integers, references and pairs of them. For another type, implement it, or name the bytes with
/// [`build_by`](crate::FleetBuilder::build_by).
///
/// # Examples
/// ```
/// use keyqueue_fleet::{StableHash, StableHasher};
///
/// struct Pod {
///     namespace: String,
///     name: String,
/// }
///
/// impl StableHash for Pod {
///     /// By namespace: one replica has all pods of a namespace.
///     fn stable_hash(&self, hasher: &mut StableHasher) {
///         hasher.write(self.namespace.as_bytes());
///     }
/// }
/// # let _ = Pod { namespace: String::new(), name: String::new() }.name;
/// ```
pub trait StableHash {
    /// Writes to `hasher` the bytes that decide which replica has the key.
    fn stable_hash(&self, hasher: &mut StableHasher);
}

impl StableHash for str {
    #[inline]
    fn stable_hash(&self, hasher: &mut StableHasher) {
        hasher.write(self.as_bytes());
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        /// Eight bytes, the least significant first. (A type of the machine's size counts as 64 bits.)
        impl StableHash for $integer {
            #[inline]
            fn stable_hash(&self, hasher: &mut StableHasher) {
                hasher.write(&(*self as u64).to_le_bytes());
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

macro_rules! pointers {
    ($([$($generics:tt)*] $pointer:ty;)*) => {$(
        impl<$($generics)*> StableHash for $pointer {
            #[inline]
            fn stable_hash(&self, hasher: &mut StableHasher) {
                (**self).stable_hash(hasher);
            }
        }
    )*};
}
pointers! {
    [] String;
    [T: StableHash + ?Sized] &T;
    [T: StableHash + ?Sized] Box<T>;
    [T: StableHash + ?Sized] Arc<T>;
    [T: StableHash + ToOwned + ?Sized] Cow<'_, T>;
}

/// The first part, a byte 0, and the second part.
impl<A: StableHash, B: StableHash> StableHash for (A, B) {
    fn stable_hash(&self, hasher: &mut StableHasher) {
        self.0.stable_hash(hasher);
        hasher.write(&[0]);
        self.1.stable_hash(hasher);
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): each bit of the hash changes each bit of the result, about every second time.
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The partition of a hash: the top bits, so that a partition is a range of hashes.
///
/// `partitions` need not be a power of two: partition p has the hashes from p * 2^64 / n, rounded up.
#[inline]
pub(crate) fn partition_of(hash: u64, partitions: u32) -> u32 {
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// The first hash of a partition.
pub(crate) fn first_hash(partition: u32, partitions: u32) -> u64 {
    (u128::from(partition) << 64).div_ceil(u128::from(partitions)) as u64
}

/// The last hash of a partition.
pub(crate) fn last_hash(partition: u32, partitions: u32) -> u64 {
    if partition + 1 == partitions { u64::MAX } else { first_hash(partition + 1, partitions) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: impl StableHash) -> u64 {
        let mut hasher = StableHasher::new();
        key.stable_hash(&mut hasher);
        hasher.finish()
    }

    /// Test vectors of the draft.
    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8_u64)]
        {
            assert_eq!(hash(text), expected, "{text}");
        }
        assert_eq!(hash(1u8), hash(1u64));
        assert_ne!(hash(("a", "b")), hash(("ab", "")));
    }

    /// How many of 256 partitions have keys.
    fn partitions_of(hashes: impl Iterator<Item = u64>) -> usize {
        hashes.map(|hash| partition_of(hash, 256)).collect::<std::collections::BTreeSet<_>>().len()
    }

    #[test]
    fn names_that_end_in_a_number_need_the_mix() {
        for names in [|i: u64| format!("web-{i}"), |i: u64| format!("default/web-{i:02}"), |i: u64| format!("{i}")] {
            let hashes = || (0..100).map(|i| hash(names(i)));
            assert!(partitions_of(hashes()) < 20, "FNV-1a alone, {}", names(0));
            // A hundred balls into 256 bins: 83 are hit, on average.
            assert!(partitions_of(hashes().map(mix)) > 70, "{}", names(0));
        }
        assert!(partitions_of((0..100_u64).map(|i| mix(hash(i)))) > 70, "integers");
    }

    /// Members of two versions must agree: neither the hash nor the mix may change.
    #[test]
    fn the_mix_is_the_finalizer_of_splitmix64() {
        // The first outputs of splitmix64 with the seed 0: the finalizer of its increment, and of twice that.
        const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;
        assert_eq!(mix(INCREMENT), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(INCREMENT.wrapping_mul(2)), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(partition_of(mix(hash("web-0")), 256), 6);
    }

    #[test]
    fn a_partition_is_a_range_of_hashes() {
        for partitions in [1, 2, 3, 7, 256, 1000, 65_536] {
            assert_eq!(first_hash(0, partitions), 0);
            for partition in 0..partitions {
                let (first, last) = (first_hash(partition, partitions), last_hash(partition, partitions));
                assert_eq!((partition_of(first, partitions), partition_of(last, partitions)), (partition, partition));
                if partition > 0 {
                    assert_eq!(partition_of(first - 1, partitions), partition - 1, "{partition} of {partitions}");
                }
            }
            assert_eq!(last_hash(partitions - 1, partitions), u64::MAX);
        }
    }
}
