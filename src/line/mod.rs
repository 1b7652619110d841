//! The order in which queued keys are handed out.
//!
//! [`Fifo`] is the order of a plain queue, an implementation of [`Line`]. [`Ordered`] is the order by priority and by group.

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

mod fair;
mod fifo;
mod ordered;
mod priority;

pub(crate) use fifo::Fifo;
pub(crate) use ordered::{Garbage, Group, KeyOrder, Node, Ordered};

/// No number.
const NIL: u32 = u32::MAX;

/// The queued entries, in the order in which they will be popped.
///
/// Each push has a position, which identifies it until the entry is popped or removed. So a caller can come back to an entry in a later
/// critical section, and can move it: remove it, and push it with another rank.
pub(crate) trait Line<T> {
    /// What the order depends on in addition to the order of the pushes.
    type Rank;
    /// Memory that is no longer needed.
    type Garbage;

    /// Adds an entry behind all others of its rank, and returns its position.
    fn push(&mut self, entry: T, rank: Self::Rank) -> u64;

    /// [`pop`](Self::pop), if that is a few instructions. `None`: use `pop`.
    fn pop_simple(&mut self) -> Option<T>;

    /// Takes the next entry.
    fn pop(&mut self) -> Option<T>;

    /// The number of entries.
    fn len(&self) -> usize;

    /// The entry that will be popped after `ahead` others, if that is known without a search.
    fn peek(&self, ahead: usize) -> Option<&T>;

    /// From the position at which the next pop begins to look (its entry may be removed) to the position of the next push.
    fn positions(&self) -> std::ops::Range<u64>;

    /// The entry at a position. `None`: it was popped or removed, or is not pushed yet.
    fn get(&self, position: u64) -> Option<&T>;

    /// Removes the entry at a position, if it is there.
    fn remove(&mut self, position: u64) -> Option<T>;

    /// Moves past the removed entries before the next one, so that [`positions`](Self::positions) begins with an entry.
    fn skip_removed(&mut self);

    /// Retires all memory that the entries do not need now.
    fn shrink(&mut self);

    /// There is retired memory.
    fn has_retired(&self) -> bool;

    /// Takes the retired memory, for the caller to free after the lock.
    fn take_retired(&mut self) -> Self::Garbage;
}
