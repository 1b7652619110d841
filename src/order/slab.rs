//! Values by number, in chunks that are given back when they are empty.

use super::NONE;
use std::ops::{Index, IndexMut};

pub(super) struct Slab<V> {
    /// `None`: there is no value in it.
    chunks: Vec<Option<Box<Chunk<V>>>>,
    /// The first chunk with values and with room, or `NONE`: a list.
    open: u32,
    /// The numbers of chunks that are `None`.
    absent: Vec<u32>,
    /// An empty chunk, so that a value that comes and goes allocates nothing.
    spare: Option<Box<Chunk<V>>>,
    len: usize,
}

pub(super) struct Chunk<V> {
    /// At most `CHUNK`.
    values: Vec<V>,
    /// A bit for each of them that was removed.
    vacant: [u64; WORDS],
    taken: u32,
    /// Neighbours in the list of open chunks.
    prev: u32,
    next: u32,
}

const WORDS: usize = 4;
const CHUNK: usize = 64 * WORDS;

impl<V> Default for Slab<V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), open: NONE, absent: Vec::new(), spare: None, len: 0 }
    }
}

impl<V: Default> Slab<V> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, value: V) -> u32 {
        if self.open == NONE {
            self.add_chunk();
        }
        let number = self.open;
        let chunk = self.chunk(number);
        let place = match chunk.vacant.iter().position(|word| *word != 0) {
            Some(word) => {
                let place = word * 64 + chunk.vacant[word].trailing_zeros() as usize;
                chunk.vacant[word] &= chunk.vacant[word] - 1;
                chunk.values[place] = value;
                place
            }
            None => {
                chunk.values.push(value);
                chunk.values.len() - 1
            }
        };
        chunk.taken += 1;
        if chunk.taken as usize == CHUNK {
            self.close(number);
        }
        self.len += 1;
        number * CHUNK as u32 + place as u32
    }

    /// Takes a value out. If its chunk is empty then, and another one is, too, that comes with it.
    pub(super) fn remove(&mut self, number: u32) -> (V, Option<Box<Chunk<V>>>) {
        let (at, place) = (number / CHUNK as u32, number as usize % CHUNK);
        self.len -= 1;
        let chunk = self.chunk(at);
        let value = std::mem::take(&mut chunk.values[place]);
        chunk.vacant[place / 64] |= 1 << (place % 64);
        chunk.taken -= 1;
        let left = chunk.taken;
        if left as usize == CHUNK - 1 {
            self.reopen(at);
        }
        if left > 0 {
            return (value, None);
        }
        self.close(at);
        self.absent.push(at);
        let empty = self.chunks[at as usize].take();
        (value, std::mem::replace(&mut self.spare, empty))
    }

    /// Takes the empty chunk, if there is one.
    pub(super) fn take_spare(&mut self) -> Option<Box<Chunk<V>>> {
        self.spare.take()
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        self.chunks.iter().flatten().flat_map(|chunk| &chunk.values)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let chunks =
            self.chunks.iter().chain([&self.spare]).flatten().map(|chunk| chunk.values.capacity() * size_of::<V>());
        chunks.sum::<usize>() + self.chunks.capacity() * 8 + self.absent.capacity() * 4
    }

    #[inline]
    fn chunk(&mut self, number: u32) -> &mut Chunk<V> {
        self.chunks[number as usize].as_mut().expect("it has values")
    }

    #[cold]
    fn add_chunk(&mut self) {
        let chunk = self.spare.take().unwrap_or_else(|| {
            Box::new(Chunk { values: Vec::new(), vacant: [0; WORDS], taken: 0, prev: NONE, next: NONE })
        });
        let number = self.absent.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() as u32 - 1
        });
        self.chunks[number as usize] = Some(chunk);
        self.reopen(number);
    }

    /// Puts a chunk first into the list of open ones.
    fn reopen(&mut self, number: u32) {
        let next = std::mem::replace(&mut self.open, number);
        let chunk = self.chunk(number);
        (chunk.prev, chunk.next) = (NONE, next);
        if next != NONE {
            self.chunk(next).prev = number;
        }
    }

    fn close(&mut self, number: u32) {
        let Chunk { prev, next, .. } = *self.chunk(number);
        match prev {
            NONE => self.open = next,
            prev => self.chunk(prev).next = next,
        }
        if next != NONE {
            self.chunk(next).prev = prev;
        }
    }
}

impl<V> Index<u32> for Slab<V> {
    type Output = V;

    #[inline]
    fn index(&self, number: u32) -> &V {
        let chunk = self.chunks[number as usize / CHUNK].as_ref().expect("it has values");
        &chunk.values[number as usize % CHUNK]
    }
}

impl<V> IndexMut<u32> for Slab<V> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut V {
        let chunk = self.chunks[number as usize / CHUNK].as_mut().expect("it has values");
        &mut chunk.values[number as usize % CHUNK]
    }
}
