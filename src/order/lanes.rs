//! The queued keys of one group in one level, and the lists of lanes.

use super::keys::{Block, Blocks, Keys};
use super::known::Known;
use super::slab::{Chunk, Slab};
use super::{NONE, visit};
use std::num::NonZeroU64;

/// A queued key, and the number of its push: not 0, so that an empty place takes no more bytes.
pub(super) type Aged<T> = (T, NonZeroU64);

/// The blocks of lanes: of 8 slots, as there may be a million lanes.
pub(super) type LaneBlocks<T> = Blocks<Aged<T>, 8, 32>;
pub(super) type KeysChunk<T> = Box<Chunk<Block<Aged<T>, 8>, 32>>;
pub(super) type Lanes<T> = Slab<Lane<T>, 64>;
pub(super) type LanesChunk<T> = Box<Chunk<Lane<T>, 64>>;

/// The queued keys of one group in one level.
///
/// The first lane of a group, its *home*, is made with the group and also has what is known of it; so a group with keys of one level is in
/// one place. Its number is that of the group.
pub(super) struct Lane<T> {
    /// The first key, if the lane was empty when it was pushed. So a lane with one key needs no block.
    only: Option<Aged<T>>,
    /// The others.
    more: Keys,
    /// Used in the home.
    pub(super) known: Known,
    /// The home.
    pub(super) group: u32,
    /// The next lane of the same group, or `NONE`.
    pub(super) sibling: u32,
    pub(super) neighbours: Neighbours,
    /// The turn of its level at which it has its own, or would have had it. Of a new lane, and of a parked one that was new: its ticket.
    pub(super) due: u32,
    pub(super) turn: Turn,
    pub(super) level: u8,
    pub(super) seat: Seat,
}

/// The keys that a lane may still give in this turn: 10 bits. And how often it was passed since it gave its last key, or got its first one:
/// up to 63. In 16 bits, as there may be a million lanes.
#[derive(Clone, Copy, Default)]
pub(super) struct Turn(u16);

impl Turn {
    /// More than any weight.
    pub(super) const MOST: u16 = (1 << Self::BITS) - 1;
    const BITS: u32 = 10;

    #[inline]
    pub(super) fn credit(self) -> u16 {
        self.0 & Self::MOST
    }

    #[inline]
    pub(super) fn set_credit(&mut self, credit: u16) {
        self.0 = self.0 & !Self::MOST | credit;
    }

    #[inline]
    pub(super) fn passes(self) -> u16 {
        self.0 >> Self::BITS
    }

    #[inline]
    pub(super) fn pass(&mut self) {
        self.0 = self.0.checked_add(1 << Self::BITS).unwrap_or(self.0);
    }

    #[inline]
    pub(super) fn clear_passes(&mut self) {
        self.0 &= Self::MOST;
    }
}

/// The lanes before and behind one in its list, or `NONE`.
type Neighbours = (u32, u32);

/// The list in which a lane is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    /// Its next turn comes before those of the old ones.
    New,
    /// It has had a turn.
    Old,
    /// Its group is full, and it has given the last key itself, or got its first one since.
    Parked,
    /// Its group is full, and other lanes of the group have passed it.
    Passed,
    /// The same, and a turn of the lower levels has come: it may be owed a hand-out.
    Skipped,
    /// It has no keys. It stays for a turn: so a group that has a key now and then wins nothing by being empty for a moment.
    Idle,
    /// It gives the next key, of all levels.
    Owed,
    /// In none: it is just made, or a home that is not used as a lane.
    Nowhere,
}

impl Seat {
    /// Its group is full.
    #[inline]
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Parked | Self::Passed | Self::Skipped)
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self::new(NONE, 0, NONE, Known::default())
    }
}

impl<T> Lane<T> {
    pub(super) fn new(group: u32, level: u8, sibling: u32, known: Known) -> Self {
        let (only, more, neighbours, seat) = (None, Keys::default(), (NONE, NONE), Seat::Nowhere);
        Self { only, more, known, group, sibling, neighbours, due: 0, turn: Turn::default(), level, seat }
    }
}

impl<T: Copy + PartialEq> Lane<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.only.is_none() && self.more.is_empty()
    }

    #[inline]
    pub(super) fn push(&mut self, key: Aged<T>, blocks: &mut LaneBlocks<T>) -> u32 {
        if self.is_empty() {
            self.only = Some(key);
            return 0;
        }
        blocks.push(&mut self.more, key)
    }

    #[inline]
    pub(super) fn pop(&mut self, blocks: &mut LaneBlocks<T>) -> Option<T> {
        if let Some((key, _)) = self.only.take() {
            return Some(key);
        }
        let (key, _) = blocks.pop(&mut self.more)?;
        self.release(blocks);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: T, position: u32, blocks: &mut LaneBlocks<T>) {
        if self.only.take_if(|only| only.0 == key).is_none() {
            blocks.remove(&mut self.more, position);
            self.release(blocks);
        }
    }

    #[inline]
    fn release(&mut self, blocks: &mut LaneBlocks<T>) {
        if self.more.is_empty() {
            blocks.release(&mut self.more);
        }
    }

    pub(super) fn push_number(&self, key: T, position: u32, blocks: &LaneBlocks<T>) -> u64 {
        match self.only {
            Some((only, push)) if only == key => push.get(),
            _ => blocks.get(position).0.map_or(0, |(_, push)| push.get()),
        }
    }

    /// See [`Blocks::firsts`].
    pub(super) fn firsts(&self, blocks: &LaneBlocks<T>, places: &mut usize, each: &mut impl FnMut(T) -> bool) {
        if *places == 0 {
            return;
        }
        *places -= 1;
        if !self.only.is_some_and(|(only, _)| each(only)) {
            blocks.firsts(&self.more, places, |(key, _)| each(key));
        }
    }

    /// The key that was pushed last, if it is still there.
    pub(super) fn last_mut<'a>(&'a mut self, blocks: &'a mut LaneBlocks<T>) -> Option<&'a mut Aged<T>> {
        if self.more.is_empty() { self.only.as_mut() } else { blocks.last_mut(&self.more) }
    }

    /// The key that comes after this number of others of the lane, if that is found at once.
    #[inline]
    pub(super) fn peek(&self, ahead: u32, blocks: &LaneBlocks<T>) -> Option<T> {
        let key = if ahead == 0 && self.only.is_some() { self.only } else { blocks.peek(&self.more, ahead) };
        key.map(|(key, _)| key)
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

    /// Puts a lane at the end, or first. Returns the neighbours, for the lane.
    #[inline]
    pub(super) fn insert<T>(&mut self, number: u32, is_first: bool, lanes: &mut Lanes<T>) -> Neighbours {
        let (prev, next) = if is_first { (NONE, self.first) } else { (self.last, NONE) };
        *self.next_of(prev, lanes) = number;
        *self.prev_of(next, lanes) = number;
        self.len += 1;
        (prev, next)
    }

    /// Takes out the lane between these.
    #[inline]
    pub(super) fn remove<T>(&mut self, (prev, next): Neighbours, lanes: &mut Lanes<T>) {
        *self.next_of(prev, lanes) = next;
        *self.prev_of(next, lanes) = prev;
        self.len -= 1;
    }

    #[inline]
    fn next_of<'a, T>(&'a mut self, number: u32, lanes: &'a mut Lanes<T>) -> &'a mut u32 {
        if number == NONE { &mut self.first } else { &mut lanes[number].neighbours.1 }
    }

    #[inline]
    fn prev_of<'a, T>(&'a mut self, number: u32, lanes: &'a mut Lanes<T>) -> &'a mut u32 {
        if number == NONE { &mut self.last } else { &mut lanes[number].neighbours.0 }
    }

    pub(super) fn iter<T>(self, lanes: &Lanes<T>) -> impl Iterator<Item = &Lane<T>> {
        let lane = |number| (number != NONE).then(|| &lanes[number]);
        std::iter::successors(lane(self.first), move |before| lane(before.neighbours.1)).inspect(|_| visit())
    }
}
