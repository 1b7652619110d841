//! A hierarchical timing wheel for deadlines of numbers. It has no clock and no thread.
//!
//! ```text
//!   deadline, in base 64 (a digit is 6 bits):   … d4 d3 d2 d1 d0
//!   elapsed:                                    … d4 d3 e2 e1 e0
//!                                                       │
//!          the highest digit that differs ──────────────┘   is the level, its value d2 is the slot
//!
//!   level 10   ░░░░░░░░░░░░░░░░           every u64: 10 levels of 64 slots, and one of 16
//!      …
//!   level 2    ░░░░░▓░░▓░░░ … ░           a slot: 4096 ticks
//!   level 1    ░░▓▓░░░░░░░░ … ░           a slot: 64 ticks
//!   level 0    ░░░░░░▓░░░▓▓ … ░           a slot: 1 tick      (▓: has entries, and a bit says so)
//!                    │
//!                    └──▶ block ◀──▶ block ◀──▶ block       19 entries each: deadlines, numbers
//! ```
//!
//! The wheel is Varghese and Lauck's (SOSP 1987, scheme 7). The level is chosen as the Linux and tokio timers do it, by the highest
//! digit in which the deadline differs from the wheel's time, `elapsed`. A tick is a nanosecond, so a slot of level 0 holds equal
//! deadlines only. This precision costs more levels, but an entry rarely passes through more than three of them: a slot is opened
//! only when an entry in it has expired, and the other entries then move to the slots that fit the time *now*.
//!
//! A slot's entries are in a list of blocks. For each number in the wheel, the owner of the numbers keeps a [`Placement`]: the
//! block of its entry and the index there, so that the wheel can find and remove it.
//!
//! The invariants, in full in `INVARIANTS.md`: an entry is in the slot of its deadline or in a list beside
//! the slots (T1), so the first slot that is not empty has the earliest entry (T2); `earliest` is a lower bound (T3); lists are first
//! in, first out (T4); `elapsed` enters no slot without opening it (T5); each block in a list has a live entry (T6); entries that are
//! put off expire after the horizon (T7).
//!
//! Work is bounded: [`pop`](Wheel::pop) takes a budget, and a slot of a million entries is opened in a million small steps. The
//! caller may pause after each. (A slot of at most `SORT_MAX` entries is opened in one step.) `cascade.rs` has the picture.

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

mod blocks;
mod cascade;
mod level;

#[cfg(all(test, not(loom)))]
#[allow(unused_imports, reason = "used in this package's unit tests, not where tests include this file")]
pub(crate) use blocks::MAX_BLOCKS;
#[allow(unused_imports, reason = "used in this package, not where tests include this file")]
pub(crate) use blocks::Pages;

use super::slab::Slab; // by `super`, because tests include this file, with that module beside it
use blocks::{EntryBlock, Head, unpack_place};
use cascade::{NEAR_HORIZON, SORT_MAX};

/// 11 digits of 6 bits are 66 bits: enough for every `u64`.
const LEVELS: usize = 11;
/// Bits of a digit.
const DIGIT: u32 = 6;
/// Slots of a level.
const SLOTS: usize = 1 << DIGIT;

/// An index from here on is the head of a list, not a block.
const HEAD: u32 = 1 << 31;
/// Expired entries, in order, not popped yet.
const EXPIRED: u32 = HEAD | (LEVELS * SLOTS) as u32;
/// Entries of an opened slot that were not examined yet.
const OPENING: u32 = EXPIRED + 1;
/// Entries that were examined and expire after the horizon, while others are in `OPENING`.
const DEFERRED: u32 = EXPIRED + 2;
/// Entries that expire after the horizon, and move to finer slots while no entry has expired.
const BACKLOG: u32 = EXPIRED + 3;

/// What the owner of the numbers keeps for each number in the wheel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Placement {
    /// When the number expires, as bytes: so a placement takes 12 bytes, and its owner can use the other four of 16.
    deadline: [u8; 8],
    /// The place of its entry.
    place: u32,
}

impl Placement {
    /// When the number expires. The entry has it too, for opening a slot; this one is read by callers that have only the number.
    #[inline]
    pub(crate) fn deadline(&self) -> u64 {
        u64::from_ne_bytes(self.deadline)
    }
}

/// The owner of the numbers.
pub(crate) trait Placements {
    /// The placement of this number. Only the wheel writes its deadline and its place, which mean something only while the number
    /// is in the wheel.
    fn placement(&mut self, number: u32) -> &mut Placement;
}

/// What [`Wheel::pop`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Popped {
    /// This number has expired, and is no longer in the wheel.
    Expired(u32),
    /// Call again: the budget is used up.
    BudgetSpent,
    /// No entry has expired, and a slot is being opened: call [`cascade`](Wheel::cascade), then this again.
    NeedsCascade,
    /// No entry expires before this time, and most probably one does then (T3).
    Until(u64),
    /// The wheel is empty.
    Empty,
}

/// See the docs of this module.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// The wheel's time (T5).
    elapsed: u64,
    /// One bit per slot: set if the slot has entries.
    occupied: [u64; LEVELS],
    /// The last tick of the slot that is being opened.
    opening_end: u64,
    /// The near horizon of the slot that is being opened (T7).
    horizon: u64,
    heads: [Head; LEVELS * SLOTS + 4],
    blocks: Slab<EntryBlock, 1>,
    /// A buffer of `open_slot`.
    sort_buffer: Vec<(u64, u32)>,
}

impl Wheel {
    /// An empty wheel. Its time begins at `now`.
    pub(crate) fn new(now: u64) -> Self {
        let head = |at: usize| Head { links: (HEAD | at as u32, HEAD | at as u32), earliest: u64::MAX };
        Self {
            elapsed: now,
            occupied: [0; LEVELS],
            opening_end: 0,
            horizon: 0,
            heads: std::array::from_fn(head),
            blocks: Slab::default(),
            sort_buffer: Vec::with_capacity(SORT_MAX),
        }
    }

    /// Inserts a number that is not in the wheel. If its deadline is in the past it is popped next, in the order of such inserts.
    #[inline]
    pub(crate) fn insert(&mut self, placements: &mut impl Placements, number: u32, deadline: u64) {
        let sifting = !self.is_empty(OPENING);
        let opening = sifting || !self.is_empty(DEFERRED) || !self.is_empty(BACKLOG);
        if opening && deadline <= self.opening_end && (sifting || deadline > self.horizon) {
            // In order (T4): behind the other entries of the slot that is being opened.
            let list = if deadline > self.horizon { BACKLOG } else { OPENING };
            self.push(placements, list, number, deadline);
        } else {
            self.place(placements, number, deadline);
        }
    }

    /// Removes a number that is in the wheel.
    #[inline]
    pub(crate) fn remove(&mut self, placements: &mut impl Placements, number: u32) {
        let (block, at) = unpack_place(placements.placement(number).place);
        debug_assert_eq!(self.blocks[block].numbers[at], number);
        self.remove_entry(block, at);
    }

    /// Removes the next number that has expired at `now`, or says when to call again. (An earlier `now` than in the last call is
    /// allowed, and finds nothing new.) Each entry that is removed or moved takes one from the budget.
    #[inline]
    pub(crate) fn pop(&mut self, placements: &mut impl Placements, now: u64, budget: &mut usize) -> Popped {
        loop {
            if *budget == 0 {
                return Popped::BudgetSpent;
            }
            if let Some((number, _)) = self.pop_front(EXPIRED) {
                *budget -= 1;
                return Popped::Expired(number);
            }
            if let Some(popped) = self.expire(placements, now, budget) {
                return popped;
            }
        }
    }

    /// Moves entries that have expired to the list of expired ones, or says why there are none. `None`: look again.
    fn expire(&mut self, placements: &mut impl Placements, now: u64, budget: &mut usize) -> Option<Popped> {
        if !self.is_empty(OPENING) {
            self.sift_block(placements, budget);
            return None;
        }
        if !self.is_empty(DEFERRED) {
            self.splice(DEFERRED, BACKLOG);
        }
        let opening = !self.is_empty(BACKLOG);
        if opening && now > self.horizon {
            self.horizon = now.saturating_add(NEAR_HORIZON);
            self.splice_at_end(BACKLOG, OPENING);
            return None;
        }
        let first = self.first();
        let earliest = first.map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
        if opening && earliest.is_none_or(|earliest| earliest > now) {
            return Some(Popped::NeedsCascade);
        }
        let (Some((level, slot)), Some(earliest)) = (first, earliest) else {
            self.elapsed = self.elapsed.max(now);
            return Some(Popped::Empty);
        };
        let (start, end) = self.range(level, slot);
        if earliest > now {
            if start > now {
                self.elapsed = self.elapsed.max(now); // never into a slot with entries (T5)
            }
            return Some(Popped::Until(earliest));
        }
        self.open_slot(placements, HEAD | (level * SLOTS + slot) as u32, start, end, now, budget);
        None
    }

    /// No entry expires before this, and most probably one does then (T3). `None`: the wheel is empty.
    pub(crate) fn earliest(&self) -> Option<u64> {
        let slot = self.first().map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
        // The lists beside the slots are in no order of deadlines, and are not searched: these are lower bounds.
        let lists = [(EXPIRED, 0), (OPENING, self.elapsed), (DEFERRED, self.horizon), (BACKLOG, self.horizon)];
        lists.into_iter().filter(|&(list, _)| !self.is_empty(list)).map(|(_, at)| at).chain(slot).min()
    }
}
