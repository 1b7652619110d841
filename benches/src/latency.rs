//! The latency of a key.

use crate::floors::Channel;
use crate::pin::{Core, pin};
use crate::rivals::DashSeg;
use crate::{Ours, Subject};
use common::mutex::{parking_lot_mutex, std_mutex};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A measurement of this number of keys, in nanoseconds.
pub type Measure = fn(u64) -> Histogram<u64>;

pub type Distribution = (&'static str, u64, Vec<(&'static str, Measure)>);

macro_rules! everyone {
    ($work:ident) => {
        everyone!($work;
            Ours<u64>, parking_lot_mutex::Queue<u64>, std_mutex::Queue<u64>, DashSeg<u64>, Channel<u64>
        )
    };
    ($work:ident; $($queue:ty),*) => {
        vec![$((<$queue as Subject<u64>>::NAME, $work::<$queue> as Measure)),*]
    };
}

/// The name of each measurement, the number of keys per wake-up, and the subjects. Each thread stays on its core, see [`pin`].
///
/// * "wake-up": from `add` to the return of a getter that was parked on another core, with no other thread.
/// * "wake-up, one core": the same on the core of the adder.
/// * "under load": from the moment at which a key was to be added until it is handed out, with a worker that is busy half of
///   the time. Ten times as many keys.
pub fn all() -> [Distribution; 3] {
    [
        ("wake-up", 1, everyone!(wake_by_another_core)),
        ("wake-up, one core", 1, everyone!(wake_on_one_core)),
        ("under load", 10, everyone!(under_load)),
    ]
}

fn wake_by_another_core<Q: Subject<u64>>(wakes: u64) -> Histogram<u64> {
    wake_latency::<Q>(wakes, Core::Second)
}

fn wake_on_one_core<Q: Subject<u64>>(wakes: u64) -> Histogram<u64> {
    wake_latency::<Q>(wakes, Core::First)
}

/// From `add` to the return of a get that was parked, in nanoseconds, one key at a time.
fn wake_latency<Q: Subject<u64>>(wakes: u64, getter: Core) -> Histogram<u64> {
    let queue = Q::make();
    let woken = AtomicU64::new(0);
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(getter);
            while queue.process(|_, _| woken.store(nanos(), Ordering::Release)) {}
        });
        let adder = scope.spawn(|| {
            pin(Core::First);
            let mut latencies = histogram();
            for n in 0..wakes {
                // Long enough for the getter to park. This thread sleeps, so that both cores are idle, as in a quiet process.
                thread::sleep(APART);
                let before = woken.load(Ordering::Acquire);
                let start = nanos();
                queue.add(n);
                let end = loop {
                    match woken.load(Ordering::Acquire) {
                        woken if woken != before => break woken,
                        // The getter needs this core.
                        _ if matches!(getter, Core::First) => thread::sleep(APART),
                        _ => std::hint::spin_loop(),
                    }
                };
                latencies.record(end.saturating_sub(start).max(1)).expect("resizes by itself");
            }
            queue.shut_down();
            latencies
        });
        adder.join().expect("it does not panic")
    })
}

/// Between two wake-ups.
const APART: Duration = Duration::from_micros(100);

/// From the moment at which a key was to be added until it is handed out, in nanoseconds. One thread adds keys by a fixed plan, on
/// average one each 20 microseconds; another thread, on another core, takes them and is busy for 10 microseconds with each.
fn under_load<Q: Subject<u64>>(keys: u64) -> Histogram<u64> {
    const APART: u64 = 20_000;
    const BUSY: u64 = 10_000;
    // These do not count, because code and memory are used for the first time.
    const FIRST: u64 = 100;
    let mut random = fastrand::Rng::with_seed(0);
    let mut moment = 1_000_000;
    let mut next = |_| {
        moment += random.u64(0..2 * APART);
        moment
    };
    let moments: Vec<u64> = (0..keys).map(&mut next).collect();
    let queue = Q::make();
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    let until = |moment| {
        while nanos() < moment {
            std::hint::spin_loop();
        }
    };
    let mut latencies = histogram();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(Core::Second);
            while queue.process(|_, key| {
                let start = nanos();
                if *key >= FIRST {
                    latencies.record((start - moments[*key as usize]).max(1)).expect("resizes by itself");
                }
                until(start + BUSY);
            }) {}
        });
        scope.spawn(|| {
            pin(Core::First);
            for (key, moment) in (0..).zip(&moments) {
                until(*moment);
                queue.add(key);
            }
            queue.shut_down();
        });
    });
    latencies
}

/// A histogram of nanoseconds, which resizes by itself.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("3 digits")
}
