//! Which level has its turn.
//!
//! ```text
//!   hand-out    1    2    …   15    16    17   …   31    32
//!   level      top  top  … top   lower₁  top  …  top   lower₂       while lower levels wait
//! ```
//!
//! The highest level with queued keys comes first, but of any 16 hand-outs, one goes to the levels below it that wait, which take turns at
//! that (P19): so no level starves, and the highest gives up a sixteenth at most. In a strict order the lower levels wait.

/// Of this number of hand-outs, one goes to a lower level.
const TURNS: u8 = 16;

/// A priority as an index: the higher the more urgent.
#[inline]
pub(super) fn index_of(priority: i8) -> u8 {
    (i16::from(priority) - i16::from(i8::MIN)) as u8
}

/// The priority of an index.
#[inline]
pub(super) fn priority_of(level: u8) -> i8 {
    (i16::from(level) + i16::from(i8::MIN)) as i8
}

/// Which levels have entries, as a bitmap, and whose turn it is.
#[derive(Debug)]
pub(super) struct Levels {
    waiting: [u64; 4],
    /// The number of levels that wait.
    count: u16,
    strict: bool,
    /// Hand-outs of the highest level, while lower ones waited, since a lower level had its turn. Not reset when none waits: with a limit
    /// of processing keys, levels come and go.
    since_lower: u8,
    /// The lower level that had the last turn.
    last_lower: u8,
}

impl Levels {
    pub(super) fn new(strict: bool) -> Self {
        Self { waiting: [0; 4], count: 0, strict, since_lower: 0, last_lower: 0 }
    }

    /// A level has got its first entry, or has lost its last.
    #[inline]
    pub(super) fn set(&mut self, level: u8, waits: bool) {
        if self.get(level) != waits {
            self.waiting[usize::from(level / 64)] ^= 1 << (level % 64);
            self.count = if waits { self.count + 1 } else { self.count - 1 };
        }
    }

    /// Whether a level has entries.
    #[inline]
    pub(super) fn get(&self, level: u8) -> bool {
        self.waiting[usize::from(level / 64)] & 1 << (level % 64) != 0
    }

    /// The highest level below `end` that waits.
    #[inline]
    pub(super) fn highest_below(&self, end: u16) -> Option<u8> {
        let (last, rest) = (usize::from(end / 64), end % 64);
        let of = |word: usize, bits: u64| (bits > 0).then(|| (word * 64) as u8 + bits.ilog2() as u8);
        let partial = self.waiting.get(last).map_or(0, |bits| bits & ((1 << rest) - 1));
        of(last, partial).or_else(|| (0..last.min(4)).rev().find_map(|word| of(word, self.waiting[word])))
    }

    /// The level that the next entry is taken from. `None`: there is no entry.
    #[inline]
    pub(super) fn choose(&mut self) -> Option<u8> {
        let top = self.highest_below(256)?;
        if self.strict || self.count == 1 {
            return Some(top);
        }
        self.since_lower += 1;
        if self.since_lower < TURNS {
            return Some(top);
        }
        self.since_lower = 0;
        // The next one down from that which had the last turn, or the highest again.
        let next = self.highest_below(self.last_lower.min(top).into()).or_else(|| self.highest_below(top.into()));
        self.last_lower = next.unwrap_or(top);
        Some(self.last_lower)
    }

    /// The level of the most urgent entry.
    pub(super) fn top(&self) -> Option<u8> {
        self.highest_below(256)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_bitmap_finds_the_next_level_down() {
        let mut levels = Levels::new(true);
        assert_eq!(levels.top(), None);
        for level in [0, 1, 63, 64, 127, 128, 200, 255] {
            levels.set(level, true);
        }
        let mut found = Vec::new();
        let mut end = 256;
        while let Some(level) = levels.highest_below(end) {
            found.push(level);
            end = level.into();
        }
        assert_eq!(found, [255, 200, 128, 127, 64, 63, 1, 0]);
        levels.set(255, false);
        assert_eq!(levels.choose(), Some(200));
        assert_eq!([i8::MIN, -100, 0, 100, i8::MAX].map(index_of), [0, 28, 128, 228, 255]);
    }

    /// Lower levels do not starve (P19): of 16 hand-outs one goes to them, in turn, with any set of levels that wait.
    #[test]
    fn lower_levels_take_turns() {
        let mut levels = Levels::new(false);
        for level in [10, 20, 30] {
            levels.set(level, true);
        }
        levels.set(100, true);
        let chosen: Vec<_> = (0..16 * 6).map(|_| levels.choose().unwrap()).collect();
        let lower: Vec<_> = chosen.iter().copied().filter(|&level| level != 100).collect();
        assert_eq!(lower, [30, 20, 10, 30, 20, 10]);
        assert!(chosen.windows(16).all(|of_16| of_16.iter().filter(|&&level| level != 100).count() == 1));
        for level in [10, 20, 30] {
            levels.set(level, false);
        }
        assert!((0..100).all(|_| levels.choose() == Some(100)));
    }
}
