//! The order of queued keys: which one a getter gets next.
//!
//! ```text
//!   Line     first in, first out: blocks of keys
//!   Levels   an array of lines, by priority
//!   Groups   for each priority, lists of lanes that take turns; a lane is the keys of one group
//!   AnyOrder one of the three; a running Line becomes the level NORMAL in one move
//! ```
//!
//! An order holds handles of keys, whose type it does not know. A push returns a *position*, with which a `remove` needs no search. A call
//! takes constant time, except that a pop may skip the holes of two blocks, and that groups have the exceptions which the head of
//! `groups.rs` lists. Memory to be freed goes into the caller's [`Bin`].
//!
//! **Ages.** Each push has a number ([`AnyOrder::age`]), and within a priority the older key has the lower one. As no number is used twice
//! there, it also tells whether a key is still queued by the push that a caller has seen.
//!
//! **Stamps** make shards comparable. The *front* of a shard ([`AnyOrder::front`]) is its highest level with keys, and a stamp: a time that
//! is not after the push of the first key there, or with groups the [round](stamps) of that level. To read a counter takes longer than a
//! push, so many pushes share a stamp. The first push of each 64, and the first one of a level, makes the order want a new one
//! ([`AnyOrder::wants_stamp`]), which the caller gives at the end of its critical section.

#![allow(clippy::vec_box, reason = "a box goes from list to list without being copied")]

mod any;
mod bits;
mod group_table;
mod groups;
mod holds;
mod lanes;
mod levels;
mod limits;
mod line;
mod list;
mod rotation;
mod stamps;
#[cfg(test)]
pub(crate) mod tests;
mod turns;
mod work;

pub(crate) use any::AnyOrder;
pub(crate) use bits::Words;
pub(crate) use groups::{GroupView, Groups, NO_NEW};
pub(crate) use levels::Levels;
pub(crate) use limits::{Limits, PerSecond};
pub(crate) use line::Line;
pub(crate) use rotation::TURNS;

use crate::slab::{NONE, Page};
use crate::time::wheel::{Pages, Wheel};
use group_table::Segment;
use lanes::{Index, Lane, Queued};
use line::Block;

/// The priority of a key that was given none.
pub(crate) const NORMAL: i8 = 0;

type Slab<V> = crate::slab::Slab<V, 64>;

/// How many places [`AnyOrder::firsts`] visits at most in all, and how many keys in one line.
const PLACES: usize = 1024;
const FIRSTS: usize = 16;

/// Takes an equal share of the places for one of `left` lists that are still to be visited. The caller gives back what it does not need.
fn share(places: &mut usize, left: usize) -> usize {
    let share = *places / left;
    *places -= share;
    share
}

/// Counts what a call visits, in tests.
#[inline(always)]
pub(crate) fn visit() {
    #[cfg(all(test, debug_assertions))]
    tests::VISITS.set(tests::VISITS.get() + 1);
}

#[inline]
pub(crate) fn level_of(priority: i8) -> u8 {
    priority as u8 ^ 0x80
}

#[inline]
pub(crate) fn priority_of(level: u8) -> i8 {
    (level ^ 0x80) as i8
}

/// An array by level, made on the heap, because its 20 KB or more are too much for a small stack.
fn by_level<V>(value: impl FnMut() -> V) -> Box<[V; 256]> {
    let values: Box<[V]> = std::iter::repeat_with(value).take(256).collect();
    values.try_into().unwrap_or_else(|_| unreachable!("256 values"))
}

/// The group of a new key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// Tells the groups apart.
    pub(crate) hash: u64,
    /// Those of the key that makes the group known.
    pub(crate) limits: Limits,
    /// The time, if they have a rate.
    pub(crate) now: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) priority: i8,
    pub(crate) group: u32,
    pub(crate) position: u32,
}

/// Memory that is no longer needed, for the caller to drop after its lock.
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
    Wheel(Box<Wheel>),
    WheelPages(Pages),
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
