//! The data of groups: lanes, what is known of a group, and queued keys.
//!
//! ```text
//!   Lane (HIGH), home   ──▶  Lane (LOW)  ──▶  Lane (NORMAL)      through `sibling`
//!     │                        │                │
//!   key ⇄ key                key              key ⇄ key ⇄ key    a `List`
//! ```
//!
//! The first lane of a group is its *home*. It has the number of the group, and also stores what is known of the group, so that a group
//! with keys in one level takes one place. It stays as long as the group is known, even without keys of its own ([`Seat::Nowhere`]).

use super::list::List;
use super::{NONE, Slab, visit};

pub(super) type Lanes = Slab<Lane>;

/// The lanes of a group by level, or `NONE`.
pub(super) type Index = Box<[u32; 256]>;

/// Packed, so that it takes 60 bytes, and 68 with its links in the slab; aligned, the two would take 72.
#[derive(Default)]
#[repr(Rust, packed(4))]
pub(super) struct Lane {
    pub(super) keys: List,
    /// In a home, the next home in the same bucket of the [table](super::group_table), or `NONE`. In any other lane, the number of its
    /// home.
    pub(super) next: u32,
    /// The next lane of the same group, or `NONE`.
    pub(super) sibling: u32,
    /// When its next turn comes, or would have come: see [`seats`](super::seats).
    pub(super) due: u64,
    /// The keys that it may still give in this turn. In a parked lane also one of two special values: see [`seats`](super::seats).
    pub(super) credit: u16,
    /// How often another lane has filled the group since this one gave its last key, or got its first one.
    pub(super) passes: u8,
    pub(super) level: u8,
    pub(super) seat: Seat,
    // The rest is about the group, and used in its home only.
    pub(super) hash: u64,
    /// Hand-outs since the group is known.
    pub(super) handed_out: u64,
    /// Keys that the machine knows, whether they are queued, processing or delayed.
    pub(super) known: u32,
    /// Processing keys, counted only if there is a limit.
    pub(super) processing: u32,
    /// The keys that a lane gives in one turn. 0 in a lane that is no home.
    pub(super) weight: u16,
    /// The number of lanes beside the home.
    pub(super) others: u8,
}

impl Lane {
    pub(super) fn new(next: u32, level: u8, sibling: u32) -> Self {
        Self { next, level, sibling, ..Self::default() }
    }

    /// The group of this lane, whose number is `number`.
    #[inline]
    pub(super) fn home(&self, number: u32) -> u32 {
        if self.weight > 0 { number } else { self.next }
    }
}

impl Lanes {
    #[inline]
    pub(super) fn of(&self, group: u32) -> impl Iterator<Item = u32> {
        let next = |number: &u32| Some(self[*number].sibling).filter(|sibling| *sibling != NONE);
        let lanes = std::iter::successors(Some(group), next).inspect(|_| visit());
        lanes.filter(|number| self[*number].seat != Seat::Nowhere)
    }
}

pub(super) struct Queued<T> {
    /// `None` while the place is free.
    pub(super) key: Option<T>,
    pub(super) push: u64,
}

impl<T> Default for Queued<T> {
    fn default() -> Self {
        Self { key: None, push: 0 }
    }
}

/// The list in which a lane is. A lane that is parked, passed or skipped is *held*.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    /// It comes before the old lanes.
    New,
    /// It has had a turn.
    Old,
    /// Its group is full. It gave the key that filled the group, or got its own first key later.
    Parked,
    /// Its group is full, by a key of another lane.
    Passed,
    /// The same, and a turn of the lower levels has come since, so that it may be owed a hand-out.
    Skipped,
    /// It has no keys, and is remembered until its next turn would have come.
    Idle,
    /// It gives the next key, before all levels.
    Owed,
    /// In no list. It has just been made, or is a home without keys of its own.
    #[default]
    Nowhere,
}

impl Seat {
    #[inline]
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Parked | Self::Passed | Self::Skipped)
    }
}
