//! How long a key waits after a number of failures: pure functions of that number, whose answers saturate, so that none overflows (P14).

use crate::error::InvalidArgument;
use crate::time::nanos;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A pure function from the number of failures so far to a delay.
///
/// Sealed, because it runs under a lock. A limiter of your own is an implementation of [`RateLimiter`](super::RateLimiter).
pub trait Schedule: sealed::Sealed + Clone + Send + Sync + 'static {
    /// The delay after a failure that has this number of failures before it.
    #[doc(hidden)]
    fn delay(&self, failures: u32) -> Duration;

    /// The longest of all delays.
    #[doc(hidden)]
    fn longest(&self) -> Duration;

    /// The maximum, which jitter must not exceed. `Duration::MAX` means that there is none.
    #[doc(hidden)]
    fn cap(&self) -> Duration {
        Duration::MAX
    }

    /// The same as a function, for a queue that counts the failures itself.
    #[doc(hidden)]
    fn to_function(&self) -> ScheduleFn {
        let schedule = self.clone();
        ScheduleFn(Arc::new(move |failures| nanos(schedule.delay(failures))))
    }
}

/// A [`Schedule`] as a function, with delays in nanoseconds. Only this crate makes one, because it runs under a lock.
#[doc(hidden)]
#[derive(Clone)]
pub struct ScheduleFn(Arc<dyn Fn(u32) -> u64 + Send + Sync>);

impl fmt::Debug for ScheduleFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleFn").finish_non_exhaustive()
    }
}

impl Deref for ScheduleFn {
    type Target = dyn Fn(u32) -> u64 + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exponential {}
    impl Sealed for super::FastSlow {}
    impl Sealed for super::StepTable {}
}

/// `base * 2^failures`, up to a maximum.
#[derive(Clone, PartialEq, Eq)]
pub struct Exponential {
    /// All delays but the longest: `base`, doubled until it reaches the maximum. There are at most 95.
    delays: Box<[Duration]>,
    longest: Duration,
}

/// One delay for the first failures, another for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    max_fast_attempts: usize,
}

/// A table of rows, each with the failure from which on its delay counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepTable {
    /// Not empty; the numbers ascend.
    rows: Box<[(usize, Duration)]>,
}

impl Exponential {
    pub(super) fn new(base: Duration, max: Duration) -> Self {
        let longest = if base.is_zero() { base } else { max };
        let shorter = |delay: Duration| (delay < longest).then_some(delay);
        let double = |delay: &Duration| shorter(delay.saturating_mul(2));
        Self { delays: std::iter::successors(shorter(base), double).collect(), longest }
    }
}

impl fmt::Debug for Exponential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delays: Vec<_> = self.delays.iter().chain([&self.longest]).collect();
        f.debug_struct("Exponential").field("delays", &delays).finish()
    }
}

impl Schedule for Exponential {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        self.delays.get(failures as usize).copied().unwrap_or(self.longest)
    }

    fn longest(&self) -> Duration {
        self.longest
    }

    fn cap(&self) -> Duration {
        self.longest()
    }
}

impl FastSlow {
    pub(super) fn new(fast: Duration, slow: Duration, max_fast_attempts: usize) -> Self {
        Self { fast, slow, max_fast_attempts }
    }
}

impl Schedule for FastSlow {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        if (failures as usize) < self.max_fast_attempts { self.fast } else { self.slow }
    }

    fn longest(&self) -> Duration {
        self.fast.max(self.slow)
    }
}

impl StepTable {
    pub(super) fn new(rows: impl IntoIterator<Item = (usize, Duration)>) -> Result<Self, InvalidArgument> {
        let rows: Box<[_]> = rows.into_iter().collect();
        if rows.is_empty() {
            return Err(InvalidArgument::new("rows", "empty", "there must be at least one"));
        }
        match rows.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            None => Ok(Self { rows }),
            Some(pair) => {
                let value = format!("[.., ({}, ..), ({}, ..), ..]", pair[0].0, pair[1].0);
                Err(InvalidArgument::new("rows", value, "the numbers of failures must ascend"))
            }
        }
    }
}

impl Schedule for StepTable {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        let rows = self.rows.partition_point(|&(from, _)| from <= failures as usize);
        self.rows[rows.saturating_sub(1)].1
    }

    fn longest(&self) -> Duration {
        self.rows.iter().map(|&(_, delay)| delay).max().expect("not empty")
    }
}
