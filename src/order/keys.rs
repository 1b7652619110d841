//! First in, first out, in blocks that several lists share.
//!
//! ```text
//!   first                           between                     last
//!   │ popped │ a │ hole │ b │  ⇄    │ c │ hole │ d │ e │  ⇄     │ f │ g │ free │
//!              ▲ head                                                   ▲ tail
//!   position: the number of the block × N + the index in the block
//! ```
//!
//! A key that is taken out leaves a hole. A block of holes leaves the list, so each block but the first has a key, and a pop walks over
//! the holes of one block. Nothing is copied when a list grows. The number of a block is used again, and so is a position; the push number
//! is not.

use super::slab::Slab;
use super::{FIRSTS, NONE, visit};

/// The keys of one list: see above.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// `NONE`: it has no block.
    first: u32,
    last: u32,
    len: u32,
    /// In the first block: the index from which the next pop looks for a key.
    head: u16,
    /// In the last block: the index of the next push.
    tail: u16,
}

/// A block of `N` slots.
pub(super) struct Block<T, const N: usize> {
    slots: [Option<T>; N],
    /// The push number of index 0.
    base: u64,
    /// Keys that were taken out; not needed of the first block.
    holes: u32,
    prev: u32,
    next: u32,
}

impl<T: Copy, const N: usize> Default for Block<T, N> {
    fn default() -> Self {
        Self { slots: [None; N], base: 0, holes: 0, prev: NONE, next: NONE }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0, head: 0, tail: 0 }
    }
}

impl Keys {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The blocks of some lists.
pub(super) struct Blocks<T, const N: usize, const CHUNK: usize>(pub(super) Slab<Block<T, N>, CHUNK>);

impl<T: Copy, const N: usize, const CHUNK: usize> Blocks<T, N, CHUNK> {
    #[inline]
    pub(super) fn push(&mut self, list: &mut Keys, key: T) -> u32 {
        if usize::from(list.tail) == N || list.first == NONE {
            self.add_block(list);
        }
        let at = u32::from(list.tail);
        self.0[list.last].slots[at as usize % N] = Some(key);
        list.tail += 1;
        list.len += 1;
        list.last * N as u32 + at
    }

    #[cold]
    fn add_block(&mut self, list: &mut Keys) {
        let (number, mut base) = (self.0.lend(), 0);
        if list.first == NONE {
            (list.first, list.head) = (number, 0);
        } else {
            let last = &mut self.0[list.last];
            base = last.base + N as u64;
            last.next = number;
        }
        let block = &mut self.0[number];
        (block.base, block.holes, block.prev, block.next) = (base, 0, list.last, NONE);
        (list.last, list.tail) = (number, 0);
    }

    #[inline]
    pub(super) fn pop(&mut self, list: &mut Keys) -> Option<T> {
        if list.len == 0 {
            return None;
        }
        let key = loop {
            visit();
            if usize::from(list.head) == N {
                self.next_block(list);
            }
            let slot = self.0[list.first].slots[usize::from(list.head) % N];
            list.head += 1;
            if let Some(key) = slot {
                break key;
            }
        };
        list.len -= 1;
        Some(key)
    }

    /// The first block is used up, and there is another one.
    #[cold]
    fn next_block(&mut self, list: &mut Keys) {
        let next = self.0[list.first].next;
        self.0.give_back(list.first);
        (list.first, list.head) = (next, 0);
    }

    /// Gives back the blocks of an empty list, at most two. Its push numbers begin anew.
    #[inline]
    pub(super) fn release(&mut self, list: &mut Keys) {
        if list.first != NONE {
            if list.first != list.last {
                self.next_block(list);
            }
            self.0.give_back(list.first);
            *list = Keys::default();
        }
    }

    /// Takes out the key at a position where one is.
    pub(super) fn remove(&mut self, list: &mut Keys, position: u32) {
        let number = position / N as u32;
        let block = &mut self.0[number];
        let slot = &mut block.slots[position as usize % N];
        debug_assert!(slot.is_some(), "a key is queued once");
        *slot = None;
        block.holes += 1;
        list.len -= 1;
        if number == list.last && number != list.first {
            if block.holes == u32::from(list.tail) {
                // It is used again from its start.
                block.base += u64::from(list.tail);
                (block.holes, list.tail) = (0, 0);
            }
        } else if number != list.first && block.holes as usize == N {
            let (prev, next) = (block.prev, block.next);
            self.0[prev].next = next;
            self.0[next].prev = prev;
            self.0.give_back(number);
        }
    }

    /// The key at a position where one is, with its push number.
    pub(super) fn get(&self, position: u32) -> (Option<T>, u64) {
        let (block, at) = (&self.0[position / N as u32], position as usize % N);
        (block.slots[at], block.base + at as u64)
    }

    /// The key that will come after this number of others, unless there are holes, or it is in neither of the first two blocks.
    #[inline]
    pub(super) fn peek(&self, list: &Keys, ahead: u32) -> Option<T> {
        if list.len <= ahead {
            return None;
        }
        let (at, first) = (usize::from(list.head) + ahead as usize, &self.0[list.first]);
        if at < N { first.slots[at] } else { *self.0[first.next].slots.get(at - N)? }
    }

    /// Calls `each` for the first few keys, until it returns true. `places`: those that may still be visited.
    pub(super) fn firsts(&self, list: &Keys, places: &mut usize, mut each: impl FnMut(T) -> bool) {
        let (mut block, mut at, mut keys) = (list.first, usize::from(list.head), (list.len as usize).min(FIRSTS));
        while keys > 0 && *places > 0 {
            visit();
            *places -= 1;
            if at == N {
                (block, at) = (self.0[block].next, 0);
            }
            if let Some(key) = self.0[block].slots[at] {
                if each(key) {
                    return;
                }
                keys -= 1;
            }
            at += 1;
        }
    }

    /// The key that was pushed last, if it is still there.
    pub(super) fn last_mut(&mut self, list: &Keys) -> Option<&mut T> {
        let at = usize::from(list.tail).checked_sub(1)?;
        self.0[list.last].slots[at].as_mut()
    }
}
