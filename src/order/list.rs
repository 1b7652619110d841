//! Lists through the values of a slab: of the keys in a lane, and of the lanes in a seat. A value is in one list at most.

use super::{NONE, Slab, visit};
use crate::slab::Links;

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

    /// Puts a value at the end. Returns its links, which the caller stores.
    #[inline]
    pub(super) fn insert<V>(&mut self, number: u32, slab: &mut Slab<V>) -> Links {
        let (prev, next) = (self.last, NONE);
        *self.next_of(prev, slab) = number;
        self.last = number;
        self.len += 1;
        (prev, next)
    }

    #[inline]
    pub(super) fn remove<V>(&mut self, (prev, next): Links, slab: &mut Slab<V>) {
        *self.next_of(prev, slab) = next;
        *self.prev_of(next, slab) = prev;
        self.len -= 1;
    }

    #[inline]
    fn next_of<'a, V>(&'a mut self, number: u32, slab: &'a mut Slab<V>) -> &'a mut u32 {
        if number == NONE { &mut self.first } else { &mut slab.get_mut(number).0.1 }
    }

    #[inline]
    fn prev_of<'a, V>(&'a mut self, number: u32, slab: &'a mut Slab<V>) -> &'a mut u32 {
        if number == NONE { &mut self.last } else { &mut slab.get_mut(number).0.0 }
    }

    pub(super) fn iter<V>(self, slab: &Slab<V>) -> impl Iterator<Item = (u32, &V)> {
        let numbers = std::iter::successors(Some(self.first), move |before| Some(slab.get(*before)?.0.1));
        numbers.map_while(|number| Some((number, &slab.get(number)?.1))).inspect(|_| visit())
    }
}
