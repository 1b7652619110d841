//! The system's clock, read in half the time: from the processor's counter, and from the clock every 50 µs.
//!
//! ```text
//!  clock    ──┬──────────────────────────┬─────────────┬────────────▶
//!        calibrated                    read       calibrated
//!  counter  ──┴──────────────────────────┴─────────────┴────────────▶
//!             │◀─ ticks * ns_per_tick ──▶│
//!             │◀───────── TRUSTED_NS at most ─────────▶│
//! ```
//!
//! Each thread calibrates for itself. The counter's rate is measured over all the time since the thread first read it, and is trusted
//! for no longer than [`TRUSTED_NS`]. An error of a thousandth is 50 ns then, does not accumulate, and is larger than any expected error.
//! Each calibration compares clock and counter. If the counter went on while the clock stood still (the machine was suspended), or if
//! it jumped, the thread measures from there.
//!
//! A rate takes [`WARMUP`] to measure. So the threads share one, and nothing else: the first thread that has measured it, and found it
//! right once, writes it to [`SHARED_RATE`], and new threads begin with that. A thread that finds it wrong withdraws it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a calibration is trusted, in nanoseconds.
const TRUSTED_NS: u64 = 50_000;

/// For how long the counter is measured before it is trusted, in nanoseconds: the two readings of a calibration are some 50 ns apart.
const WARMUP: u64 = 10_000_000;

/// The rate with which a new thread begins: nanoseconds a tick, times 2^32. 0: not known.
// Relaxed: the number is all there is.
static SHARED_RATE: AtomicU64 = AtomicU64::new(0);

/// One reading of the clock and of the counter.
#[derive(Clone, Copy)]
struct Calibration {
    counter: u64,
    clock: u64,
    /// Nanoseconds a tick, times 2^32. 0: not known yet.
    ns_per_tick: u64,
    /// The number of ticks for which the counter is trusted: [`TRUSTED_NS`]. 0: not at all.
    trusted_ticks: u64,
}

thread_local! {
    static LAST: Cell<Calibration> =
        const { Cell::new(Calibration { counter: 0, clock: 0, ns_per_tick: 0, trusted_ticks: 0 }) };
    /// Where measuring began. `None`: the thread has not read the clock yet.
    static FIRST: Cell<Option<Calibration>> = const { Cell::new(None) };
}

/// The approximate time of `clock`; if it is not `real`, its exact time. One call does all but the fast path: with two, the compiler saves
/// registers before the fast path (a token of a bucket takes 59 instructions then, and 48 so).
#[inline]
pub(super) fn now(real: bool, clock: impl Fn() -> u64) -> u64 {
    let last = LAST.get();
    if real && last.trusted_ticks != 0 {
        let ticks = counter().wrapping_sub(last.counter);
        if ticks < last.trusted_ticks {
            // The product is less than TRUSTED_NS * 2^32.
            return last.clock + ((ticks * last.ns_per_tick) >> 32);
        }
    }
    calibrate(real, clock)
}

/// The first call of the process takes half a millisecond, in which `quanta` measures the counter for itself.
#[inline]
pub(crate) fn counter() -> u64 {
    static COUNTER: OnceLock<quanta::Clock> = OnceLock::new();
    COUNTER.get_or_init(quanta::Clock::new).raw()
}

#[cold]
#[inline(never)]
fn calibrate(real: bool, clock: impl Fn() -> u64) -> u64 {
    if real { calibrate_from(clock, counter, &SHARED_RATE) } else { clock() }
}

/// Calibrates this thread, unless its counter is being measured.
fn calibrate_from(clock: impl Fn() -> u64, counter: impl Fn() -> u64, shared_rate: &AtomicU64) -> u64 {
    let (last, first) = (LAST.get(), FIRST.get());
    if let (0, Some(first)) = (last.trusted_ticks, first) {
        let clock = clock();
        if clock.saturating_sub(first.clock) < WARMUP {
            return clock;
        }
    }
    // The thread may be descheduled between two readings: the pair that is closest together counts.
    let pair = || {
        let before = counter();
        let clock = clock();
        (counter().wrapping_sub(before), before, clock)
    };
    let (_, counter, clock) = [pair(), pair(), pair()].into_iter().min().expect("three");
    let mut next = Calibration { counter, clock, ns_per_tick: 0, trusted_ticks: 0 };
    match first {
        Some(first) if last.consistent_with(next) => {
            if clock.saturating_sub(first.clock) < WARMUP {
                next.trust(last.ns_per_tick.into());
            } else {
                let ticks = u128::from(counter.wrapping_sub(first.counter)).max(1);
                next.trust((u128::from(clock.saturating_sub(first.clock)) << 32) / ticks);
                if last.trusted_ticks != 0 && shared_rate.load(Ordering::Relaxed) == 0 {
                    shared_rate.store(next.ns_per_tick, Ordering::Relaxed);
                }
            }
        }
        Some(_) => {
            FIRST.set(Some(next));
            shared_rate.store(0, Ordering::Relaxed);
        }
        None => {
            FIRST.set(Some(next));
            next.trust(shared_rate.load(Ordering::Relaxed).into());
        }
    }
    LAST.set(next);
    clock
}

impl Calibration {
    /// Trusts the counter, unless it has less than one tick in [`TRUSTED_NS`], or more than 2^32 in a nanosecond, or no known rate.
    fn trust(&mut self, ns_per_tick: u128) {
        if let Some(trusted) = (u128::from(TRUSTED_NS) << 32).checked_div(ns_per_tick) {
            self.ns_per_tick = ns_per_tick as u64;
            self.trusted_ticks = trusted as u64;
        }
    }

    /// Whether clock and counter have gone on by the same time since this calibration, to within a hundredth and a microsecond.
    /// `true` if the counter's rate is not known.
    fn consistent_with(&self, next: Calibration) -> bool {
        let by_clock = u128::from(next.clock.saturating_sub(self.clock));
        let ticks = u128::from(next.counter.wrapping_sub(self.counter));
        let by_counter = (ticks * u128::from(self.ns_per_tick)) >> 32;
        self.trusted_ticks == 0 || by_clock.abs_diff(by_counter) <= by_clock / 100 + 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use std::time::{Duration, Instant};

    /// The number of readings, and the number of readings that were off by more than a microsecond. The clock is read before and after
    /// each: the reading must lie between the two.
    fn compare(clock: impl Fn() -> u64, time: Duration) -> (u64, u64) {
        let (mut reads, mut off) = (0, 0);
        let end = Instant::now() + time;
        while Instant::now() < end {
            let before = clock();
            let coarse = now(true, &clock);
            let after = clock();
            reads += 1;
            off += u64::from(coarse + 1000 < before || coarse > after + 1000);
        }
        (reads, off)
    }

    /// One reading in 20 may be off: on a busy machine the thread changes processors, and their counters may be microseconds apart
    /// until the next calibration (seen: 1.5 % of the readings, in a virtual machine). The faults that these tests are for make
    /// nearly all readings wrong.
    const TOLERATED: u64 = 20;

    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn it_shows_what_the_clock_shows() {
        let (clock, read) = (Clock::new(), Cell::new(0));
        let count = || {
            read.set(read.get() + 1);
            clock.now()
        };
        let (reads, off) = compare(count, Duration::from_millis(300));
        assert!(reads > 1000 && off * TOLERATED < reads, "{off} of {reads}");
        assert_ne!(LAST.get().trusted_ticks, 0, "the rate was measured");
        // `compare` reads the clock twice itself, and most of the readings between are the counter's.
        assert!(read.get() < reads * 5 / 2, "{} readings of the clock, {reads} of either", read.get());
        let given = |_| (now(true, || clock.now()) > 7, now(false, || 7));
        assert!((0..100).map(given).all(|pair| pair == (true, 7)), "a clock that is given is not the counter's");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn a_new_thread_begins_with_the_rate_of_another() {
        let clock = Clock::new();
        let begins_with_it = || {
            compare(|| clock.now(), Duration::from_millis(30));
            let begin = || {
                let (reads, off) = compare(|| clock.now(), Duration::from_millis(1));
                (LAST.get().trusted_ticks != 0).then_some((reads, off))
            };
            std::thread::scope(|scope| scope.spawn(begin).join().unwrap())
        };
        // The other tests withdraw the rate once.
        let (reads, off) = (0..5).find_map(|_| begins_with_it()).expect("the counter was used at once");
        assert!(reads > 100 && off * TOLERATED < reads, "{off} of {reads}");
    }

    /// A clock, and a counter with two ticks a nanosecond, which move only as a test says.
    #[derive(Default)]
    struct Steps {
        time: Cell<u64>,
        /// What the counter has lost.
        lost: Cell<u64>,
        /// How long the next readings of the clock take.
        take: Cell<[u64; 3]>,
        shared_rate: AtomicU64,
    }

    const RATE: u64 = 1 << 31;

    impl Steps {
        /// A thread that reads the clock for the first time, at the time 1000.
        fn begin(shared_rate: u64) -> Self {
            LAST.set(Calibration { counter: 0, clock: 0, ns_per_tick: 0, trusted_ticks: 0 });
            FIRST.set(None);
            let steps = Self { time: Cell::new(1000), shared_rate: AtomicU64::new(shared_rate), ..Self::default() };
            steps.at(1000);
            steps
        }

        /// Calibrates at this time, and returns the rate that the thread measured and the one that is shared.
        fn at(&self, time: u64) -> (u64, u64) {
            self.time.set(time);
            let clock = || {
                let [takes, next @ ..] = self.take.get();
                self.time.set(self.time.get() + takes);
                self.take.set([next[0], next[1], 0]);
                self.time.get()
            };
            calibrate_from(clock, || 2 * self.time.get() - self.lost.get(), &self.shared_rate);
            (LAST.get().ns_per_tick, self.shared_rate.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_rate_is_trusted_after_the_warm_up_and_shared_when_it_was_right_once() {
        let steps = Steps::begin(0);
        assert_eq!(steps.at(1000 + WARMUP - 1), (0, 0));
        assert_eq!(steps.at(1000 + WARMUP), (RATE, 0));
        assert_eq!(LAST.get().trusted_ticks, 2 * TRUSTED_NS);
        assert_eq!(steps.at(1000 + 2 * WARMUP), (RATE, RATE));
        // It stays as it is.
        steps.shared_rate.store(RATE + 1, Ordering::Relaxed);
        assert_eq!(steps.at(1000 + 3 * WARMUP), (RATE, RATE + 1));
    }

    #[test]
    fn a_shared_rate_serves_until_the_thread_has_measured_its_own() {
        let steps = Steps::begin(RATE + 9);
        assert_eq!(steps.at(1000 + WARMUP - 1), (RATE + 9, RATE + 9));
        assert_eq!(steps.at(1000 + WARMUP), (RATE, RATE + 9));
    }

    #[test]
    fn a_rate_is_wrong_from_a_hundredth_and_a_microsecond_on() {
        for (lost, is_right) in [(2 * 11_000, true), (2 * 11_001, false)] {
            let steps = Steps::begin(0);
            steps.at(1000 + WARMUP);
            steps.shared_rate.store(RATE, Ordering::Relaxed);
            steps.lost.set(lost);
            let (rate, shared) = steps.at(1000 + WARMUP + 1_000_000);
            assert_eq!((rate > 0, shared), if is_right { (true, RATE) } else { (false, 0) });
            // The thread measures from there.
            assert_eq!(FIRST.get().unwrap().clock, if is_right { 1000 } else { 1000 + WARMUP + 1_000_000 });
        }
    }

    #[test]
    fn of_three_pairs_of_readings_the_closest_counts() {
        for (take, closest) in [([10, 500, 700], 10), ([500, 10, 700], 510), ([500, 700, 10], 1210)] {
            let steps = Steps::begin(0);
            steps.at(1000 + WARMUP);
            steps.take.set(take);
            steps.at(1000 + 2 * WARMUP);
            assert_eq!(LAST.get().clock, 1000 + 2 * WARMUP + closest);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "the time there is not real")]
    fn it_follows_a_clock_that_stood_still() {
        let (clock, slept) = (Clock::new(), Cell::new(0));
        let awake = || clock.now() - slept.get();
        compare(awake, Duration::from_millis(30));
        let before = awake();
        std::thread::sleep(Duration::from_millis(300));
        slept.set(clock.now() - before);
        let (reads, off) = compare(awake, Duration::from_millis(100));
        assert!(reads > 1000 && off * TOLERATED < reads, "{off} of {reads}");
    }
}
