//! First in, first out, in blocks.
//!
//! ```text
//!   front                       between                         back
//!   │ popped │ a │ hole │ b │  ⇄  │ c │ hole │ d │ e │  ⇄  …  ⇄  │ f │ g │ free │
//!              ▲ head                                                   ▲ tail
//!   position: the number of the block × BLOCK + the index in it
//! ```
//!
//! A key that is taken out leaves a *hole*, and a block of holes leaves the list, so that a pop walks over the holes of two blocks at most.
//! Block numbers and positions are used again, but push numbers never are. In a queue with several shards, each group of 64 entries has a
//! stamp.
//!
//! The front and the back are fields, because a push and a pop would take twice as long if they found them by number.

use super::bits::Words;
use super::{Bin, FIRSTS, Garbage, NONE, NORMAL, Place, level_of, visit};
use crate::numbers::{NumberPool, fit};

/// The entries of a block: 2 KiB of pointers.
const BLOCK: usize = 256;
/// The number of entries that share a stamp.
const SPAN: u32 = 64;
/// The number of empty blocks that are kept.
const KEEP: usize = 8;

const NO_BLOCK: &str = "a position is in a block";

/// Kept small, because there may be one for each priority.
pub(crate) struct Line<T> {
    /// `None` until the first push.
    front: Option<Box<Block<T>>>,
    /// `None` while there is one block, so that pushes go to the front.
    back: Option<Box<Block<T>>>,
    /// The index in the front from which the next pop looks for a key.
    head: u32,
    /// The index in the last block of the next push.
    tail: u32,
    /// The position of index 0 of the last block.
    start: u32,
    len: u32,
    /// The tail at which a push begins a block, or a group of entries that wants a stamp.
    stop: u32,
    /// Whether groups of entries want stamps.
    pub(super) is_stamped: bool,
    /// The push number from which on groups still wait for their stamp.
    unstamped: Option<u64>,
    /// The push number of the first key.
    base: u64,
    /// What is needed once in a block, made at the first need.
    more: Option<Box<More<T>>>,
}

struct More<T> {
    /// The blocks between, by number.
    between: Vec<Option<Box<Block<T>>>>,
    numbers: NumberPool,
    /// Blocks without keys, at most `keep`.
    spare: Vec<Box<Block<T>>>,
    keep: usize,
}

/// All entries are `None` before they are pushed, and after they are popped or removed.
pub(super) struct Block<T> {
    entries: [Option<T>; BLOCK],
    /// The push number of index 0.
    base: u64,
    number: u32,
    /// Not valid in the front.
    prev: u32,
    /// Not valid in the last block.
    next: u32,
    /// Keys that were taken out. Not counted in the front.
    holes: u32,
    stamps: [u64; BLOCK / SPAN as usize],
}

impl<T: Copy> Block<T> {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self { entries: [None; BLOCK], base: 0, number: 0, prev: NONE, next: NONE, holes: 0, stamps: [0; 4] })
    }
}

impl<T: Copy> Line<T> {
    /// An empty line without memory. `base`: the number of the first push.
    pub(super) fn new(base: u64, is_stamped: bool) -> Self {
        Self {
            front: None,
            back: None,
            head: 0,
            tail: BLOCK as u32,
            start: 0,
            len: 0,
            stop: BLOCK as u32,
            is_stamped,
            unstamped: None,
            base,
            more: None,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn has_memory(&self) -> bool {
        self.front.is_some()
    }

    fn more(&mut self) -> &mut More<T> {
        let none =
            || Box::new(More { between: Vec::new(), numbers: NumberPool::default(), spare: Vec::new(), keep: KEEP });
        self.more.get_or_insert_with(none)
    }

    fn block(&self, number: u32) -> &Block<T> {
        match (&self.front, &self.back, &self.more) {
            (Some(front), ..) if front.number == number => front,
            (_, Some(back), _) if back.number == number => back,
            (.., more) => more.as_ref().and_then(|more| more.between[number as usize].as_ref()).expect(NO_BLOCK),
        }
    }

    fn block_mut(&mut self, number: u32) -> &mut Block<T> {
        match (&mut self.front, &mut self.back, &mut self.more) {
            (Some(front), ..) if front.number == number => front,
            (_, Some(back), _) if back.number == number => back,
            (.., more) => more.as_mut().and_then(|more| more.between[number as usize].as_mut()).expect(NO_BLOCK),
        }
    }

    /// Returns the position.
    #[inline(always)]
    pub(super) fn push_key(&mut self, key: T) -> u32 {
        if self.tail == self.stop {
            self.begin();
        }
        let at = self.tail;
        let last = match &mut self.back {
            Some(back) => back,
            None => self.front.as_mut().expect("a block was added"),
        };
        last.entries[at as usize % BLOCK] = Some(key);
        self.tail = at + 1;
        self.len += 1;
        self.start + at
    }

    /// Begins a block, or a group of entries.
    #[cold]
    fn begin(&mut self) {
        if self.tail == BLOCK as u32 {
            self.add_block();
        }
        self.want_stamp();
        self.stop = if self.is_stamped { (self.tail + 1).next_multiple_of(SPAN) } else { BLOCK as u32 };
    }

    /// Adds a block behind the full one, or uses that again if it is the only one and all its keys are gone.
    fn add_block(&mut self) {
        self.tail = 0;
        if let (Some(front), 0, None) = (&mut self.front, self.len, &self.back) {
            self.head = 0;
            front.base += BLOCK as u64;
            return;
        }
        let more = self.more();
        let (number, mut block) = (more.numbers.lend(), more.spare.pop().unwrap_or_else(Block::new));
        if more.between.len() <= number as usize {
            more.between.resize_with(number as usize + 1, || None);
        }
        self.start = number * BLOCK as u32;
        (block.number, block.holes) = (number, 0);
        let Some(last) = self.back.as_mut().or(self.front.as_mut()) else {
            (block.base, self.head) = (self.base, 0);
            self.front = Some(block);
            return;
        };
        last.next = number;
        (block.base, block.prev) = (last.base + BLOCK as u64, last.number);
        if let Some(full) = self.back.replace(block) {
            let number = full.number as usize;
            self.more().between[number] = Some(full);
        }
    }

    /// A pop, if it takes only a few instructions.
    #[inline(always)]
    pub(super) fn pop_simple(&mut self) -> Option<T> {
        let key = self.front.as_mut()?.entries.get_mut(self.head as usize)?.take()?;
        self.head += 1;
        self.len -= 1;
        Some(key)
    }

    /// A pop if the next entry is a hole, or the front is used up.
    #[inline(never)]
    fn pop_rarely(&mut self, bin: &mut Bin<T>) -> Option<T> {
        self.skip_holes(bin);
        self.pop_simple()
    }

    /// Moves the head to the first key, if there is one.
    fn skip_holes(&mut self, bin: &mut Bin<T>) {
        while self.len > 0 {
            visit();
            match &self.front {
                Some(front) if (self.head as usize) < BLOCK => match front.entries[self.head as usize] {
                    Some(_) => return,
                    None => self.head += 1,
                },
                _ => self.next_block(bin),
            }
        }
    }

    /// Makes the next block the front, which is used up.
    fn next_block(&mut self, bin: &mut Bin<T>) {
        let used = self.front.take().expect("a line with keys");
        let block = match self.back.take_if(|back| back.number == used.next) {
            Some(back) => back,
            None => self.more().between[used.next as usize].take().expect("a block between"),
        };
        self.front = Some(block);
        self.head = 0;
        self.recycle(used, bin);
    }

    /// Keeps an empty block, or leaves it to the caller to be freed.
    fn recycle(&mut self, block: Box<Block<T>>, bin: &mut Bin<T>) {
        let more = self.more();
        more.numbers.give_back(block.number);
        more.between.truncate(more.numbers.end());
        fit(&mut more.between, 16);
        if more.spare.len() < more.keep {
            more.spare.push(block);
        } else {
            bin.push(Garbage::Line(block));
        }
    }

    /// The number of the next push.
    fn pushed(&self) -> u64 {
        let last = self.back.as_ref().or(self.front.as_ref());
        last.map_or(self.base, |last| last.base + u64::from(self.tail))
    }

    /// The next push, and pushes before it that still want a stamp, get the next [`stamp`](Self::stamp).
    pub(super) fn want_stamp(&mut self) {
        if self.is_stamped {
            let next = self.pushed();
            self.unstamped.get_or_insert(next);
        }
    }

    /// The blocks and indexes from the head on. The caller must stop at the last key.
    fn places(&self) -> impl Iterator<Item = (&Block<T>, usize)> {
        let (mut block, mut next) = (self.front.as_deref(), self.head as usize);
        std::iter::from_fn(move || {
            visit();
            if next == BLOCK {
                (block, next) = (Some(self.block(block?.next)), 0);
            }
            next += 1;
            Some((block?, next - 1))
        })
    }

    /// An empty line gives all its memory back, and goes on with its push numbers.
    pub(super) fn clear(&mut self, bin: &mut Bin<T>) {
        let empty = Self::new(self.pushed(), self.is_stamped);
        bin.push(Garbage::Empty(std::mem::replace(self, empty)));
    }

    /// Calls `each` for the first few keys, until it returns true. `places`: how many entries it may still visit.
    pub(super) fn firsts(&self, places: &mut usize, each: impl FnMut(T) -> bool) {
        let visited = self.places().take(*places).inspect(|_| *places -= 1);
        let keys = visited.filter_map(|(block, at)| block.entries[at]);
        let _is_found = keys.take(self.len().min(FIRSTS)).any(each);
    }

    /// Makes room for this number of keys, and keeps it until a [`shrink`](Self::shrink).
    pub(super) fn reserve(&mut self, keys: usize) {
        let (blocks, more) = (keys.div_ceil(BLOCK), self.more());
        more.keep = blocks.max(KEEP);
        more.spare.resize_with(blocks, Block::new);
        more.between.reserve(blocks);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let ends = self.front.iter().count() + self.back.iter().count();
        let Some(more) = &self.more else { return ends * size_of::<Block<T>>() };
        let blocks = ends + more.between.iter().flatten().count() + more.spare.len();
        let arrays = (more.between.capacity() + more.spare.capacity()) * size_of::<usize>() + more.numbers.bytes();
        blocks * size_of::<Block<T>>() + arrays
    }
}

impl<T: Copy> Line<T> {
    #[inline(always)]
    pub(super) fn push(&mut self, key: T, _priority: i8, _group: u32) -> (u32, bool) {
        (self.push_key(key), true)
    }

    #[inline(always)]
    pub(super) fn pop(&mut self, bin: &mut Bin<T>) -> Option<T> {
        self.pop_simple().or_else(|| self.pop_rarely(bin))
    }

    pub(super) fn remove(&mut self, place: Place, bin: &mut Bin<T>) {
        let (number, at) = (place.position / BLOCK as u32, place.position as usize % BLOCK);
        self.len -= 1;
        let tail = self.tail;
        let block = self.block_mut(number);
        debug_assert!(block.entries[at].is_some(), "a key is queued once");
        block.entries[at] = None;
        block.holes += 1;
        if self.front.as_ref().is_some_and(|front| front.number == number) {
            if at == self.head as usize {
                self.skip_holes(bin);
            }
            return;
        }
        if let Some(back) = self.back.as_mut().filter(|back| back.number == number) {
            if back.holes == tail {
                // All its keys are gone, so the block is used again from its start.
                (back.base, back.holes, self.tail) = (back.base + u64::from(tail), 0, 0);
                self.stop = if self.is_stamped { 0 } else { BLOCK as u32 };
            }
        } else if let Some(block) = self.more().between[number as usize].take_if(|block| block.holes == BLOCK as u32) {
            self.block_mut(block.prev).next = block.next;
            self.block_mut(block.next).prev = block.prev;
            self.recycle(block, bin);
        }
    }

    pub(super) fn pop_level(&mut self, level: u8, bin: &mut Bin<T>) -> Option<T> {
        if level == level_of(NORMAL) { self.pop(bin) } else { None }
    }

    pub(super) fn levels(&mut self) -> (Words, u64) {
        (Words::default(), u64::MAX)
    }

    pub(super) fn age(&self, place: Place) -> (u64, u64) {
        let (block, at) = (self.block(place.position / BLOCK as u32), place.position % BLOCK as u32);
        (block.stamps[(at / SPAN) as usize], block.base + u64::from(at))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn level_len(&self, priority: i8) -> usize {
        if priority == NORMAL { self.len as usize } else { 0 }
    }

    #[inline(always)]
    pub(super) fn front(&self) -> Option<(i8, u64)> {
        self.first_stamp().map(|stamp| (NORMAL, stamp))
    }

    #[inline(always)]
    fn first_stamp(&self) -> Option<u64> {
        let (front, at) = (self.front.as_deref()?, self.head as usize);
        match front.entries.get(at) {
            Some(Some(_)) => Some(front.stamps[at / SPAN as usize]),
            _ => self.stamp_behind_holes(),
        }
    }

    #[cold]
    #[inline(never)]
    fn stamp_behind_holes(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let (block, at) = self.places().find(|(block, at)| block.entries[*at].is_some())?;
        Some(block.stamps[at / SPAN as usize])
    }

    #[inline]
    pub(super) fn wants_stamp(&self) -> bool {
        self.unstamped.is_some()
    }

    pub(super) fn stamp(&mut self, now: u64) {
        let (Some(from), Some(front)) = (self.unstamped.take(), &self.front) else { return };
        let first = front.number;
        let mut number = self.back.as_ref().map_or(first, |back| back.number);
        loop {
            let block = self.block_mut(number);
            let group = from.saturating_sub(block.base) / u64::from(SPAN);
            block.stamps.iter_mut().skip(group as usize).for_each(|stamp| *stamp = now);
            if block.base <= from || number == first {
                return;
            }
            number = block.prev;
        }
    }

    /// Looks at the front only.
    #[inline]
    pub(super) fn upcoming(&self, ahead: u32) -> Option<T> {
        self.front.as_ref()?.entries.get((self.head + ahead) as usize).copied().flatten()
    }

    pub(super) fn shrink(&mut self, bin: &mut Bin<T>) -> bool {
        if self.len == 0 {
            self.clear(bin);
        } else if let Some(more) = &mut self.more {
            more.keep = KEEP;
            bin.push(Garbage::Lines(std::mem::take(&mut more.spare)));
            more.between.shrink_to_fit();
            more.numbers.shrink();
        }
        false
    }
}
