//! Whether the machine lets two threads run as they like, so that a latency says something about the queue and not about the system.
//!
//! The control has no queue: for some milliseconds one thread works without a pause, and another, on another core, sleeps and wakes again and
//! again. It runs before and after each measurement of a latency. If the thread that works lost its core for a while, or the sleeper was
//! woken late, other programs or the host of a virtual machine had the cores. Then the measurement does not count, and is made again.

use crate::latency::histogram;
use crate::pin::{Core, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Sleeps of the control.
const SLEEPS: u32 = 100;
const SLEEP: Duration = Duration::from_micros(100);

/// Nine of ten sleeps are late by less: the system's timers are late by 50 microseconds as a rule.
const WAKES: Duration = Duration::from_micros(200);
/// A pause of the thread that works: longer than an interrupt takes.
const PAUSE: Duration = Duration::from_micros(20);
/// The pauses of the thread that works are less than this part of the time.
const PAUSES: u32 = 50;

/// Measures again, up to `tries` times, until the machine was quiet before and after. Returns the last measurement, and how many were thrown
/// away.
pub fn undisturbed<T>(tries: u32, mut measure: impl FnMut() -> T) -> (T, u32) {
    let mut thrown_away = 0;
    let mut was_quiet = is_quiet();
    loop {
        let measured = measure();
        let is_quiet = is_quiet();
        if was_quiet && is_quiet || thrown_away == tries {
            return (measured, thrown_away);
        }
        was_quiet = is_quiet;
        thrown_away += 1;
    }
}

/// Runs the control.
fn is_quiet() -> bool {
    let (stop, begin) = (AtomicBool::new(false), Instant::now());
    let (late, paused) = thread::scope(|scope| {
        let works = scope.spawn(|| {
            pin(Core::Second);
            let (mut last, mut paused) = (Instant::now(), Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now - last > PAUSE {
                    paused += now - last;
                }
                last = now;
            }
            paused
        });
        let sleeps = scope.spawn(|| {
            pin(Core::First);
            let mut late = histogram();
            for _ in 0..SLEEPS {
                let until = Instant::now() + SLEEP;
                thread::sleep(SLEEP);
                late.record(until.elapsed().as_nanos() as u64).expect("resizes by itself");
            }
            late
        });
        let late = sleeps.join().expect("it does not panic");
        stop.store(true, Ordering::Relaxed);
        (Duration::from_nanos(late.value_at_quantile(0.9)), works.join().expect("it does not panic"))
    });
    late < WAKES && paused < begin.elapsed() / PAUSES
}
