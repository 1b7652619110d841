//! Allocates small numbers. The lowest free number is lent first, so that an array that is indexed by them can be truncated behind the
//! highest one.

/// The numbers that are lent, as bits. The last word is never 0.
#[derive(Debug, Default)]
pub(crate) struct NumberPool {
    lent: Vec<u64>,
    /// All words before this index are full.
    hint: usize,
}

impl NumberPool {
    #[inline]
    pub(crate) fn first(&mut self) -> u32 {
        while self.lent.get(self.hint) == Some(&u64::MAX) {
            self.hint += 1;
        }
        self.hint as u32 * 64 + self.lent.get(self.hint).map_or(0, |word| word.trailing_ones())
    }

    pub(crate) fn lend(&mut self) -> u32 {
        let number = self.first();
        self.put(number);
        number
    }

    /// Lends this number, which is the lowest free one.
    #[inline]
    pub(crate) fn put(&mut self, number: u32) {
        let at = number as usize / 64;
        if at == self.lent.len() {
            self.lent.push(0);
        }
        self.lent[at] |= 1 << (number % 64);
    }

    #[inline]
    pub(crate) fn give_back(&mut self, number: u32) {
        let at = number as usize / 64;
        debug_assert_ne!(self.lent[at] & 1 << (number % 64), 0, "it was not lent");
        self.lent[at] &= !(1 << (number % 64));
        self.hint = self.hint.min(at);
        while self.lent.last() == Some(&0) {
            self.lent.pop();
            self.hint = self.hint.min(self.lent.len());
        }
    }

    pub(crate) fn shrink(&mut self) {
        self.lent.shrink_to_fit();
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.lent.capacity() * size_of::<u64>()
    }

    /// One more than the highest number that is lent.
    pub(crate) fn end(&self) -> usize {
        self.lent.last().map_or(0, |word| self.lent.len() * 64 - word.leading_zeros() as usize)
    }
}

/// Shrinks an array to twice the length that is needed, if it takes more than four times as much. Some `more` values may come soon.
#[inline]
pub(crate) fn fit<T>(array: &mut Vec<T>, more: usize) {
    let needed = array.len() + more;
    if array.capacity() > 4 * needed {
        array.shrink_to(2 * needed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_lowest_free_number_is_lent() {
        let (mut numbers, mut lent) = (NumberPool::default(), BTreeSet::new());
        let mut random = fastrand::Rng::with_seed(1);
        for round in 0..20_000 {
            // Phases in which more numbers are lent than given back, and the reverse.
            if random.u32(0..10) < if round / 2500 % 2 == 0 { 7 } else { 2 } {
                let number = numbers.lend();
                assert_eq!(Some(number), (0..).find(|number| !lent.contains(number)));
                lent.insert(number);
            } else if let Some(&number) = random.choice(lent.iter()) {
                lent.remove(&number);
                numbers.give_back(number);
            }
            assert_eq!(numbers.end(), lent.last().map_or(0, |&last| last as usize + 1));
        }
    }

    #[test]
    fn an_array_that_got_short_gives_memory_back() {
        let mut array = Vec::with_capacity(1000);
        array.extend(0..300);
        fit(&mut array, 16);
        assert!(array.capacity() >= 1000, "an array that is not much too large keeps its memory");
        array.truncate(200);
        fit(&mut array, 16);
        assert!((400..500).contains(&array.capacity()));
    }
}
