//! Random numbers for the runs: from a seed (splitmix64), so that a run is known by one number, or from the bytes of a fuzzer.

/// See the top of this file.
#[derive(Debug, Clone)]
pub(crate) enum Random {
    Seed(u64),
    Bytes(Bytes),
}

/// The bytes of a fuzzer.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    /// What is left of them, last first.
    left: Vec<u8>,
    /// The numbers that they stood for.
    drawn: Vec<u8>,
}

impl Random {
    pub(crate) fn of_bytes(data: &[u8]) -> Self {
        Self::Bytes(Bytes { left: data.iter().rev().copied().collect(), drawn: Vec::new() })
    }

    /// Whether there are no bytes left. The numbers go on, as zeros.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.left.is_empty())
    }

    /// The numbers that were drawn from bytes. As bytes these give the same numbers, also from longer lists of choices.
    pub(crate) fn drawn(&self) -> &[u8] {
        if let Self::Bytes(bytes) = self { &bytes.drawn } else { &[] }
    }

    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Seed(seed) => {
                *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                x ^ (x >> 31)
            }
            Self::Bytes(bytes) => u64::from_le_bytes(std::array::from_fn(|_| bytes.left.pop().unwrap_or(0))),
        }
    }

    /// A number below `n`. Takes one byte if that is enough.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let number = match self {
            Self::Bytes(bytes) if n <= 256 => u64::from(bytes.left.pop().unwrap_or(0)) % n,
            _ => self.next() % n,
        };
        if let Self::Bytes(bytes) = self {
            bytes.drawn.extend(&number.to_le_bytes()[..if n <= 256 { 1 } else { 8 }]);
        }
        number
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// True once in `n` calls.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}
