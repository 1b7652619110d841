//! First in, first out.

use super::Line;
use crate::sync::model_const;
use std::collections::VecDeque;

/// Entries in the order of their pushes (P4), in blocks:
///
/// ```text
///   position   base        head                                      tail
///               ▼           ▼                                         ▼
///             ┌─────────────────────┐ ┌─────────────────────┐ ┌────────────────────┐
///             │ popped      ●  ●  ● │ │ ●  ●  removed  ●  ● │ │ ●  ●  ●  free      │
///             └─────────────────────┘ └─────────────────────┘ └────────────────────┘
///               front                   middle, of any number   back, unless it is the front, too
/// ```
///
/// Each push has a position, higher than that of any push before it. An entry stays at its position until it is popped or removed, so
/// a position identifies one push, and a caller can come back to it in a later critical section.
///
/// The line grows by a block at a time, so no push copies the line, as the growth of one array would: ten million keys may be queued. An
/// empty block is kept for later pushes, or put aside for the caller to free after the lock.
pub(crate) struct Fifo<T> {
    front: Box<Block<T>>,
    /// Full blocks. `None`: all entries of the block were removed.
    middle: VecDeque<Option<Box<Block<T>>>>,
    /// `None`: pushes go to the front.
    back: Option<Box<Block<T>>>,
    /// The position of the first entry of the front block.
    base: u64,
    /// The index from which the next pop looks for an entry in the front block, or the length of the block.
    head: usize,
    /// The index of the next push in the last block, which always has room.
    tail: usize,
    /// The number of entries that were pushed, and neither popped nor removed.
    len: usize,
    /// The number of removed entries after the head.
    holes: usize,
    /// Blocks without entries, at most `keep`.
    spare: Vec<Box<Block<T>>>,
    keep: usize,
    retired: Vec<Box<Block<T>>>,
    /// The index at which the tail needs attention: the end of a group, or of the block.
    stop: usize,
    /// Reads a counter that grows with time: in a queue with several shards, the groups are stamped with it.
    stamp: Option<fn() -> u64>,
}

/// Entries in a block: 2 KiB of pointers.
const BLOCK: usize = model_const(256, 2);

/// Entries that have one stamp.
const GROUP: usize = model_const(64, 1);

/// The number of empty blocks that are kept. It does not depend on the capacity that the user has asked for.
const KEEP: usize = model_const(8, 1);

/// A part of the line. All entries are `None` before they are pushed and after they are popped or removed.
pub(crate) struct Block<T> {
    entries: [Option<T>; BLOCK],
    /// The number of removed entries. If all are removed, the block is not needed any more.
    removed: usize,
    /// For each group of entries, a time before the push of its first.
    stamps: [u64; BLOCK / GROUP],
}

impl<T> Fifo<T> {
    /// A line that has room for `capacity` entries.
    pub(crate) fn new(capacity: usize, stamp: Option<fn() -> u64>) -> Self {
        let blocks = capacity.div_ceil(BLOCK);
        let mut line = Self {
            front: Block::new(),
            middle: VecDeque::with_capacity(blocks),
            back: None,
            base: 0,
            head: 0,
            tail: 0,
            len: 0,
            holes: 0,
            spare: (0..blocks).map(|_| Block::new()).collect(),
            keep: KEEP.max(blocks),
            retired: Vec::new(),
            stop: BLOCK,
            stamp,
        };
        line.begin_group();
        line
    }

    /// What reads the stamps.
    pub(crate) fn stamp(&self) -> Option<fn() -> u64> {
        self.stamp
    }

    /// A time before the push of the next entry, and after the pushes of all but a group of those before it. `None`: no stamps.
    #[inline]
    pub(crate) fn front_stamp(&self) -> Option<u64> {
        self.stamp.is_some().then(|| self.front.stamps[self.head % BLOCK / GROUP])
    }

    /// A time before the push of the entry at this position, if it is there. 0: no stamps.
    pub(crate) fn stamp_of(&self, position: u64) -> u64 {
        let Some((block, at)) = self.place(position) else { return 0 };
        self.block(block).map_or(0, |block| block.stamps[at / GROUP])
    }

    /// A block, counted from the front.
    fn block(&self, number: usize) -> Option<&Block<T>> {
        match number {
            0 => Some(&self.front),
            n if n <= self.middle.len() => self.middle[n - 1].as_deref(),
            n if n == self.middle.len() + 1 => self.back.as_deref(),
            _ => None,
        }
    }

    /// The tail is at the start of a group: stamps it.
    fn begin_group(&mut self) {
        let Some(stamp) = self.stamp else { return };
        self.back.as_mut().unwrap_or(&mut self.front).stamps[self.tail / GROUP] = stamp();
        self.stop = self.tail + GROUP;
    }

    /// The tail is at the end of a group, or of the last block.
    #[cold]
    fn end_group(&mut self) {
        if self.tail == BLOCK {
            self.add_block();
        }
        self.begin_group();
    }

    /// The block of a position, counted from the front, and the index there.
    fn place(&self, position: u64) -> Option<(usize, usize)> {
        let offset = usize::try_from(position.checked_sub(self.base)?).ok()?;
        Some((offset / BLOCK, offset % BLOCK))
    }

    /// The last block is full: adds another.
    fn add_block(&mut self) {
        let block = self.spare.pop().unwrap_or_else(Block::new);
        self.tail = 0;
        if let Some(full) = self.back.replace(block) {
            if full.removed == BLOCK {
                self.recycle(full);
                self.middle.push_back(None);
            } else {
                self.middle.push_back(Some(full));
            }
        }
    }

    /// The line is empty: the next push goes to the start of the front block, which is in the cache. With stamps, only if the line has
    /// used up a block: each stamp stands for a whole group, so a line that is often empty reads the counter once a group.
    #[inline]
    fn rewind(&mut self) {
        if self.holes > 0 || self.back.is_some() || self.stamp.is_some() {
            return self.rewind_rarely();
        }
        self.base += BLOCK as u64;
        (self.head, self.tail) = (0, 0);
    }

    #[cold]
    fn rewind_rarely(&mut self) {
        if self.holes == 0 && self.back.is_none() {
            return; // `stamp.is_some()`
        }
        self.drop_blocks();
        self.base += BLOCK as u64;
        (self.head, self.tail) = (0, 0);
        self.begin_group();
    }

    /// The line is empty: drops all blocks but the front.
    fn drop_blocks(&mut self) {
        while self.back.is_some() {
            self.drop_front();
        }
        (self.holes, self.front.removed) = (0, 0);
    }

    /// Moves the head to the next entry that was not removed. The line is not empty.
    #[inline]
    fn skip(&mut self) {
        loop {
            if self.head == BLOCK {
                self.drop_front();
            } else if self.front.entries[self.head].is_none() {
                self.head += 1;
                self.holes -= 1;
            } else {
                return;
            }
        }
    }

    /// Moves the front to the next block that has entries.
    #[cold]
    fn drop_front(&mut self) {
        self.base += BLOCK as u64;
        self.head = 0;
        while let Some(None) = self.middle.front() {
            self.middle.pop_front();
            self.base += BLOCK as u64;
            self.holes -= BLOCK;
        }
        let next = self.middle.pop_front().flatten().or_else(|| self.back.take());
        if let Some(next) = next {
            let empty = std::mem::replace(&mut self.front, next);
            self.recycle(empty);
        }
        if self.middle.capacity() > 64 && self.middle.len() < self.middle.capacity() / 8 {
            self.middle.shrink_to(self.middle.capacity() / 4);
        }
    }

    /// Keeps an empty block for later pushes, or puts it aside.
    fn recycle(&mut self, mut block: Box<Block<T>>) {
        block.removed = 0;
        let list = if self.spare.len() < self.keep { &mut self.spare } else { &mut self.retired };
        list.push(block);
    }
}

impl<T> Line<T> for Fifo<T> {
    type Rank = ();
    type Garbage = Vec<Box<Block<T>>>;

    #[inline]
    fn push(&mut self, entry: T, (): ()) -> u64 {
        let position = self.positions().end;
        let last = self.back.as_mut().unwrap_or(&mut self.front);
        last.entries[self.tail % BLOCK] = Some(entry);
        self.tail += 1;
        self.len += 1;
        if self.tail == self.stop {
            self.end_group();
        }
        position
    }

    #[inline]
    fn pop_simple(&mut self) -> Option<T> {
        if self.head + 1 >= BLOCK {
            return None;
        }
        let entry = self.front.entries[self.head % BLOCK].take()?;
        self.head += 1;
        self.len -= 1;
        if self.len == 0 {
            self.rewind();
        }
        Some(entry)
    }

    // `inline(always)`: a step of the order calls it as well, and a `get` that calls it takes 9 instructions more.
    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        self.skip();
        let entry = self.front.entries[self.head % BLOCK].take();
        self.head += 1;
        self.len -= 1;
        if self.len == 0 {
            self.rewind();
        } else if self.head == BLOCK {
            self.drop_front();
        }
        entry
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    /// Looks at the front block only.
    #[inline]
    fn peek(&self, ahead: usize) -> Option<&T> {
        self.front.entries.get(self.head + ahead)?.as_ref()
    }

    #[inline]
    fn positions(&self) -> std::ops::Range<u64> {
        let blocks = if self.back.is_some() { self.middle.len() + 1 } else { 0 };
        self.base + self.head as u64..self.base + (blocks * BLOCK + self.tail) as u64
    }

    fn get(&self, position: u64) -> Option<&T> {
        let (block, at) = self.place(position)?;
        self.block(block)?.entries[at].as_ref()
    }

    fn remove(&mut self, position: u64) -> Option<T> {
        let (block, at) = self.place(position)?;
        let count = self.middle.len();
        let inside = match block {
            0 => Some(&mut self.front),
            n if n <= count => self.middle[n - 1].as_mut(),
            n if n == count + 1 => self.back.as_mut(),
            _ => None,
        }?;
        let entry = inside.entries[at].take()?;
        inside.removed += 1;
        self.len -= 1;
        self.holes += 1;
        if inside.removed == BLOCK && (1..=count).contains(&block) {
            let empty = self.middle[block - 1].take();
            empty.into_iter().for_each(|block| self.recycle(block));
        }
        if self.len == 0 {
            self.rewind();
        }
        Some(entry)
    }

    fn skip_removed(&mut self) {
        if self.len > 0 {
            self.skip();
        }
    }

    fn shrink(&mut self) {
        self.keep = KEEP;
        self.retired.append(&mut self.spare);
        self.spare = Vec::new();
        self.middle.shrink_to_fit();
    }

    #[inline]
    fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    fn take_retired(&mut self) -> Vec<Box<Block<T>>> {
        std::mem::take(&mut self.retired)
    }
}

impl<T> Block<T> {
    fn new() -> Box<Self> {
        Box::new(Self { entries: [const { None }; BLOCK], removed: 0, stamps: [0; BLOCK / GROUP] })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    std::thread_local!(static TIME: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

    /// Random pushes, pops and removals give the same results as a plain list of positions and entries.
    #[test]
    fn it_does_what_a_plain_list_does() {
        compare_with_a_plain_list(Fifo::new(0, None));
        compare_with_a_plain_list(Fifo::new(0, Some(|| TIME.get())));
    }

    /// With stamps: that of the front is earlier than the first push, and later than the push of a group before it. The time is the number
    /// of pushes.
    #[test]
    fn the_front_has_the_stamp_of_its_group() {
        let mut random = fastrand::Rng::with_seed(8);
        let mut line = Fifo::new(0, Some(|| TIME.get()));
        let (mut pushes, mut reads) = (0, 0);
        TIME.set(0);
        for n in 0..300_000_u64 {
            // The line gets long, and short; and it is empty for a long time, but for one entry from time to time.
            let push = [6, 4, 5][n as usize / 20_000 % 3];
            if random.u32(0..10) < push && (n / 20_000 % 3 < 2 || line.len() == 0) {
                line.push(pushes, ());
                pushes += 1;
                TIME.set(pushes);
            } else if let Some(first) = line.pop_simple().or_else(|| line.pop()) {
                assert!(first < pushes);
            }
            if line.len() > 0 {
                let first = *line.get(line.positions().start).expect("no entry is removed");
                let stamp = line.front_stamp().expect("it has stamps");
                assert!(stamp <= first && first <= stamp + 64, "{first} was pushed after {stamp}");
                reads += 1;
            }
        }
        assert!(reads > 100_000 && pushes > 100_000);
    }

    fn compare_with_a_plain_list(mut line: Fifo<u32>) {
        let mut random = fastrand::Rng::with_seed(7);
        let mut plain = VecDeque::<(u64, u32)>::new();
        for n in 0..100_000_u32 {
            // Phases: the line gets long, loses entries from its middle, and gets short.
            let (push, remove) = [(8, 1), (5, 4), (1, 8), (2, 0), (5, 5)][n as usize / 10_000 % 5];
            match random.u32(0..10) {
                choice if choice < push => {
                    let position = line.push(n, ());
                    assert!(plain.back().is_none_or(|&(last, _)| last < position), "positions ascend");
                    plain.push_back((position, n));
                }
                choice if choice < push + remove => {
                    let at = random.usize(..=plain.len());
                    let Some(&(position, item)) = plain.get(at) else { continue };
                    assert_eq!(line.get(position), Some(&item));
                    assert_eq!(line.remove(position), Some(item));
                    assert_eq!((line.get(position).copied(), line.remove(position)), (None, None), "once");
                    plain.remove(at);
                }
                _ => {
                    let first = plain.pop_front();
                    let item = line.pop_simple().or_else(|| line.pop());
                    assert_eq!(item, first.map(|(_, item)| item));
                    assert_eq!(first.and_then(|(position, _)| line.get(position)), None, "popped");
                }
            }
            assert_eq!(line.len(), plain.len());
            let first = line.positions().find_map(|position| line.get(position));
            assert_eq!(first, plain.front().map(|(_, item)| item));
            // As in the wheel (T6), each block has a live entry.
            let blocks = line.middle.iter().flatten().count();
            assert!(blocks <= plain.len(), "{blocks} blocks for {} entries", plain.len());
        }
        assert!(line.retired.len() > 10);
    }

    #[test]
    fn storage_follows_the_length() {
        const BLOCKS: usize = 1000;
        let mut line = Fifo::new(0, None);
        (0..BLOCKS * BLOCK).for_each(|n| _ = line.push(n, ()));
        while line.pop().is_some() {}
        // All blocks but the front.
        assert_eq!((line.spare.len(), line.retired.len()), (KEEP, BLOCKS - KEEP));
        assert!(line.middle.capacity() <= 64 && line.back.is_none());
        line.push(1, ());
        line.shrink();
        assert_eq!((line.spare.len(), line.middle.capacity(), line.pop()), (0, 0, Some(1)));
    }

    #[test]
    fn capacity_stays_until_it_is_shrunk() {
        let mut line = Fifo::new(10_000, None);
        let room = line.spare.len();
        (0..20_000).for_each(|n| _ = line.push(n, ()));
        while line.pop().is_some() {}
        assert_eq!(line.spare.len(), room);
        assert!(room * BLOCK >= 10_000);
        line.shrink();
        (0..20_000).for_each(|n| _ = line.push(n, ()));
        while line.pop().is_some() {}
        assert_eq!(line.spare.len(), KEEP);
    }
}
