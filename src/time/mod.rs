//! Time: the clock ([`clock`]), and the deadlines of delayed keys ([`wheel`]) and of calls that block ([`deadline`]).

pub(crate) mod clock;
#[cfg(all(feature = "quanta", not(loom)))]
pub(crate) mod coarse_clock;
pub(crate) mod deadline;
pub(crate) mod wheel;

use crate::slab;
use std::num::NonZeroU64;
use std::time::Duration;

/// The time from `now` to `until`; `Duration::MAX` if `until` is `u64::MAX`, which means never.
#[inline]
pub(crate) fn time_left(until: u64, now: u64) -> Duration {
    if until == u64::MAX { Duration::MAX } else { Duration::from_nanos(until.saturating_sub(now)) }
}

/// A delay in nanoseconds. A delay of more than 584 years is `u64::MAX`, and never expires.
#[inline]
pub(crate) const fn nanos(delay: Duration) -> u64 {
    let nanos = delay.as_nanos();
    if nanos < u64::MAX as u128 { nanos as u64 } else { u64::MAX }
}

/// A time in nanoseconds, of which an `Option` takes one word. The largest one has no end, as in [`nanos`], and so has the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nanos(NonZeroU64);

impl Nanos {
    pub(crate) const fn new(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    pub(crate) const fn get(self) -> u64 {
        match self.0.get() {
            u64::MAX => u64::MAX,
            one_more => one_more - 1,
        }
    }
}
