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
pub(crate) struct Fifo<T>(VecDeque<T>);

/// A line of this capacity is not worth shrinking.
const KEEP: usize = sized(2048, 2);

impl<T> Line<T> for Fifo<T> {
    fn with_capacity(capacity: usize) -> Self {
        Self(VecDeque::with_capacity(capacity))
    }

    #[inline]
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        let item = self.0.pop_front();
        let capacity = self.0.capacity();
        if capacity > KEEP && self.0.len() < capacity / 8 {
            self.0.shrink_to(capacity / 4);
        }
        item
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn peek(&self, ahead: usize) -> Option<&T> {
        self.0.get(ahead)
    }

    fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}
