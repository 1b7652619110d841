//! The order of queued keys: one interface, three orders, and one type that is any of them.
//!
//! ```text
//!   Line     first in, first out: blocks of keys
//!   Levels   an array of lines, by priority
//!   Groups   for each priority a list of new and one of old lanes; a lane is the line of one group
//!   AnyOrder one of the three; a running Line becomes the level NORMAL in one move
//! ```
//!
//! An order holds copies of handles, whose type `T` it does not know. It says at which position it has put one. With this position, the
//! priority and the group, it finds the handle again without a search. No order has a lock, a clock or a random number.
//!
//! **Bounds.** A call moves or skips at most a block of keys, and visits the lanes of one group: at most one for each priority in use. What
//! is to be freed goes into the caller's [`Bin`], which the caller drops after its lock.
//!
//! **Ages.** Each push has a number: [`Order::push_number`]. Of two keys of one priority the older has the lower number, over all groups.
//! No number is used twice for a priority, so it also tells whether a key is still queued by the push that a caller has seen. A line
//! computes the number from the position; only lanes store it, as a position in a lane does not say the age.
//!
//! **Stamps, for a queue with several shards.** [`Order::front`] says the highest level with keys, and a stamp: a time that is not after
//! the push of the first key there. A block of a line has one stamp, so it takes no memory of its own, and goes with its keys. A push that
//! begins a block or a level wants a stamp ([`Order::wants_stamp`]); the caller reads its counter then, at the end of its critical section,
//! and not at each push. A level that gets its first key has the time of that push; a plain line keeps the stamp of its block, as a
//! counter that is read for each key of a short line takes longer than the key. With groups the stamp of the front is the time of the last
//! few hand-outs: so the shards take turns. An order that is not asked to ([`Order::want_stamps`]) wants none.

#![allow(clippy::vec_box, reason = "a box goes from list to list without being copied")]

mod any;
mod bits;
mod choice;
mod groups;
mod lanes;
mod levels;
mod line;
mod list;
mod owed;
mod seats;
mod slab;
mod stamps;
mod table;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use any::AnyOrder;
pub(crate) use groups::Groups;
pub(crate) use levels::Levels;
pub(crate) use line::Line;

use lanes::{Index, KeysChunk, LanesChunk};
use line::Block;
use table::Segment;

/// The priority of a key that was given none.
pub(crate) const NORMAL: i8 = 0;

/// No number.
const NONE: u32 = u32::MAX;

/// The places that [`Order::firsts`] visits at most, in all lines; and the keys in one line.
const PLACES: usize = 4096;
const FIRSTS: usize = 16;

/// In tests of debug builds, counts what a call visits.
#[inline(always)]
pub(crate) fn visit() {
    #[cfg(all(test, debug_assertions))]
    tests::VISITS.set(tests::VISITS.get() + 1);
}

/// The index of a priority: the higher the more urgent.
#[inline]
fn level_of(priority: i8) -> u8 {
    priority as u8 ^ 0x80
}

/// The priority of an index.
#[inline]
fn priority_of(level: u8) -> i8 {
    (level ^ 0x80) as i8
}

/// The group of a new key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// Tells the groups apart.
    pub(crate) hash: u64,
    /// Keys in a turn, if this is the only known key of the group: 1 to 1000; 0 counts as 1.
    pub(crate) weight: u16,
}

/// Where a queued key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) priority: i8,
    pub(crate) group: u32,
    pub(crate) position: u32,
}

/// What became of a key that was pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pushed {
    pub(crate) position: u32,
    /// A pop may return it: its group is not full.
    pub(crate) is_ready: bool,
}

pub(crate) trait Order<T> {
    /// Puts a key behind all others of its priority and group.
    fn push(&mut self, key: T, priority: i8, group: u32) -> Pushed;

    /// Takes the next key. With a limit, it counts as processing until [`ended`](Self::ended).
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T>;

    /// Takes out a key that is queued here.
    fn remove(&mut self, key: T, place: Place, bin: &mut Bin<T>);

    /// The number of the push by which a key is queued here.
    fn push_number(&self, key: T, place: Place) -> u64;

    /// The number of queued keys.
    fn len(&self) -> usize;

    /// The number of queued keys of a priority.
    fn level_len(&self, priority: i8) -> usize;

    /// The highest priority of a key that a pop may return, and the stamp of the first key there. With groups: that of the last few
    /// pops.
    fn front(&self) -> Option<(i8, u64)>;

    /// The stamp of a queued key: a time that is not after its push, nor after the stamp of a later push of its priority.
    fn stamp_of(&self, key: T, place: Place) -> u64;

    /// From now on [`wants_stamp`](Self::wants_stamp) says when stamps are wanted.
    fn want_stamps(&mut self);

    /// A call since the last stamp wants one.
    fn wants_stamp(&self) -> bool;

    /// Those calls were at this time.
    fn stamp(&mut self, now: u64);

    /// A key that a pop will probably return after this number of others. A hint, for the cache.
    fn upcoming(&self, ahead: u32) -> Option<T>;

    /// Calls `each` for the keys that have waited longest: for each priority and group for the first few, until it returns true. Keys of
    /// full groups are left out, and so is what lies behind some thousand places ([`PLACES`]).
    fn firsts(&self, each: impl FnMut(T) -> bool);

    /// Gives back memory that the keys do not need. Returns whether there is more for another call.
    fn shrink(&mut self, bin: &mut Bin<T>) -> bool;

    /// Queued keys that a pop does not return now: those of full groups.
    #[inline]
    fn blocked(&self) -> usize {
        0
    }

    /// A key of this priority may be pushed soon.
    #[inline]
    fn expect(&mut self, _priority: i8) {}

    /// A new key is known. Returns the number of its group, which stays the same while keys of it are known.
    #[inline]
    fn enter(&mut self, _group: Group) -> u32 {
        0
    }

    /// A key of this group is not known any more. It was neither queued nor processing.
    #[inline]
    fn leave(&mut self, _group: u32, _bin: &mut Bin<T>) {}

    /// A key of this group, which is still known, is no longer processing. Returns whether that makes another one ready.
    #[inline]
    fn ended(&mut self, _group: u32) -> bool {
        false
    }
}

/// Memory that is no longer needed. The caller drops it after its lock.
pub(crate) struct Bin<T>(Vec<Garbage<T>>);

#[expect(dead_code, reason = "it is kept to be dropped")]
enum Garbage<T> {
    Line(Box<Block<T>>),
    Lines(Vec<Box<Block<T>>>),
    Empty(Line<T>),
    Keys(KeysChunk<T>),
    Lanes(LanesChunk),
    Index(Index),
    Segment(Segment),
}

impl<T> Bin<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    fn add(&mut self, garbage: Option<Garbage<T>>) {
        if let Some(garbage) = garbage {
            self.push(garbage);
        }
    }

    #[cold]
    fn push(&mut self, garbage: Garbage<T>) {
        self.0.push(garbage);
    }
}
