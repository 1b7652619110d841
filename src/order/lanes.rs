//! What is kept for a group, for the lanes of a group, and for the keys of a lane.
//!
//! ```text
//!   Lane (HIGH), home   ──▶  Lane (LOW)  ──▶  Lane (NORMAL)      through `sibling`
//!     │                        │                │
//!   key ⇄ key                key              key ⇄ key ⇄ key    a `List`
//! ```
//!
//! The first lane of a group, its *home*, is made with the group and also has what is known of it; so a group with keys of one level is in
//! one place. Its number is that of the group.

use super::list::List;
use super::{NONE, Slab, visit};

pub(super) type Lanes = Slab<Lane>;

/// The lanes of a group by level, or `NONE`.
pub(super) type Index = Box<[u32; 256]>;

/// The queued keys of one group in one level: 60 bytes, and 8 for its links. (They would be 72 if the numbers of 64 bits were aligned.)
#[derive(Default)]
#[repr(Rust, packed(4))]
pub(super) struct Lane {
    pub(super) keys: List,
    /// Of a home, the next one in its bucket, or `NONE`. Of another lane, its home.
    pub(super) next: u32,
    /// The next lane of the same group, or `NONE`.
    pub(super) sibling: u32,
    /// The turn of its level at which it has its own, or would have had it. Of a new lane, and of a parked one that was new: its ticket.
    pub(super) due: u64,
    /// The keys that it may still give in this turn.
    pub(super) credit: u16,
    /// How often it was passed since it gave its last key, or got its first one.
    pub(super) passes: u8,
    pub(super) level: u8,
    pub(super) seat: Seat,
    // What is known of the group, as long as a key of it is known, or it has a lane. Used in the home.
    pub(super) hash: u64,
    /// Since it is known.
    pub(super) handed_out: u64,
    /// Keys that are known: queued, processing or delayed.
    pub(super) known: u32,
    /// Counted with a limit only.
    pub(super) processing: u32,
    /// Keys in a turn. 0 in a lane that is no home.
    pub(super) weight: u16,
    /// The number of its lanes beside the home.
    pub(super) others: u8,
}

impl Lane {
    pub(super) fn new(next: u32, level: u8, sibling: u32) -> Self {
        Self { next, level, sibling, ..Self::default() }
    }

    /// The group of the lane with this number.
    #[inline]
    pub(super) fn home(&self, number: u32) -> u32 {
        if self.weight > 0 { number } else { self.next }
    }
}

impl Lanes {
    /// The numbers of the lanes of a group.
    #[inline]
    pub(super) fn of(&self, group: u32) -> impl Iterator<Item = u32> {
        let next = |number: &u32| Some(self[*number].sibling).filter(|sibling| *sibling != NONE);
        let lanes = std::iter::successors(Some(group), next).inspect(|_| visit());
        lanes.filter(|number| self[*number].seat != Seat::Nowhere)
    }
}

/// A queued key.
pub(super) struct Queued<T> {
    /// `None`: the place is free.
    pub(super) key: Option<T>,
    /// The number of its push.
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
    #[default]
    Nowhere,
}

impl Seat {
    /// Its group is full.
    #[inline]
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Parked | Self::Passed | Self::Skipped)
    }
}
