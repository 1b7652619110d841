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
//! The invariants, in full in [`guarantees`](crate::guarantees#wheel): an entry is in the slot of its deadline or in a list beside
//! the slots (T1), so the first slot that is not empty has the earliest entry (T2); `earliest` is a lower bound (T3); lists are first
//! in, first out (T4); `elapsed` enters no slot without opening it (T5); each block in a list has a live entry (T6); entries that are
//! put off expire after the horizon (T7).
//!
//! A slot of more than `SORT_MAX` entries is opened in two passes. So expired entries wait for a look at each block, and not until a
//! million entries have moved:
//!
//! ```text
//!   slot ──▶ OPENING ──▶ expire by the near horizon: to finer slots
//!               └──────▶ DEFERRED ──▶ BACKLOG ──▶ to finer slots, while no entry has expired
//! ```
//!
//! If a finer slot is opened meanwhile, its entries take the same way. Those that are deferred go in front of the backlog (T4).
//!
//! Work is bounded: [`pop`](Wheel::pop) takes a budget, and a slot of a million entries is opened in a million small steps. The
//! caller may pause after each. (A slot of at most `SORT_MAX` entries is opened in one step.)

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

use super::numbers::{Numbers, fit}; // by `super`, because tests include this file, with that module beside it

/// 11 digits of 6 bits are 66 bits: enough for every `u64`.
const LEVELS: usize = 11;
/// Bits of a digit.
const DIGIT: u32 = 6;
/// Slots of a level.
const SLOTS: usize = 1 << DIGIT;

/// A slot of at most this number of entries is opened in one step, which sorts them.
const SORT_MAX: usize = if cfg!(loom) { 1 } else { 256 };

/// How far the near horizon is ahead of the time when a slot is opened, in ticks: a tenth of a second.
const NEAR_HORIZON: u64 = 100_000_000;

/// Entries in a block, which makes it 256 bytes.
const BLOCK: usize = 19;
/// A place is the index of a block and, in these low bits, an index in the block.
const PLACE_BITS: u32 = 5;
/// The number of blocks without entries that are kept, 64 KiB: a steady set of delays comes and goes without an allocation.
const SPARE: usize = 256;

/// An index from here on is the head of a list, not a block.
const HEAD: u32 = 1 << 31;
/// Expired entries, in order, not popped yet.
const EXPIRED: u32 = HEAD | (LEVELS * SLOTS) as u32;
/// Entries of an opened slot that were not looked at yet.
const OPENING: u32 = EXPIRED + 1;
/// Entries that were looked at and expire after the horizon, while others are in `OPENING`.
const DEFERRED: u32 = EXPIRED + 2;
/// Entries that expire after the horizon, and move to finer slots while no entry has expired.
const BACKLOG: u32 = EXPIRED + 3;

/// In the place of a number: the entry was removed. So there are at most 2^32 - 1 numbers.
const DEAD: u32 = u32::MAX;

/// What the owner of the numbers keeps for each number in the wheel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Placement {
    /// When the number expires. The entry has it too, for opening a slot; this one is read by callers that have only the number.
    pub(crate) deadline: u64,
    /// The place of its entry.
    place: u32,
    /// Not the wheel's, but the owner's, even for a number that is not in the wheel. It is here because there is room.
    pub(crate) failures: u32,
}

/// The owner of the numbers.
pub(crate) trait Placements {
    /// The placement of this number. Only the wheel writes its deadline and its place, which mean something only while the number
    /// is in the wheel.
    fn placement(&mut self, number: u32) -> &mut Placement;
}

/// Entries of one list.
#[derive(Debug)]
#[repr(C)] // the fields that a removal touches are close together
pub(crate) struct Block {
    /// The neighbours in a circular list: blocks, or the head.
    next: u32,
    prev: u32,
    /// Entries before this are dead.
    first: u8,
    /// Entries from here on were never used.
    end: u8,
    live: u8,
    /// No entry expires before this.
    earliest: u64,
    numbers: [u32; BLOCK],
    deadlines: [u64; BLOCK],
}

#[derive(Debug, Clone, Copy)]
struct Head {
    next: u32,
    prev: u32,
    /// No entry expires before this (T3). Not used for the lists beside the slots.
    earliest: u64,
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
    /// One bit a slot: it has entries.
    occupied: [u64; LEVELS],
    /// The last tick of the slot that is being opened.
    opening_end: u64,
    /// The near horizon of the slot that is being opened (T7).
    horizon: u64,
    heads: [Head; LEVELS * SLOTS + 4],
    blocks: Vec<Option<Box<Block>>>,
    /// The indices of blocks.
    numbers: Numbers,
    /// Blocks without entries.
    spare: Vec<u32>,
    /// Blocks for the owner to free after its lock, at most `SPARE`. Further ones are freed at once.
    retired: Vec<Box<Block>>,
    /// For `open_slot`.
    sort_buffer: Vec<(u64, u32)>,
}

impl Wheel {
    /// An empty wheel. Its time begins at `now`.
    pub(crate) fn new(now: u64) -> Self {
        let head = |at: usize| Head { next: HEAD | at as u32, prev: HEAD | at as u32, earliest: u64::MAX };
        Self {
            elapsed: now,
            occupied: [0; LEVELS],
            opening_end: 0,
            horizon: 0,
            heads: std::array::from_fn(head),
            blocks: Vec::new(),
            numbers: Numbers::default(),
            spare: Vec::new(),
            retired: Vec::new(),
            sort_buffer: Vec::with_capacity(SORT_MAX),
        }
    }

    /// Inserts a number that is not in the wheel. If its deadline is in the past it is popped next, in the order of such inserts.
    #[inline]
    pub(crate) fn insert(&mut self, placements: &mut impl Placements, number: u32, deadline: u64) {
        let sifting = !self.is_empty(OPENING);
        let opening = sifting || !self.is_empty(DEFERRED) || !self.is_empty(BACKLOG);
        if opening && deadline <= self.opening_end && (sifting || deadline > self.horizon) {
            // T4: behind the other entries of the slot that is being opened.
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
        debug_assert_eq!(self.block(block).numbers[at], number);
        self.remove_entry(block, at);
    }

    /// Removes the next number that has expired at `now`, or says when to call again. (An earlier `now` than in the last call is
    /// allowed, and finds nothing new.) Each entry that is removed or moved takes one from the budget.
    pub(crate) fn pop(&mut self, placements: &mut impl Placements, now: u64, budget: &mut usize) -> Popped {
        loop {
            if *budget == 0 {
                return Popped::BudgetSpent;
            }
            if let Some((number, _)) = self.pop_front(EXPIRED) {
                *budget -= 1;
                return Popped::Expired(number);
            }
            if !self.is_empty(OPENING) {
                self.sift_block(placements, budget);
                continue;
            }
            if !self.is_empty(DEFERRED) {
                self.splice_front(DEFERRED, BACKLOG);
            }
            let opening = !self.is_empty(BACKLOG);
            if opening && now > self.horizon {
                self.horizon = now.saturating_add(NEAR_HORIZON);
                self.splice(BACKLOG, OPENING);
                continue;
            }
            let first = self.first();
            let earliest = first.map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
            if opening && earliest.is_none_or(|earliest| earliest > now) {
                return Popped::NeedsCascade;
            }
            let (Some((level, slot)), Some(earliest)) = (first, earliest) else {
                self.elapsed = self.elapsed.max(now);
                return Popped::Empty;
            };
            let (start, end) = self.range(level, slot);
            if earliest > now {
                if start > now {
                    self.elapsed = self.elapsed.max(now); // T5: before the first slot that has entries
                }
                return Popped::Until(earliest);
            }
            self.open_slot(placements, HEAD | (level * SLOTS + slot) as u32, start, end, now, budget);
        }
    }

    /// Moves entries of the backlog to finer slots, for a caller that has found that no entry has expired.
    pub(crate) fn cascade(&mut self, placements: &mut impl Placements, budget: &mut usize) {
        while *budget > 0 {
            let Some((number, deadline)) = self.pop_front(BACKLOG) else { return };
            self.place(placements, number, deadline);
            *budget -= 1;
        }
    }

    /// Removes some number, whatever its deadline, and returns both. Equal deadlines come out in order. Time does not move.
    pub(crate) fn pop_any(&mut self) -> Option<(u32, u64)> {
        let slot = self.first().map(|(level, slot)| HEAD | (level * SLOTS + slot) as u32);
        // The entries of a slot were inserted before those that are on their way there.
        let pop = |wheel: &mut Self, list| wheel.pop_front(list);
        pop(self, EXPIRED)
            .or_else(|| pop(self, slot?))
            .or_else(|| pop(self, DEFERRED))
            .or_else(|| pop(self, OPENING))
            .or_else(|| pop(self, BACKLOG))
    }

    /// No entry expires before this, and most probably one does then (T3). `None`: the wheel is empty.
    pub(crate) fn earliest(&self) -> Option<u64> {
        let slot = self.first().map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
        // The lists beside the slots are in no order of deadlines, and are not searched: these are lower bounds.
        let lists = [(EXPIRED, 0), (OPENING, self.elapsed), (DEFERRED, self.horizon), (BACKLOG, self.horizon)];
        lists.into_iter().filter(|&(list, _)| !self.is_empty(list)).map(|(_, at)| at).chain(slot).min()
    }

    /// The slot that has the earliest entry (T2).
    #[inline]
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first and the last tick of a slot.
    fn range(&self, level: usize, slot: usize) -> (u64, u64) {
        let low = DIGIT * level as u32;
        // The digits above the slot's are those of `elapsed`; level 10 has none above.
        let above = self.elapsed.checked_shr(low + DIGIT).unwrap_or(0).checked_shl(low + DIGIT).unwrap_or(0);
        let start = above | (slot as u64) << low;
        (start, start | ((1 << low) - 1))
    }

    /// Opens the first slot, in which an entry may have expired.
    fn open_slot(
        &mut self,
        placements: &mut impl Placements,
        head: u32,
        start: u64,
        end: u64,
        now: u64,
        budget: &mut usize,
    ) {
        if start == end {
            // Level 0: all entries have the same deadline, and have expired.
            self.elapsed = start.max(self.elapsed);
            return self.splice(head, EXPIRED);
        }
        let (mut live, mut block) = (0, self.head(head).next);
        while block & HEAD == 0 && live <= SORT_MAX {
            live += usize::from(self.block(block).live);
            block = self.block(block).next;
        }
        if live > SORT_MAX {
            // All of them move to finer slots, step by step.
            if self.is_empty(BACKLOG) {
                self.opening_end = end;
                self.horizon = now.saturating_add(NEAR_HORIZON);
            }
            self.elapsed = start;
            return self.splice(head, OPENING);
        }
        let mut entries = std::mem::take(&mut self.sort_buffer);
        entries.extend(std::iter::from_fn(|| self.pop_front(head)).map(|(number, deadline)| (deadline, number)));
        *budget = budget.saturating_sub(entries.len());
        self.elapsed = now.min(end);
        entries.sort_by_key(|&(deadline, _)| deadline); // stable (T4)
        for (deadline, number) in entries.drain(..) {
            if deadline <= now {
                self.push(placements, EXPIRED, number, deadline);
            } else {
                self.place(placements, number, deadline);
            }
        }
        self.sort_buffer = entries;
    }

    /// Takes the first block of `OPENING`. Entries that expire by the horizon move to their slots; the block with the others is
    /// deferred.
    fn sift_block(&mut self, placements: &mut impl Placements, budget: &mut usize) {
        let index = self.head(OPENING).next;
        let Block { first, end, mut live, earliest, .. } = *self.block(index);
        let mut at = usize::from(if earliest > self.horizon { end } else { first });
        // A block that has lost its last entry is not read: it may be in another list by now.
        while at < usize::from(end) && live > 0 {
            let block = self.block(index);
            let (number, deadline) = (block.numbers[at], block.deadlines[at]);
            if number != DEAD && deadline <= self.horizon {
                *budget = budget.saturating_sub(1);
                live -= 1;
                self.remove_entry(index, at);
                self.place(placements, number, deadline);
            }
            at += 1;
        }
        *budget = budget.saturating_sub(1);
        if live > 0 {
            let next = self.block(index).next;
            self.link(OPENING, next);
            let last = self.head(DEFERRED).prev;
            self.link(last, index);
            self.link(index, DEFERRED);
        }
    }

    /// Adds an entry to its slot (T1).
    #[inline]
    fn place(&mut self, placements: &mut impl Placements, number: u32, deadline: u64) {
        let tick = deadline.max(self.elapsed);
        let level = ((tick ^ self.elapsed) | 1).ilog2() / DIGIT;
        let slot = (tick >> (level * DIGIT)) as usize % SLOTS;
        let at = level as usize * SLOTS + slot;
        self.occupied[level as usize] |= 1 << slot;
        self.heads[at].earliest = self.heads[at].earliest.min(deadline);
        self.push(placements, HEAD | at as u32, number, deadline);
    }

    /// Adds an entry at the end of a list.
    #[inline]
    fn push(&mut self, placements: &mut impl Placements, head: u32, number: u32, deadline: u64) {
        let mut last = self.head(head).prev;
        if last & HEAD != 0 || usize::from(self.block(last).end) == BLOCK {
            last = self.add_block(head);
        }
        let block = self.block(last);
        let at = block.end;
        block.earliest = block.earliest.min(deadline);
        block.deadlines[usize::from(at)] = deadline;
        block.numbers[usize::from(at)] = number;
        block.end += 1;
        block.live += 1;
        let ticket = placements.placement(number);
        ticket.deadline = deadline;
        ticket.place = last << PLACE_BITS | u32::from(at);
    }

    /// Removes the first entry of a list.
    #[inline]
    fn pop_front(&mut self, head: u32) -> Option<(u32, u64)> {
        let first = self.head(head).next;
        if first & HEAD != 0 {
            return None;
        }
        let block = self.block(first);
        let mut at = usize::from(block.first);
        while block.numbers[at] == DEAD {
            at += 1; // ends, by T6
        }
        block.first = at as u8;
        let entry = (block.numbers[at], block.deadlines[at]);
        self.remove_entry(first, at);
        Some(entry)
    }

    /// Removes an entry, and its block if no other entry of it is live (T6).
    #[inline]
    fn remove_entry(&mut self, index: u32, at: usize) {
        let block = self.block(index);
        block.numbers[at] = DEAD;
        block.live -= 1;
        if block.live == 0 {
            self.remove_block(index);
        }
    }

    #[inline]
    fn is_empty(&self, head: u32) -> bool {
        self.head(head).next == head
    }

    #[inline]
    fn head(&self, head: u32) -> &Head {
        &self.heads[(head - HEAD) as usize]
    }

    #[inline]
    fn block(&mut self, index: u32) -> &mut Block {
        self.blocks[index as usize].as_mut().expect("a block that is in a list")
    }

    /// Adds an empty block at the end of a list.
    #[cold]
    fn add_block(&mut self, head: u32) -> u32 {
        let index = self.spare.pop().unwrap_or_else(|| {
            let index = self.numbers.lend();
            if index >= HEAD >> PLACE_BITS {
                self.numbers.give_back(index);
                panic!("a wheel holds at most 2^26 blocks of {BLOCK} entries");
            }
            if self.blocks.len() == index as usize {
                self.blocks.push(None);
            }
            let (deadlines, numbers) = ([0; BLOCK], [DEAD; BLOCK]);
            let block = Block { deadlines, numbers, next: 0, prev: 0, first: 0, end: 0, live: 0, earliest: u64::MAX };
            self.blocks[index as usize] = Some(Box::new(block));
            index
        });
        let last = self.head(head).prev;
        self.link(last, index);
        self.link(index, head);
        index
    }

    /// Takes a block that has no live entry out of its list (T6).
    #[cold]
    fn remove_block(&mut self, index: u32) {
        let block = self.block(index);
        (block.first, block.end, block.earliest) = (0, 0, u64::MAX);
        let (prev, next) = (block.prev, block.next);
        self.link(prev, next);
        if prev == next && next & HEAD != 0 {
            self.on_list_empty(next);
        }
        if self.spare.len() < SPARE {
            self.spare.push(index);
            return;
        }
        if self.retired.len() < SPARE {
            self.retired.extend(self.blocks[index as usize].take());
        }
        self.blocks[index as usize] = None;
        self.numbers.give_back(index);
        self.blocks.truncate(self.numbers.end());
        fit(&mut self.blocks);
    }

    /// There are blocks to be freed after the owner's lock.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// The blocks to be freed after the owner's lock.
    pub(crate) fn retired(&mut self) -> Vec<Box<Block>> {
        std::mem::take(&mut self.retired)
    }

    /// Moves all blocks of a list to the end of another.
    fn splice(&mut self, head: u32, to: u32) {
        let last = self.head(to).prev;
        self.splice_between(head, last, to);
    }

    /// Moves all blocks of a list to the beginning of another.
    fn splice_front(&mut self, head: u32, to: u32) {
        let first = self.head(to).next;
        self.splice_between(head, to, first);
    }

    fn splice_between(&mut self, head: u32, before: u32, after: u32) {
        let Head { next, prev, .. } = *self.head(head);
        self.link(head, head);
        self.on_list_empty(head);
        self.link(before, next);
        self.link(prev, after);
    }

    /// Makes two blocks or heads neighbours.
    #[inline]
    fn link(&mut self, a: u32, b: u32) {
        match a & HEAD {
            0 => self.block(a).next = b,
            _ => self.heads[(a - HEAD) as usize].next = b,
        }
        match b & HEAD {
            0 => self.block(b).prev = a,
            _ => self.heads[(b - HEAD) as usize].prev = a,
        }
    }

    /// Called when a list has lost its last block.
    #[inline]
    fn on_list_empty(&mut self, head: u32) {
        let at = (head - HEAD) as usize;
        if let Some(slots) = self.occupied.get_mut(at / SLOTS) {
            *slots &= !(1 << (at % SLOTS));
            self.heads[at].earliest = u64::MAX;
        }
    }
}

/// The block of a place, and the index in it.
#[inline]
fn unpack_place(place: u32) -> (u32, usize) {
    (place >> PLACE_BITS, (place & ((1 << PLACE_BITS) - 1)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Numbers(Vec<Placement>);

    impl Placements for Numbers {
        fn placement(&mut self, number: u32) -> &mut Placement {
            &mut self.0[number as usize]
        }
    }

    /// After a burst some of its blocks are kept and the others freed. Indices of freed blocks are used again, or cut off.
    #[test]
    fn blocks_are_kept_or_given_back() {
        const IN_BLOCK: u32 = BLOCK as u32;
        let mut numbers = Numbers(vec![Placement::default(); 1000 * BLOCK]);
        let mut wheel = Wheel::new(0);
        (0..1000 * IN_BLOCK).for_each(|number| wheel.insert(&mut numbers, number, 100));
        assert_eq!(wheel.blocks.len(), 1000);
        for number in (0..1000 * IN_BLOCK).filter(|number| ![256, 300].contains(&(number / IN_BLOCK))) {
            wheel.remove(&mut numbers, number);
        }
        assert_eq!((wheel.spare.len(), wheel.blocks.len(), wheel.retired().len()), (SPARE, 301, SPARE));
        (0..256 * IN_BLOCK).for_each(|number| wheel.insert(&mut numbers, number, 200));
        (257 * IN_BLOCK..300 * IN_BLOCK).for_each(|number| wheel.insert(&mut numbers, number, 200));
        assert_eq!((wheel.spare.len(), wheel.blocks.len(), wheel.retired().len()), (0, 301, 0));
    }
}
