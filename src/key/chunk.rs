//! The memory of some slots:
//!
//! ```text
//!  ┌─────────────────────────────────────┬────────┬────────┬─── ───┬─────────┐
//!  │ head: number, table, vacant bits,   │ slot 0 │ slot 1 │   …   │ last    │   one allocation
//!  │   two neighbours in the open list   │        │        │       │         │
//!  └─────────────────────────────────────┴────────┴────────┴─── ───┴─────────┘
//! ```
//!
//! * **S5** Each slot knows its index in its chunk, so the place of the head follows from the place of the slot. Both pointers are made
//!   from the pointer to the whole allocation.

use super::slot::{EntryRef, Slot};
use crate::sync::model_const;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

/// A chunk's number, its table, which of its slots are vacant, and its neighbours. Used under the lock only, as are all calls of this file.
pub(super) struct Head<K> {
    pub(super) number: u32,
    /// The number of its table. Takes the place of padding.
    pub(super) table: u32,
    /// A bit for each slot, set if the slot is vacant.
    pub(super) vacant: Cell<u64>,
    /// Neighbours among the open chunks: those with room.
    pub(super) next_open: Cell<Option<ChunkRef<K>>>,
    pub(super) prev_open: Cell<Option<ChunkRef<K>>>,
}

/// A chunk, freed when this is dropped. Its keys are not dropped.
pub(crate) struct Chunk<K>(NonNull<Head<K>>);

// SAFETY: a chunk owns its slots (S3); see `EntryRef` for why keys must be `Send + Sync`.
unsafe impl<K: Send + Sync> Send for Chunk<K> {}

impl<K> Chunk<K> {
    /// Slots in a chunk: as many as fit in 4 KiB, at most 64 (the bits of a word) and at least 8.
    pub(super) const SLOTS: usize = {
        let fit = 4096 / size_of::<Slot<K>>();
        let real = if fit > 64 {
            64
        } else if fit < 8 {
            8
        } else {
            fit
        };
        model_const(real, 2)
    };
    /// The bits of all slots.
    pub(super) const ALL: u64 = u64::MAX >> (64 - Self::SLOTS);
    /// The offset of the first slot.
    const FIRST: usize = size_of::<Head<K>>().next_multiple_of(align_of::<Slot<K>>());

    fn layout() -> Layout {
        let slots = Layout::array::<Slot<K>>(Self::SLOTS).expect("a chunk fits into memory");
        let (layout, first) = Layout::new::<Head<K>>().extend(slots).expect("a chunk fits into memory");
        debug_assert_eq!(first, Self::FIRST);
        // A slot of 32 or 64 bytes lies in one cache line: a look-up of one of a million keys takes a tenth less time.
        let slot = size_of::<Slot<K>>();
        let align = if slot.is_power_of_two() && slot <= 64 { slot } else { 1 };
        layout.align_to(align).expect("a chunk fits into memory")
    }

    /// A chunk of vacant slots.
    pub(super) fn new(number: u32, table: u32) -> Self {
        let layout = Self::layout();
        // SAFETY: the layout is not empty: it begins with a head (S5).
        let memory = unsafe { alloc(layout) };
        let Some(place) = NonNull::new(memory.cast::<Head<K>>()) else { handle_alloc_error(layout) };
        let none = Cell::new(None);
        let head = Head { number, table, vacant: Cell::new(Self::ALL), next_open: none.clone(), prev_open: none };
        // SAFETY: the start of the new allocation (S5), to which nobody else has a pointer.
        unsafe { place.write(head) };
        for index in 0..Self::SLOTS {
            // SAFETY: as above (S5).
            unsafe { ChunkRef(place).slot(index).0.write(Slot::vacant(index as u8)) };
        }
        Self(place)
    }

    #[inline]
    pub(super) fn chunk_ref(&self) -> ChunkRef<K> {
        ChunkRef(self.0)
    }

    #[inline]
    pub(super) fn head(&self) -> &Head<K> {
        // SAFETY: this owns the allocation, which starts with a head (S5), and no code makes a `&mut` to a head.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn number(&self) -> usize {
        self.head().number as usize
    }

    /// The taken slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = EntryRef<K>> {
        let mut taken = !self.head().vacant.get() & Self::ALL;
        std::iter::from_fn(move || {
            let index = (taken != 0).then(|| taken.trailing_zeros() as usize)?;
            taken &= taken - 1;
            Some(self.chunk_ref().slot(index))
        })
    }
}

impl<K> Drop for Chunk<K> {
    fn drop(&mut self) {
        let slots = slice_from_raw_parts_mut(self.chunk_ref().slot(0).0.as_ptr(), Self::SLOTS);
        // SAFETY: written by `new`; there is no reference to a slot, as the chunk leaves the slab only when all are vacant (S3).
        unsafe { slots.drop_in_place() };
        // SAFETY: allocated by `new` with this layout (S5), and freed once (S3); a head needs no drop.
        unsafe { dealloc(self.0.as_ptr().cast(), Self::layout()) };
    }
}

/// A pointer to a chunk.
pub(super) struct ChunkRef<K>(NonNull<Head<K>>);

impl<K> Clone for ChunkRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for ChunkRef<K> {}

impl<K> ChunkRef<K> {
    /// # Safety
    /// The chunk is in the slab during `'s`. The caller holds the lock.
    #[inline]
    pub(super) unsafe fn head<'s>(self) -> &'s Head<K> {
        // SAFETY: the chunk is alive, which the caller guarantees (S3); and no code makes a `&mut` to a head.
        unsafe { self.0.as_ref() }
    }

    /// The slot of this index, which is below [`Chunk::SLOTS`]. It is taken, or the caller takes it.
    #[inline]
    pub(super) fn slot(self, index: usize) -> EntryRef<K> {
        debug_assert!(index < Chunk::<K>::SLOTS);
        let slots = self.0.as_ptr().wrapping_byte_add(Chunk::<K>::FIRST).cast::<Slot<K>>();
        // SAFETY: the index is that of a slot, so this is in an allocation (S5), and not null.
        EntryRef(unsafe { NonNull::new_unchecked(slots.wrapping_add(index)) })
    }

    /// The chunk of a slot, and its head.
    #[inline]
    pub(super) fn of(entry: &EntryRef<K>) -> (Self, &Head<K>) {
        let first = entry.0.as_ptr().wrapping_sub(entry.slot().index());
        // SAFETY: the start of the slot's chunk (S5), so it is not null.
        let chunk = Self(unsafe { NonNull::new_unchecked(first.wrapping_byte_sub(Chunk::<K>::FIRST).cast()) });
        // SAFETY: the slot is taken, so its chunk is in the slab (S3); calls of this file are made under the lock.
        (chunk, unsafe { chunk.head() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
    fn a_chunk_has_four_kibibytes_of_slots_and_up_to_64() {
        fn shape<const N: usize>() -> (usize, u64) {
            (Chunk::<[u8; N]>::SLOTS, Chunk::<[u8; N]>::ALL)
        }
        assert_eq!(shape::<8>(), (64, u64::MAX), "no more slots than bits");
        assert_eq!(shape::<104>(), (32, u64::from(u32::MAX)));
        assert_eq!(shape::<488>(), (8, 0xFF));
        assert_eq!(shape::<70_000>(), (8, 0xFF), "no fewer than eight");
        let aligned = [Chunk::<u64>::layout(), Chunk::<[u8; 40]>::layout(), Chunk::<[u8; 104]>::layout()];
        assert_eq!(aligned.map(|layout| layout.align()), [32, 64, 8], "a slot of 32 or 64 bytes is in one cache line");
    }

    #[test]
    fn the_head_is_found_from_each_slot() {
        #[repr(align(64))]
        struct Aligned;
        fn check<K>() {
            let chunk = Chunk::<K>::new(7, 0);
            for index in 0..Chunk::<K>::SLOTS {
                let slot = chunk.chunk_ref().slot(index); // it is not taken, but its key is not read
                assert_eq!((slot.slot().index(), ChunkRef::of(&slot).0.0), (index, chunk.0));
                assert!(slot.0.is_aligned());
            }
            assert_eq!((chunk.head().number, chunk.iter().count()), (7, 0));
        }
        check::<u8>();
        check::<String>();
        check::<Aligned>();
        check::<[u8; 5000]>();
    }
}
