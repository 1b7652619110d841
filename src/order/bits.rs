//! A set of levels.

/// A bitmap of 256 levels, which knows its highest one.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bits {
    words: [u64; 4],
    /// The words that are not zero.
    summary: u8,
    /// The highest level, if there is one: found when it changes, and not when a key is taken, which would wait for it.
    top: u8,
}

impl Bits {
    #[inline]
    pub(super) fn set(&mut self, level: u8) {
        let word = usize::from(level / 64);
        self.top = if self.summary == 0 { level } else { self.top.max(level) };
        self.words[word] |= 1 << (level % 64);
        self.summary |= 1 << word;
    }

    #[inline]
    pub(super) fn clear(&mut self, level: u8) {
        let word = usize::from(level / 64);
        self.words[word] &= !(1 << (level % 64));
        if self.words[word] == 0 {
            self.summary &= !(1 << word);
        }
        if level == self.top && self.summary != 0 {
            let word = self.summary.ilog2() as u8 & 3;
            self.top = word * 64 + self.words[usize::from(word)].ilog2() as u8;
        }
    }

    #[inline]
    pub(super) fn put(&mut self, level: u8, is_in: bool) {
        if is_in { self.set(level) } else { self.clear(level) }
    }

    #[inline]
    pub(super) fn has(&self, level: u8) -> bool {
        self.words[usize::from(level / 64)] & 1 << (level % 64) != 0
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// There is one level.
    #[inline]
    pub(super) fn is_single(&self) -> bool {
        self.summary.is_power_of_two() && self.words[usize::from(self.top / 64)].is_power_of_two()
    }

    #[inline]
    pub(super) fn top(&self) -> Option<u8> {
        (self.summary != 0).then_some(self.top)
    }

    /// The highest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u8> {
        std::iter::successors(self.top(), |level| self.below(*level))
    }

    /// The highest level below this one.
    pub(super) fn below(&self, level: u8) -> Option<u8> {
        let word = usize::from(level / 64);
        let of = |word: usize, bits: u64| bits.checked_ilog2().map(|bit| (word * 64) as u8 + bit as u8);
        let partial = self.words[word] & ((1 << (level % 64)) - 1);
        of(word, partial).or_else(|| (0..word).rev().find_map(|word| of(word, self.words[word])))
    }
}
