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

/// Both at one moment.
#[derive(Clone, Copy)]
struct Look {
    counter: u64,
    clock: u64,
}

#[derive(Clone, Copy)]
struct State {
    /// Where measuring began. `None`: nowhere so far.
    first: Option<Look>,
    last: Look,
    /// Nanoseconds a tick, times 2^32. 0: not known yet.
    pace: u64,
}

const NEVER: Look = Look { counter: 0, clock: 0 };

thread_local!(static STATE: Cell<State> = const { Cell::new(State { first: None, last: NEVER, pace: 0 }) });

/// What `clock` would say.
#[inline]
pub(super) fn now(clock: impl Fn() -> u64) -> u64 {
    let state = STATE.get();
    if state.pace != 0 {
        let since = state.since(counter());
        if since < u128::from(SPAN) {
            return state.last.clock + since as u64;
        }
    }
    look(state, clock)
}

/// The first call of all takes half a millisecond: `quanta` measures the counter too, for itself.
#[inline]
pub(super) fn counter() -> u64 {
    static COUNTER: OnceLock<quanta::Clock> = OnceLock::new();
    COUNTER.get_or_init(quanta::Clock::new).raw()
}

#[cold]
fn look(mut state: State, clock: impl Fn() -> u64) -> u64 {
    if let (0, Some(first)) = (state.pace, state.first) {
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
    let look = Look { counter, clock };
    match state.first {
        Some(first) if state.agrees(look) => {
            let ticks = u128::from(counter.wrapping_sub(first.counter)).max(1);
            let pace = (u128::from(clock.saturating_sub(first.clock)) << 32) / ticks;
            // Slower than a tick a second: not a counter.
            state.pace = u64::try_from(pace).unwrap_or(0);
        }
        _ => {
            state.first = Some(look);
            state.pace = 0;
        }
    }
    state.last = look;
    STATE.set(state);
    clock
}

impl State {
    /// How much time has passed since the last look, by the counter.
    #[inline]
    fn since(&self, counter: u64) -> u128 {
        (u128::from(counter.wrapping_sub(self.last.counter)) * u128::from(self.pace)) >> 32
    }

    /// Whether the counter, if its pace is known, says of this time what the clock says, to within a hundredth and a microsecond.
    fn agrees(&self, look: Look) -> bool {
        let by_clock = u128::from(look.clock.saturating_sub(self.last.clock));
        let by_counter = self.since(look.counter);
        self.pace == 0 || by_clock.abs_diff(by_counter) <= by_clock / 100 + 1000
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

    /// The scheduler may do what it likes, so a few are let pass.
    #[test]
    fn it_is_what_the_clock_says() {
        let clock = Clock::new();
        let (reads, off) = compare(|| clock.now(), Duration::from_millis(300));
        assert!(reads > 1000 && off * 1000 < reads, "{off} of {reads}");
        assert_ne!(STATE.get().pace, 0, "the counter was used");
    }

    #[test]
    fn a_clock_that_stood_still_is_followed_all_the_same() {
        let (clock, slept) = (Clock::new(), Cell::new(0));
        let awake = || clock.now() - slept.get();
        compare(awake, Duration::from_millis(30));
        let before = awake();
        std::thread::sleep(Duration::from_millis(300));
        slept.set(clock.now() - before);
        let (reads, off) = compare(awake, Duration::from_millis(100));
        assert!(reads > 1000 && off * 1000 < reads, "{off} of {reads}");
    }
}
