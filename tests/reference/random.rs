//! Random numbers for the runs: from a seed (splitmix64), so that a run is known by one number, or from the bytes of a fuzzer.

/// See the top of this file.
#[derive(Debug, Clone)]
pub(crate) enum Random {
    Seed(u64),
    /// What is left of the bytes, last first.
    Bytes(Vec<u8>),
}

impl Random {
    pub(crate) fn of_bytes(data: &[u8]) -> Self {
        Self::Bytes(data.iter().rev().copied().collect())
    }

    /// Whether there are no bytes left. The numbers go on, as zeros.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }

    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Seed(seed) => {
                *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let x = (*seed ^ (*seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                x ^ (x >> 31)
            }
            Self::Bytes(bytes) => u64::from_le_bytes(std::array::from_fn(|_| bytes.pop().unwrap_or(0))),
        }
    }

    /// A number below `n`. Takes one byte if that is enough.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        match self {
            Self::Bytes(bytes) if n <= 256 => u64::from(bytes.pop().unwrap_or(0)) % n,
            _ => self.next() % n,
        }
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
