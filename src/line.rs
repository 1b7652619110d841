//! The order in which ready keys are handed out.

use crate::sync::sized;
use std::collections::VecDeque;

/// An order among ready keys: plain data under the queue's lock. Priorities, or fairness between groups of keys, would be
/// other implementations of these few methods.
pub(crate) trait Line<T> {
    fn with_capacity(capacity: usize) -> Self;
    fn push(&mut self, item: T);
    fn pop(&mut self) -> Option<T>;
    fn len(&self) -> usize;
    /// What will be popped after so many others, if that is known. A hint.
    fn peek(&self, ahead: usize) -> Option<&T>;
    /// Gives back all memory that is not needed now.
    fn shrink(&mut self);
}

/// First in, first out (P4).
pub(crate) struct Fifo<T> {
    line: VecDeque<T>,
    /// Not worth shrinking below this capacity.
    keep: usize,
}

/// A line of this capacity is not worth shrinking, whatever was asked for.
const KEEP: usize = sized(2048, 2);

impl<T> Line<T> for Fifo<T> {
    fn with_capacity(capacity: usize) -> Self {
        Self { line: VecDeque::with_capacity(capacity), keep: capacity.max(KEEP) }
    }

    #[inline]
    fn push(&mut self, item: T) {
        self.line.push_back(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        let item = self.line.pop_front();
        let capacity = self.line.capacity();
        if capacity > self.keep && self.line.len() < capacity / 8 {
            self.line.shrink_to(self.keep.max(capacity / 4));
        }
        item
    }

    #[inline]
    fn len(&self) -> usize {
        self.line.len()
    }

    #[inline]
    fn peek(&self, ahead: usize) -> Option<&T> {
        self.line.get(ahead)
    }

    fn shrink(&mut self) {
        self.keep = KEEP;
        self.line.shrink_to_fit();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Storage shrinks to a quarter when an eighth of it is used, and not below what was asked for.
    #[test]
    fn storage_follows_the_length() {
        let mut line = Fifo::with_capacity(0);
        (0..1 << 16).for_each(|n| line.push(n));
        let full = line.line.capacity();
        while line.len() > full / 8 {
            assert_eq!(line.line.capacity(), full, "{} left", line.len());
            line.pop();
        }
        assert_eq!(line.line.capacity(), full);
        line.pop();
        assert_eq!(line.line.capacity(), full / 4);
        while line.pop().is_some() {}
        assert_eq!(line.line.capacity(), KEEP);
        line.push(1);
        line.shrink();
        assert_eq!(line.line.capacity(), 1);
    }

    #[test]
    fn room_that_was_asked_for_stays() {
        let mut line = Fifo::with_capacity(10_000);
        (0..20_000).for_each(|n| line.push(n));
        while line.pop().is_some() {}
        assert!((10_000..20_000).contains(&line.line.capacity()));
    }
}
