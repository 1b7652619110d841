//! Lists through the values of a slab: of the keys in a lane, and of the lanes that wait for the same.
//!
//! ```text
//!   first ⇄ … ⇄ last       a value is in one list at most, and has the numbers of those before and behind it
//! ```

use super::slab::Slab;
use super::{NONE, visit};

/// The numbers of the values before and behind one in its list, or `NONE`.
pub(super) type Links = (u32, u32);

pub(super) trait Linked {
    fn links(&self) -> Links;

    fn links_mut(&mut self) -> &mut Links;
}

#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
    pub(super) len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// Puts a value at the end, or first. Returns its links, for the value.
    #[inline]
    pub(super) fn insert<V: Linked, const N: usize>(
        &mut self,
        number: u32,
        is_first: bool,
        slab: &mut Slab<V, N>,
    ) -> Links {
        let (prev, next) = if is_first { (NONE, self.first) } else { (self.last, NONE) };
        *self.next_of(prev, slab) = number;
        *self.prev_of(next, slab) = number;
        self.len += 1;
        (prev, next)
    }

    /// Takes out the value with these links.
    #[inline]
    pub(super) fn remove<V: Linked, const N: usize>(&mut self, (prev, next): Links, slab: &mut Slab<V, N>) {
        *self.next_of(prev, slab) = next;
        *self.prev_of(next, slab) = prev;
        self.len -= 1;
    }

    #[inline]
    fn next_of<'a, V: Linked, const N: usize>(&'a mut self, number: u32, slab: &'a mut Slab<V, N>) -> &'a mut u32 {
        if number == NONE { &mut self.first } else { &mut slab[number].links_mut().1 }
    }

    #[inline]
    fn prev_of<'a, V: Linked, const N: usize>(&'a mut self, number: u32, slab: &'a mut Slab<V, N>) -> &'a mut u32 {
        if number == NONE { &mut self.last } else { &mut slab[number].links_mut().0 }
    }

    pub(super) fn iter<V: Linked, const N: usize>(self, slab: &Slab<V, N>) -> impl Iterator<Item = (u32, &V)> {
        let value = |number| Some((number, slab.get(number)?));
        std::iter::successors(value(self.first), move |before| value(before.1.links().1)).inspect(|_| visit())
    }
}
