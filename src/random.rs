//! Chance, from `fastrand`, for jitter: spread, not secrecy.

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// Draws how much longer a delay gets.
#[derive(Debug)]
pub(crate) struct Jitter {
    factor: f64,
    seed: Option<u64>,
    /// How often it was drawn from the seed.
    draws: AtomicU64,
}

impl Jitter {
    /// `factor` is finite, and not negative.
    pub(crate) fn new(factor: f64) -> Self {
        Self { factor, seed: None, draws: AtomicU64::new(0) }
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Evenly spread in `[0, factor)`.
    pub(crate) fn part(&self) -> f64 {
        let random = match self.seed {
            None => fastrand::f64(),
            // Relaxed: the number is all there is. A generator for each draw, so that threads need not share one.
            Some(seed) => {
                fastrand::Rng::with_seed(seed ^ self.draws.fetch_add(1, Ordering::Relaxed).rotate_left(32)).f64()
            }
        };
        random * self.factor
    }
}

/// A delay, and this part of it on top: in whole nanoseconds, rounded down, `Duration::MAX` at most.
pub(crate) fn longer(delay: Duration, part: f64) -> Duration {
    let more = delay.as_nanos() as f64 * part;
    delay.saturating_add(crate::random::nanos(more))
}

/// So many nanoseconds, rounded down, between none and `Duration::MAX`.
pub(crate) fn nanos(nanos: f64) -> Duration {
    let nanos = nanos as u128; // saturates; NaN is 0
    match u64::try_from(nanos / 1_000_000_000) {
        Ok(seconds) => Duration::new(seconds, (nanos % 1_000_000_000) as u32),
        Err(_) => Duration::MAX,
    }
}
