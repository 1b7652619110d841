//! How late a key is handed out after its deadline, on the real clock.

use super::DelaySubject;
use crate::latency::histogram;
use hdrhistogram::Histogram;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const MILLISECOND: u64 = 1_000_000;

/// The time from the start to the first deadline, in which all delays are set.
const OPENS: u64 = 400 * MILLISECOND;

/// The number of the flood's keys. The flood cycles through them, so that memory stays bounded.
const FLOOD: u64 = 1_000_000;

/// The result of one run, in nanoseconds.
pub struct Lateness {
    pub late: Histogram<u64>,
    /// Delays that the flood set, per second.
    pub flood: f64,
}

/// The delays of `keys` keys expire within two seconds, and a thread takes the keys. With `flood`, two other threads set delays of an
/// hour as fast as they can.
///
/// # Panics
/// If a key is early, by however little, or comes twice.
pub fn lateness<Q: DelaySubject>(keys: u64, flood: bool) -> Lateness {
    let queue = Q::make();
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    let mut random = fastrand::Rng::with_seed(0);
    let set = |key| {
        let moment = OPENS + random.u64(MILLISECOND..2000 * MILLISECOND);
        let now = nanos();
        let delay = moment.saturating_sub(now).max(MILLISECOND);
        queue.add_after(key, Duration::from_nanos(delay));
        now + delay
    };
    let deadlines: Vec<u64> = (0..keys).map(set).collect();
    queue.settle();
    let (late, flood) = beside(
        flood,
        || {
            let mut late = histogram();
            let mut seen = vec![false; keys as usize];
            for _ in 0..keys {
                queue.process(|_, key| {
                    let now = nanos();
                    let deadline = deadlines[*key as usize];
                    assert!(!std::mem::replace(&mut seen[*key as usize], true), "twice");
                    assert!(now >= deadline, "early by {} ns", deadline - now);
                    late.record(now - deadline).expect("resizes by itself");
                });
            }
            late
        },
        |n| {
            queue.add_after(keys + n % FLOOD, Duration::from_secs(3600));
            // A queue whose calls only send a message takes effect later: wait for that.
            if n % 1024 < 2 {
                queue.settle();
            }
        },
    );
    Lateness { late, flood }
}

/// A lower bound: a thread without a queue that parks until each of as many deadlines. With `flood`, two other threads compute.
pub fn bare(keys: u64, flood: bool) -> Lateness {
    let mut random = fastrand::Rng::with_seed(0);
    let mut deadlines: Vec<u64> = (0..keys).map(|_| OPENS + random.u64(MILLISECOND..2000 * MILLISECOND)).collect();
    deadlines.sort_unstable();
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    let (late, _) = beside(
        flood,
        || {
            let mut late = histogram();
            for deadline in deadlines {
                let now = loop {
                    match nanos() {
                        now if now >= deadline => break now,
                        now => thread::park_timeout(Duration::from_nanos(deadline - now)),
                    }
                };
                late.record(now - deadline).expect("resizes by itself");
            }
            late
        },
        |n| _ = black_box(n),
    );
    Lateness { late, flood: 0.0 }
}

/// Runs `work` on a thread. With `flood`, two other threads call `load` with growing numbers meanwhile. Returns the result of `work`
/// and the number of `load` calls per second.
fn beside<T: Send>(flood: bool, work: impl FnOnce() -> T + Send, load: impl Fn(u64) + Sync) -> (T, f64) {
    let over = AtomicBool::new(!flood);
    let start = Instant::now();
    thread::scope(|scope| {
        let floods: Vec<_> = (0..2)
            .map(|first| {
                let (over, load) = (&over, &load);
                scope.spawn(move || {
                    let mut n = first;
                    while !over.load(Relaxed) {
                        load(n);
                        n += 2;
                    }
                    n / 2
                })
            })
            .collect();
        // Ends the flood even if `work` panics: otherwise the scope would wait for it forever.
        let result = scope.spawn(work).join();
        over.store(true, Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let loads: u64 = floods.into_iter().map(|flood| flood.join().expect("a flood panicked")).sum();
        (result.expect("the worker panicked"), loads as f64 / seconds)
    })
}
