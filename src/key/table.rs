//! Finds a key's slot by its hash.
//!
//! ```text
//!  buckets            slab
//! ┌───┐       ┌──────────────────┐     ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ●─┼────▶│ key hash  next ─ │
//! ├───┤       └──────────────────┘     └──────────────────┘
//! │ ─ │
//! ├───┤       ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ─ │
//! └───┘       └──────────────────┘
//! ```
//!
//! Chains run through the slots. There are at least two buckets to a key, so most chains are one slot long: filling and draining
//! costs a fifth more with one, because the oldest key, which is done first, is last in its chain. A key costs 16 to 32 bytes
//! here besides its slot (with slot and line, a `u64` costs 50 to 73), is stored once and hashed once (the hash stays in the
//! slot), and leaves no tombstone. It is in the table while it is in line, in work or delayed (I4), and not longer.
//!
//! Everything happens under the queue's lock. The only foreign code that runs is `K::eq`, before anything is changed.

use crate::key::slab::{Slab, SlotRef};
use crate::sync::sized;
use crate::time::wheel::Places;
use std::borrow::Borrow;

/// A key's hash, as much of it as is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hash(pub(crate) u32);

/// See the module's head.
pub(crate) struct Table<K> {
    /// First slot of each chain. A power of two of them, or none yet.
    buckets: Vec<Option<SlotRef<K>>>,
    /// Not worth shrinking below so many.
    keep: usize,
    slab: Slab<K>,
}

/// Not worth shrinking below: a small steady set of keys must not make the buckets come and go.
const MIN_BUCKETS: usize = sized(4096, 4);

impl<K> Table<K> {
    /// The slot of this key.
    #[inline]
    pub(crate) fn find<Q: Eq + ?Sized>(&self, key: &Q, hash: Hash) -> Option<SlotRef<K>>
    where
        K: Borrow<Q>,
    {
        let mut at = match self.buckets.len() {
            0 => None,
            n => self.buckets[hash.0 as usize & (n - 1)],
        };
        while let Some(slot) = at {
            // SAFETY: in a chain, so taken (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            // SAFETY: as above.
            if inside.hash() == hash.0 && unsafe { inside.key() }.borrow() == key {
                return Some(slot);
            }
            at = inside.next.get();
        }
        None
    }

    pub(crate) fn new(capacity: usize) -> Self {
        let mut table = Self { buckets: Vec::new(), keep: MIN_BUCKETS, slab: Slab::new() };
        if capacity > 0 {
            table.rebuild((2 * capacity + 1).next_power_of_two());
            table.keep = table.buckets.len().max(MIN_BUCKETS);
        }
        table
    }

    /// Puts a key in that is not there.
    #[inline]
    pub(crate) fn insert(&mut self, key: K, hash: Hash) -> SlotRef<K> {
        if 2 * self.slab.taken() >= self.buckets.len() {
            self.grow();
        }
        let slot = self.slab.insert(key, hash.0);
        link(&mut self.buckets, slot);
        slot
    }

    /// Fetches into the cache what [`remove`](Self::remove) of this key will touch.
    #[inline]
    pub(crate) fn prefetch(&self, slot: SlotRef<K>) {
        // SAFETY: in line, so taken (S2), and we hold the lock.
        let bucket = unsafe { slot.get() }.hash() as usize & (self.buckets.len() - 1);
        prefetch(&self.buckets[bucket]);
    }

    /// Fetches the slot of this number into the cache.
    #[inline]
    pub(crate) fn prefetch_slot(&self, number: u32) {
        // SAFETY: in the wheel until now, so taken (S2), and we hold the lock.
        prefetch(unsafe { self.slab.slot(number).get() });
    }

    /// Where the buckets are, and how many: for [`prefetch_bucket`].
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        (self.buckets.as_ptr() as usize, self.buckets.len())
    }

    /// Takes a key out. The caller drops it after the lock.
    ///
    /// # Safety
    /// The slot is in the table, its word has no bit set, and the caller has cleared the last one and forgets it.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, slot: SlotRef<K>) -> K {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let inside = unsafe { slot.get() };
        let bucket = inside.hash() as usize & (self.buckets.len() - 1);
        let mut at = self.buckets[bucket].expect("its chain is not empty");
        if at == slot {
            self.buckets[bucket] = inside.next.get();
        } else {
            loop {
                // SAFETY: in a chain, so taken (S2), and we hold the lock.
                let before = unsafe { at.get() };
                at = before.next.get().expect("it is in its chain");
                if at == slot {
                    before.next.set(inside.next.get());
                    break;
                }
            }
        }
        // SAFETY: taken, out of its chain, and nobody else has it.
        let key = unsafe { self.slab.remove(slot) };
        let n = self.buckets.len();
        if n > self.keep && self.slab.taken() < n / 16 {
            self.rebuild(self.keep.max(n / 4));
        }
        key
    }

    /// The number of a slot, for the wheel, with room for its place there.
    #[inline]
    pub(crate) fn make_place(&mut self, slot: SlotRef<K>) -> u32 {
        let number = self.number(slot);
        self.slab.make_place(number);
        number
    }

    /// The number of a slot that is in the table.
    #[inline]
    pub(crate) fn number(&self, slot: SlotRef<K>) -> u32 {
        // SAFETY: in the table, so taken (S2).
        unsafe { self.slab.number(slot) }
    }

    /// The slot of a number that is in the wheel, and so in the table.
    #[inline]
    pub(crate) fn slot(&self, number: u32) -> SlotRef<K> {
        self.slab.slot(number)
    }

    /// Gives back all memory that is not needed for the keys that are there.
    pub(crate) fn shrink(&mut self) {
        self.keep = MIN_BUCKETS;
        self.slab.shrink();
        let fit = if self.slab.taken() == 0 { 0 } else { (2 * self.slab.taken()).next_power_of_two() };
        if fit < self.buckets.len() {
            self.rebuild(fit);
        }
    }

    /// Doubles the buckets. Each chain is split in two, one of which stays in its bucket: so the array grows in place where the
    /// allocator can do that, and is gone through in order.
    #[cold]
    fn grow(&mut self) {
        const AHEAD: usize = 16;
        let n = self.buckets.len();
        if n == 0 {
            return self.rebuild(sized(8, 2));
        }
        self.buckets.reserve_exact(n);
        self.buckets.resize(2 * n, None);
        for bucket in 0..n {
            if let Some(Some(ahead)) = self.buckets.get(bucket + AHEAD) {
                // SAFETY: in a chain, so taken (S2), and we hold the lock.
                prefetch(unsafe { ahead.get() });
            }
            let mut at = self.buckets[bucket].take();
            while let Some(slot) = at {
                at = link(&mut self.buckets, slot);
            }
        }
    }

    /// Makes this the number of buckets.
    #[cold]
    fn rebuild(&mut self, buckets: usize) {
        debug_assert!(buckets == 0 || buckets.is_power_of_two());
        // Gone before the new ones come: memory's peak counts too.
        self.buckets = Vec::new();
        self.buckets = vec![None; buckets];
        for slot in self.slab.iter() {
            link(&mut self.buckets, slot);
        }
    }
}

/// Puts a slot, which is taken, first in its chain. Returns which was next in the chain where it was.
#[inline]
fn link<K>(buckets: &mut [Option<SlotRef<K>>], slot: SlotRef<K>) -> Option<SlotRef<K>> {
    // SAFETY: taken, says the caller, who holds the lock.
    let inside = unsafe { slot.get() };
    let bucket = inside.hash() as usize & (buckets.len() - 1);
    inside.next.replace(buckets[bucket].replace(slot))
}

impl<K> Places for Table<K> {
    #[inline]
    fn place(&mut self, number: u32) -> &mut u32 {
        self.slab.place(number)
    }
}

/// Fetches into the cache where a key of this hash would be, if the buckets are still where they were.
#[inline]
pub(crate) fn prefetch_bucket((start, count): (usize, usize), hash: Hash) {
    let bucket = hash.0 as usize & count.wrapping_sub(1);
    prefetch_at((start as *const usize).wrapping_add(bucket));
}

/// Asks for a cache line, where the language has a word for it.
#[inline]
fn prefetch<T>(place: &T) {
    prefetch_at(std::ptr::from_ref(place));
}

#[inline]
fn prefetch_at<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever the address; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
