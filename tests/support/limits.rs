//! Limiters that are evidently right: a count for each key, and delays in whole nanoseconds of 128 bits, doubled
//! one at a time.
//!
//! They are the oracle of the replays, for one thread and without a clock. For the traces there is also a token bucket that
//! computes in doubles, as Go's does.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use std::collections::BTreeMap;
use std::time::Duration;

/// A delay by the number of failures before it, in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) enum Schedule {
    Exponential {
        base: u128,
        max: u128,
    },
    FastSlow {
        fast: u128,
        slow: u128,
        max_fast_attempts: u64,
    },
    /// Not empty; the numbers ascend.
    Step(Vec<(u64, u128)>),
}

/// See the top of this file.
#[derive(Debug, Clone)]
pub(crate) enum Limits<K> {
    PerKey {
        schedule: Schedule,
        failures: BTreeMap<K, u64>,
    },
    MaxOf(Vec<Self>),
    /// With a longest wait.
    MaxWait(Box<Self>, u128),
}

impl Schedule {
    pub(crate) fn delay(&self, failures: u64) -> u128 {
        match self {
            Self::Exponential { base, max } => {
                let mut delay = *base;
                // After 100 steps, one nanosecond has grown longer than any `Duration`.
                for _ in 0..failures.min(100) {
                    delay = (delay * 2).min(*max);
                }
                delay.min(*max)
            }
            Self::FastSlow { fast, slow, max_fast_attempts } => {
                if failures < *max_fast_attempts {
                    *fast
                } else {
                    *slow
                }
            }
            Self::Step(rows) => rows.iter().rev().find(|(from, _)| *from <= failures).unwrap_or(&rows[0]).1,
        }
    }

    /// The longest of all delays.
    pub(crate) fn longest(&self) -> u128 {
        match self {
            Self::Exponential { .. } => self.delay(u64::MAX),
            Self::FastSlow { fast, slow, .. } => *fast.max(slow),
            Self::Step(rows) => rows.iter().map(|&(_, delay)| delay).max().expect("not empty"),
        }
    }
}

impl<K: Ord + Clone> Limits<K> {
    pub(crate) fn new(schedule: Schedule) -> Self {
        Self::PerKey { schedule, failures: BTreeMap::new() }
    }

    pub(crate) fn when(&mut self, key: &K) -> u128 {
        match self {
            Self::PerKey { schedule, failures } => {
                let failures = failures.entry(key.clone()).or_default();
                *failures += 1;
                schedule.delay(*failures - 1)
            }
            Self::MaxOf(limits) => limits.iter_mut().map(|limits| limits.when(key)).max().unwrap_or(0),
            Self::MaxWait(limits, max) => limits.when(key).min(*max),
        }
    }

    pub(crate) fn forget(&mut self, key: &K) {
        match self {
            Self::PerKey { failures, .. } => _ = failures.remove(key),
            Self::MaxOf(limits) => limits.iter_mut().for_each(|limits| limits.forget(key)),
            Self::MaxWait(limits, _) => limits.forget(key),
        }
    }

    pub(crate) fn num_requeues(&self, key: &K) -> usize {
        match self {
            Self::PerKey { failures, .. } => failures.get(key).map_or(0, |&failures| failures as usize),
            Self::MaxOf(limits) => limits.iter().map(|limits| limits.num_requeues(key)).max().unwrap_or(0),
            Self::MaxWait(limits, _) => limits.num_requeues(key),
        }
    }
}

pub(crate) fn duration(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos / SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}

/// A token bucket in doubles: its operations and their order give the results of `tests/data/bucket.jsonl`, to the last bit.
#[derive(Debug)]
pub(crate) struct Doubles {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: i64,
}

impl Doubles {
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { rate, burst, tokens: burst, last: 0 }
    }

    /// Reserves a token at this time. Returns the wait in nanoseconds, `i64::MAX` if it is too long, and whether it was granted.
    pub(crate) fn reserve(&mut self, now: i64) -> (i64, bool) {
        if self.rate == f64::INFINITY {
            return (0, true);
        }
        if self.burst == 0.0 {
            return (i64::MAX, false);
        }
        let since = (now - self.last).max(0);
        let seconds = (since / 1_000_000_000) as f64 + (since % 1_000_000_000) as f64 / 1e9;
        self.tokens = (self.tokens + seconds * self.rate).min(self.burst) - 1.0;
        self.last = now;
        match self.tokens {
            tokens if tokens >= 0.0 => (0, true),
            // Saturates, at a rate of 0 too.
            debt => ((-debt / self.rate * 1e9) as i64, true),
        }
    }
}

/// By how many nanoseconds a wait is off the one in doubles: at most a microsecond, or the precision of a double (53 bits) if
/// that is coarser. `None`: the doubles reached their maximum, and the wait is as long or longer.
pub(crate) fn off(wait: Duration, doubles: i64) -> Option<u128> {
    let doubles = u128::try_from(doubles).expect("a wait is not negative");
    if doubles == i64::MAX as u128 {
        assert!(wait.as_nanos() >= doubles, "{wait:?} is too short");
        return None;
    }
    let off = wait.as_nanos().abs_diff(doubles);
    assert!(off <= 1_000.max(doubles >> 51), "{wait:?} should be {doubles} ns: {off} off");
    Some(off)
}
