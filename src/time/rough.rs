//! The system's clock, read in half the time: from the processor's counter, since the clock was last looked at.
//!
//! ```text
//!  clock    ──┬──────────────────────────────────┬───────────────────▶
//!          looked at          read           looked at again
//!  counter  ──┴──────────────────┴───────────────┴───────────────────▶
//!             │◀─ ticks * pace ─▶│
//!             │◀──────────────── SPAN at most ──▶│
//! ```
//!
//! Each thread looks for itself, so there is nothing to share. How fast the counter runs is measured over all the time since it
//! was first read, and used for no longer than [`SPAN`]: an error of a thousandth, and there will hardly be one as large, is 50
//! ns, and does not add up. A counter that jumps is found out when it is next compared, [`SPAN`] later or at once.

use std::cell::Cell;
use std::sync::OnceLock;

/// How long the counter is trusted, in nanoseconds.
const SPAN: u64 = 50_000;

/// How long it is watched before it is trusted at all: two readings of the clock are some 50 ns apart from those of the counter.
const WATCHED: u64 = 10_000_000;

/// When the clock was looked at.
#[derive(Clone, Copy)]
struct Look {
    counter: u64,
    clock: u64,
    /// Nanoseconds a tick, times 2^32. 0: not known yet.
    pace: u64,
}

thread_local!(static LAST: Cell<Look> = const { Cell::new(Look { counter: 0, clock: 0, pace: 0 }) });

/// What `clock` would say.
#[inline]
pub(super) fn now(clock: impl Fn() -> u64) -> u64 {
    let last = LAST.get();
    let ticks = counter().wrapping_sub(last.counter);
    let since = (u128::from(ticks) * u128::from(last.pace)) >> 32;
    if last.pace != 0 && since < u128::from(SPAN) { last.clock + since as u64 } else { look(clock) }
}

#[inline]
fn counter() -> u64 {
    static COUNTER: OnceLock<quanta::Clock> = OnceLock::new();
    COUNTER.get_or_init(quanta::Clock::new).raw()
}

#[cold]
fn look(clock: impl Fn() -> u64) -> u64 {
    static FIRST: OnceLock<(u64, u64)> = OnceLock::new();
    // The thread may lose its processor between two readings: the pair that is closest together counts.
    let pair = || {
        let counter = self::counter();
        let clock = clock();
        (self::counter().wrapping_sub(counter), counter, clock)
    };
    let (_, counter, clock) = [pair(), pair(), pair()].into_iter().min().expect("three");
    let (first_counter, first_clock) = *FIRST.get_or_init(|| (counter, clock));
    let watched = clock.saturating_sub(first_clock);
    let ticks = counter.saturating_sub(first_counter);
    let pace = if watched >= WATCHED && ticks > 0 { (u128::from(watched) << 32) / u128::from(ticks) } else { 0 };
    // Slower than a tick a second: not a counter.
    LAST.set(Look { counter, clock, pace: u64::try_from(pace).unwrap_or(0) });
    clock
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::Clock;
    use std::time::{Duration, Instant};

    /// The clock is looked at before and after, so what is between must be there; and a scheduler may do what it likes.
    #[test]
    fn it_is_what_the_clock_says() {
        let clock = Clock::new();
        let (mut reads, mut off) = (0_u64, 0);
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let before = clock.now();
            let rough = clock.rough();
            let after = clock.now();
            reads += 1;
            off += u64::from(rough + 1000 < before || rough > after + 1000);
        }
        assert!(reads > 1000 && off * 1000 < reads, "{off} of {reads} are off by more than a microsecond");
    }
}
