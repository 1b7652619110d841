//! The chains of the table, and their arrays.

use super::chunk::Chunk;
use super::hash::KeyHash;
use super::slot::{EntryRef, Slot};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

/// The keys whose hashes choose the same bucket: a pointer to the first of them, or null. Each slot in a chain is taken (H2).
///
/// The low bits of the pointer, which its alignment leaves free, are a small filter: each key has one of these bits, its
/// [`tag`](Self::tag), and the chain has the tags of all keys that were in it since it was empty. A new key is therefore mostly known to be
/// new without a read of a slot, which would be one more cache miss, and a look-up has only one branch for that, which is predicted well.
pub(super) struct Chain<K>(Cell<*mut Slot<K>>);

// SAFETY: its pointers are those of `EntryRef`s (H2), which are `Send`.
unsafe impl<K: Send + Sync> Send for Chain<K> {}

impl<K> Chain<K> {
    #[inline]
    fn empty() -> Self {
        Self(Cell::new(null_mut()))
    }

    /// The number of low bits of a pointer that are free: 4 if the size of a slot is a power of two, as it is with integers as keys, and
    /// otherwise 3, or 2 on 32-bit targets.
    const TAGS: u32 = {
        let free = Chunk::<K>::SLOT_ALIGN.trailing_zeros();
        assert!(free >= 2, "the tags need two bits of a pointer to a slot");
        if free < 4 { free } else { 4 }
    };

    const TAG: usize = (1 << Self::TAGS) - 1;

    /// The tag of a key, from the high bits of its hash, because the low bits choose the bucket.
    #[inline]
    fn tag(hash: KeyHash) -> usize {
        1 << if Self::TAGS == 4 { hash.0 >> 30 } else { ((hash.0 >> 29) * Self::TAGS) >> 3 }
    }

    /// The tags of its keys.
    #[inline]
    fn tags(&self) -> usize {
        self.0.get().addr() & Self::TAG
    }

    #[inline]
    fn set(&self, first: EntryRef<K>, tags: usize) {
        debug_assert_eq!(first.0.addr().get() & Self::TAG, 0, "these bits are free");
        self.0.set(first.0.as_ptr().map_addr(|addr| addr | tags));
    }

    /// The first slot, or `None` if the tags show that no key of this hash is here.
    #[inline]
    pub(super) fn find(&self, hash: KeyHash) -> Option<EntryRef<K>> {
        if self.tags() & Self::tag(hash) == 0 { None } else { self.first() }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<EntryRef<K>> {
        NonNull::new(self.0.get().map_addr(|addr| addr & !Self::TAG)).map(EntryRef) // in a chain, so it is taken (H2)
    }

    /// Puts a slot first.
    #[inline]
    pub(super) fn link(&self, entry: EntryRef<K>) {
        entry.slot().next.set(self.first());
        self.set(entry, self.tags() | Self::tag(entry.hash()));
    }

    /// Takes a slot out.
    #[inline]
    pub(super) fn unlink(&self, entry: EntryRef<K>) {
        let first = self.first().expect("its chain is not empty");
        let next = entry.slot().next.get();
        if first == entry {
            let Some(next) = next else { return self.0.set(null_mut()) };
            self.set(next, self.tags());
        } else {
            let mut before = first;
            while before.slot().next.get() != Some(entry) {
                before = before.slot().next.get().expect("it is in its chain");
            }
            before.slot().next.set(next);
        }
    }
}

/// An array of chains, whose number is a power of two or zero while no chains move. A bucket is written before it is read (H1).
pub(crate) struct Buckets<K> {
    chains: Vec<MaybeUninit<Chain<K>>>,
}

impl<K> Buckets<K> {
    pub(super) fn unwritten(count: usize) -> Self {
        debug_assert!(count == 0 || count.is_power_of_two());
        Self { chains: Box::new_uninit_slice(count).into_vec() }
    }

    pub(super) fn empty(count: usize) -> Self {
        let mut buckets = Self::unwritten(count);
        (0..count).for_each(|at| buckets.clear(at));
        buckets
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    #[inline]
    pub(super) fn address(&self) -> usize {
        self.chains.as_ptr().addr()
    }

    /// Drops the chains from number `count` on, whose keys have moved. Gives their memory back once the array has room for `give_back`
    /// chains that were dropped.
    pub(super) fn truncate(&mut self, count: usize, give_back: usize) {
        self.chains.truncate(count);
        if self.chains.capacity() - count >= give_back {
            self.chains.shrink_to(count);
        }
    }

    /// The number of buckets that the array has memory for.
    #[cfg(all(test, not(loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.chains.capacity()
    }

    /// The chain of a hash, or `None` if there are no chains. Must not be called after the array was truncated.
    #[inline]
    pub(super) fn of(&self, hash: KeyHash) -> Option<&Chain<K>> {
        self.chain(hash.0 as usize & self.len().wrapping_sub(1))
    }

    /// The chain of this number, if there is one.
    #[inline]
    pub(super) fn chain(&self, at: usize) -> Option<&Chain<K>> {
        // SAFETY: the table reads only buckets that were written (H1).
        self.chains.get(at).map(|chain| unsafe { chain.assume_init_ref() })
    }

    #[inline]
    pub(super) fn clear(&mut self, at: usize) {
        self.chains[at].write(Chain::empty());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_in_pieces() {
        let mut buckets = Buckets::<u64>::empty(128);
        for (count, capacity) in [(119, 128), (118, 118), (109, 118), (108, 108)] {
            buckets.truncate(count, 10);
            assert_eq!((buckets.len(), buckets.capacity()), (count, capacity));
        }
    }

    /// No tag is much more likely than another; otherwise look-ups of new keys would read slots more often.
    #[test]
    fn tags_are_spread() {
        fn counts<K>() -> Vec<u32> {
            let mut counts = vec![0; Chain::<K>::TAGS as usize];
            for n in 0..12_000_u32 {
                counts[Chain::<K>::tag(KeyHash(n.wrapping_mul(0x9e37_79b9))).trailing_zeros() as usize] += 1;
            }
            counts
        }
        let shares = |tags| if tags == 3 { vec![4500, 4500, 3000] } else { vec![12_000 / tags; tags as usize] };
        for counts in [counts::<u64>(), counts::<[u64; 3]>()] {
            let shares = shares(counts.len() as u32);
            let is_near = |(count, share): (&u32, &u32)| count.abs_diff(*share) < 100;
            assert!(counts.iter().zip(&shares).all(is_near), "{counts:?}, not {shares:?}");
        }
        let tags = [Chain::<u64>::TAGS, Chain::<[u64; 3]>::TAGS];
        assert!(tags == [4, 3] || cfg!(not(target_pointer_width = "64")), "{tags:?}");
    }
}
