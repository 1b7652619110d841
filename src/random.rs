//! Chance, from `fastrand`, for jitter: spread, not secrecy.

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// Draws how much longer a delay gets.
#[derive(Debug, Default)]
pub(crate) struct Jitter {
    /// Finite, and not negative. 0: no jitter.
    pub(crate) factor: f64,
    pub(crate) seed: Option<u64>,
    /// How often it was drawn from the seed.
    draws: AtomicU64,
}

impl Jitter {
    /// Evenly spread in `[0, factor)`.
    #[inline]
    pub(crate) fn part(&self) -> f64 {
        if self.factor == 0.0 { 0.0 } else { self.draw() * self.factor }
    }

    fn draw(&self) -> f64 {
        let Some(seed) = self.seed else { return fastrand::f64() };
        // Relaxed: the number is all there is. A generator for each draw, so that threads need not share one; it mixes well
        // what it is given.
        let draw = self.draws.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        fastrand::Rng::with_seed(seed.wrapping_add(draw)).f64()
    }
}

/// A delay, and this part of it on top: in whole nanoseconds, rounded down, `Duration::MAX` at most.
pub(crate) fn longer(delay: Duration, part: f64) -> Duration {
    let more = delay.as_nanos() as f64 * part;
    delay.saturating_add(from_nanos(more))
}

/// So many nanoseconds, rounded down, between none and `Duration::MAX`.
pub(crate) fn from_nanos(nanos: f64) -> Duration {
    let nanos = nanos as u128; // saturates; NaN is 0
    match u64::try_from(nanos / 1_000_000_000) {
        Ok(seconds) => Duration::new(seconds, (nanos % 1_000_000_000) as u32),
        Err(_) => Duration::MAX,
    }
}
