//! Values by number, in chunks that are given back when they are empty; and links, by which the values are in lists.
//!
//! ```text
//!   chunk 0 full    chunk 1 freed    chunk 2 │ links value │ vacant │ links value │ …
//! ```
//!
//! The lowest chunk that has room gives the next value, so the array of the chunks gets short after a burst. Only a value that was just given
//! back is lent before, because that costs a few instructions.

use super::numbers::{Numbers, fit}; // by `super`, because tests include this file, with that module beside it
use std::ops::{Index, IndexMut};

/// No number.
pub(crate) const NONE: u32 = u32::MAX;

const LENT: &str = "the number is lent";

/// The numbers of the values before and behind one in its list.
pub(crate) type Links = (u32, u32);

#[derive(Debug)]
pub(crate) struct Slab<V, const CHUNK: usize> {
    /// By number.
    chunks: Vec<Option<Box<Chunk<V, CHUNK>>>>,
    /// The chunks without room, as numbers that are lent.
    full: Numbers,
    /// The lowest of the numbers that were given back since one was lent, or `NONE`. Its chunk does not know yet.
    last: u32,
    /// Chunks without a number.
    spare: Vec<Box<Chunk<V, CHUNK>>>,
}

#[derive(Debug)]
pub(crate) struct Chunk<V, const CHUNK: usize> {
    /// A bit for each value that is not lent.
    vacant: u64,
    values: [(Links, V); CHUNK],
}

impl<V, const CHUNK: usize> Default for Slab<V, CHUNK> {
    fn default() -> Self {
        Self { chunks: Vec::new(), full: Numbers::default(), last: NONE, spare: Vec::new() }
    }
}

impl<V: Default, const CHUNK: usize> Slab<V, CHUNK> {
    /// This number of spare chunks is kept, so that values which come and go allocate nothing.
    const KEEP: usize = if CHUNK == 1 { 256 } else { 1 };
    const VACANT: u64 = u64::MAX >> (64 - CHUNK);

    /// Lends a value, which is as its last user has left it.
    #[inline]
    pub(crate) fn lend(&mut self) -> u32 {
        if self.last != NONE {
            return std::mem::replace(&mut self.last, NONE);
        }
        let at = self.full.first() as usize; // this chunk may be missing
        let chunk = match self.chunks.get_mut(at) {
            Some(Some(chunk)) => chunk,
            _ => self.make_chunk(at),
        };
        let place = chunk.vacant.trailing_zeros();
        chunk.vacant &= chunk.vacant - 1;
        if chunk.vacant == 0 {
            self.full.put(at as u32);
        }
        (at * CHUNK) as u32 + place
    }

    #[inline]
    fn make_chunk(&mut self, at: usize) -> &mut Chunk<V, CHUNK> {
        if self.chunks.len() == at {
            self.chunks.push(None);
        }
        let new = || Chunk { vacant: Self::VACANT, values: std::array::from_fn(|_| Default::default()) };
        let chunk = self.spare.pop().unwrap_or_else(|| Box::new(new()));
        self.chunks[at].insert(chunk)
    }

    /// The next number that is lent is below this one, which was above all others so far.
    #[inline]
    pub(crate) fn has_below(&mut self, end: u32) -> bool {
        self.chunks.len() * CHUNK < end as usize || self.last != NONE || {
            let at = self.full.first();
            let chunk = self.chunks.get(at as usize).and_then(Option::as_ref);
            at * CHUNK as u32 + chunk.map_or(0, |chunk| chunk.vacant.trailing_zeros()) < end
        }
    }

    #[inline]
    pub(crate) fn give_back(&mut self, number: u32) {
        let higher = self.last.max(number);
        self.last = self.last.min(number);
        if higher != NONE {
            self.vacate(higher);
        }
    }

    #[inline]
    fn vacate(&mut self, number: u32) {
        let at = number as usize / CHUNK;
        let chunk = self.chunks[at].as_mut().expect(LENT);
        if chunk.vacant == 0 {
            self.full.give_back(at as u32);
        }
        chunk.vacant |= 1 << (number as usize % CHUNK);
        if chunk.vacant == Self::VACANT {
            self.close(at);
        }
    }

    /// Takes out a chunk of which no value is lent.
    #[inline]
    fn close(&mut self, at: usize) {
        if let Some(chunk) = self.chunks[at].take() {
            self.spare.push(chunk);
        }
        while let Some(None) = self.chunks.last() {
            self.chunks.pop();
        }
        fit(&mut self.chunks, Self::KEEP.max(16));
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.spare.len() > Self::KEEP
    }

    /// The chunks to free, if there are more than are kept.
    #[inline]
    pub(crate) fn surplus(&mut self) -> Option<Vec<Box<Chunk<V, CHUNK>>>> {
        self.has_surplus().then(|| self.spare.split_off(Self::KEEP))
    }

    /// All spare chunks.
    pub(crate) fn shrink(&mut self) -> Vec<Box<Chunk<V, CHUNK>>> {
        if self.last != NONE {
            self.vacate(self.last);
            self.last = NONE;
        }
        self.chunks.shrink_to_fit();
        self.full.shrink();
        std::mem::take(&mut self.spare)
    }

    /// The number of values that are lent.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let lent = self.chunks.iter().flatten().map(|chunk| CHUNK - chunk.vacant.count_ones() as usize);
        lent.sum::<usize>() - usize::from(self.last != NONE)
    }

    #[cfg(test)]
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.iter().flatten().chain(&self.spare).count()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.chunks() * size_of::<Chunk<V, CHUNK>>() + self.chunks.capacity() * 8 + self.full.bytes()
    }
}

impl<V, const CHUNK: usize> Slab<V, CHUNK> {
    /// The links and the value of a number that may be given back.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&(Links, V)> {
        let chunk = self.chunks.get(number as usize / CHUNK)?.as_ref()?;
        Some(&chunk.values[number as usize % CHUNK])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut (Links, V) {
        let chunk = self.chunks[number as usize / CHUNK].as_mut().expect(LENT);
        &mut chunk.values[number as usize % CHUNK]
    }
}

impl<V, const CHUNK: usize> Index<u32> for Slab<V, CHUNK> {
    type Output = V;

    #[inline]
    fn index(&self, number: u32) -> &V {
        &self.get(number).expect(LENT).1
    }
}

impl<V, const CHUNK: usize> IndexMut<u32> for Slab<V, CHUNK> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut V {
        &mut self.get_mut(number).1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::collections::BTreeSet;

    /// Of the chunks with room the lowest gives the next number, unless one was just given back.
    #[test]
    fn low_numbers_are_lent_first() {
        let (mut slab, mut lent, mut random) = (Slab::<u64, 4>::default(), Vec::new(), Rng::with_seed(3));
        let mut last = None;
        for step in 0..if cfg!(miri) { 500 } else { 10_000 } {
            if random.u32(..100) < [70, 30][step / 1000 % 2] {
                let taken: BTreeSet<u32> = lent.iter().copied().chain(last).collect();
                let lowest = (0..).find(|number| !taken.contains(number)).unwrap();
                let next = last.unwrap_or(lowest);
                assert!(slab.has_below(next + 1) && (last.is_some() || !slab.has_below(next)));
                last = None;
                assert_eq!(slab.lend(), next);
                slab[next] = next.into();
                lent.push(next);
            } else if !lent.is_empty() {
                let number = lent.swap_remove(random.usize(..lent.len()));
                last = Some(last.map_or(number, |last: u32| last.min(number)));
                slab.give_back(number);
            }
            assert_eq!(slab.len(), lent.len());
            assert!(lent.iter().all(|number| slab[*number] == u64::from(*number)));
        }
        lent.into_iter().for_each(|number| slab.give_back(number));
        drop(slab.shrink());
        assert_eq!((slab.bytes(), slab.len()), (0, 0));
    }

    #[test]
    fn the_arrays_of_a_slab_get_short_with_it() {
        const CHUNK: usize = 4;
        const MANY: u32 = if cfg!(miri) { 2000 } else { 8000 };
        let (mut slab, size) = (Slab::<u64, CHUNK>::default(), size_of::<Chunk<u64, CHUNK>>());
        let (all, keep) = (MANY as usize / CHUNK, Slab::<u64, CHUNK>::KEEP);
        let mut lent: Vec<u32> = (0..MANY).map(|_| slab.lend()).collect();
        // All chunks have room, and then none has a value; but the last one that was given back stays lent to the slab.
        lent.retain(|number| {
            let stays = number % CHUNK as u32 != 0;
            (!stays).then(|| slab.give_back(*number));
            stays
        });
        let mut freed = 0;
        while let Some(number) = lent.pop() {
            slab.give_back(number);
            let surplus = slab.surplus().map_or(0, |chunks| chunks.len());
            assert!(surplus <= 1 && !slab.has_surplus(), "one comes with a call at most");
            freed += surplus;
        }
        assert_eq!((freed, slab.chunks()), (all - keep - 1, keep + 1));
        let arrays = slab.bytes() - slab.chunks() * size;
        assert!(arrays <= 70 * 8 + all / 8 + 64, "{arrays} bytes");
        // A shrink leaves what the values need, and no chunk without values.
        lent.extend((0..100).map(|_| slab.lend()));
        lent.split_off(70).into_iter().for_each(|number| slab.give_back(number));
        assert!(!slab.shrink().is_empty());
        let chunks = 70_usize.div_ceil(CHUNK);
        assert_eq!((slab.chunks(), slab.bytes()), (chunks, chunks * (size + 8) + 8));
    }
}
