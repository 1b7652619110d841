//! A hierarchical timing wheel: numbers in, numbers out, no clock and no thread.
//!
//! ```text
//!   deadline, in base 64 (a digit is 6 bits):   … d4 d3 d2 d1 d0
//!   elapsed:                                    … d4 d3 e2 e1 e0
//!                                                       │
//!          the highest digit that differs ──────────────┘   says the level, its value d2 says the slot
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
//! The wheel is Varghese and Lauck's (SOSP 1987, scheme 7), with the level chosen as the Linux and tokio timers do, by the
//! highest digit that differs. A tick is a nanosecond, so a slot of level 0 holds equal deadlines only; all that this precision
//! costs is more levels, and an entry rarely sees more than three of them, because a slot is opened only when something in it is
//! due, and what is not due then goes where it belongs *as seen from now*.
//!
//! A slot's entries are in a list of blocks. That a number's entry can be found and removed, its owner keeps a [`Ticket`] for us:
//! which block, and where in it. What holds, by number:
//!
//! * **T1** Every entry is in the slot that its deadline and `elapsed` choose, or in one of the lists beside the slots: `DUE`
//!   (come due, in order) and three for what was taken from one slot, to be put into finer ones.
//! * **T2** So all entries of a level come before those of higher levels, and all of a slot before those of later slots: the
//!   earliest is in the first slot that is not empty, and bit scans find that slot.
//! * **T3** `earliest` of a slot is not later than any deadline in it. (It is too early after its earliest entry was removed.)
//! * **T4** Lists are first in, first out, also when a slot is opened: equal deadlines come out in the order of their inserts.
//!   Therefore an entry that belongs to the slot that is being opened goes behind what is left of it, not past it.
//! * **T5** `elapsed` never goes back, and never enters a slot that has entries without opening it.
//! * **T6** Every block in a list has a live entry. So what was removed takes room only beside something that was not.
//! * **T7** What is in `KEPT` and `REST` is not due before `horizon`.
//!
//! A slot of many entries is opened in two passes, so that what is due waits for a look at each block, and not for a million
//! entries to be moved:
//!
//! ```text
//!   slot ──▶ SCAN ──▶ due within a moment: to finer slots
//!              └────▶ KEPT ──▶ REST ──▶ to finer slots, while nothing is due
//! ```
//!
//! A finer slot that is opened meanwhile goes the same way, and what is kept of it before what is in `REST` (T4).
//!
//! Work is bounded: [`pop`](Wheel::pop) takes a budget, and opening a slot of a million entries is a million small steps that
//! can be interrupted after each (a slot of a few is opened in one).

#![allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]

use super::numbers::{Numbers, fit}; // the tests that have the wheel alone have it beside the wheel

/// No wheel needs more: 11 digits of 6 bits are 66.
const LEVELS: usize = 11;
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;

/// A slot with up to so many entries is not split further: what is due is sorted, the rest put where it belongs.
const FEW: usize = if cfg!(loom) { 1 } else { 256 };

/// How much later than now counts as "due within a moment", in ticks: a tenth of a second.
const MOMENT: u64 = 100_000_000;

/// Entries in a block, which makes it 256 bytes.
const BLOCK: usize = 19;
/// A place is a block's index and, in these bits, where in the block.
const PLACE_BITS: u32 = 5;
/// How many blocks without entries are kept, 64 KiB of them: a steady set of delays comes and goes without an allocation.
const SPARE: usize = 256;

/// Indices from here on are heads of lists, not blocks.
const HEAD: u32 = 1 << 31;
/// Come due, in order, not popped yet.
const DUE: u32 = HEAD | (LEVELS * SLOTS) as u32;
/// Taken from a slot, and not looked at yet.
const SCAN: u32 = DUE + 1;
/// Looked at, while others are in `SCAN`: not due before the horizon.
const KEPT: u32 = DUE + 2;
/// Not due before the horizon, to be put into finer slots when there is time.
const REST: u32 = DUE + 3;

/// Instead of a number: removed. So at most 2^32 - 1 numbers.
const DEAD: u32 = u32::MAX;

/// What the wheel keeps with the owner of a number that is in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticket {
    /// When the number is due. Also in the block, which is read when a slot is opened; this one is read when only the
    /// number is at hand.
    pub(crate) deadline: u64,
    /// Where its entry is.
    place: u32,
    /// Its owner's, for a number that belongs to it. Not the wheel's: here because there is room.
    pub(crate) failures: u32,
}

/// Where the owner of the numbers keeps their tickets.
pub(crate) trait Tickets {
    /// The ticket of this number. What is the wheel's in it, only the wheel writes, and it means something while the number is in
    /// the wheel.
    fn ticket(&mut self, number: u32) -> &mut Ticket;
}

/// Entries of one list.
#[derive(Debug)]
#[repr(C)] // what a removal touches is close together
pub(crate) struct Block {
    /// Neighbours in a circular list: blocks, or its head.
    next: u32,
    prev: u32,
    /// Entries before this are dead.
    first: u8,
    /// Entries from here on were never used.
    end: u8,
    live: u8,
    /// No entry is due before this.
    earliest: u64,
    numbers: [u32; BLOCK],
    deadlines: [u64; BLOCK],
}

#[derive(Debug, Clone, Copy)]
struct Head {
    next: u32,
    prev: u32,
    /// T3. Not used by the lists beside the slots.
    earliest: u64,
}

/// What [`Wheel::pop`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This number is due; it is not in the wheel any more.
    Due(u32),
    /// The budget is used up: call again.
    More,
    /// Nothing is due, and a slot is being opened: [`sort`](Wheel::sort), and call again. Nothing will be due for a moment if
    /// time stands still.
    Sort,
    /// Nothing is due before this, and most probably something then.
    At(u64),
    /// The wheel is empty.
    Never,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Wheel {
    /// T5. No entry was due before this when it was put in its slot.
    elapsed: u64,
    /// Which slots have entries, a bit each.
    occupied: [u64; LEVELS],
    /// The last tick of the slot that is being opened.
    opening_end: u64,
    /// T7.
    horizon: u64,
    heads: [Head; LEVELS * SLOTS + 4],
    blocks: Vec<Option<Box<Block>>>,
    /// The indices of blocks.
    numbers: Numbers,
    /// Blocks without entries.
    spare: Vec<u32>,
    /// Blocks that nobody needs, for the owner to free after its lock. Further ones are freed at once.
    retired: Vec<Box<Block>>,
    /// For `open`.
    few: Vec<(u64, u32)>,
}

impl Wheel {
    /// An empty wheel. Time begins at `now`.
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
            few: Vec::with_capacity(FEW),
        }
    }

    /// Puts a number in that is not there. If its deadline is in the past it comes next, in the order of such inserts.
    #[inline]
    pub(crate) fn insert(&mut self, tickets: &mut impl Tickets, number: u32, deadline: u64) {
        let scanning = !self.is_empty(SCAN);
        let opening = scanning || !self.is_empty(KEPT) || !self.is_empty(REST);
        if opening && deadline <= self.opening_end && (scanning || deadline > self.horizon) {
            // T4
            let list = if deadline > self.horizon { REST } else { SCAN };
            self.push(tickets, list, number, deadline);
        } else {
            self.put(tickets, number, deadline);
        }
    }

    /// Takes a number out that is there.
    #[inline]
    pub(crate) fn remove(&mut self, tickets: &mut impl Tickets, number: u32) {
        let (block, at) = split(tickets.ticket(number).place);
        debug_assert_eq!(self.block(block).numbers[at], number);
        self.kill(block, at);
    }

    /// Takes the next number out that is due by `now`, or says when to come again. (An earlier `now` than before finds
    /// nothing new.) A unit of the budget is an entry that is taken out or put elsewhere.
    pub(crate) fn pop(&mut self, tickets: &mut impl Tickets, now: u64, budget: &mut usize) -> Next {
        loop {
            if *budget == 0 {
                return Next::More;
            }
            if let Some((number, _)) = self.pop_front(DUE) {
                *budget -= 1;
                return Next::Due(number);
            }
            if !self.is_empty(SCAN) {
                self.scan_block(tickets, budget);
                continue;
            }
            if !self.is_empty(KEPT) {
                self.splice_front(KEPT, REST);
            }
            let opening = !self.is_empty(REST);
            if opening && now > self.horizon {
                self.horizon = now.saturating_add(MOMENT);
                self.splice(REST, SCAN);
                continue;
            }
            let first = self.first();
            let earliest = first.map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
            if opening && earliest.is_none_or(|earliest| earliest > now) {
                return Next::Sort;
            }
            let (Some((level, slot)), Some(earliest)) = (first, earliest) else {
                self.elapsed = self.elapsed.max(now);
                return Next::Never;
            };
            let (start, end) = self.range(level, slot);
            if earliest > now {
                if start > now {
                    self.elapsed = self.elapsed.max(now); // T5: still before the first slot that has entries
                }
                return Next::At(earliest);
            }
            self.open(tickets, HEAD | (level * SLOTS + slot) as u32, start, end, now, budget);
        }
    }

    /// Puts some of what is left of a slot that is being opened in finer slots. It is for when nothing is due.
    pub(crate) fn sort(&mut self, tickets: &mut impl Tickets, budget: &mut usize) {
        while *budget > 0 {
            let Some((number, deadline)) = self.pop_front(REST) else { return };
            self.put(tickets, number, deadline);
            *budget -= 1;
        }
    }

    /// Takes any number out, of those with equal deadlines the first, and says its deadline; time does not move.
    pub(crate) fn pop_any(&mut self) -> Option<(u32, u64)> {
        let slot = self.first().map(|(level, slot)| HEAD | (level * SLOTS + slot) as u32);
        // What is in a slot by now came before what is still to be put there.
        let pop = |wheel: &mut Self, list| wheel.pop_front(list);
        pop(self, DUE)
            .or_else(|| pop(self, slot?))
            .or_else(|| pop(self, KEPT))
            .or_else(|| pop(self, SCAN))
            .or_else(|| pop(self, REST))
    }

    /// Nothing is due before this, and something then, as a rule (T3). `None`: the wheel is empty.
    pub(crate) fn earliest(&self) -> Option<u64> {
        let slot = self.first().map(|(level, slot)| self.heads[level * SLOTS + slot].earliest);
        // What is being opened is not looked through: its lists are in no order.
        let lists = [(DUE, 0), (SCAN, self.elapsed), (KEPT, self.horizon), (REST, self.horizon)];
        lists.into_iter().filter(|&(list, _)| !self.is_empty(list)).map(|(_, at)| at).chain(slot).min()
    }

    /// The slot of the earliest entries (T2).
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

    /// Opens the first slot, in which something may be due.
    fn open(&mut self, tickets: &mut impl Tickets, head: u32, start: u64, end: u64, now: u64, budget: &mut usize) {
        if start == end {
            // Level 0: all have the same deadline, and it has come.
            self.elapsed = start.max(self.elapsed);
            return self.splice(head, DUE);
        }
        let (mut live, mut block) = (0, self.head(head).next);
        while block & HEAD == 0 && live <= FEW {
            live += usize::from(self.block(block).live);
            block = self.block(block).next;
        }
        if live > FEW {
            // To finer slots with all of them, step by step.
            if self.is_empty(REST) {
                self.opening_end = end;
                self.horizon = now.saturating_add(MOMENT);
            }
            self.elapsed = start;
            return self.splice(head, SCAN);
        }
        let mut few = std::mem::take(&mut self.few);
        few.extend(std::iter::from_fn(|| self.pop_front(head)).map(|(number, deadline)| (deadline, number)));
        *budget = budget.saturating_sub(few.len());
        self.elapsed = now.min(end);
        few.sort_by_key(|&(deadline, _)| deadline); // stable (T4)
        for (deadline, number) in few.drain(..) {
            if deadline <= now {
                self.push(tickets, DUE, number, deadline);
            } else {
                self.put(tickets, number, deadline);
            }
        }
        self.few = few;
    }

    /// Takes a block out of `SCAN`: what is due within a moment goes to its slot, the rest is kept.
    fn scan_block(&mut self, tickets: &mut impl Tickets, budget: &mut usize) {
        let index = self.head(SCAN).next;
        let Block { first, end, mut live, earliest, .. } = *self.block(index);
        let mut at = usize::from(if earliest > self.horizon { end } else { first });
        // With its last entry the block is gone, and may be part of another list already.
        while at < usize::from(end) && live > 0 {
            let block = self.block(index);
            let (number, deadline) = (block.numbers[at], block.deadlines[at]);
            if number != DEAD && deadline <= self.horizon {
                *budget = budget.saturating_sub(1);
                live -= 1;
                self.kill(index, at);
                self.put(tickets, number, deadline);
            }
            at += 1;
        }
        *budget = budget.saturating_sub(1);
        if live > 0 {
            let next = self.block(index).next;
            self.join(SCAN, next);
            let last = self.head(KEPT).prev;
            self.join(last, index);
            self.join(index, KEPT);
        }
    }

    /// Puts an entry in its slot (T1).
    #[inline]
    fn put(&mut self, tickets: &mut impl Tickets, number: u32, deadline: u64) {
        let tick = deadline.max(self.elapsed);
        let level = ((tick ^ self.elapsed) | 1).ilog2() / DIGIT;
        let slot = (tick >> (level * DIGIT)) as usize % SLOTS;
        let at = level as usize * SLOTS + slot;
        self.occupied[level as usize] |= 1 << slot;
        self.heads[at].earliest = self.heads[at].earliest.min(deadline);
        self.push(tickets, HEAD | at as u32, number, deadline);
    }

    /// Puts an entry at the end of a list.
    #[inline]
    fn push(&mut self, tickets: &mut impl Tickets, head: u32, number: u32, deadline: u64) {
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
        let ticket = tickets.ticket(number);
        ticket.deadline = deadline;
        ticket.place = last << PLACE_BITS | u32::from(at);
    }

    /// Takes the first entry of a list out.
    #[inline]
    fn pop_front(&mut self, head: u32) -> Option<(u32, u64)> {
        let first = self.head(head).next;
        if first & HEAD != 0 {
            return None;
        }
        let block = self.block(first);
        let mut at = usize::from(block.first);
        while block.numbers[at] == DEAD {
            at += 1; // ends by T6
        }
        block.first = at as u8;
        let entry = (block.numbers[at], block.deadlines[at]);
        self.kill(first, at);
        Some(entry)
    }

    #[inline]
    fn kill(&mut self, index: u32, at: usize) {
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

    /// An empty block at the end of a list.
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
        self.join(last, index);
        self.join(index, head);
        index
    }

    /// Takes a block out of its list that has no live entry left (T6).
    #[cold]
    fn remove_block(&mut self, index: u32) {
        let block = self.block(index);
        (block.first, block.end, block.earliest) = (0, 0, u64::MAX);
        let (prev, next) = (block.prev, block.next);
        self.join(prev, next);
        if prev == next && next & HEAD != 0 {
            self.emptied(next);
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

    /// There are blocks that nobody needs.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Blocks that nobody needs, to be freed after the owner's lock.
    pub(crate) fn retired(&mut self) -> Vec<Box<Block>> {
        std::mem::take(&mut self.retired)
    }

    /// Moves all blocks of a slot to the end of another list.
    fn splice(&mut self, head: u32, to: u32) {
        let last = self.head(to).prev;
        self.splice_between(head, last, to);
    }

    /// Moves all blocks of a slot to the beginning of another list.
    fn splice_front(&mut self, head: u32, to: u32) {
        let first = self.head(to).next;
        self.splice_between(head, to, first);
    }

    fn splice_between(&mut self, head: u32, before: u32, after: u32) {
        let Head { next, prev, .. } = *self.head(head);
        self.join(head, head);
        self.emptied(head);
        self.join(before, next);
        self.join(prev, after);
    }

    /// Makes two neighbours of heads or blocks.
    #[inline]
    fn join(&mut self, a: u32, b: u32) {
        match a & HEAD {
            0 => self.block(a).next = b,
            _ => self.heads[(a - HEAD) as usize].next = b,
        }
        match b & HEAD {
            0 => self.block(b).prev = a,
            _ => self.heads[(b - HEAD) as usize].prev = a,
        }
    }

    /// Notes that a list has no blocks left.
    #[inline]
    fn emptied(&mut self, head: u32) {
        let at = (head - HEAD) as usize;
        if let Some(slots) = self.occupied.get_mut(at / SLOTS) {
            *slots &= !(1 << (at % SLOTS));
            self.heads[at].earliest = u64::MAX;
        }
    }
}

/// A place's block, and where in it.
#[inline]
fn split(place: u32) -> (u32, usize) {
    (place >> PLACE_BITS, (place & ((1 << PLACE_BITS) - 1)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Numbers(Vec<Ticket>);

    impl Tickets for Numbers {
        fn ticket(&mut self, number: u32) -> &mut Ticket {
            &mut self.0[number as usize]
        }
    }

    /// Of the blocks that a burst took some are kept, and the others freed; their indices are used again, or forgotten.
    #[test]
    fn blocks_are_kept_or_given_back() {
        const IN_BLOCK: u32 = BLOCK as u32;
        let mut numbers = Numbers(vec![Ticket::default(); 1000 * BLOCK]);
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
