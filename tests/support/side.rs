//! An instant, and those next to it.

use arbitrary::Arbitrary;

/// The nanosecond or tick, or the one before or after it.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub(crate) enum Side {
    Before,
    At,
    After,
}

impl Side {
    pub(crate) fn of(self, ticks: u64) -> u64 {
        match self {
            Self::Before => ticks.saturating_sub(1),
            Self::At => ticks,
            Self::After => ticks.saturating_add(1),
        }
    }
}
