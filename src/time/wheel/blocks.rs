//! The lists of entries: circular lists of blocks, through a head.

use super::super::slab::{Links, Page};
use super::{HEAD, Placements, SLOTS, Wheel};

/// The number of entries in a block, which make it 256 bytes together with its links.
const BLOCK: usize = 19;
/// A place is the index of a block and, in this many low bits, an index in the block.
const PLACE_BITS: u32 = 5;

/// The most blocks of a wheel.
#[inline]
fn max_blocks() -> u32 {
    #[cfg(test)]
    return MAX_BLOCKS.get();
    #[cfg(not(test))]
    return HEAD >> PLACE_BITS;
}

#[cfg(test)]
std::thread_local!(pub(crate) static MAX_BLOCKS: std::cell::Cell<u32> = const { std::cell::Cell::new(HEAD >> PLACE_BITS) });

/// Stored in place of the number of an entry that was removed, so there are at most 2^32 - 1 numbers.
pub(super) const DEAD: u32 = u32::MAX;

/// Pages without entries.
pub(crate) type Pages = Vec<Box<Page<EntryBlock, 1>>>;

/// Some entries of one list. The links lead to the neighbours in a circular list, which are blocks or its head.
#[derive(Debug)]
#[repr(C)] // the fields that a removal touches are close together
pub(crate) struct EntryBlock {
    /// Entries before this are dead.
    pub(super) first: u8,
    /// Entries from here on were never used.
    pub(super) end: u8,
    pub(super) live: u8,
    /// No entry expires before this.
    pub(super) earliest: u64,
    pub(super) numbers: [u32; BLOCK],
    pub(super) deadlines: [u64; BLOCK],
}

impl Default for EntryBlock {
    fn default() -> Self {
        let (deadlines, numbers) = ([0; BLOCK], [DEAD; BLOCK]);
        Self { deadlines, numbers, first: 0, end: 0, live: 0, earliest: u64::MAX }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) links: Links,
    /// No entry expires before this (T3). Not used for the lists beside the slots.
    pub(super) earliest: u64,
}

impl Wheel {
    #[inline]
    pub(super) fn push(&mut self, placements: &mut impl Placements, head: u32, number: u32, deadline: u64) {
        let mut last = self.head(head).links.0;
        if last & HEAD != 0 || usize::from(self.blocks[last].end) == BLOCK {
            last = self.add_block(last, head);
        }
        let block = &mut self.blocks[last];
        let at = block.end;
        block.earliest = block.earliest.min(deadline);
        block.deadlines[usize::from(at)] = deadline;
        block.numbers[usize::from(at)] = number;
        block.end += 1;
        block.live += 1;
        let placement = placements.placement(number);
        placement.deadline = deadline.to_ne_bytes();
        placement.place = last << PLACE_BITS | u32::from(at);
    }

    #[inline]
    pub(super) fn pop_front(&mut self, head: u32) -> Option<(u32, u64)> {
        let first = self.head(head).links.1;
        if first & HEAD != 0 {
            return None;
        }
        let block = &mut self.blocks[first];
        let mut at = usize::from(block.first);
        while block.numbers[at] == DEAD {
            at += 1; // ends, because the block has a live entry (T6)
        }
        block.first = at as u8;
        let entry = (block.numbers[at], block.deadlines[at]);
        self.remove_entry(first, at);
        Some(entry)
    }

    /// Removes an entry, and also its block if that has no other live entry (T6).
    #[inline]
    pub(super) fn remove_entry(&mut self, index: u32, at: usize) {
        let block = &mut self.blocks[index];
        block.numbers[at] = DEAD;
        block.live -= 1;
        if block.live == 0 {
            self.remove_block(index);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self, head: u32) -> bool {
        self.head(head).links.1 == head
    }

    #[inline]
    fn head(&self, head: u32) -> &Head {
        &self.heads[(head - HEAD) as usize]
    }

    #[inline]
    pub(super) fn links(&mut self, at: u32) -> &mut Links {
        if at & HEAD == 0 { &mut self.blocks.get_mut(at).0 } else { &mut self.heads[(at - HEAD) as usize].links }
    }

    /// Whether the next insert finds a block. Otherwise the wheel is full.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.blocks.has_below(max_blocks())
    }

    #[cold]
    fn add_block(&mut self, last: u32, head: u32) -> u32 {
        debug_assert!(self.has_room());
        let index = self.blocks.lend();
        self.link(last, index);
        self.link(index, head);
        index
    }

    /// Takes a block that has no live entry out of its list (T6).
    #[cold]
    fn remove_block(&mut self, index: u32) {
        let ((prev, next), block) = self.blocks.get_mut(index);
        (block.first, block.end, block.earliest) = (0, 0, u64::MAX);
        let (prev, next) = (*prev, *next);
        self.link(prev, next);
        if prev == next && next & HEAD != 0 {
            self.on_list_empty(next);
        }
        self.blocks.give_back(index);
    }

    /// Whether there are pages to be freed after the owner has unlocked.
    pub(crate) fn has_surplus(&self) -> bool {
        self.blocks.has_surplus()
    }

    /// The pages to be freed after the owner has unlocked.
    pub(crate) fn surplus(&mut self) -> Option<Pages> {
        self.blocks.surplus()
    }

    /// Moves all blocks of a list behind a block or a head.
    pub(super) fn splice(&mut self, head: u32, before: u32) {
        let (last, first) = *self.links(head);
        self.link(head, head);
        self.on_list_empty(head);
        let after = self.links(before).1;
        self.link(before, first);
        self.link(last, after);
    }

    /// Moves them to the end of another list.
    pub(super) fn splice_at_end(&mut self, head: u32, to: u32) {
        let last = self.links(to).0;
        self.splice(head, last);
    }

    #[inline]
    pub(super) fn link(&mut self, a: u32, b: u32) {
        self.links(a).1 = b;
        self.links(b).0 = a;
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
pub(super) fn unpack_place(place: u32) -> (u32, usize) {
    (place >> PLACE_BITS, (place & ((1 << PLACE_BITS) - 1)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Placement;
    use super::*;
    use std::ops::Range;

    struct Numbers(Vec<Placement>);

    impl Placements for Numbers {
        fn placement(&mut self, number: u32) -> &mut Placement {
            &mut self.0[number as usize]
        }
    }

    /// A wheel that has as many blocks as there may be takes more delays as long as one of them is empty, or can be made again.
    #[test]
    fn a_full_wheel_uses_the_blocks_that_are_free() {
        const IN_BLOCK: u32 = BLOCK as u32;
        let most = MAX_BLOCKS.replace(300);
        let mut numbers = Numbers(vec![Placement::default(); 300 * BLOCK]);
        let mut wheel = Wheel::new(0);
        let insert = |wheel: &mut Wheel, numbers: &mut Numbers, range: Range<u32>| {
            for number in range {
                assert!(number % IN_BLOCK != 0 || wheel.has_room(), "{number}");
                wheel.insert(numbers, number, 100);
            }
            assert!(!wheel.has_room());
        };
        insert(&mut wheel, &mut numbers, 0..300 * IN_BLOCK);
        for removed in [0..299 * IN_BLOCK, 40 * IN_BLOCK..41 * IN_BLOCK, 0..IN_BLOCK, 16 * IN_BLOCK..50 * IN_BLOCK] {
            removed.clone().for_each(|number| wheel.remove(&mut numbers, number));
            insert(&mut wheel, &mut numbers, removed);
        }
        MAX_BLOCKS.set(most);
    }

    #[test]
    fn the_buffer_of_a_slot_is_used_again() {
        let (mut numbers, mut wheel) = (Numbers(vec![Placement::default(); 1]), Wheel::new(0));
        let buffer = wheel.sort_buffer.as_ptr();
        wheel.insert(&mut numbers, 0, 100);
        assert_eq!(wheel.pop(&mut numbers, 100, &mut 9), super::super::Popped::Expired(0));
        assert_eq!(wheel.sort_buffer.as_ptr(), buffer);
    }

    /// After a burst some blocks are kept and the others freed, in whatever order the entries are removed.
    #[test]
    fn what_a_burst_took_is_given_back() {
        const BLOCKS: u32 = if cfg!(miri) { 1200 } else { 50_000 };
        type Order = fn(u32) -> u32;
        let orders: [(&str, Order); 3] = [
            ("as they came", |at| at),
            ("the last first", |at| BLOCKS - 1 - at),
            ("scattered", |at| (u64::from(at) * 7919 % u64::from(BLOCKS)) as u32),
        ];
        for (order, nth) in orders {
            let mut numbers = Numbers(vec![Placement::default(); BLOCKS as usize * BLOCK]);
            let mut wheel = Wheel::new(0);
            (0..BLOCKS * BLOCK as u32).for_each(|number| wheel.insert(&mut numbers, number, 100));
            let mut freed = 0;
            for block in (0..BLOCKS).map(nth) {
                (0..BLOCK as u32).for_each(|at| wheel.remove(&mut numbers, block * BLOCK as u32 + at));
                freed += wheel.surplus().map_or(0, |pages| pages.len());
                assert!(!wheel.has_surplus());
            }
            // Beside those that are kept, one was given back last.
            assert_eq!((freed, wheel.blocks.len(), wheel.blocks.pages()), (BLOCKS as usize - 257, 0, 257), "{order}");
            assert!(wheel.blocks.bytes() < 257 * 300 + BLOCKS as usize / 4, "{order}: {}", wheel.blocks.bytes());
        }
    }
}
