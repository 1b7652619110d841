//! Values for some of the slots, in arrays beside them.

use super::arena::{chunk_of, index_of};
use super::segmented::Segmented;
use std::ops::{Index, IndexMut};

/// A value for each slot of the chunks that need one, by slot number.
///
/// Few queues measure, and few keys are delayed, so these values are not in the slots, and a chunk without them costs at most an empty
/// array. When a chunk is freed, the owner takes its array away.
#[derive(Debug)]
pub(crate) struct SideArray<T> {
    /// May be shorter than the number of chunks.
    chunks: Segmented<Box<[T]>>,
    slots: usize,
}

impl<T: Default> SideArray<T> {
    /// `slots`: the end of the indices of a chunk's slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self { chunks: Segmented::new(), slots }
    }

    /// The value of this slot. Makes an array for its chunk, if there is none.
    #[inline]
    pub(crate) fn make(&mut self, number: u32) -> &mut T {
        // The borrow of `get_mut` would last, so the source looks twice; the code that is compiled looks once.
        if self.get_mut(number).is_some() { &mut self[number] } else { self.make_chunk(number) }
    }

    #[cold]
    fn make_chunk(&mut self, number: u32) -> &mut T {
        let chunk = self.chunks.get_or_make(chunk_of(number));
        *chunk = std::iter::repeat_with(T::default).take(self.slots).collect();
        &mut chunk[index_of(number)]
    }

    /// The value of this slot, if its chunk has an array.
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.chunks.get(chunk_of(number))?.get(index_of(number))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.chunks.get_mut(chunk_of(number))?.get_mut(index_of(number))
    }

    pub(crate) fn take_chunk(&mut self, chunk: usize) -> Box<[T]> {
        self.chunks.get_mut(chunk).map(std::mem::take).unwrap_or_default()
    }

    /// `chunks` is the number of chunks that are left. The arrays of the others were taken away, so that none is freed here, under the
    /// lock.
    pub(crate) fn truncate(&mut self, chunks: usize) {
        self.chunks.truncate(chunks);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.chunks.capacity()
    }

    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
    }
}

impl<T> Index<u32> for SideArray<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.chunks[chunk_of(number)][index_of(number)]
    }
}

impl<T> IndexMut<u32> for SideArray<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.chunks[chunk_of(number)][index_of(number)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_and_go_with_their_chunks() {
        let mut array = SideArray::<u8>::new(64);
        *array.make(3 << 6 | 63) = 7;
        assert_eq!((array[3 << 6 | 63], array.get(2 << 6), array.get(9 << 6)), (7, None, None));
        assert_eq!((array.take_chunk(9).len(), array.take_chunk(3).len()), (0, 64));
        array.truncate(3);
        assert_eq!((array.get(3 << 6), array.chunks.capacity() <= 8), (None, true));
        array.shrink();
        assert_eq!(array.chunks.capacity(), 3);
    }
}
