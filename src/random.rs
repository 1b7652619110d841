//! Jitter (`fastrand`; not cryptographic).

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;

/// Draws random factors by which delays are extended.
#[derive(Debug, Default)]
pub(crate) struct Jitter {
    /// Finite, not negative. 0: no jitter.
    pub(crate) factor: f64,
    pub(crate) seed: Option<u64>,
    /// The number of draws from the seed.
    draws: AtomicU64,
}

impl Jitter {
    /// Uniformly distributed in `[0, factor)`.
    #[inline]
    pub(crate) fn part(&self) -> f64 {
        if self.factor == 0.0 { 0.0 } else { self.draw() * self.factor }
    }

    fn draw(&self) -> f64 {
        let Some(seed) = self.seed else { return fastrand::f64() };
        // Relaxed: the counter guards no other data. Each draw has a generator of its own, so that threads need not share one;
        // `with_seed` mixes its argument well.
        let draw = self.draws.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        fastrand::Rng::with_seed(seed.wrapping_add(draw)).f64()
    }
}

/// `delay * (1 + part)`: in whole nanoseconds, rounded down, at most `Duration::MAX`.
pub(crate) fn longer(delay: Duration, part: f64) -> Duration {
    let more = delay.as_nanos() as f64 * part;
    delay.saturating_add(from_nanos(more))
}

/// This number of nanoseconds, rounded down, clamped to `0..=Duration::MAX`.
pub(crate) fn from_nanos(nanos: f64) -> Duration {
    let nanos = nanos as u128; // saturates; NaN is 0
    match u64::try_from(nanos / 1_000_000_000) {
        Ok(seconds) => Duration::new(seconds, (nanos % 1_000_000_000) as u32),
        Err(_) => Duration::MAX,
    }
}
