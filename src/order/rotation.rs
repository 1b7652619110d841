//! Which level has its turn.
//!
//! ```text
//!   hand-out    1    2    …   15    16    17   …   31    32
//!   level      top  top  … top   lower₁  top  …  top   lower₂       while lower levels wait
//! ```
//!
//! With several shards these turns are the queue's (`src/shared/lower.rs`), and the order of each shard is strict.
//!
//! With a limit, the levels with keys of full groups have turns at the same time: see [`skipped_turns`](super::skipped_turns).

use super::bits::Bits;

/// Of this number of hand-outs, one goes to a lower level.
pub(crate) const TURNS: u8 = 16;

#[derive(Default)]
pub(super) struct Rotation {
    /// Levels with keys that a pop may return.
    pub(super) ready: Bits,
    /// Levels with keys of full groups. They may be ready, too.
    pub(super) held: Bits,
    pub(super) strict: bool,
    /// Hand-outs of the highest level, while lower ones waited, since a lower one had its turn.
    since_lower: u8,
    last_lower: u8,
}

impl Rotation {
    pub(super) fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// The levels with keys of full groups: from below this one down, and then from the highest to this one.
    pub(super) fn held_from(&self, last: u8) -> impl Iterator<Item = u8> {
        let below = std::iter::successors(self.held.below(last), |level| self.held.below(*level));
        below.chain(self.held.iter().take_while(move |level| *level >= last))
    }

    /// The level that gives the next key; and whether it is the turn of the lower levels, and of those with keys of full groups.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<(u8, bool)> {
        let top = self.ready.top()?;
        let is_only = self.ready.len() == 1 && self.held.len() == u16::from(self.held.has(top));
        if self.strict || is_only {
            return Some((top, false));
        }
        self.since_lower += 1;
        if self.since_lower < TURNS {
            return Some((top, false));
        }
        Some((self.choose_lower(top), true))
    }

    /// A hand-out that is owed is one of the 16, too.
    pub(super) fn count_owed(&mut self) {
        self.since_lower = (self.since_lower + 1).min(TURNS);
    }

    #[cold]
    fn choose_lower(&mut self, top: u8) -> u8 {
        self.since_lower = 0;
        // The next one down from that which had the last turn, or the highest again.
        let lower = self.ready.below(self.last_lower.min(top)).or_else(|| self.ready.below(top));
        self.last_lower = lower.unwrap_or(self.last_lower);
        lower.unwrap_or(top)
    }
}
