//! First in, first out, in blocks.
//!
//! ```text
//!   front                       between                         back
//!   │ popped │ a │ hole │ b │  ⇄  │ c │ hole │ d │ e │  ⇄  …  ⇄  │ f │ g │ free │
//!              ▲ head                                                   ▲ tail
//!   position: the number of the block × BLOCK + the index in it
//! ```
//!
//! A key that is taken out leaves a hole. A block of holes leaves the list, so each block between has a key, and a pop walks over the holes
//! of one block. Nothing is copied when the line grows. The number of a block is used again, and so is a position; the push number is not.
//!
//! The front and the back are fields, and not found by their numbers: by number, a push and a pop take twice as long.

use super::{Bin, Garbage, NONE, NORMAL, Order, Place, Pushed, visit};
use crate::numbers::{Numbers, fit};

/// Keys of a block: 2 KiB of pointers.
const BLOCK: usize = 256;
/// Empty blocks that are kept.
const KEEP: usize = 8;

pub(crate) struct Line<T> {
    front: Box<Block<T>>,
    /// `None`: pushes go to the front.
    back: Option<Box<Block<T>>>,
    /// By number.
    between: Vec<Option<Box<Block<T>>>>,
    numbers: Numbers,
    /// Blocks without keys, at most `keep`.
    spare: Vec<Box<Block<T>>>,
    keep: usize,
    /// In the front: the index from which the next pop looks for a key.
    head: usize,
    /// In the last block: the index of the next push.
    tail: usize,
    /// The position of index 0 of the last block.
    start: u32,
    len: usize,
}

/// All entries are `None` before they are pushed, and after they are popped or removed.
pub(super) struct Block<T> {
    entries: [Option<T>; BLOCK],
    /// The push number of index 0.
    base: u64,
    number: u32,
    /// Not of the front.
    prev: u32,
    /// Not of the last block.
    next: u32,
    /// Keys that were taken out. Not of the front.
    holes: u32,
}

impl<T: Copy> Block<T> {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self { entries: [None; BLOCK], base: 0, number: 0, prev: NONE, next: NONE, holes: 0 })
    }
}

impl<T: Copy> Default for Line<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T: Copy> Line<T> {
    /// `base`: the push number of its first key.
    pub(super) fn new(base: u64) -> Self {
        let (mut numbers, mut front) = (Numbers::default(), Block::new());
        (front.number, front.base) = (numbers.lend(), base);
        Self {
            start: front.number * BLOCK as u32,
            front,
            back: None,
            between: Vec::new(),
            numbers,
            spare: Vec::new(),
            keep: KEEP,
            head: 0,
            tail: 0,
            len: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn last(&mut self) -> &mut Block<T> {
        self.back.as_mut().unwrap_or(&mut self.front)
    }

    fn block(&self, number: u32) -> &Block<T> {
        match &self.back {
            _ if number == self.front.number => &self.front,
            Some(back) if number == back.number => back,
            _ => self.between[number as usize].as_ref().expect("a block between"),
        }
    }

    fn block_mut(&mut self, number: u32) -> &mut Block<T> {
        match &mut self.back {
            _ if number == self.front.number => &mut self.front,
            Some(back) if number == back.number => back,
            _ => self.between[number as usize].as_mut().expect("a block between"),
        }
    }

    /// The push number of the next push.
    pub(super) fn pushed(&self) -> u64 {
        self.back.as_ref().unwrap_or(&self.front).base + self.tail as u64
    }

    /// Returns the position.
    #[inline(always)]
    pub(super) fn push_key(&mut self, key: T) -> u32 {
        if self.tail == BLOCK {
            self.add_block();
        }
        let at = self.tail;
        self.last().entries[at % BLOCK] = Some(key);
        self.tail += 1;
        self.len += 1;
        self.start + at as u32
    }

    /// The last block is full: adds another one, or begins anew if all its keys are gone.
    #[cold]
    fn add_block(&mut self) {
        self.tail = 0;
        if self.len == 0 && self.back.is_none() {
            self.head = 0;
            self.front.base += BLOCK as u64;
            return;
        }
        let (number, mut block) = (self.numbers.lend(), self.spare.pop().unwrap_or_else(Block::new));
        let last = self.last();
        last.next = number;
        (block.base, block.number, block.prev, block.holes) = (last.base + BLOCK as u64, number, last.number, 0);
        if self.between.len() <= number as usize {
            self.between.resize_with(number as usize + 1, || None);
        }
        self.start = number * BLOCK as u32;
        if let Some(full) = self.back.replace(block) {
            let number = full.number as usize;
            self.between[number] = Some(full);
        }
    }

    /// A pop, if that is a few instructions.
    #[inline(always)]
    pub(super) fn pop_simple(&mut self) -> Option<T> {
        let key = self.front.entries.get_mut(self.head)?.take()?;
        self.head += 1;
        self.len -= 1;
        Some(key)
    }

    /// A pop, if the next entry is a hole, or the front is used up.
    #[inline(never)]
    fn pop_rarely(&mut self, bin: &mut Bin<T>) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        loop {
            visit();
            if self.head == BLOCK {
                self.next_block(bin);
            }
            if let Some(key) = self.pop_simple() {
                return Some(key);
            }
            self.head += 1;
        }
    }

    /// The front is used up, and there is another block.
    fn next_block(&mut self, bin: &mut Bin<T>) {
        let next = self.front.next;
        let block = match self.back.take_if(|back| back.number == next) {
            Some(back) => back,
            None => self.between[next as usize].take().expect("a block between"),
        };
        let used = std::mem::replace(&mut self.front, block);
        self.head = 0;
        self.recycle(used, bin);
    }

    /// Keeps a block without keys, or leaves it to the caller.
    fn recycle(&mut self, block: Box<Block<T>>, bin: &mut Bin<T>) {
        self.numbers.give_back(block.number);
        self.between.truncate(self.numbers.end());
        fit(&mut self.between);
        if self.spare.len() < self.keep {
            self.spare.push(block);
        } else {
            bin.push(Garbage::Line(block));
        }
    }

    /// Has memory for this number of keys, and keeps it until it is shrunk.
    pub(super) fn reserve(&mut self, keys: usize) {
        self.keep = keys.div_ceil(BLOCK).max(KEEP);
        self.spare.resize_with(keys / BLOCK, Block::new);
        self.between.reserve(keys.div_ceil(BLOCK));
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let blocks = 1 + self.between.iter().flatten().count() + self.back.iter().count() + self.spare.len();
        blocks * size_of::<Block<T>>() + (self.between.capacity() + self.spare.capacity()) * size_of::<usize>()
    }
}

impl<T: Copy> Order<T> for Line<T> {
    #[inline]
    fn push(&mut self, key: T, _priority: i8, _group: u32) -> Pushed {
        Pushed { position: self.push_key(key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        self.pop_simple().or_else(|| self.pop_rarely(bin))
    }

    fn remove(&mut self, _key: T, place: Place, bin: &mut Bin<T>) {
        let (number, at) = (place.position / BLOCK as u32, place.position as usize % BLOCK);
        let tail = self.tail;
        self.len -= 1;
        let block = self.block_mut(number);
        debug_assert!(block.entries[at].is_some(), "a key is queued once");
        block.entries[at] = None;
        block.holes += 1;
        if number == self.front.number {
            return;
        }
        if let Some(back) = self.back.as_mut().filter(|back| back.number == number) {
            if back.holes as usize == tail {
                // It is used again from its start.
                (back.base, back.holes, self.tail) = (back.base + tail as u64, 0, 0);
            }
        } else if let Some(block) = self.between[number as usize].take_if(|block| block.holes as usize == BLOCK) {
            self.block_mut(block.prev).next = block.next;
            self.block_mut(block.next).prev = block.prev;
            self.recycle(block, bin);
        }
    }

    fn push_number(&self, _key: T, place: Place) -> u64 {
        self.block(place.position / BLOCK as u32).base + u64::from(place.position % BLOCK as u32)
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn level_len(&self, priority: i8) -> usize {
        if priority == NORMAL { self.len } else { 0 }
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        if self.len == 0 { None } else { Some((NORMAL, self.front.base + self.head as u64)) }
    }

    /// Looks at the front only.
    #[inline]
    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.front.entries.get(self.head + ahead as usize).copied().flatten()
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        self.keep = KEEP;
        bin.extend(std::mem::take(&mut self.spare).into_iter().map(Garbage::Line));
        self.between.shrink_to_fit();
        self.numbers.shrink();
    }
}
