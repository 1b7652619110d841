//! The order of queued keys: three orders, and one type that is any of them and says what each call does ([`AnyOrder`]).
//!
//! ```text
//!   Line     first in, first out: blocks of keys
//!   Levels   an array of lines, by priority
//!   Groups   for each priority a list of new and one of old lanes; a lane is the line of one group:
//!            its keys and the lanes are in lists (`list`), through slabs (`src/slab.rs`)
//!   AnyOrder one of the three; a running Line becomes the level NORMAL in one move
//! ```
//!
//! An order holds copies of handles, whose type `T` it does not know. It says at which position it has put one. With this position, the
//! priority and the group, it finds the handle again without a search. No order has a lock, a clock or a random number.
//!
//! **Bounds.** A call moves or skips at most a block of keys, and visits the lanes of one group: at most one for each priority in use. What
//! is to be freed goes into the caller's [`Bin`], which the caller drops after its lock.
//!
//! **Ages.** Each push has a number: [`AnyOrder::age`]. Of two keys of one priority the older has the lower number, over all
//! groups. No number is used twice for a priority, so it also tells whether a key is still queued by the push that a caller has seen. A
//! line computes the number from the position; only lanes store it, as a position in a lane does not say the age.
//!
//! **Stamps, for a queue with several shards.** [`AnyOrder::front`] says the highest level with keys, and a stamp: a time that is not after
//! the push of the first key there. A block of a line has one stamp, so it takes no memory of its own, and goes with its keys. A push that
//! begins a block or a level wants a stamp ([`AnyOrder::wants_stamp`]); the caller reads its counter then, at the end of its critical
//! section, and not at each push. A level that gets its first key has the time of that push; a plain line keeps the stamp of its block, as
//! a counter that is read for each key of a short line takes longer than the key. With groups the stamp of the front is the time of the
//! last few hand-outs: so the shards take turns. [`AnyOrder::levels`] says of the other levels which have keys, and how old the oldest is.
//! An order that is not asked to ([`AnyOrder::want_stamps`]) wants none.

#![allow(clippy::vec_box, reason = "a box goes from list to list without being copied")]

mod any;
mod bits;
mod group_table;
mod groups;
mod lanes;
mod levels;
mod line;
mod list;
mod rotation;
mod seats;
mod skipped_turns;
mod stamps;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use any::AnyOrder;
pub(crate) use bits::Words;
pub(crate) use groups::Groups;
pub(crate) use levels::Levels;
pub(crate) use line::Line;
pub(crate) use rotation::TURNS;

use crate::slab::{NONE, Page};
use group_table::Segment;
use lanes::{Index, Lane, Queued};
use line::Block;

/// The priority of a key that was given none.
pub(crate) const NORMAL: i8 = 0;

type Slab<V> = crate::slab::Slab<V, 64>;

/// The places that [`AnyOrder::firsts`] visits at most, in all lines; and the keys in one line.
const PLACES: usize = 1024;
const FIRSTS: usize = 16;

/// Takes its share of the places, for one of the `left` lines or lists that are still to be visited. It gives back what it does not need.
fn share(places: &mut usize, left: usize) -> usize {
    let share = *places / left;
    *places -= share;
    share
}

/// In tests of debug builds, counts what a call visits.
#[inline(always)]
pub(crate) fn visit() {
    #[cfg(all(test, debug_assertions))]
    tests::VISITS.set(tests::VISITS.get() + 1);
}

/// The index of a priority: the higher the more urgent.
#[inline]
pub(crate) fn level_of(priority: i8) -> u8 {
    priority as u8 ^ 0x80
}

/// The priority of an index.
#[inline]
pub(crate) fn priority_of(level: u8) -> i8 {
    (level ^ 0x80) as i8
}

/// An array by level. Filled in place: it is 20 KB or more, too much for a small stack.
fn by_level<V>(value: impl FnMut() -> V) -> Box<[V; 256]> {
    let values: Box<[V]> = std::iter::repeat_with(value).take(256).collect();
    values.try_into().unwrap_or_else(|_| unreachable!("256 values"))
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

/// Memory that is no longer needed. The caller drops it after its lock.
pub(crate) struct Bin<T>(Vec<Garbage<T>>);

#[expect(dead_code, reason = "it is kept to be dropped")]
enum Garbage<T> {
    Line(Box<Block<T>>),
    Lines(Vec<Box<Block<T>>>),
    Empty(Line<T>),
    Keys(Vec<Box<Page<Queued<T>, 64>>>),
    Lanes(Vec<Box<Page<Lane, 64>>>),
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
