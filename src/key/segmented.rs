//! An array that grows without a copy of all that it holds.

use crate::numbers::fit;
use crate::sync::model_const;
use std::ops::{Index, IndexMut};

/// The number of values in a segment, a power of two.
const SEGMENT: usize = model_const(if cfg!(all(test, miri)) { 64 } else { 1024 }, 2);

/// Values by number, in segments of up to [`SEGMENT`], each as long as its highest number so far requires.
///
/// The growth of one large array writes to fresh memory as much as it copies, and the kernel must map each page of it, which takes two
/// milliseconds under the lock at ten million keys. Here a segment is copied only while it grows itself.
#[derive(Debug)]
pub(crate) struct Segmented<T> {
    segments: Vec<Vec<T>>,
}

impl<T> Segmented<T> {
    pub(crate) const fn new() -> Self {
        Self { segments: Vec::new() }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.segments.get(at / SEGMENT)?.get(at % SEGMENT)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.segments.get_mut(at / SEGMENT)?.get_mut(at % SEGMENT)
    }

    /// The value of this number. If it is missing, it is made, together with those before it in its segment.
    pub(crate) fn get_or_make(&mut self, at: usize) -> &mut T
    where
        T: Default,
    {
        if self.segments.len() <= at / SEGMENT {
            self.segments.resize_with(at / SEGMENT + 1, Vec::new);
        }
        let segment = &mut self.segments[at / SEGMENT];
        if segment.len() <= at % SEGMENT {
            segment.resize_with(at % SEGMENT + 1, T::default);
        }
        &mut segment[at % SEGMENT]
    }

    /// Drops the values from number `len` on, and gives memory back if much is left over.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.segments.truncate(len.div_ceil(SEGMENT));
        if let Some(last) = self.segments.get_mut(len / SEGMENT) {
            last.truncate(len % SEGMENT);
            fit(last, 16);
        }
        fit(&mut self.segments, 16);
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.segments.shrink_to_fit();
        self.segments.iter_mut().for_each(Vec::shrink_to_fit);
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.segments.iter().map(Vec::capacity).sum()
    }
}

impl<T> Index<usize> for Segmented<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.segments[at / SEGMENT][at % SEGMENT]
    }
}

impl<T> IndexMut<usize> for Segmented<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.segments[at / SEGMENT][at % SEGMENT]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_does_what_a_map_does() {
        let (mut array, mut plain) = (Segmented::<u32>::new(), BTreeMap::new());
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..if cfg!(miri) { 5 } else { 300 } {
            let limit = random.usize(1..5 * SEGMENT);
            for _ in 0..random.usize(0..20) {
                let (at, value) = (random.usize(..limit), random.u32(1..));
                *array.get_or_make(at) = value;
                plain.insert(at, value);
                assert_eq!((array[at], array.get_mut(at).copied()), (value, Some(value)));
            }
            if random.bool() {
                array.truncate(limit);
                plain.retain(|&at, _| at < limit);
            }
            if random.bool() {
                array.shrink_to_fit();
            }
            for at in 0..5 * SEGMENT {
                let value = array.get(at).filter(|&&value| value > 0); // 0: made for a higher number
                assert_eq!(value, plain.get(&at));
            }
        }
    }

    /// Full segments do not move.
    #[test]
    fn it_grows_without_a_copy() {
        let mut array = Segmented::new();
        (0..2 * SEGMENT).for_each(|n| *array.get_or_make(n) = n);
        let places = |array: &Segmented<_>| [0, SEGMENT, 2 * SEGMENT - 1].map(|n| &raw const array[n]);
        let before = places(&array);
        (2 * SEGMENT..100 * SEGMENT).for_each(|n| *array.get_or_make(n) = n);
        assert_eq!(before, places(&array));
    }

    /// A high number alone does not make all below it: at ten million keys that would be one long step.
    #[test]
    fn numbers_may_be_far_apart() {
        let mut array = Segmented::<u8>::new();
        array.get_or_make(1000 * SEGMENT);
        assert_eq!((array.capacity() < 100, array.get(0), array.get(1000 * SEGMENT)), (true, None, Some(&0)));
    }

    #[test]
    fn an_array_that_got_short_gives_memory_back() {
        let mut array = Segmented::new();
        (0..10 * SEGMENT).for_each(|n| *array.get_or_make(n) = n);
        array.get_or_make(1000 * SEGMENT);
        array.truncate(10);
        assert!(array.capacity() < 100, "{}", array.capacity());
        assert!(array.segments.capacity() < 100, "{}", array.segments.capacity());
        array.truncate(0);
        array.shrink_to_fit();
        assert_eq!((array.get(0), array.capacity(), array.segments.capacity()), (None, 0, 0));
    }
}
