//! Sets of levels, as bitmaps.

/// A bitmap of 256 levels.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Words(pub(crate) [u64; 4]);

impl Words {
    #[inline]
    pub(crate) fn has(&self, level: u8) -> bool {
        self.0[usize::from(level / 64)] & 1 << (level % 64) != 0
    }

    /// The highest level below this one.
    pub(crate) fn below(&self, level: u8) -> Option<u8> {
        let word = usize::from(level / 64);
        let partial = highest(word, self.0[word] & ((1 << (level % 64)) - 1));
        partial.or_else(|| (0..word).rev().find_map(|word| highest(word, self.0[word])))
    }

    pub(crate) fn of(level: u8) -> Self {
        let mut words = Self::default();
        words.0[usize::from(level / 64)] = 1 << (level % 64);
        words
    }

    /// From the highest level down.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> {
        std::iter::successors(self.top(), |level| self.below(*level))
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn top(&self) -> Option<u8> {
        (0..4).rev().find_map(|word| highest(word, self.0[word]))
    }

    #[inline]
    pub(crate) fn add(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word |= other);
    }
}

/// A set of levels that knows its highest one.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Bits {
    words: Words,
    len: u16,
    /// The highest level, if there is one. It is found when the set changes, so that a pop need not wait for it.
    top: u8,
    /// Whether the set has changed since the last [`words`](Self::words). The caller may set this, too.
    pub(super) has_changed: bool,
}

impl Bits {
    #[inline]
    pub(super) fn put(&mut self, level: u8, is_in: bool) {
        if self.has(level) == is_in {
            return;
        }
        self.words.0[usize::from(level / 64)] ^= 1 << (level % 64);
        self.has_changed = true;
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
        self.words.has(level)
    }

    /// The set, which counts as unchanged from now on.
    pub(super) fn words(&mut self) -> Words {
        self.has_changed = false;
        self.words
    }

    #[inline]
    pub(super) fn len(&self) -> u16 {
        self.len
    }

    #[inline]
    pub(super) fn top(&self) -> Option<u8> {
        (self.len > 0).then_some(self.top)
    }

    /// From the highest level down.
    pub(super) fn iter(&self) -> impl Iterator<Item = u8> {
        self.words.iter()
    }

    pub(super) fn below(&self, level: u8) -> Option<u8> {
        self.words.below(level)
    }
}

fn highest(word: usize, bits: u64) -> Option<u8> {
    bits.checked_ilog2().map(|bit| (word * 64) as u8 + bit as u8)
}
