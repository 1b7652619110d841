//! Which level gives the next key.
//!
//! ```text
//!   hand-out    1    2    …   15    16    17   …   31    32
//!   level      top  top  … top   lower₁  top  …  top   lower₂       while lower levels wait
//! ```
//!
//! The highest level with keys gives the next one, but unless the queue is strict, one of 16 hand-outs goes to a lower level that waits,
//! each of them in turn, so that no priority starves. With several shards, `src/shared/lower.rs` has these turns for all shards together,
//! and the order of each shard is strict.

use super::bits::Bits;

/// One of this number of hand-outs goes to a lower level.
pub(crate) const TURNS: u8 = 16;

#[derive(Default)]
pub(super) struct Rotation {
    /// Levels with keys that a pop may take.
    pub(super) ready: Bits,
    pub(super) strict: bool,
    /// Hand-outs since the last turn of the lower levels, while some waited.
    since_lower: u8,
    last_lower: u8,
}

impl Rotation {
    pub(super) fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// The level that gives the next key, and whether this is a turn of the lower levels.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<(u8, bool)> {
        let top = self.ready.top()?;
        if self.strict || self.ready.len() == 1 {
            return Some((top, false));
        }
        self.since_lower += 1;
        if self.since_lower < TURNS {
            return Some((top, false));
        }
        Some((self.choose_lower(top), true))
    }

    #[cold]
    fn choose_lower(&mut self, top: u8) -> u8 {
        self.since_lower = 0;
        // The next level down from the one that had the last turn, or the highest lower one again.
        let lower = self.ready.below(self.last_lower.min(top)).or_else(|| self.ready.below(top));
        self.last_lower = lower.unwrap_or(self.last_lower);
        lower.unwrap_or(top)
    }
}
