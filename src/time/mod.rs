//! Time: what it is ([`clock`]), where delayed keys wait for it ([`wheel`]), and who looks at it ([`driver`]).

pub(crate) mod clock;
pub(crate) mod driver;
mod rough;
pub(crate) mod wheel;

use crate::numbers;
use std::time::Duration;

/// How long from now until then. The end of time never comes: `Duration::MAX`.
#[inline]
pub(crate) fn rest(until: u64, now: u64) -> Duration {
    if until == u64::MAX { Duration::MAX } else { Duration::from_nanos(until.saturating_sub(now)) }
}

/// A delay in nanoseconds: at most 584 years, which is for ever.
#[inline]
pub(crate) fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}
