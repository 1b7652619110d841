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
use crate::time::wheel::{Placement, Placements};

pub(super) type Lanes = Slab<Lane>;

/// The lanes of a group by level, or `NONE`.
pub(super) type Index = Box<[u32; 256]>;

/// Packed, so that it takes 104 bytes, and 112 with its links in the slab.
#[derive(Default)]
#[repr(Rust, packed(4))]
pub(super) struct Lane {
    pub(super) keys: List,
    /// In a home, the next home in the same bucket of the [table](super::group_table), or `NONE`. In any other lane, the number of its
    /// home.
    pub(super) next: u32,
    /// The next lane of the same group, or `NONE`.
    pub(super) sibling: u32,
    /// The round of its level in which it has its next turn.
    pub(super) round: u64,
    /// The keys that it may still give in this turn.
    pub(super) credit: u32,
    pub(super) level: u8,
    pub(super) seat: Seat,
    // The rest is about the group, and used in its home only.
    /// See [`holds`](super::holds).
    pub(super) flags: u8,
    /// The number of lanes beside the home.
    pub(super) others: u8,
    pub(super) hash: u64,
    /// Keys that the machine knows, whether they are queued, processing or delayed.
    pub(super) known: u32,
    pub(super) processing: u32,
    /// The number of its [limits](super::limits), or `NONE` in a lane that is no home.
    pub(super) limits: u32,
    /// Hand-outs since its last own turn of the lower levels, and the level of that: see [`Groups::own_turn`](super::Groups::own_turn).
    pub(super) since_lower: u8,
    pub(super) last_lower: u8,
    /// Turns of lower levels in a row.
    pub(super) since_top: u8,
    /// Hand-outs since the group is known.
    pub(super) handed_out: u64,
    /// The nanoseconds that its handlers have taken since it is known, if [turns are paid in handler time](super::work).
    pub(super) work: u64,
    /// The handler time, in nanoseconds, that the group may still use. It is negative if the group owes some.
    pub(super) balance: i64,
    /// The time up to which all tokens of its rate are spent: see [`Rate`](crate::rate_limiter::Rate).
    pub(super) spent_until: u64,
    /// The place of its entry in the wheel.
    pub(super) placement: Placement,
}

impl Lane {
    pub(super) fn new(next: u32, level: u8, sibling: u32) -> Self {
        Self { next, level, sibling, limits: NONE, ..Self::default() }
    }

    #[inline]
    pub(super) fn is_home(&self) -> bool {
        self.limits != NONE
    }

    /// Whether it is the lane of a level, if it is a home.
    #[inline]
    pub(super) fn is_of(&self, level: u8) -> bool {
        self.level == level && self.seat != Seat::Nowhere
    }

    /// The group of this lane, whose number is `number`.
    #[inline]
    pub(super) fn home(&self, number: u32) -> u32 {
        if self.is_home() { number } else { self.next }
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

impl Placements for Lanes {
    #[inline]
    fn placement(&mut self, number: u32) -> &mut Placement {
        &mut self.get_mut(number).1.placement
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

/// The list in which a lane is.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Seat {
    /// It has begun its turn ahead of the old lanes.
    New,
    /// It waits for its next turn, or is in it.
    Old,
    /// Its group is held back.
    Held,
    /// It has no keys, and is remembered until its next turn would have come.
    Idle,
    /// In no list. It has just been made, or is a home without keys of its own.
    #[default]
    Nowhere,
}
