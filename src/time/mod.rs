//! Time: what it is ([`clock`]), where delayed keys wait for it ([`wheel`]), and who looks at it ([`driver`]).

pub(crate) mod clock;
pub(crate) mod driver;
mod rough;
pub(crate) mod wheel;

use std::time::Duration;

/// A delay in nanoseconds: at most 584 years, which is for ever.
#[inline]
pub(crate) fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}
