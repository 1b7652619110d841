//! Time: the clock ([`clock`]), and the deadlines of delayed keys ([`wheel`]) and of calls that block ([`deadline`]).

pub(crate) mod clock;
#[cfg(all(feature = "quanta", not(loom)))]
pub(crate) mod coarse_clock;
pub(crate) mod deadline;
pub(crate) mod wheel;

use crate::slab;
use std::time::Duration;

/// The time from `now` to `until`; `Duration::MAX` if `until` is `u64::MAX`, which means never.
#[inline]
pub(crate) fn time_left(until: u64, now: u64) -> Duration {
    if until == u64::MAX { Duration::MAX } else { Duration::from_nanos(until.saturating_sub(now)) }
}

/// A delay in nanoseconds. A delay of more than 584 years is `u64::MAX`, and never expires.
#[inline]
pub(crate) fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}
