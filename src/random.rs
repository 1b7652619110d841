//! Random numbers, not cryptographic, from one of two sources:
//!
//! ```text
//!   a seed that the user gave ──▶ [SplitMix]: the same numbers each time
//!   the system ──▶ [thread_f64]: a generator of the thread
//! ```
//!
//! Both are **splitmix64** (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, with the constants of
//! Vigna's public domain `splitmix64.c`): each number is a mix of a state that grows by a constant, so one atomic addition draws it, and
//! threads can share a seed.

use crate::sync::{AtomicU64, Ordering};
use ahash::RandomState;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::time::Duration;

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number that belongs to a state.
#[inline]
pub(crate) fn mix(state: u64) -> u64 {
    let x = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A number in `[0, 1)`.
#[inline]
fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

/// The numbers of a seed, which threads may share.
#[derive(Debug)]
pub(crate) struct SplitMix(AtomicU64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    #[inline]
    pub(crate) fn next(&self) -> u64 {
        // Relaxed: the state guards no other data.
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// A hasher that is seeded with the next four numbers.
    pub(crate) fn hasher(&self) -> RandomState {
        let [a, b, c, d] = std::array::from_fn(|_| self.next());
        RandomState::with_seeds(a, b, c, d)
    }
}

/// A number in `[0, 1)`, from the generator of this thread, which is seeded by the system.
fn thread_f64() -> f64 {
    std::thread_local!(static STATE: Cell<u64> = Cell::new(std::hash::RandomState::new().hash_one(0)));
    STATE.with(|state| {
        state.set(state.get().wrapping_add(STEP));
        unit(mix(state.get()))
    })
}

/// Draws random factors by which delays are extended.
#[derive(Debug)]
pub(crate) struct Jitter {
    /// Finite and not negative. 0 means no jitter.
    factor: f64,
    /// A delay above this counts as this, so that no delay exceeds the maximum.
    longest: Duration,
    /// `None` means the generator of the thread.
    pub(crate) numbers: Option<SplitMix>,
}

impl Default for Jitter {
    fn default() -> Self {
        Self { factor: 0.0, longest: Duration::MAX, numbers: None }
    }
}

impl Jitter {
    /// Sets jitter of up to this factor, for delays that are `max` at most together with their jitter. `Duration::MAX` is no maximum.
    pub(crate) fn set(&mut self, factor: f64, max: Duration) {
        (self.longest, self.factor) = within(max, factor);
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.factor == 0.0
    }

    /// The longest that a delay may become.
    pub(crate) fn longest(&self, delay: Duration) -> Duration {
        self.extend(delay, self.factor)
    }

    /// Uniformly distributed in `[0, factor)`.
    #[inline]
    pub(crate) fn part(&self) -> f64 {
        if self.is_none() { 0.0 } else { self.draw() * self.factor }
    }

    /// Extends `delay`, or the longest delay before its jitter if that is shorter, by this part of it.
    pub(crate) fn extend(&self, delay: Duration, part: f64) -> Duration {
        longer(delay.min(self.longest), part)
    }

    fn draw(&self) -> f64 {
        self.numbers.as_ref().map_or_else(thread_f64, |numbers| unit(numbers.next()))
    }
}

/// Extends `delay` by a random part of it, up to this factor.
pub(crate) fn longer_at_random(delay: Duration, max_factor: f64) -> Duration {
    longer(delay, thread_f64() * max_factor)
}

/// `delay * (1 + part)`: in whole nanoseconds, rounded down, at most `Duration::MAX`.
pub(crate) fn longer(delay: Duration, part: f64) -> Duration {
    let more = delay.as_nanos() as f64 * part;
    delay.saturating_add(from_nanos(more))
}

/// How to extend delays at random so that none exceeds `max`: the longest delay before the jitter, which is `max / (1 + factor)`, and the
/// factor. `Duration::MAX` is no maximum.
///
/// If that quotient is less than a nanosecond, it is one all the same, with the factor that fits, because otherwise each delay would be
/// zero.
pub(crate) fn within(max: Duration, factor: f64) -> (Duration, f64) {
    const LEAST: Duration = Duration::from_nanos(1);
    if max == Duration::MAX || max.is_zero() || factor == 0.0 {
        return (max, factor);
    }
    if longer(LEAST, factor) > max {
        return (LEAST, (max - LEAST).as_nanos() as f64);
    }
    let longest = from_nanos(max.as_nanos() as f64 / (1.0 + factor)).max(LEAST);
    // Products of more than 2^53 ns are not exact, and with such a factor they may be wrong by more than the delay.
    (longest.saturating_sub(longer(longest, factor).saturating_sub(max)).max(LEAST), factor)
}

/// This number of nanoseconds, rounded down, clamped to `0..=Duration::MAX`.
pub(crate) fn from_nanos(nanos: f64) -> Duration {
    let nanos = nanos as u128; // saturates; NaN is 0
    match u64::try_from(nanos / 1_000_000_000) {
        Ok(seconds) => Duration::new(seconds, (nanos % 1_000_000_000) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The first numbers of `splitmix64.c` with the seed 1234567.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let numbers = SplitMix::new(1_234_567);
        let first = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first.map(|_| numbers.next()), first);
    }

    /// With any part below the factor, the longest delay stays below the maximum, and comes near it.
    #[test]
    fn jitter_stays_within_a_maximum() {
        let times = [1, 2, 3, 999, 60_000_000_000, (1 << 53) + 1, u64::MAX - 7].map(Duration::from_nanos);
        let large = [1e6, 1e12, 2_f64.powi(63), 1e30, f64::MAX, f64::INFINITY];
        let small = [f64::MIN_POSITIVE, 1e-9, 0.1, 0.5, 1.0, 2.5];
        for max in times.into_iter().chain([Duration::from_secs(u64::MAX), Duration::MAX - Duration::from_nanos(1)]) {
            for given in small.into_iter().chain(large) {
                let (longest, factor) = within(max, given);
                assert!(longest > Duration::ZERO && factor <= given, "{max:?}, {given}");
                let ends = [0.0, 0.5, 1.0 - f64::EPSILON / 2.0].map(|unit| longer(longest, unit * factor));
                assert!(ends[0] == longest && ends.is_sorted() && ends[2] <= max, "{max:?}, {given}: {ends:?}");
                if given < 1e6 && max > Duration::from_secs(1) {
                    let [end, max] = [ends[2], max].map(|time| time.as_secs_f64());
                    assert!((max - end) / max < 1e-5, "{max:?}, {given}: {ends:?}");
                }
            }
        }
        let second = Duration::from_secs(1);
        assert_eq!(within(60 * second, 0.5), (40 * second, 0.5));
        assert_eq!(within(60 * second, 0.0), (60 * second, 0.0));
        assert_eq!(within(Duration::ZERO, 0.5).0, Duration::ZERO);
        assert_eq!(within(Duration::MAX, 0.5), (Duration::MAX, 0.5));
    }

    /// Two threads do not draw the same numbers from their generators.
    #[test]
    fn each_thread_has_a_generator() {
        let draw = || (0..4).map(|_| thread_f64().to_bits()).collect::<Vec<_>>();
        let other = std::thread::spawn(draw).join().expect("it draws");
        assert!(draw().iter().all(|number| !other.contains(number)), "{other:?}");
        assert!((0..10_000).map(|_| thread_f64()).all(|part| (0.0..1.0).contains(&part)));
    }
}
