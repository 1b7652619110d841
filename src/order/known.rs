//! What is kept for a group.

use super::{Group, NONE};

/// What is known of a group, as long as a key of it is known, or it has a lane.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) hash: u64,
    /// Hand-outs since it is known, and from the bit `WEIGHT` on the keys in a turn: 54 bits do not wrap.
    pub(super) turns: u64,
    /// The next in its bucket, or `NONE`.
    pub(super) next: u32,
    /// Keys that are known: queued, processing or delayed.
    pub(super) keys: u32,
    /// Counted with a limit only.
    pub(super) processing: u32,
    pub(super) queued: u32,
}

const WEIGHT: u32 = 54;

impl Default for Known {
    fn default() -> Self {
        Self { hash: 0, turns: 0, next: NONE, keys: 0, processing: 0, queued: 0 }
    }
}

impl Known {
    /// Keys in a turn.
    #[inline]
    pub(super) fn weight(&self) -> u16 {
        (self.turns >> WEIGHT) as u16
    }

    pub(super) fn group(&self) -> Group {
        Group { hash: self.hash, weight: self.weight() }
    }

    pub(super) fn handed_out(&self) -> u64 {
        self.turns & ((1 << WEIGHT) - 1)
    }

    /// The group gets its first key.
    pub(super) fn begin(&mut self, weight: u16) {
        debug_assert!(weight < 1 << (u64::BITS - WEIGHT), "a weight is 1000 at most");
        self.turns = u64::from(weight.max(1)) << WEIGHT;
    }

    #[inline]
    pub(super) fn note_hand_out(&mut self) {
        self.turns += 1;
    }
}
