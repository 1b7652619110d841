//! Values by number, in pages that are given back when they are empty, and links that put the values into lists.
//!
//! ```text
//!   page 0 full    page 1 freed    page 2 │ links value │ vacant │ links value │ …
//! ```
//!
//! The lowest page that has room gives the next value, so that the array of the pages gets short after a burst. Only a value that was just
//! given back is lent before, because that saves a few instructions.

use super::numbers::{NumberPool, fit}; // by `super`, because tests include this file, with that module beside it
use std::ops::{Index, IndexMut};

pub(crate) const NONE: u32 = u32::MAX;

const LENT: &str = "the number is lent";

/// The numbers of the values before and behind one in its list.
pub(crate) type Links = (u32, u32);

#[derive(Debug)]
pub(crate) struct Slab<V, const PAGE: usize> {
    /// By number.
    pages: Vec<Option<Box<Page<V, PAGE>>>>,
    /// The pages without room, as numbers that are lent.
    full: NumberPool,
    /// The lowest of the numbers that were given back since one was lent, or `NONE`. Its page does not have it back yet.
    last: u32,
    /// Pages without a number.
    spare: Vec<Box<Page<V, PAGE>>>,
}

#[derive(Debug)]
pub(crate) struct Page<V, const PAGE: usize> {
    /// A bit for each value that is not lent.
    vacant: u64,
    values: [(Links, V); PAGE],
}

impl<V, const PAGE: usize> Default for Slab<V, PAGE> {
    fn default() -> Self {
        Self { pages: Vec::new(), full: NumberPool::default(), last: NONE, spare: Vec::new() }
    }
}

impl<V: Default, const PAGE: usize> Slab<V, PAGE> {
    /// The number of spare pages that are kept, so that values that come and go allocate nothing.
    const KEEP: usize = if PAGE == 1 { 256 } else { 1 };
    const VACANT: u64 = u64::MAX >> (64 - PAGE);

    /// Lends a value, which is as its last user left it.
    #[inline]
    pub(crate) fn lend(&mut self) -> u32 {
        if self.last != NONE {
            return std::mem::replace(&mut self.last, NONE);
        }
        let at = self.full.first() as usize; // this page may be missing
        let page = match self.pages.get_mut(at) {
            Some(Some(page)) => page,
            _ => self.make_page(at),
        };
        let place = page.vacant.trailing_zeros();
        page.vacant &= page.vacant - 1;
        if page.vacant == 0 {
            self.full.put(at as u32);
        }
        (at * PAGE) as u32 + place
    }

    #[inline]
    fn make_page(&mut self, at: usize) -> &mut Page<V, PAGE> {
        if self.pages.len() == at {
            self.pages.push(None);
        }
        let new = || Page { vacant: Self::VACANT, values: std::array::from_fn(|_| Default::default()) };
        let page = self.spare.pop().unwrap_or_else(|| Box::new(new()));
        self.pages[at].insert(page)
    }

    /// Whether the next number that is lent is below this one, which was above all others so far.
    #[inline]
    pub(crate) fn has_below(&mut self, end: u32) -> bool {
        self.pages.len() * PAGE < end as usize || self.last != NONE || {
            let at = self.full.first();
            let page = self.pages.get(at as usize).and_then(Option::as_ref);
            at * PAGE as u32 + page.map_or(0, |page| page.vacant.trailing_zeros()) < end
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
        let at = number as usize / PAGE;
        let page = self.pages[at].as_mut().expect(LENT);
        if page.vacant == 0 {
            self.full.give_back(at as u32);
        }
        page.vacant |= 1 << (number as usize % PAGE);
        if page.vacant == Self::VACANT {
            self.close(at);
        }
    }

    /// Takes out a page of which no value is lent.
    #[inline]
    fn close(&mut self, at: usize) {
        if let Some(page) = self.pages[at].take() {
            self.spare.push(page);
        }
        while let Some(None) = self.pages.last() {
            self.pages.pop();
        }
        fit(&mut self.pages, Self::KEEP.max(16));
    }

    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.spare.len() > Self::KEEP
    }

    /// The pages to free, if there are more than are kept.
    #[inline]
    pub(crate) fn surplus(&mut self) -> Option<Vec<Box<Page<V, PAGE>>>> {
        self.has_surplus().then(|| self.spare.split_off(Self::KEEP))
    }

    /// All spare pages.
    pub(crate) fn shrink(&mut self) -> Vec<Box<Page<V, PAGE>>> {
        if self.last != NONE {
            self.vacate(self.last);
            self.last = NONE;
        }
        self.pages.shrink_to_fit();
        self.full.shrink();
        std::mem::take(&mut self.spare)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let lent = self.pages.iter().flatten().map(|page| PAGE - page.vacant.count_ones() as usize);
        lent.sum::<usize>() - usize::from(self.last != NONE)
    }

    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.pages.iter().flatten().chain(&self.spare).count()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.pages() * size_of::<Page<V, PAGE>>() + self.pages.capacity() * 8 + self.full.bytes()
    }
}

impl<V, const PAGE: usize> Slab<V, PAGE> {
    /// The links and the value of a number that may be given back.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&(Links, V)> {
        let page = self.pages.get(number as usize / PAGE)?.as_ref()?;
        Some(&page.values[number as usize % PAGE])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut (Links, V) {
        let page = self.pages[number as usize / PAGE].as_mut().expect(LENT);
        &mut page.values[number as usize % PAGE]
    }
}

impl<V, const PAGE: usize> Index<u32> for Slab<V, PAGE> {
    type Output = V;

    #[inline]
    fn index(&self, number: u32) -> &V {
        &self.get(number).expect(LENT).1
    }
}

impl<V, const PAGE: usize> IndexMut<u32> for Slab<V, PAGE> {
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

    /// The lowest of the pages with room gives the next number, unless one was just given back.
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
        const PAGE: usize = 4;
        const MANY: u32 = if cfg!(miri) { 2000 } else { 8000 };
        let (mut slab, size) = (Slab::<u64, PAGE>::default(), size_of::<Page<u64, PAGE>>());
        let (all, keep) = (MANY as usize / PAGE, Slab::<u64, PAGE>::KEEP);
        let mut lent: Vec<u32> = (0..MANY).map(|_| slab.lend()).collect();
        // All pages have room, and then none has a value, except that the last one given back counts as lent in the slab.
        lent.retain(|number| {
            let stays = number % PAGE as u32 != 0;
            (!stays).then(|| slab.give_back(*number));
            stays
        });
        let mut freed = 0;
        while let Some(number) = lent.pop() {
            slab.give_back(number);
            let surplus = slab.surplus().map_or(0, |pages| pages.len());
            assert!(surplus <= 1 && !slab.has_surplus(), "one comes with a call at most");
            freed += surplus;
        }
        assert_eq!((freed, slab.pages()), (all - keep - 1, keep + 1));
        let arrays = slab.bytes() - slab.pages() * size;
        assert!(arrays <= 70 * 8 + all / 8 + 64, "{arrays} bytes");
        // A shrink leaves what the values need, and no page without values.
        lent.extend((0..100).map(|_| slab.lend()));
        lent.split_off(70).into_iter().for_each(|number| slab.give_back(number));
        assert!(!slab.shrink().is_empty());
        let pages = 70_usize.div_ceil(PAGE);
        assert_eq!((slab.pages(), slab.bytes()), (pages, pages * (size + 8) + 8));
    }
}
