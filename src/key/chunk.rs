//! The memory of some slots:
//!
//! ```text
//!  ┌─────────────────────────────────────┬────────┬────────┬─── ───┬─────────┐
//!  │ head: number, table, vacant bits,   │ slot 0 │ slot 1 │   …   │ last    │   one allocation
//!  │   two neighbours in the open list   │        │        │       │         │
//!  └─────────────────────────────────────┴────────┴────────┴─── ───┴─────────┘
//! ```
//!
//! A slot knows its index in its chunk, so the place of the head follows from that of the slot. Both pointers are made from the pointer to
//! the whole allocation (S5).

use super::slot::{EntryRef, Slot};
use crate::sync::model_const;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{NonNull, slice_from_raw_parts_mut};

const LINE: usize = 64;

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

const fn max(a: usize, b: usize) -> usize {
    if a < b { b } else { a }
}

/// The head of a chunk: its number, its table, its vacant slots, and its neighbours in the open list. Used under the lock only, as are all
/// calls of this file.
pub(super) struct Header<K> {
    pub(super) number: u32,
    /// The number of its table, in what would be padding.
    pub(super) table: u32,
    /// A bit for each slot, set if the slot is vacant.
    pub(super) vacant: Cell<u64>,
    /// The neighbours among the open chunks, which are those with room.
    pub(super) next_open: Cell<Option<ChunkRef<K>>>,
    pub(super) prev_open: Cell<Option<ChunkRef<K>>>,
}

/// A chunk, which is freed when this is dropped. Its keys are not dropped.
pub(crate) struct Chunk<K>(NonNull<Header<K>>);

// SAFETY: a chunk owns its slots (S3); see `EntryRef` for why keys must be `Send + Sync`.
unsafe impl<K: Send + Sync> Send for Chunk<K> {}

impl<K> Chunk<K> {
    const SLOT: usize = size_of::<Slot<K>>();
    /// The alignment of a chunk and of its first slot. A slot whose size is a power of two then lies in as few cache lines as it can, and
    /// one of 32 or 64 bytes in a single line, which makes a look-up of one of a million integers a tenth faster.
    const ALIGN: usize = {
        let needed = max(align_of::<Header<K>>(), align_of::<Slot<K>>());
        if Self::SLOT.is_power_of_two() { max(min(Self::SLOT, LINE), needed) } else { needed }
    };
    pub(super) const SLOT_ALIGN: usize =
        if Self::SLOT % Self::ALIGN == 0 { Self::ALIGN } else { align_of::<Slot<K>>() };
    const FIRST: usize = size_of::<Header<K>>().next_multiple_of(Self::ALIGN);
    /// The number of slots in a chunk: as many as fit beside the head in 4 KiB, or in the bytes of 64 slots if these are fewer; but at
    /// least 8. The head takes the place of a slot, so that a chunk of 2 or 4 KiB does not end a few bytes behind a size class of the
    /// allocator, and the slots are fewer than a word has bits.
    pub(super) const SLOTS: usize = {
        let bytes = min(Self::SLOT.saturating_mul(64), 4096);
        model_const(max(bytes.saturating_sub(Self::FIRST) / Self::SLOT, 8), 2)
    };
    /// The index of the first slot, which is also the number of its bit. If there are many slots, the last one has the last bit, so that
    /// `ALL` is a small negative number, which a comparison can have as its immediate operand.
    const LOW: usize = if Self::SLOTS > 32 { 64 - Self::SLOTS } else { 0 };
    /// The end of the indices.
    pub(super) const END: usize = Self::LOW + Self::SLOTS;
    pub(super) const ALL: u64 = (u64::MAX >> (64 - Self::SLOTS)) << Self::LOW;
    /// Where a slot of index 0 would be, which may be before the chunk.
    const ORIGIN: isize = Self::FIRST as isize - (Self::LOW * Self::SLOT) as isize;

    fn layout() -> Layout {
        let slots = Layout::array::<Slot<K>>(Self::SLOTS).expect("a chunk fits into memory");
        Layout::from_size_align(Self::FIRST + slots.size(), Self::ALIGN).expect("a chunk fits into memory")
    }

    pub(super) fn new(number: u32, table: u32) -> Self {
        let layout = Self::layout();
        // SAFETY: the layout is not empty: it begins with a head (S5).
        let memory = unsafe { alloc(layout) };
        let Some(place) = NonNull::new(memory.cast::<Header<K>>()) else { handle_alloc_error(layout) };
        let none = Cell::new(None);
        let head = Header { number, table, vacant: Cell::new(Self::ALL), next_open: none.clone(), prev_open: none };
        // SAFETY: the start of the new allocation (S5), to which nobody else has a pointer.
        unsafe { place.write(head) };
        for index in Self::LOW..Self::END {
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
    pub(super) fn head(&self) -> &Header<K> {
        // SAFETY: this owns the allocation, which starts with a head (S5), and no code makes a `&mut` to a head.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn number(&self) -> usize {
        self.head().number as usize
    }

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
        let slots = slice_from_raw_parts_mut(self.chunk_ref().slot(Self::LOW).0.as_ptr(), Self::SLOTS);
        // SAFETY: written by `new`; there is no reference to a slot, as the chunk leaves the arena only when all are vacant (S3).
        unsafe { slots.drop_in_place() };
        // SAFETY: allocated by `new` with this layout (S5), and freed once (S3); a head needs no drop.
        unsafe { dealloc(self.0.as_ptr().cast(), Self::layout()) };
    }
}

pub(super) struct ChunkRef<K>(NonNull<Header<K>>);

impl<K> Clone for ChunkRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for ChunkRef<K> {}

impl<K> ChunkRef<K> {
    /// # Safety
    /// The chunk is in the arena during `'s`. The caller holds the lock.
    #[inline]
    pub(super) unsafe fn head<'s>(self) -> &'s Header<K> {
        // SAFETY: the chunk is alive, which the caller guarantees (S3); and no code makes a `&mut` to a head.
        unsafe { self.0.as_ref() }
    }

    /// The slot of this index, whose bit is in [`Chunk::ALL`]. The slot is taken, or the caller takes it.
    #[inline]
    pub(super) fn slot(self, index: usize) -> EntryRef<K> {
        debug_assert!((Chunk::<K>::LOW..Chunk::<K>::END).contains(&index));
        let slots = self.0.as_ptr().wrapping_byte_offset(Chunk::<K>::ORIGIN).cast::<Slot<K>>();
        // SAFETY: the index is that of a slot, so this is in an allocation (S5), and not null.
        EntryRef(unsafe { NonNull::new_unchecked(slots.wrapping_add(index)) })
    }

    #[inline]
    pub(super) fn of(entry: &EntryRef<K>) -> (Self, &Header<K>) {
        let origin = entry.0.as_ptr().wrapping_sub(entry.slot().index());
        // SAFETY: the start of the slot's chunk (S5), so it is not null.
        let chunk = Self(unsafe { NonNull::new_unchecked(origin.wrapping_byte_offset(-Chunk::<K>::ORIGIN).cast()) });
        // SAFETY: the slot is taken, so its chunk is in the arena (S3); calls of this file are made under the lock.
        (chunk, unsafe { chunk.head() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
    fn a_chunk_has_four_kibibytes_with_its_head_or_fewer_than_64_slots() {
        fn shape<const N: usize>() -> (usize, u64, usize) {
            (Chunk::<[u8; N]>::SLOTS, Chunk::<[u8; N]>::ALL, Chunk::<[u8; N]>::layout().size())
        }
        assert_eq!(shape::<8>(), (63, u64::MAX - 1, 2048), "the head has the place of the 64th");
        assert_eq!(shape::<24>(), (63, u64::MAX - 1, 3056));
        assert_eq!(shape::<40>(), (63, u64::MAX - 1, 4096));
        assert_eq!(shape::<104>(), (31, u64::from(u32::MAX >> 1), 4032));
        assert_eq!(shape::<488>(), (8, 0xFF, 4160));
        assert_eq!(shape::<70_000>(), (8, 0xFF, 32 + 8 * 70_024), "no fewer than eight");
    }

    /// Looks at where the slots lie, as the alignment of their chunk does not say that.
    #[test]
    fn a_slot_lies_in_as_few_cache_lines_as_it_can() {
        fn check<K>() {
            let (layout, size) = (Chunk::<K>::layout(), Chunk::<K>::SLOT);
            // Several chunks, so that none lies right by chance.
            for chunk in (0..8).map(|number| Chunk::<K>::new(number, 0)).collect::<Vec<_>>() {
                let start = chunk.0.addr().get();
                let mut end = start + size_of::<Header<K>>();
                for index in Chunk::<K>::LOW..Chunk::<K>::END {
                    let slot = chunk.chunk_ref().slot(index).0;
                    let first = slot.addr().get();
                    assert!(slot.is_aligned() && first >= end, "slot {index} of {size} bytes");
                    end = first + size;
                    let lines = (end - 1) / LINE - first / LINE + 1;
                    let is_right = lines == size.div_ceil(LINE) || !size.is_power_of_two();
                    assert!(is_right, "slot {index} of {size} bytes lies in {lines} lines");
                }
                assert!(end <= start + layout.size(), "slots of {size} bytes end in their chunk");
            }
            assert!(layout.size() <= 4096 || Chunk::<K>::SLOTS == 8, "slots of {size} bytes");
        }
        #[repr(align(16))]
        struct By16<const N: usize>([u8; N]);
        #[repr(align(32))]
        struct By32<const N: usize>([u8; N]);
        #[repr(align(64))]
        struct By64<const N: usize>([u8; N]);
        #[repr(align(128))]
        struct By128<const N: usize>([u8; N]);
        fn check_all<const N: usize>() {
            check::<[u8; N]>();
            check::<[u16; N]>(); // twice as long, as those below are
            check::<[u32; N]>();
            check::<[u64; N]>();
            check::<By16<N>>();
            check::<By32<N>>();
            check::<By64<N>>();
            check::<By128<N>>();
        }
        check_all::<1>();
        check_all::<8>();
        check_all::<16>();
        check_all::<24>();
        check_all::<40>();
        check_all::<104>();
        check_all::<488>();
        check_all::<5000>();
    }

    #[test]
    fn the_head_is_found_from_each_slot() {
        #[repr(align(64))]
        struct Aligned;
        fn check<K>() {
            let chunk = Chunk::<K>::new(7, 0);
            for index in Chunk::<K>::LOW..Chunk::<K>::END {
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
