//! The lists of entries: circular lists of blocks, through a head.

use super::{HEAD, Placements, SLOTS, Wheel, fit};

/// Entries in a block, which makes it 256 bytes.
const BLOCK: usize = 19;
/// A place is the index of a block and, in these low bits, an index in the block.
const PLACE_BITS: u32 = 5;
/// The number of blocks without entries that are kept, 64 KiB: a steady set of delays comes and goes without an allocation.
const SPARE: usize = 256;

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

/// Stored in place of a number: the entry was removed. So there are at most 2^32 - 1 numbers.
pub(super) const DEAD: u32 = u32::MAX;

/// Entries of one list.
#[derive(Debug)]
#[repr(C)] // the fields that a removal touches are close together
pub(crate) struct Block {
    /// The neighbours in a circular list: blocks, or the head.
    pub(super) next: u32,
    pub(super) prev: u32,
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

/// The head of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) next: u32,
    pub(super) prev: u32,
    /// No entry expires before this (T3). Not used for the lists beside the slots.
    pub(super) earliest: u64,
}

impl Wheel {
    /// Adds an entry at the end of a list.
    #[inline]
    pub(super) fn push(&mut self, placements: &mut impl Placements, head: u32, number: u32, deadline: u64) {
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
        let placement = placements.placement(number);
        placement.deadline = deadline.to_ne_bytes();
        placement.place = last << PLACE_BITS | u32::from(at);
    }

    /// Removes the first entry of a list.
    #[inline]
    pub(super) fn pop_front(&mut self, head: u32) -> Option<(u32, u64)> {
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
    pub(super) fn remove_entry(&mut self, index: u32, at: usize) {
        let block = self.block(index);
        block.numbers[at] = DEAD;
        block.live -= 1;
        if block.live == 0 {
            self.remove_block(index);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self, head: u32) -> bool {
        self.head(head).next == head
    }

    #[inline]
    pub(super) fn head(&self, head: u32) -> &Head {
        &self.heads[(head - HEAD) as usize]
    }

    #[inline]
    pub(super) fn block(&mut self, index: u32) -> &mut Block {
        self.blocks[index as usize].as_mut().expect("a block that is in a list")
    }

    /// Makes sure that the next insert finds a block. `false`: the wheel is full.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        self.blocks.len() < max_blocks() as usize || !self.spare.is_empty() || self.reserve_last()
    }

    #[cold]
    fn reserve_last(&mut self) -> bool {
        let block = self.make_block();
        self.spare.extend(block);
        block.is_some()
    }

    /// Adds an empty block at the end of a list.
    #[cold]
    fn add_block(&mut self, head: u32) -> u32 {
        let index = self.spare.pop().or_else(|| self.make_block()).expect("the wheel is not full");
        let last = self.head(head).prev;
        self.link(last, index);
        self.link(index, head);
        index
    }

    /// A new block. `None`: the wheel is full.
    fn make_block(&mut self) -> Option<u32> {
        let index = self.numbers.lend();
        if index >= max_blocks() {
            self.numbers.give_back(index);
            return None;
        }
        if self.blocks.len() == index as usize {
            self.blocks.push(None);
        }
        let (deadlines, numbers) = ([0; BLOCK], [DEAD; BLOCK]);
        let block = Block { deadlines, numbers, next: 0, prev: 0, first: 0, end: 0, live: 0, earliest: u64::MAX };
        self.blocks[index as usize] = Some(Box::new(block));
        Some(index)
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
            self.sink(self.spare.len() - 1);
            return;
        }
        self.sink(index as usize % SPARE);
        if self.retired.len() < SPARE {
            self.retired.extend(self.blocks[index as usize].take());
        }
        self.blocks[index as usize] = None;
        self.give_back(index);
    }

    /// In a large array, moves a spare block to the lowest free index. So the array becomes short after a burst, in whatever order its entries
    /// are removed.
    fn sink(&mut self, at: usize) {
        if self.blocks.len() <= 4 * SPARE {
            return;
        }
        let (index, free) = (self.spare[at], self.numbers.lend());
        if free > index {
            self.numbers.give_back(free);
            return;
        }
        self.blocks[free as usize] = self.blocks[index as usize].take();
        self.spare[at] = free;
        self.give_back(index);
    }

    fn give_back(&mut self, index: u32) {
        self.numbers.give_back(index);
        self.blocks.truncate(self.numbers.end());
        fit(&mut self.blocks);
    }

    /// Whether there are blocks to be freed after the owner has unlocked.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// The blocks to be freed after the owner has unlocked.
    pub(crate) fn retired(&mut self) -> Vec<Box<Block>> {
        std::mem::take(&mut self.retired)
    }

    /// Moves all blocks of a list to the end of another.
    pub(super) fn splice(&mut self, head: u32, to: u32) {
        let last = self.head(to).prev;
        self.splice_between(head, last, to);
    }

    /// Moves all blocks of a list to the beginning of another.
    pub(super) fn splice_front(&mut self, head: u32, to: u32) {
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
    pub(super) fn link(&mut self, a: u32, b: u32) {
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
pub(super) fn unpack_place(place: u32) -> (u32, usize) {
    (place >> PLACE_BITS, (place & ((1 << PLACE_BITS) - 1)) as usize)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Placement;
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

        // The last first, so that no place of a freed block is cut off.
        let mut wheel = Wheel::new(0);
        (0..1000 * IN_BLOCK).for_each(|number| wheel.insert(&mut numbers, number, 100));
        (IN_BLOCK..1000 * IN_BLOCK).rev().for_each(|number| wheel.remove(&mut numbers, number));
        assert_eq!((wheel.retired().len(), wheel.blocks.iter().flatten().count()), (SPARE, SPARE + 1));
    }

    /// A wheel of as many blocks as there may be takes more delays as long as one of its blocks is empty, or can be made again.
    #[test]
    fn a_full_wheel_uses_the_blocks_that_are_free() {
        const IN_BLOCK: u32 = BLOCK as u32;
        let most = MAX_BLOCKS.replace(300);
        let mut numbers = Numbers(vec![Placement::default(); 300 * BLOCK]);
        let mut wheel = Wheel::new(0);
        (0..300 * IN_BLOCK).for_each(|number| wheel.insert(&mut numbers, number, 100));
        assert!(!wheel.reserve() && !wheel.reserve());
        assert_eq!(wheel.numbers.end(), 300);
        (0..299 * IN_BLOCK).for_each(|number| wheel.remove(&mut numbers, number));
        assert_eq!((wheel.spare.len(), wheel.blocks.len()), (SPARE, 300));
        for number in 0..299 * IN_BLOCK {
            assert!(number % IN_BLOCK != 0 || wheel.reserve(), "{number}");
            wheel.insert(&mut numbers, number, 200);
        }
        assert!(!wheel.reserve());
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

    /// Else a spare block with a high index would keep an array for all blocks of the burst.
    #[test]
    fn the_blocks_that_are_kept_have_low_indices() {
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
            for block in (0..BLOCKS).map(nth) {
                (0..BLOCK as u32).for_each(|at| wheel.remove(&mut numbers, block * BLOCK as u32 + at));
                drop(wheel.retired());
            }
            println!("{order}: {} places for {} blocks", wheel.blocks.len(), wheel.spare.len());
            assert_eq!(wheel.spare.len(), SPARE);
            assert!(wheel.blocks.len() <= 4 * SPARE, "{order}: {} places", wheel.blocks.len());
            assert!(wheel.blocks.capacity() <= 4 * wheel.blocks.len() + 64, "{order}: {}", wheel.blocks.capacity());
        }
    }
}
