//! First in, first out.

use super::slab::Slab;
use super::{Bin, NONE, NORMAL, Order, Place, Pushed, visit};

/// Keys in the order of their pushes, in a list of blocks:
///
/// ```text
///   front                           middle, of any number           back, unless the front is alone
///   │ popped │ a │ hole │ b │  ──▶  │ c │ hole │ d │ e │  ──▶  ──▶  │ f │ g │ free │
///              ▲ head                                                       ▲ tail
///   position: the number of the block × BLOCK + the index in the block
/// ```
///
/// A key that is taken out leaves a hole. A block of holes leaves the list, so each block but the front has a key, and a pop walks over
/// the holes of one block. Nothing is copied when a line grows. Lanes begin with short blocks (`FEWEST`), as
/// there may be a million of them.
///
/// The number of a block may be used again, and so may a position; its push number is not.
pub(crate) struct Line<T, const FEWEST: usize = BLOCK> {
    front: Slots<T>,
    /// Empty if the front is alone.
    back: Slots<T>,
    /// In the front: the index from which the next pop looks for a key.
    head: u32,
    /// In the last block: the index of the next push.
    tail: u32,
    len: u32,
    /// The numbers of the first and of the last block: the same if the front is alone.
    first: u32,
    last: u32,
    /// The push number of index 0 in the front.
    base: u64,
    far: Option<Box<Far<T>>>,
}

pub(super) type Slots<T> = Box<[Option<T>]>;

/// What a line of one block does not need.
struct Far<T> {
    blocks: Slab<Block<T>>,
    spare: Vec<Slots<T>>,
}

/// A block in the list. The slots of the front and of the back are in the line.
struct Block<T> {
    slots: Slots<T>,
    /// The push number of index 0; of the front, see the line.
    base: u64,
    /// Holes; not counted for the front.
    holes: u32,
    prev: u32,
    next: u32,
}

/// Slots of a block, at most.
const BLOCK: usize = 256;
/// Blocks that are kept for later pushes.
const KEEP: usize = 2;

impl<T> Default for Block<T> {
    fn default() -> Self {
        Self { slots: Box::default(), base: 0, holes: 0, prev: NONE, next: NONE }
    }
}

impl<T, const FEWEST: usize> Default for Line<T, FEWEST> {
    fn default() -> Self {
        let (front, back) = (Box::default(), Box::default());
        Self { front, back, head: 0, tail: 0, len: 0, first: 0, last: 0, base: 0, far: None }
    }
}

impl<T> Far<T> {
    fn recycle(&mut self, slots: Slots<T>, bin: &mut Vec<Slots<T>>) {
        let list = if self.spare.len() < KEEP { &mut self.spare } else { bin };
        list.push(slots);
    }
}

impl<T: Copy, const FEWEST: usize> Line<T, FEWEST> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push(&mut self, key: T) -> u32 {
        let slots = if self.first == self.last { &mut self.front } else { &mut self.back };
        match slots.get_mut(self.tail as usize) {
            Some(slot) => *slot = Some(key),
            None => self.push_to_new_block(key),
        }
        self.tail += 1;
        self.len += 1;
        self.last * BLOCK as u32 + self.tail - 1
    }

    /// The last block is full, or there is none yet.
    #[cold]
    fn push_to_new_block(&mut self, key: T) {
        if self.front.is_empty() {
            self.front = vec![None; FEWEST].into();
            self.front[0] = Some(key);
            return;
        }
        let is_alone = self.first == self.last;
        let far = self.far.get_or_insert_with(|| {
            let mut blocks = Slab::default();
            blocks.insert(Block::default()); // the front, whose number is 0
            Box::new(Far { blocks, spare: Vec::new() })
        });
        let size = (4 * self.len as usize).next_power_of_two().clamp(FEWEST, BLOCK);
        let spare = far.spare.pop().filter(|slots| slots.len() >= size);
        let slots = spare.unwrap_or_else(|| vec![None; size].into());
        let full = std::mem::replace(&mut self.back, slots);
        self.back[0] = Some(key);
        let base = if is_alone { self.base } else { far.blocks[self.last].base } + BLOCK as u64;
        let number = far.blocks.insert(Block { base, prev: self.last, ..Block::default() });
        let before = &mut far.blocks[self.last];
        (before.next, before.slots) = (number, full);
        (self.last, self.tail) = (number, 0);
    }

    #[inline]
    pub(super) fn pop(&mut self, bin: &mut Vec<Slots<T>>) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let key = loop {
            visit();
            let Some(slot) = self.front.get(self.head as usize) else {
                self.next_block(bin);
                continue;
            };
            self.head += 1;
            if let Some(key) = *slot {
                break key;
            }
        };
        self.len -= 1;
        if self.len == 0 {
            self.rewind(bin);
        }
        Some(key)
    }

    /// The front is used up, and there are more keys: the next block becomes the front.
    #[cold]
    fn next_block(&mut self, bin: &mut Vec<Slots<T>>) {
        let far = self.far.as_mut().expect("the keys are in other blocks");
        let (left, _) = far.blocks.remove(self.first);
        self.first = left.next;
        let next = &mut far.blocks[self.first];
        next.prev = NONE;
        let slots = if self.first == self.last { &mut self.back } else { &mut next.slots };
        (self.base, self.head) = (next.base, 0);
        let used = std::mem::replace(&mut self.front, std::mem::take(slots));
        far.recycle(used, bin);
    }

    /// The line is empty: the next push goes to the start of the front, which is in the cache.
    #[inline]
    fn rewind(&mut self, bin: &mut Vec<Slots<T>>) {
        if self.first != self.last {
            self.next_block(bin); // There are two: the back is empty, too.
        }
        self.base += u64::from(self.tail);
        (self.head, self.tail) = (0, 0);
    }

    /// Takes out a key that is at this position.
    pub(super) fn remove(&mut self, position: u32, bin: &mut Vec<Slots<T>>) {
        let (number, at) = (position / BLOCK as u32, position as usize % BLOCK);
        self.len -= 1;
        if number == self.first {
            debug_assert!(self.front[at].is_some(), "a key is queued once");
            self.front[at] = None;
        } else {
            self.remove_behind(number, at, bin);
        }
        if self.len == 0 {
            self.rewind(bin);
        }
    }

    fn remove_behind(&mut self, number: u32, at: usize, bin: &mut Vec<Slots<T>>) {
        let far = self.far.as_mut().expect("the position is in another block");
        let block = &mut far.blocks[number];
        block.holes += 1;
        if number == self.last {
            self.back[at] = None;
            if block.holes == self.tail {
                // It is used again from its start.
                block.base += u64::from(self.tail);
                (block.holes, self.tail) = (0, 0);
            }
            return;
        }
        debug_assert!(block.slots[at].is_some(), "a key is queued once");
        block.slots[at] = None;
        if block.holes as usize == block.slots.len() {
            let (Block { slots, prev, next, .. }, _) = far.blocks.remove(number);
            far.blocks[prev].next = next;
            far.blocks[next].prev = prev;
            far.recycle(slots, bin);
        }
    }

    /// The key at a position where one is, with its push number.
    pub(super) fn get(&self, position: u32) -> (Option<T>, u64) {
        let (number, at) = (position / BLOCK as u32, position as usize % BLOCK);
        let (slots, base) = match &self.far {
            Some(far) if number != self.first => {
                let block = &far.blocks[number];
                (if number == self.last { &self.back } else { &block.slots }, block.base)
            }
            _ => (&self.front, self.base),
        };
        (slots[at], base + at as u64)
    }

    /// A push number that is not above that of the first key.
    #[inline]
    pub(super) fn front_number(&self) -> u64 {
        self.base + u64::from(self.head)
    }

    /// The key that will come after so many others, unless there are holes, or it is not in the front.
    #[inline]
    pub(super) fn peek(&self, ahead: u32) -> Option<T> {
        let (at, end) = ((self.head + ahead) as usize, self.front.len());
        let end = if self.first == self.last { self.tail as usize } else { end };
        if at < end { *self.front.get(at)? } else { None }
    }

    /// The slots for which there is memory.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        let Some(far) = &self.far else { return self.front.len() };
        let middle = far.blocks.iter().map(|block| block.slots.len()).sum::<usize>();
        let spare = far.spare.iter().map(|slots| slots.len()).sum::<usize>();
        self.front.len() + self.back.len() + middle + spare
    }

    /// It keeps more memory than a lane that is empty may.
    pub(super) fn is_large(&self) -> bool {
        const MOST: usize = 64;
        self.front.len() > MOST || self.far.as_ref().is_some_and(|far| far.spare.iter().any(|slots| slots.len() > MOST))
    }

    /// Gives back the blocks that are kept, and the front if the line is empty.
    pub(super) fn shrink(&mut self, bin: &mut Vec<Slots<T>>) {
        if let Some(far) = &mut self.far {
            bin.append(&mut far.spare);
            far.spare.shrink_to_fit();
        }
        if self.len == 0 {
            let front = std::mem::take(&mut self.front);
            bin.extend((!front.is_empty()).then_some(front));
            self.far = None;
            (self.first, self.last) = (0, 0);
        }
    }
}

impl<T: Copy> Order<T> for Line<T> {
    #[inline]
    fn push(&mut self, key: T, _priority: i8, _group: u32) -> Pushed {
        Pushed { position: self.push(key), is_ready: true }
    }

    #[inline]
    fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        self.pop(&mut bin.slots)
    }

    #[inline]
    fn remove(&mut self, _key: T, place: Place, bin: &mut Bin<T>) {
        self.remove(place.position, &mut bin.slots);
    }

    fn push_number(&self, _key: T, place: Place) -> u64 {
        self.get(place.position).1
    }

    fn level_len(&self, priority: i8) -> usize {
        if priority == NORMAL { self.len() } else { 0 }
    }

    #[inline]
    fn front(&self) -> Option<(i8, u64)> {
        (self.len > 0).then(|| (NORMAL, self.front_number()))
    }

    #[inline]
    fn upcoming(&self, ahead: u32) -> Option<T> {
        self.peek(ahead)
    }

    fn shrink(&mut self, bin: &mut Bin<T>) {
        self.shrink(&mut bin.slots);
    }
}
