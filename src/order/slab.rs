//! Values by number, in chunks that are given back when they are empty.

use std::ops::{Index, IndexMut};

pub(super) struct Slab<V, const CHUNK: usize> {
    /// `None`: no value of it is lent.
    chunks: Vec<Option<Box<Chunk<V, CHUNK>>>>,
    /// The numbers of the chunks with room, those that are `None` among them. The last one gives the next value.
    open: Vec<u32>,
    /// Chunks of which no value is lent. One is kept, so that a value that comes and goes allocates nothing.
    spare: Vec<Box<Chunk<V, CHUNK>>>,
    len: usize,
}

pub(super) struct Chunk<V, const CHUNK: usize> {
    /// A bit for each value that is not lent.
    vacant: u64,
    values: [V; CHUNK],
}

impl<V, const CHUNK: usize> Default for Slab<V, CHUNK> {
    fn default() -> Self {
        Self { chunks: Vec::new(), open: Vec::new(), spare: Vec::new(), len: 0 }
    }
}

impl<V: Default, const CHUNK: usize> Slab<V, CHUNK> {
    const VACANT: u64 = u64::MAX >> (64 - CHUNK);

    /// The number of values that are lent.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Lends a value, which is as its last user has left it.
    #[inline]
    pub(super) fn lend(&mut self) -> u32 {
        let at = match self.open.last() {
            Some(at) => *at,
            None => self.add_chunk(),
        };
        let chunk = match &mut self.chunks[at as usize] {
            Some(chunk) => chunk,
            absent => absent.insert(self.spare.pop().unwrap_or_else(Self::new_chunk)),
        };
        let place = chunk.vacant.trailing_zeros();
        chunk.vacant &= chunk.vacant - 1;
        if chunk.vacant == 0 {
            self.open.pop();
        }
        self.len += 1;
        at * CHUNK as u32 + place
    }

    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        let (at, place) = (number / CHUNK as u32, number % CHUNK as u32);
        let chunk = self.chunks[at as usize].as_mut().expect("the number is lent");
        if chunk.vacant == 0 {
            self.open.push(at);
        }
        chunk.vacant |= 1 << place;
        self.len -= 1;
        if chunk.vacant == Self::VACANT {
            self.spare.extend(self.chunks[at as usize].take());
        }
    }

    /// A chunk to free, if there are more than one.
    #[inline]
    pub(super) fn surplus(&mut self) -> Option<Box<Chunk<V, CHUNK>>> {
        if self.spare.len() > 1 { self.spare.pop() } else { None }
    }

    /// All spare chunks.
    pub(super) fn shrink(&mut self) -> Vec<Box<Chunk<V, CHUNK>>> {
        if self.len == 0 {
            (self.chunks, self.open) = (Vec::new(), Vec::new());
        }
        std::mem::take(&mut self.spare)
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.chunks.iter().flatten().chain(&self.spare).count()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.chunks() * size_of::<Chunk<V, CHUNK>>() + self.chunks.capacity() * 8 + self.open.capacity() * 4
    }

    #[cold]
    fn add_chunk(&mut self) -> u32 {
        let at = self.chunks.len() as u32;
        self.chunks.push(None);
        self.open.push(at);
        at
    }

    #[cold]
    fn new_chunk() -> Box<Chunk<V, CHUNK>> {
        Box::new(Chunk { vacant: Self::VACANT, values: std::array::from_fn(|_| V::default()) })
    }
}

impl<V, const CHUNK: usize> Index<u32> for Slab<V, CHUNK> {
    type Output = V;

    #[inline]
    fn index(&self, number: u32) -> &V {
        let chunk = self.chunks[number as usize / CHUNK].as_ref().expect("the number is lent");
        &chunk.values[number as usize % CHUNK]
    }
}

impl<V, const CHUNK: usize> IndexMut<u32> for Slab<V, CHUNK> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut V {
        let chunk = self.chunks[number as usize / CHUNK].as_mut().expect("the number is lent");
        &mut chunk.values[number as usize % CHUNK]
    }
}
