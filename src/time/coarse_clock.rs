//! The system's clock, read in half the time: from the processor's counter, and only every 50 µs from the clock itself.
//!
//! ```text
//!  clock    ──┬────────────────────────┬───────────┬────────────▶
//!           read                    computed     read
//!  counter  ──┴────────────────────────┴───────────┴────────────▶
//!             │◀─ ticks * ns_per_tick ▶│
//!             │◀───── TRUSTED_NS at most ─────────▶│
//! ```
//!
//! `quanta` measures the rate of the counter once in a process, to within 0.1 %. Each thread reads counter and clock together, and computes
//! the time from this pair for no longer than [`TRUSTED_NS`], so even with a rate that is off by 0.1 % the time is wrong by at most 50 ns,
//! and the errors do not add up. After a jump of the counter, or a suspension of the machine, more ticks than that have passed, and the
//! thread reads a new pair.

use std::cell::Cell;
use std::sync::OnceLock;

/// For how many nanoseconds a pair of readings is used.
const TRUSTED_NS: u64 = 50_000;

/// What the counter and the clock showed when a thread read both, and the counter's rate.
#[derive(Clone, Copy)]
struct Pair {
    counter: u64,
    clock: u64,
    /// Nanoseconds for each tick, times 2^32.
    ns_per_tick: u64,
    /// The number of ticks in [`TRUSTED_NS`], or 0 if the thread has read nothing yet.
    trusted_ticks: u64,
}

thread_local! {
    static LAST: Cell<Pair> = const { Cell::new(Pair { counter: 0, clock: 0, ns_per_tick: 0, trusted_ticks: 0 }) };
}

/// The approximate time of `clock` if it is `real`, and otherwise its exact time. One call does everything but the fast path, because with
/// two the compiler saves registers before the fast path.
#[inline]
pub(super) fn now(real: bool, clock: impl Fn() -> u64) -> u64 {
    let last = LAST.get();
    if real {
        if let Some(time) = last.time_at(counter()) {
            return time;
        }
    }
    read(real, clock)
}

#[cold]
#[inline(never)]
fn read(real: bool, clock: impl Fn() -> u64) -> u64 {
    if !real {
        return clock();
    }
    let last = Pair::read(quanta(), clock);
    LAST.set(last);
    last.clock
}

#[inline]
pub(crate) fn counter() -> u64 {
    quanta().raw()
}

/// The first call of the process takes half a millisecond, in which `quanta` measures the counter's rate.
#[inline]
fn quanta() -> &'static quanta::Clock {
    static QUANTA: OnceLock<quanta::Clock> = OnceLock::new();
    QUANTA.get_or_init(quanta::Clock::new)
}

impl Pair {
    fn read(quanta: &quanta::Clock, clock: impl Fn() -> u64) -> Self {
        // The counter is read first, so that the pair is soon too old if the thread loses its processor between the two readings.
        let (counter, clock) = (quanta.raw(), clock());
        let ns_per_tick = quanta.delta_as_nanos(0, 1 << 32);
        let trusted_ticks = (TRUSTED_NS << 32).checked_div(ns_per_tick).unwrap_or(0);
        Self { counter, clock, ns_per_tick, trusted_ticks }
    }

    /// The time at which the counter shows this, or `None` if the pair is too old.
    #[inline]
    fn time_at(&self, counter: u64) -> Option<u64> {
        let ticks = counter.wrapping_sub(self.counter);
        // The product is less than TRUSTED_NS * 2^32.
        (ticks < self.trusted_ticks).then(|| self.clock + ((ticks * self.ns_per_tick) >> 32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use std::time::{Duration, Instant};

    /// The readings lie between two readings of the clock, to within a microsecond, and few of them read the clock themselves.
    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn it_shows_what_the_clock_shows() {
        let (clock, read) = (Clock::new(), Cell::new(0));
        let (mut reads, mut off) = (0_u64, 0);
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            let before = clock.now();
            let coarse = now(true, || {
                read.set(read.get() + 1);
                clock.now()
            });
            let after = clock.now();
            reads += 1;
            off += u64::from(coarse + 1000 < before || coarse > after + 1000);
        }
        // One reading in 20 may be off, because on a busy machine the thread changes processors, and their counters may be microseconds
        // apart until the clock is read again.
        assert!(reads > 1000 && off * 20 < reads, "{off} of {reads}");
        assert!(read.get() < reads / 2, "{} readings of the clock in {reads}", read.get());
        // Neither clock is answered with the time of the other: the system's has been running for 300 ms by now.
        let both = |_| (now(true, || clock.now()) > 100_000_000, now(false, || 7));
        assert!((0..100).map(both).all(|pair| pair == (true, 7)), "a clock that is given is not the counter's");
    }

    /// A clock, and a counter with a tick for each nanosecond, which move only as a test says.
    struct Steps {
        time: Cell<u64>,
        quanta: quanta::Clock,
        counter: std::sync::Arc<quanta::Mock>,
    }

    impl Steps {
        /// The time is 1000.
        fn begin() -> Self {
            let (quanta, counter) = quanta::Clock::mock();
            counter.increment(1_000_000_u64);
            Self { time: Cell::new(1000), quanta, counter }
        }

        fn pass(&self, clock: u64, counter: u64) {
            self.time.set(self.time.get() + clock);
            self.counter.increment(counter);
        }

        fn read(&self) -> Pair {
            Pair::read(&self.quanta, || self.time.get())
        }
    }

    #[test]
    fn a_pair_is_used_for_a_while() {
        let steps = Steps::begin();
        let pair = steps.read();
        for (ticks, time) in [(0, Some(1000)), (TRUSTED_NS - 1, Some(1000 + TRUSTED_NS - 1)), (1, None)] {
            steps.pass(0, ticks);
            assert_eq!(pair.time_at(steps.quanta.raw()), time);
        }
    }

    #[test]
    fn a_pair_is_not_used_if_the_counter_jumps() {
        let steps = Steps::begin();
        let pair = steps.read();
        steps.pass(10, 3_600_000_000_000); // the machine was suspended
        assert_eq!(pair.time_at(steps.quanta.raw()), None);
        let pair = steps.read();
        steps.counter.decrement(1_u64); // the thread is on another processor, whose counter is behind
        assert_eq!(pair.time_at(steps.quanta.raw()), None);
    }

    #[test]
    fn a_pair_is_not_used_if_its_thread_lost_its_processor_between_the_readings() {
        let steps = Steps::begin();
        let read = || {
            let time = steps.time.get();
            steps.pass(1_000_000, 1_000_000);
            time
        };
        let pair = Pair::read(&steps.quanta, read);
        assert_eq!((pair.clock, pair.time_at(steps.quanta.raw())), (1000, None));
    }
}
