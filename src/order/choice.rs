//! Which level has its turn.
//!
//! ```text
//!   hand-out    1    2    …   15    16    17   …   31    32
//!   level      top  top  … top   lower₁  top  …  top   lower₂       while lower levels wait
//! ```
//!
//! With a limit, the turn of a lower level may come while a group there is full. The level is *skipped* then. When such a group of a
//! skipped level comes back, the level is *owed* a hand-out, which is the next one. Else a group whose keys of a middle level fill it at
//! each turn would never give a lower one. A turn skips one level at most, so at most two of 17 hand-outs go to lower levels.

use super::bits::Bits;

/// Of this number of hand-outs, one goes to a lower level.
const TURNS: u8 = 16;

#[derive(Default)]
pub(super) struct Choice {
    /// Levels with keys that a pop may return.
    ready: Bits,
    /// Levels with keys of full groups. They may be ready, too.
    held: Bits,
    /// Of these: those that had a turn since.
    skipped: Bits,
    /// Skipped levels to which a group came back.
    owed: Bits,
    strict: bool,
    /// Hand-outs of the highest level, while lower ones waited, since a lower one had its turn.
    since_lower: u8,
    last_lower: u8,
    last_owed: u8,
}

impl Choice {
    pub(super) fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Whether a level has keys that a pop may return.
    #[inline]
    pub(super) fn set(&mut self, level: u8, is_ready: bool) {
        if is_ready {
            self.ready.set(level);
            return;
        }
        self.ready.clear(level);
        if !self.owed.is_empty() {
            self.owed.clear(level);
        }
    }

    /// The highest level that is ready.
    #[inline]
    pub(super) fn top(&self) -> Option<u8> {
        self.ready.top()
    }

    /// The levels that are ready, highest first.
    pub(super) fn ready(&self) -> impl Iterator<Item = u8> {
        std::iter::successors(self.ready.top(), |level| self.ready.below(*level))
    }

    /// A group with keys of this level became full.
    pub(super) fn hold(&mut self, level: u8) {
        self.held.set(level);
        // It came back, and is full again before the level had its hand-out.
        if self.owed.has(level) {
            self.owed.clear(level);
            self.skipped.set(level);
        }
    }

    /// A group with keys of this level, whose turn has come, is not full any more: the level is owed a hand-out if it was skipped.
    pub(super) fn release(&mut self, level: u8) {
        if self.skipped.has(level) {
            self.skipped.clear(level);
            self.owed.set(level);
        }
    }

    /// The last key of a full group in this level is gone, or its group came back.
    pub(super) fn holds_none(&mut self, level: u8) {
        self.held.clear(level);
        self.skipped.clear(level);
    }

    /// The level that gives the next key, and whether it is owed.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<(u8, bool)> {
        let top = self.ready.top()?;
        if !self.owed.is_empty() {
            return Some((self.choose_owed(top), true));
        }
        let is_lowest = self.ready.is_single() && (self.held.is_empty() || self.held.below(top).is_none());
        if self.strict || is_lowest {
            return Some((top, false));
        }
        self.since_lower += 1;
        if self.since_lower < TURNS {
            return Some((top, false));
        }
        Some((self.choose_lower(top), false))
    }

    #[cold]
    fn choose_lower(&mut self, top: u8) -> u8 {
        self.since_lower = 0;
        let waits_below = |level| self.ready.below(level).max(self.held.below(level));
        // The next one down from that which had the last turn, or the highest again.
        let next = waits_below(self.last_lower.min(top)).or_else(|| waits_below(top)).unwrap_or(top);
        self.last_lower = next;
        if self.held.has(next) && !self.owed.has(next) {
            self.skipped.set(next);
        }
        if self.ready.has(next) {
            return next;
        }
        self.ready.below(next).or_else(|| self.ready.below(top)).unwrap_or(top)
    }

    /// Each owed level is ready.
    #[cold]
    fn choose_owed(&mut self, top: u8) -> u8 {
        let next = self.owed.below(self.last_owed).or(self.owed.top()).unwrap_or(top);
        debug_assert!(self.ready.has(next));
        self.owed.clear(next);
        self.last_owed = next;
        next
    }
}
