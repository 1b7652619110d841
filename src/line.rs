//! The order in which queued keys are handed out.

use crate::sync::sized;
use std::collections::VecDeque;

/// First in, first out (P4), in blocks:
///
/// ```text
///   position   base        head                                      tail
///               ▼           ▼                                         ▼
///             ┌─────────────────────┐ ┌─────────────────────┐ ┌────────────────────┐
///             │ popped      ●  ●  ● │ │ ●  ●  removed  ●  ● │ │ ●  ●  ●  free      │
///             └─────────────────────┘ └─────────────────────┘ └────────────────────┘
/// ```
///
/// Each push has a position, higher than that of any push before it. An entry stays at its position until it is popped or removed, so
/// a position names one push, and a caller may come back to it in a later critical section.
///
/// A line of ten million keys grows by a block at a time: no push copies the line, as the doubling of one array would. A block that
/// is empty is kept for later pushes, or put aside for the caller to free after the lock.
pub(crate) struct Fifo<T> {
    /// `None`: all entries of this block were removed.
    blocks: VecDeque<Option<Box<Block<T>>>>,
    /// The position of the first entry of the first block.
    base: u64,
    /// The position of the next pop, and of the next push.
    head: u64,
    tail: u64,
    /// Entries that were pushed, and neither popped nor removed.
    len: usize,
    /// Entries between head and tail that were removed. The entry at the head is not one of them.
    holes: u64,
    /// Blocks without entries, at most `keep`.
    spare: Vec<Box<Block<T>>>,
    keep: usize,
    retired: Vec<Box<Block<T>>>,
}

/// Entries in a block: 2 KiB of pointers.
const BLOCK: u64 = sized(256, 2) as u64;

/// How many blocks without entries are kept, whatever was asked for.
const KEEP: usize = sized(8, 1);

/// A part of the line. All entries are `None` before they are pushed and after they are popped or removed.
pub(crate) struct Block<T> {
    entries: [Option<T>; BLOCK as usize],
    /// How many of them were removed. All: the block is not needed any more.
    removed: u64,
}

impl<T: Copy> Fifo<T> {
    /// A line that has room for `capacity` entries.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let blocks = if capacity == 0 { 0 } else { capacity.div_ceil(BLOCK as usize) + 1 };
        let spare = (0..blocks).map(|_| Block::new()).collect();
        Self {
            blocks: VecDeque::with_capacity(blocks),
            base: 0,
            head: 0,
            tail: 0,
            len: 0,
            holes: 0,
            spare,
            keep: KEEP.max(blocks),
            retired: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        if self.tail % BLOCK == 0 && self.tail - self.base == self.blocks.len() as u64 * BLOCK {
            self.add_block();
        }
        if let Some(Some(block)) = self.blocks.back_mut() {
            block.entries[(self.tail % BLOCK) as usize] = Some(item);
        }
        self.tail += 1;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.blocks.front_mut()?.as_mut()?.entries[(self.head % BLOCK) as usize].take()?;
        self.len -= 1;
        self.head += 1;
        if self.len == 0 {
            self.rewind();
        } else {
            if self.head % BLOCK == 0 {
                self.drop_first();
            }
            if self.holes > 0 {
                self.skip_holes();
            }
        }
        Some(item)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What will be popped after `ahead` others, unless some of them were removed.
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> Option<T> {
        self.get(self.head + ahead as u64)
    }

    /// The position of the next pop, and of the next push.
    pub(crate) fn positions(&self) -> std::ops::Range<u64> {
        self.head..self.tail
    }

    /// The entry at a position. `None`: it was popped or removed, or is not pushed yet.
    #[inline]
    pub(crate) fn get(&self, position: u64) -> Option<T> {
        let block = self.blocks.get((position.checked_sub(self.base)? / BLOCK) as usize)?;
        block.as_ref()?.entries[(position % BLOCK) as usize]
    }

    /// Removes the entry at a position, if it is there.
    pub(crate) fn remove(&mut self, position: u64) -> Option<T> {
        let block = self.blocks.get_mut((position.checked_sub(self.base)? / BLOCK) as usize)?;
        let inside = block.as_mut()?;
        let item = inside.entries[(position % BLOCK) as usize].take()?;
        self.len -= 1;
        self.holes += 1;
        inside.removed += 1;
        if inside.removed == BLOCK {
            let empty = block.take();
            self.recycle(empty);
        }
        if self.len == 0 {
            self.rewind();
        } else if position == self.head {
            self.skip_holes();
        }
        Some(item)
    }

    /// Moves the head to the next entry, past those that were removed.
    #[cold]
    fn skip_holes(&mut self) {
        while let Some(first) = self.blocks.front() {
            let Some(block) = first else {
                self.holes -= self.base + BLOCK - self.head;
                self.drop_first();
                self.head = self.base;
                continue;
            };
            if block.entries[(self.head % BLOCK) as usize].is_some() {
                return;
            }
            self.holes -= 1;
            self.head += 1;
            if self.head % BLOCK == 0 {
                self.drop_first();
            }
        }
    }

    /// Gives back all memory that is not needed now.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 {
            let blocks = self.blocks.drain(..).flatten();
            self.retired.extend(blocks);
        }
        self.keep = KEEP;
        self.retired.append(&mut self.spare);
        self.spare = Vec::new();
        self.blocks.shrink_to_fit();
    }

    /// Blocks that nobody needs, to be freed after the lock.
    #[inline]
    pub(crate) fn retired(&mut self) -> &mut Vec<Box<Block<T>>> {
        &mut self.retired
    }

    /// The line is empty: the next push goes to the beginning of a block that is in the cache.
    #[inline]
    fn rewind(&mut self) {
        while self.blocks.len() > 1 {
            self.drop_first();
        }
        if let Some(Some(block)) = self.blocks.front_mut() {
            block.removed = 0;
            self.base += BLOCK;
        }
        (self.head, self.tail, self.holes) = (self.base, self.base, 0);
    }

    #[cold]
    fn add_block(&mut self) {
        let block = self.spare.pop().unwrap_or_else(Block::new);
        self.blocks.push_back(Some(block));
    }

    /// All entries of the first block were popped or removed.
    #[cold]
    fn drop_first(&mut self) {
        self.base += BLOCK;
        let block = self.blocks.pop_front().flatten();
        self.recycle(block);
        if self.blocks.capacity() > 64 && self.blocks.len() < self.blocks.capacity() / 8 {
            self.blocks.shrink_to(self.blocks.capacity() / 4);
        }
    }

    /// Keeps an empty block for later, or puts it aside.
    fn recycle(&mut self, block: Option<Box<Block<T>>>) {
        let Some(mut block) = block else { return };
        block.removed = 0;
        let list = if self.spare.len() < self.keep { &mut self.spare } else { &mut self.retired };
        list.push(block);
    }
}

impl<T: Copy> Block<T> {
    fn new() -> Box<Self> {
        Box::new(Self { entries: [None; BLOCK as usize], removed: 0 })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Pushes, pops and removals at random, beside a plain list of positions and entries.
    #[test]
    fn it_does_what_a_plain_list_does() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut line, mut plain) = (Fifo::with_capacity(0), VecDeque::<(u64, u32)>::new());
        for n in 0..400_000_u32 {
            // Phases: the line gets long, is removed from the middle, and is worked off.
            let (push, remove) = [(8, 1), (5, 4), (1, 8), (2, 0), (5, 5)][n as usize / 10_000 % 5];
            match random.u32(0..10) {
                choice if choice < push => {
                    let position = line.positions().end;
                    line.push(n);
                    assert!(plain.back().is_none_or(|&(last, _)| last < position), "positions ascend");
                    plain.push_back((position, n));
                }
                choice if choice < push + remove => {
                    let at = random.usize(..=plain.len());
                    let Some(&(position, item)) = plain.get(at) else { continue };
                    assert_eq!(line.get(position), Some(item));
                    assert_eq!(line.remove(position), Some(item));
                    assert_eq!((line.get(position), line.remove(position)), (None, None), "once");
                    plain.remove(at);
                }
                _ => {
                    let first = plain.pop_front();
                    assert_eq!(line.pop(), first.map(|(_, item)| item));
                    assert_eq!(first.and_then(|(position, _)| line.get(position)), None, "popped");
                }
            }
            assert_eq!(line.len(), plain.len());
            assert_eq!(line.peek(0), plain.front().map(|&(_, item)| item), "the first is at the head");
            // T6 of the wheel, here too: a block takes room only beside an entry that is there.
            let blocks = line.blocks.iter().flatten().count();
            assert!(blocks <= plain.len() + 2, "{blocks} blocks for {} entries", plain.len());
        }
        assert!(line.retired.len() > 10);
    }

    #[test]
    fn storage_follows_the_length() {
        const BLOCKS: usize = 1000;
        let mut line = Fifo::with_capacity(0);
        (0..BLOCKS * BLOCK as usize).for_each(|n| line.push(n));
        while line.pop().is_some() {}
        assert_eq!((line.spare.len(), line.retired.len(), line.blocks.len()), (KEEP, BLOCKS - KEEP - 1, 1));
        assert!(line.blocks.capacity() <= 64);
        line.push(1);
        line.shrink();
        assert_eq!((line.spare.len(), line.blocks.len(), line.pop()), (0, 1, Some(1)));
        line.shrink();
        assert_eq!((line.spare.len(), line.blocks.len()), (0, 0));
    }

    #[test]
    fn room_that_was_asked_for_stays() {
        let mut line = Fifo::with_capacity(10_000);
        let room = line.spare.len();
        (0..20_000).for_each(|n| line.push(n));
        while line.pop().is_some() {}
        assert_eq!(line.spare.len(), room);
        assert!(room * BLOCK as usize >= 10_000);
        line.shrink();
        (0..20_000).for_each(|n| line.push(n));
        while line.pop().is_some() {}
        assert_eq!(line.spare.len(), KEEP);
    }
}
