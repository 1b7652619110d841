//! A set of levels.

/// A bitmap of 256 levels, which knows its highest one.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bits {
    words: [u64; 4],
    len: u16,
    /// The highest level, if there is one: found when it changes, and not when a key is taken, which would wait for it.
    top: u8,
}

impl Bits {
    #[inline]
    pub(super) fn put(&mut self, level: u8, is_in: bool) {
        if self.has(level) == is_in {
            return;
        }
        self.words[usize::from(level / 64)] ^= 1 << (level % 64);
        if is_in {
            self.len += 1;
            self.top = if self.len == 1 { level } else { self.top.max(level) };
        } else {
            self.len -= 1;
            if self.len > 0 && level == self.top {
                self.top = self.below(level).unwrap_or(0);
            }
        }
    }

    #[inline]
    pub(super) fn has(&self, level: u8) -> bool {
        self.words[usize::from(level / 64)] & 1 << (level % 64) != 0
    }

    #[inline]
    pub(super) fn len(&self) -> u16 {
        self.len
    }

    #[inline]
    pub(super) fn top(&self) -> Option<u8> {
        (self.len > 0).then_some(self.top)
    }

    /// The highest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u8> {
        std::iter::successors(self.top(), |level| self.below(*level))
    }

    /// The highest level below this one.
    pub(super) fn below(&self, level: u8) -> Option<u8> {
        let word = usize::from(level / 64);
        let partial = highest(word, self.words[word] & ((1 << (level % 64)) - 1));
        partial.or_else(|| (0..word).rev().find_map(|word| highest(word, self.words[word])))
    }

    /// The highest level that is in neither of these.
    pub(super) fn top_without(&self, one: &Self, other: &Self) -> Option<u8> {
        (0..4).rev().find_map(|at| highest(at, self.words[at] & !one.words[at] & !other.words[at]))
    }
}

fn highest(word: usize, bits: u64) -> Option<u8> {
    bits.checked_ilog2().map(|bit| (word * 64) as u8 + bit as u8)
}
