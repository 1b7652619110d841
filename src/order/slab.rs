//! Values by number, in chunks that are given back when they are empty.

use super::NONE;
use crate::numbers::{Numbers, fit};
use std::ops::{Index, IndexMut};

pub(super) struct Slab<V, const CHUNK: usize> {
    /// By number.
    chunks: Vec<Option<Box<Chunk<V, CHUNK>>>>,
    numbers: Numbers,
    /// The number that was given back last, or `NONE`: it is lent again first, and its chunk does not know yet.
    last: u32,
    /// The numbers of the chunks with room. The last one gives the next value.
    open: Vec<u32>,
    /// Chunks without a number. One is kept, so that a value that comes and goes allocates nothing.
    spare: Vec<Box<Chunk<V, CHUNK>>>,
}

pub(super) struct Chunk<V, const CHUNK: usize> {
    /// A bit for each value that is not lent.
    vacant: u64,
    /// Its place among the open ones, if it has room.
    place: u32,
    values: [V; CHUNK],
}

impl<V, const CHUNK: usize> Default for Slab<V, CHUNK> {
    fn default() -> Self {
        Self { chunks: Vec::new(), numbers: Numbers::default(), last: NONE, open: Vec::new(), spare: Vec::new() }
    }
}

impl<V: Default, const CHUNK: usize> Slab<V, CHUNK> {
    const VACANT: u64 = u64::MAX >> (64 - CHUNK);

    /// The number of values that are lent.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let lent = self.chunks.iter().flatten().map(|chunk| CHUNK - chunk.vacant.count_ones() as usize);
        lent.sum::<usize>() - usize::from(self.last != NONE)
    }

    /// Lends a value, which is as its last user has left it.
    #[inline]
    pub(super) fn lend(&mut self) -> u32 {
        if self.last != NONE {
            return std::mem::replace(&mut self.last, NONE);
        }
        let at = self.open.last().copied().unwrap_or_else(|| self.add_chunk());
        let chunk = self.chunks[at as usize].as_mut().expect("an open chunk");
        let place = chunk.vacant.trailing_zeros();
        chunk.vacant &= chunk.vacant - 1;
        if chunk.vacant == 0 {
            self.open.pop();
        }
        at * CHUNK as u32 + place
    }

    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        let before = std::mem::replace(&mut self.last, number);
        if before != NONE {
            self.vacate(before);
        }
    }

    fn vacate(&mut self, number: u32) {
        let (at, place) = (number / CHUNK as u32, number % CHUNK as u32);
        let chunk = self.chunks[at as usize].as_mut().expect("the number is lent");
        if chunk.vacant == 0 {
            chunk.place = self.open.len() as u32;
            self.open.push(at);
        }
        chunk.vacant |= 1 << place;
        if chunk.vacant == Self::VACANT {
            self.close(at);
        }
    }

    #[cold]
    fn add_chunk(&mut self) -> u32 {
        let number = self.numbers.lend();
        let mut chunk = self.spare.pop().unwrap_or_else(|| {
            Box::new(Chunk { vacant: Self::VACANT, place: 0, values: std::array::from_fn(|_| V::default()) })
        });
        chunk.place = self.open.len() as u32;
        if self.chunks.len() <= number as usize {
            self.chunks.resize_with(number as usize + 1, || None);
        }
        self.chunks[number as usize] = Some(chunk);
        self.open.push(number);
        number
    }

    /// Takes out an open chunk of which no value is lent.
    #[cold]
    fn close(&mut self, at: u32) {
        let chunk = self.chunks[at as usize].take().expect("an open chunk");
        self.open.swap_remove(chunk.place as usize);
        if let Some(moved) = self.open.get(chunk.place as usize) {
            self.chunks[*moved as usize].as_mut().expect("an open chunk").place = chunk.place;
        }
        self.spare.push(chunk);
        self.numbers.give_back(at);
        self.chunks.truncate(self.numbers.end());
        fit(&mut self.chunks);
        fit(&mut self.open);
    }

    /// A chunk to free, if there are more than one.
    #[inline]
    pub(super) fn surplus(&mut self) -> Option<Box<Chunk<V, CHUNK>>> {
        if self.spare.len() > 1 { self.spare.pop() } else { None }
    }

    /// All spare chunks.
    pub(super) fn shrink(&mut self) -> Vec<Box<Chunk<V, CHUNK>>> {
        self.give_back(NONE);
        self.chunks.shrink_to_fit();
        self.open.shrink_to_fit();
        self.numbers.shrink();
        std::mem::take(&mut self.spare)
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.iter().flatten().chain(&self.spare).count()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let arrays = self.chunks.capacity() * 8 + self.open.capacity() * 4 + self.numbers.bytes();
        self.chunks() * size_of::<Chunk<V, CHUNK>>() + arrays
    }
}

impl<V, const CHUNK: usize> Slab<V, CHUNK> {
    /// The value of a number that may be given back.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&V> {
        let chunk = self.chunks.get(number as usize / CHUNK)?.as_ref()?;
        Some(&chunk.values[number as usize % CHUNK])
    }
}

impl<V, const CHUNK: usize> Index<u32> for Slab<V, CHUNK> {
    type Output = V;

    #[inline]
    fn index(&self, number: u32) -> &V {
        self.get(number).expect("the number is lent")
    }
}

impl<V, const CHUNK: usize> IndexMut<u32> for Slab<V, CHUNK> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut V {
        let chunk = self.chunks[number as usize / CHUNK].as_mut().expect("the number is lent");
        &mut chunk.values[number as usize % CHUNK]
    }
}
