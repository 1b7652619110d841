//! The queued keys of one group in one level, and the lists of lanes.

use super::slab::Slab;
use super::{Bin, Line, NONE};

/// A queued key, and the number of its push.
pub(super) type Aged<T> = (T, u64);

/// Of the keys of a lane.
pub(super) type LaneLine<T> = Line<Aged<T>, 8>;

/// The queued keys of one group in one level.
pub(super) struct Lane<T> {
    /// The first key, if the lane was empty when it was pushed. So a lane with one key needs no memory on the heap.
    only: Option<Aged<T>>,
    /// The others. `None`: there are none.
    more: Option<Box<LaneLine<T>>>,
    pub(super) group: u32,
    /// The next lane of the same group, or `NONE`.
    pub(super) sibling: u32,
    prev: u32,
    next: u32,
    /// The turn of its level at which it has its own, or would have had it.
    pub(super) due: u32,
    /// Keys that it may still give in this turn.
    pub(super) credit: u16,
    pub(super) level: u8,
    pub(super) seat: Seat,
}

/// The list in which a lane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    /// Its next turn comes before those of the old ones.
    New,
    /// It has had a turn.
    Old,
    /// Its group is full.
    Parked,
    /// It has no keys. It stays for a turn: so a group that has a key now and then wins nothing by being empty for a moment.
    Idle,
    /// In none: it is just made.
    Nowhere,
}

/// Lines that lanes do not need now.
pub(super) struct Spare<T>(Vec<Box<LaneLine<T>>>);

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self::new(NONE, 0, NONE)
    }
}

impl<T> Lane<T> {
    pub(super) fn new(group: u32, level: u8, sibling: u32) -> Self {
        let (prev, next, seat) = (NONE, NONE, Seat::Nowhere);
        Self { only: None, more: None, group, sibling, prev, next, due: 0, credit: 0, level, seat }
    }
}

impl<T: Copy + PartialEq> Lane<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.only.is_none() && self.more.is_none()
    }

    #[inline]
    pub(super) fn push(&mut self, key: Aged<T>, spare: &mut Spare<T>) -> u32 {
        if self.is_empty() {
            self.only = Some(key);
            return 0;
        }
        self.more.get_or_insert_with(|| spare.0.pop().unwrap_or_default()).push(key)
    }

    #[inline]
    pub(super) fn pop(&mut self, spare: &mut Spare<T>, bin: &mut Bin<T>) -> Option<T> {
        if let Some((key, _)) = self.only.take() {
            return Some(key);
        }
        let (key, _) = self.more.as_mut()?.pop(&mut bin.aged)?;
        self.drop_if_empty(spare, bin);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: T, position: u32, spare: &mut Spare<T>, bin: &mut Bin<T>) {
        if self.only.take_if(|only| only.0 == key).is_none() {
            self.more.as_mut().expect("the key is in this lane").remove(position, &mut bin.aged);
            self.drop_if_empty(spare, bin);
        }
    }

    #[inline]
    fn drop_if_empty(&mut self, spare: &mut Spare<T>, bin: &mut Bin<T>) {
        if let Some(line) = self.more.take_if(|more| more.is_empty()) {
            let list = if line.is_large() { &mut bin.lines } else { &mut spare.0 };
            list.push(line);
        }
    }

    pub(super) fn push_number(&self, key: T, position: u32) -> u64 {
        match (self.only, &self.more) {
            (Some((only, push)), _) if only == key => push,
            (_, more) => more.as_ref().and_then(|more| more.get(position).0).map_or(0, |(_, push)| push),
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<T> {
        self.only.or_else(|| self.more.as_ref()?.peek(0)).map(|(key, _)| key)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.more.as_ref().map_or(0, |more| size_of::<LaneLine<T>>() + more.slots() * size_of::<Aged<T>>())
    }

    pub(super) fn shrink(&mut self, bin: &mut Bin<T>) {
        self.more.iter_mut().for_each(|more| more.shrink(&mut bin.aged));
    }
}

impl<T: Copy> Spare<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Gives some of them back, if there are many for this number of lanes: the number that may be kept is a quarter of that.
    #[inline]
    pub(super) fn tidy(&mut self, lanes: usize, bin: &mut Vec<Box<LaneLine<T>>>) {
        if self.0.len() > 64 + lanes / 4 {
            let left = self.0.len() - 2;
            bin.extend(self.0.drain(left..));
        }
        crate::numbers::fit(&mut self.0);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|line| size_of::<LaneLine<T>>() + line.slots() * size_of::<Aged<T>>()).sum()
    }

    pub(super) fn shrink(&mut self, bin: &mut Bin<T>) {
        bin.lines.append(&mut self.0);
        self.0.shrink_to_fit();
    }
}

/// A list of lanes, through the lanes.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
    pub(super) len: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    /// Puts a lane at the end, or first.
    pub(super) fn insert<T: Copy + PartialEq>(&mut self, number: u32, is_first: bool, lanes: &mut Slab<Lane<T>>) {
        let (prev, next) = if is_first { (NONE, self.first) } else { (self.last, NONE) };
        self.join(prev, number, lanes);
        self.join(number, next, lanes);
        self.len += 1;
    }

    pub(super) fn remove<T: Copy + PartialEq>(&mut self, number: u32, lanes: &mut Slab<Lane<T>>) {
        let Lane { prev, next, .. } = lanes[number];
        self.join(prev, next, lanes);
        self.len -= 1;
    }

    /// `NONE`: the end of the list.
    fn join<T: Copy + PartialEq>(&mut self, before: u32, after: u32, lanes: &mut Slab<Lane<T>>) {
        match before {
            NONE => self.first = after,
            before => lanes[before].next = after,
        }
        match after {
            NONE => self.last = before,
            after => lanes[after].prev = before,
        }
    }

    pub(super) fn second<T: Copy + PartialEq>(&self, lanes: &Slab<Lane<T>>) -> u32 {
        if self.len > 1 { lanes[self.first].next } else { NONE }
    }
}
