//! The system's clock, read in half the time: from the processor's counter, since the clock was last looked at.
//!
//! ```text
//!  clock    ──┬──────────────────────────────────┬───────────────────▶
//!          looked at          read           looked at again
//!  counter  ──┴──────────────────┴───────────────┴───────────────────▶
//!             │◀─ ticks * pace ─▶│
//!             │◀──────────── SPAN at most ──────▶│
//! ```
//!
//! Each thread looks for itself, so there is nothing to share. How fast the counter runs is measured over all the time since the
//! thread first read it, and trusted for no longer than [`SPAN`]: an error of a thousandth, and there will hardly be one as
//! large, is 50 ns, and does not add up. At each look the two are compared. If the counter went on while the clock stood still
//! (the machine was suspended), or jumped, measuring begins anew.

use std::cell::Cell;
use std::sync::OnceLock;

/// How long the counter is trusted, in nanoseconds.
const SPAN: u64 = 50_000;

/// How long it is watched before it is trusted at all: two readings of the clock are some 50 ns apart from those of the counter.
const WATCHED: u64 = 10_000_000;

/// When both were looked at.
#[derive(Clone, Copy)]
struct Look {
    counter: u64,
    clock: u64,
    /// Nanoseconds a tick, times 2^32. 0: not known yet.
    pace: u64,
    /// For how many ticks the counter is trusted: [`SPAN`].
    span: u64,
}

thread_local! {
    static LAST: Cell<Look> = const { Cell::new(Look { counter: 0, clock: 0, pace: 0, span: 0 }) };
    /// Where measuring began. `None`: nowhere so far.
    static FIRST: Cell<Option<Look>> = const { Cell::new(None) };
}

/// What `clock` would say.
#[inline]
pub(super) fn now(clock: impl Fn() -> u64) -> u64 {
    let last = LAST.get();
    if last.span != 0 {
        let ticks = counter().wrapping_sub(last.counter);
        if ticks < last.span {
            // Less than SPAN * 2^32.
            return last.clock + ((ticks * last.pace) >> 32);
        }
    }
    look(clock)
}

/// The first call of all takes half a millisecond: `quanta` measures the counter too, for itself.
#[inline]
pub(super) fn counter() -> u64 {
    static COUNTER: OnceLock<quanta::Clock> = OnceLock::new();
    COUNTER.get_or_init(quanta::Clock::new).raw()
}

#[cold]
fn look(clock: impl Fn() -> u64) -> u64 {
    let (last, first) = (LAST.get(), FIRST.get());
    if let (0, Some(first)) = (last.span, first) {
        let clock = clock();
        if clock.saturating_sub(first.clock) < WATCHED {
            return clock;
        }
    }
    // The thread may lose its processor between two readings: the pair that is closest together counts.
    let pair = || {
        let counter = self::counter();
        let clock = clock();
        (self::counter().wrapping_sub(counter), counter, clock)
    };
    let (_, counter, clock) = [pair(), pair(), pair()].into_iter().min().expect("three");
    let mut look = Look { counter, clock, pace: 0, span: 0 };
    match first {
        Some(first) if last.agrees(look) => {
            let ticks = u128::from(counter.wrapping_sub(first.counter)).max(1);
            let pace = (u128::from(clock.saturating_sub(first.clock)) << 32) / ticks;
            // Slower than a tick in SPAN is not a counter, and faster than 2^32 a nanosecond neither.
            if let Some(span) = (u128::from(SPAN) << 32).checked_div(pace) {
                look.pace = pace as u64;
                look.span = span as u64;
            }
        }
        _ => FIRST.set(Some(look)),
    }
    LAST.set(look);
    clock
}

impl Look {
    /// Whether the counter, if its pace is known, says of the time since what the clock says, to within a hundredth and a
    /// microsecond.
    fn agrees(&self, now: Look) -> bool {
        let by_clock = u128::from(now.clock.saturating_sub(self.clock));
        let ticks = u128::from(now.counter.wrapping_sub(self.counter));
        let by_counter = (ticks * u128::from(self.pace)) >> 32;
        self.span == 0 || by_clock.abs_diff(by_counter) <= by_clock / 100 + 1000
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Clock;
    use std::time::{Duration, Instant};

    /// How many readings, and how many of them were off by more than a microsecond: the clock is looked at before and after, so
    /// what is between must be there.
    fn compare(clock: impl Fn() -> u64, time: Duration) -> (u64, u64) {
        let (mut reads, mut off) = (0, 0);
        let end = Instant::now() + time;
        while Instant::now() < end {
            let before = clock();
            let rough = now(&clock);
            let after = clock();
            reads += 1;
            off += u64::from(rough + 1000 < before || rough > after + 1000);
        }
        (reads, off)
    }

    /// Some are let pass: on a busy machine the thread changes processors, and their counters may be microseconds apart until the
    /// next look (seen: 1.5 % of them, in a virtual machine). What these tests are for is wrong nearly always.
    const LET_PASS: u64 = 20;

    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn it_is_what_the_clock_says() {
        let clock = Clock::new();
        let (reads, off) = compare(|| clock.now(), Duration::from_millis(300));
        assert!(reads > 1000 && off * LET_PASS < reads, "{off} of {reads}");
        assert_ne!(LAST.get().span, 0, "the counter was used");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn a_clock_that_stood_still_is_followed_all_the_same() {
        let (clock, slept) = (Clock::new(), Cell::new(0));
        let awake = || clock.now() - slept.get();
        compare(awake, Duration::from_millis(30));
        let before = awake();
        std::thread::sleep(Duration::from_millis(300));
        slept.set(clock.now() - before);
        let (reads, off) = compare(awake, Duration::from_millis(100));
        assert!(reads > 1000 && off * LET_PASS < reads, "{off} of {reads}");
    }
}
