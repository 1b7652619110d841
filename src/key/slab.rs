//! Where keys live: slots in chunks that never move, recycled, and given back chunk by chunk.
//!
//! ```text
//!  chunk 0                         chunk 1                        chunk 2
//! ┌──────┬──────┬───── ─┬──────┐  ┌──────┬──────┬── ───┬──────┐
//! │ slot │ slot │   …   │ slot │  │ slot │ slot │  …   │ slot │   (gone: it was empty)
//! └──────┴──────┴───── ─┴──────┘  └──────┴──────┴── ───┴──────┘
//!  vacant 0000…0  (full)           vacant 0110…0  (open)
//! ```
//!
//! The slab belongs to one shard and changes only under that shard's lock. Slots, however, are read without it: by whoever
//! took a key out of the line, and by the holder. Why that is sound, by number:
//!
//! * **S1** A slot is *taken* or *vacant* (a bit of its chunk, under the shard's lock). Its key is initialised exactly while
//!   it is taken, and does not change meanwhile.
//! * **S2** A slot is vacated only while its word is idle, under the shard's lock. A slot in the ready line is not idle, nor
//!   is one that an `Item` refers to (I1, I2); and an idle word can leave that state only under the same lock.
//! * **S3** A chunk is freed only when all its slots are vacant, or with the whole queue; and slots do not move.
//!
//! So a [`SlotRef`] in the line or in an item points to a live slot with a key in it. This file and its two users of
//! [`SlotRef::get`] are all the unsafe code of the crate; it is there because one `Arc` per key costs twice the memory
//! and an allocation per key.

use crate::key::state::State;
use crate::sync::{AtomicU32, Ordering, UnsafeCell, sized};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// One key, its state, and its place in the table.
pub(crate) struct Slot<K> {
    /// The life of the key.
    pub(crate) state: State,
    /// The part of the key's hash that places it in its shard. Written while vacant.
    hash: AtomicU32,
    /// The next slot in the same bucket, or [`NIL`]. Shard's lock; atomic only to be safe code.
    next: AtomicU32,
    /// Which slot this is. Never changes.
    id: u32,
    /// S1.
    key: UnsafeCell<MaybeUninit<K>>,
}

impl<K> Slot<K> {
    fn vacant(id: u32) -> Self {
        Self {
            state: State::idle(),
            hash: AtomicU32::new(0),
            next: AtomicU32::new(NIL),
            id,
            key: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub(crate) fn hash(&self) -> u32 {
        // Relaxed: written while vacant, under the shard's lock, before anybody could reach the slot.
        self.hash.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn next(&self) -> u32 {
        // Relaxed, as in `set_next`: both under the shard's lock.
        self.next.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Relaxed);
    }

    /// The key.
    ///
    /// # Safety
    /// The slot is taken and stays so while the reference lives: the caller holds the shard's lock, or the key.
    #[inline]
    pub(crate) unsafe fn key(&self) -> &K {
        self.key.with(|key| {
            // SAFETY: `key` points into `self`, and nobody writes the cell of a taken slot (S1).
            let key = unsafe { &*key };
            // SAFETY: the slot is taken, says the caller, and so its key is initialised (S1).
            unsafe { key.assume_init_ref() }
        })
    }
}

/// A slot, from outside its slab: what the ready line carries and an item holds.
pub(crate) struct SlotRef<K>(NonNull<Slot<K>>);

impl<K> Clone for SlotRef<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for SlotRef<K> {}

// SAFETY: a `SlotRef` is a shared reference to a slot in disguise: its key is read through it (`Sync`), and the thread
// that ends up vacating the slot drops a key that another made (`Send`).
unsafe impl<K: Send + Sync> Send for SlotRef<K> {}
// SAFETY: as above; there is no way to change anything but atomics through it.
unsafe impl<K: Send + Sync> Sync for SlotRef<K> {}

impl<K> SlotRef<K> {
    /// The slot.
    ///
    /// # Safety
    /// The slot is in the line or the caller holds its key, until the reference is gone (S2), and the queue is alive (S3).
    #[inline]
    pub(crate) unsafe fn get<'a>(self) -> &'a Slot<K> {
        // SAFETY: the chunk is alive (S2, S3, the caller), and nobody ever makes a `&mut` to one of its slots.
        unsafe { self.0.as_ref() }
    }
}

/// What a chunk knows of its slots, beside them so that looking for room touches none.
#[derive(Debug)]
struct Chunk {
    /// One bit per slot: vacant.
    vacant: u64,
    /// Neighbours in the ring of open chunks (those with room), or [`NIL`].
    next_open: u32,
    prev_open: u32,
}

/// The slots of one shard. All methods: under that shard's lock.
pub(crate) struct Slab<K> {
    /// First slot of each chunk; `None`: freed, its number can be used again.
    slots: Vec<Option<NonNull<Slot<K>>>>,
    /// The same chunks.
    chunks: Vec<Chunk>,
    /// Numbers of freed chunks.
    freed: Vec<u32>,
    /// Some chunk with room, or [`NIL`].
    open: u32,
    /// Taken slots.
    taken: usize,
    /// Chunks without a taken slot that are kept for the next burst.
    spare: usize,
}

// SAFETY: the slab owns its slots and hands out nothing by itself; see `SlotRef` for why keys must be `Send + Sync`.
unsafe impl<K: Send + Sync> Send for Slab<K> {}

impl<K> Slab<K> {
    /// Slots in a chunk: as many as fill about 4 KiB, at most 64 (the bits of a word) and at least 8.
    pub(crate) const CHUNK: usize = {
        let fit = 4096 / size_of::<Slot<K>>();
        let n = if fit > 64 {
            64
        } else if fit < 8 {
            8
        } else {
            fit
        };
        sized(n, 2)
    };
    /// All slots vacant.
    const ALL: u64 = u64::MAX >> (64 - Self::CHUNK);
    /// How many spare chunks are kept: enough for 256 keys to come and go without an allocation.
    const SPARE: usize = sized(256_usize.div_ceil(Self::CHUNK), 1);

    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), chunks: Vec::new(), freed: Vec::new(), open: NIL, taken: 0, spare: 0 }
    }

    /// How many slots are taken.
    #[inline]
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// How far ids go at present.
    pub(crate) fn end(&self) -> usize {
        self.slots.len() * Self::CHUNK
    }

    /// The slot with this id, which must be taken.
    #[inline]
    pub(crate) fn slot(&self, id: u32) -> &Slot<K> {
        self.slot_ref(id).1
    }

    #[inline]
    pub(crate) fn slot_ref(&self, id: u32) -> (SlotRef<K>, &Slot<K>) {
        let (chunk, index) = (id as usize / Self::CHUNK, id as usize % Self::CHUNK);
        let first = self.slots[chunk].expect("a taken slot is in a chunk");
        // SAFETY: `index` is below CHUNK, the length of the allocation.
        let slot = unsafe { first.add(index) };
        // SAFETY: the chunk is alive, since only `free_chunk` frees it and takes it out of `slots`.
        (SlotRef(slot), unsafe { slot.as_ref() })
    }

    /// The taken slot with this id, or `None` if there is none.
    pub(crate) fn get(&self, id: u32) -> Option<&Slot<K>> {
        let (chunk, index) = (id as usize / Self::CHUNK, id as usize % Self::CHUNK);
        // A freed chunk is marked as having no vacant slot: ask for its slots first.
        self.slots.get(chunk).copied().flatten()?;
        (self.chunks[chunk].vacant & (1 << index) == 0).then(|| self.slot(id))
    }

    /// All taken slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<K>> {
        (0..self.end() as u32).filter_map(|id| self.get(id))
    }

    /// Puts `key` into a vacant slot; its word is idle.
    #[inline]
    pub(crate) fn insert(&mut self, key: K, hash: u32) -> (SlotRef<K>, &Slot<K>) {
        if self.open == NIL {
            self.grow();
        }
        let number = self.open;
        let chunk = &mut self.chunks[number as usize];
        let index = chunk.vacant.trailing_zeros();
        if chunk.vacant == Self::ALL {
            self.spare -= 1;
        }
        chunk.vacant &= chunk.vacant - 1;
        if chunk.vacant == 0 {
            self.close(number);
        }
        self.taken += 1;
        let (slot_ref, slot) = self.slot_ref(number * Self::CHUNK as u32 + index);
        slot.hash.store(hash, Ordering::Relaxed); // Relaxed: see `Slot::hash`
        slot.key.with_mut(|cell| {
            // SAFETY: the slot was vacant: nobody reads its key (S1), and we hold the shard's lock.
            let cell = unsafe { &mut *cell };
            cell.write(key);
        });
        (slot_ref, slot)
    }

    /// Takes the key out of a slot whose word is idle, and frees the chunk if it is empty and not worth keeping.
    pub(crate) fn remove(&mut self, id: u32) -> K {
        let (number, index) = (id / Self::CHUNK as u32, id % Self::CHUNK as u32);
        let slot = self.slot(id);
        slot.state.reset();
        let key = slot.key.with_mut(|cell| {
            // SAFETY: idle, so nobody reads the key without the shard's lock (S2), which the caller holds.
            let cell = unsafe { &*cell };
            // SAFETY: the slot was taken, so its key is initialised; it is vacant from here on (S1).
            unsafe { cell.assume_init_read() }
        });
        let chunk = &mut self.chunks[number as usize];
        debug_assert_eq!(chunk.vacant & (1 << index), 0, "S1: vacated once");
        let was_full = chunk.vacant == 0;
        chunk.vacant |= 1 << index;
        let now_empty = chunk.vacant == Self::ALL;
        self.taken -= 1;
        if was_full {
            self.open(number);
        }
        if now_empty {
            self.spare += 1;
            if self.spare > Self::SPARE {
                self.free_chunk(number);
            }
        }
        key
    }

    /// Frees every chunk without a taken slot.
    pub(crate) fn shrink(&mut self) {
        let mut number = 0;
        // The end moves: freeing the last chunk forgets all numbers.
        while let Some(slots) = self.slots.get(number) {
            if slots.is_some() && self.chunks[number].vacant == Self::ALL {
                self.free_chunk(number as u32);
            }
            number += 1;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let number = self.freed.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.chunks.push(Chunk { vacant: 0, next_open: NIL, prev_open: NIL });
            (self.slots.len() - 1) as u32
        });
        let base = u64::from(number) * Self::CHUNK as u64;
        assert!(base + (Self::CHUNK as u64) < u64::from(NIL), "a shard holds at most 2^32 keys");
        let slots: Box<[Slot<K>]> = (0..Self::CHUNK as u32).map(|i| Slot::vacant(base as u32 + i)).collect();
        self.slots[number as usize] = NonNull::new(Box::into_raw(slots).cast());
        self.chunks[number as usize].vacant = Self::ALL;
        self.spare += 1;
        self.open(number);
    }

    fn free_chunk(&mut self, number: u32) {
        self.close(number);
        self.spare -= 1;
        self.chunks[number as usize].vacant = 0;
        let first = self.slots[number as usize].take().expect("freed once");
        let slots = NonNull::slice_from_raw_parts(first, Self::CHUNK);
        // SAFETY: made by `Box::into_raw` in `grow` with this length; all its slots are vacant, so nobody refers to them
        // (S3), and it is no longer in `slots`.
        drop(unsafe { Box::from_raw(slots.as_ptr()) });
        if self.freed.len() + 1 == self.slots.len() {
            // The last one: forget the numbers too.
            self.slots = Vec::new();
            self.chunks = Vec::new();
            self.freed = Vec::new();
        } else {
            self.freed.push(number);
        }
    }

    /// Puts a chunk that has room at the head of the open ones, so that the newest room, still in the cache, is used first.
    fn open(&mut self, number: u32) {
        let next = std::mem::replace(&mut self.open, number);
        self.chunks[number as usize].next_open = next;
        self.chunks[number as usize].prev_open = NIL;
        if next != NIL {
            self.chunks[next as usize].prev_open = number;
        }
    }

    fn close(&mut self, number: u32) {
        let Chunk { next_open, prev_open, .. } = self.chunks[number as usize];
        if prev_open == NIL {
            self.open = next_open;
        } else {
            self.chunks[prev_open as usize].next_open = next_open;
        }
        if next_open != NIL {
            self.chunks[next_open as usize].prev_open = prev_open;
        }
    }
}

impl<K> Drop for Slab<K> {
    fn drop(&mut self) {
        // The queue is gone, and with it every item and the line: all words may be treated as idle. Chunk by chunk, so
        // that a panic in a key's drop leaks the rest instead of freeing it twice.
        while let Some(first) = self.slots.pop() {
            let chunk = self.chunks.pop().expect("as many as slots");
            let Some(first) = first else { continue };
            let slots = NonNull::slice_from_raw_parts(first, Self::CHUNK);
            // SAFETY: as in `free_chunk`, and `&mut self` shows that nobody refers to any slot.
            let slots = unsafe { Box::from_raw(slots.as_ptr()) };
            for (index, slot) in slots.into_iter().enumerate() {
                if chunk.vacant & (1 << index) == 0 {
                    slot.key.with_mut(|cell| {
                        // SAFETY: `slot` is ours.
                        let cell = unsafe { &mut *cell };
                        // SAFETY: a taken slot has a key (S1), and the slot is forgotten right after.
                        unsafe { cell.assume_init_drop() }
                    });
                }
            }
        }
    }
}

impl<K> std::fmt::Debug for Slab<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab").field("taken", &self.taken).field("end", &self.end()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_are_recycled_and_chunks_given_back() {
        let mut slab = Slab::new();
        let n = 10_000_u32;
        let ids: Vec<u32> = (0..n).map(|i| slab.insert(i.to_string(), i).1.id()).collect();
        assert_eq!(slab.taken(), n as usize);
        assert!(ids.iter().zip(0..).all(|(&id, i)| slab.slot(id).hash() == i));
        for (&id, i) in ids.iter().zip(0..n).rev() {
            assert_eq!(slab.remove(id), i.to_string());
        }
        let kept = slab.slots.iter().flatten().count();
        assert!(kept <= Slab::<String>::SPARE, "{kept} chunks kept");
        assert_eq!(kept, slab.spare);
        slab.shrink();
        assert_eq!(slab.slots.capacity(), 0);
    }

    #[test]
    fn a_steady_number_of_keys_reuses_its_slots() {
        let mut slab = Slab::new();
        let first = slab.insert(1, 1).1.id();
        for i in 0..1000 {
            let id = slab.insert(i, 0).1.id();
            assert_eq!(slab.remove(id), i);
        }
        assert_eq!(slab.slots.len(), 1);
        assert_eq!(slab.remove(first), 1);
    }

    #[test]
    fn dropping_drops_taken_keys_only() {
        let key = std::sync::Arc::new(());
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..100).map(|i| slab.insert(key.clone(), i).1.id()).collect();
        for &id in ids.iter().step_by(3) {
            drop(slab.remove(id));
        }
        assert_eq!(std::sync::Arc::strong_count(&key), 1 + 66);
        drop(slab);
        assert_eq!(std::sync::Arc::strong_count(&key), 1);
    }
}
