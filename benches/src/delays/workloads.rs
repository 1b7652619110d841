//! The workloads with delays. Each function runs one of them once, checks that no key was lost or came twice, and returns how long each
//! of the timed parts took. Delays are pseudo-random, the same in each run, and drawn before the clock starts.

use super::{DelaySubject, Manual};
use common::threads::span;
use std::ops::Range;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;

fn delays(keys: u64, nanos: Range<u64>) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(0);
    (0..keys).map(|_| Duration::from_nanos(random.u64(nanos.clone()))).collect()
}

fn filled_manual<Q: Manual>(delays: &[Duration]) -> Q {
    let mut queue = Q::make();
    for (key, delay) in delays.iter().enumerate() {
        queue.add_after(key as u64, *delay);
    }
    queue
}

/// A queue with this number of delayed keys.
pub fn filled<Q: DelaySubject>(keys: u64) -> Q {
    let mut random = fastrand::Rng::with_seed(0);
    let queue = Q::make();
    for key in 0..keys {
        queue.add_after(key, Duration::from_nanos(random.u64(600 * SECOND..1200 * SECOND)));
    }
    assert_eq!(queue.settle() as u64, keys);
    queue
}

/// New keys, delays of 1 to 60 seconds. Times two parts: until all delays are set, and until the calls have returned.
pub fn insert<Q: DelaySubject>(keys: u64, threads: u64) -> Vec<Duration> {
    let delays = delays(keys, SECOND..60 * SECOND);
    let queue = Q::make();
    let (start, returned) = span(threads, |thread| {
        for key in (thread..keys).step_by(threads as usize) {
            queue.add_after(key, delays[key as usize]);
        }
    });
    let delayed = queue.settle();
    let settled = start.elapsed();
    // After a second the first keys expire.
    assert!(delayed as u64 == keys || settled > Duration::from_secs(1), "{delayed} of {keys} keys are delayed");
    vec![settled, returned - start]
}

/// Delays for keys that have one: half of them later, which changes nothing, half of them earlier, which moves the key.
pub fn re_add<Q: DelaySubject>(keys: u64, threads: u64, adds: u64) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(0);
    // Delays of hours, so that the duration of the run does not change which of two deadlines is earlier.
    let mut stands: Vec<u64> = (0..keys).map(|_| random.u64(3600 * SECOND..7200 * SECOND)).collect();
    let queue = Q::make();
    for (key, delay) in stands.iter().enumerate() {
        queue.add_after(key as u64, Duration::from_nanos(*delay));
    }
    // Each thread has keys of its own: which delay is earlier does not depend on which thread is first.
    let calls: Vec<Vec<(u64, Duration)>> = (0..threads)
        .map(|thread| {
            let mut call = |n| {
                let key = random.u64(0..keys / threads) * threads + thread;
                let stands = &mut stands[key as usize];
                let percent = if n % 2 == 0 { 110..150 } else { 50..90 };
                let delay = *stands / 100 * random.u64(percent);
                *stands = delay.min(*stands);
                (key, Duration::from_nanos(delay))
            };
            (0..adds / threads).map(&mut call).collect()
        })
        .collect();
    assert_eq!(queue.settle() as u64, keys);
    let (start, _) = span(threads, |thread| {
        for (key, delay) in &calls[thread as usize] {
            queue.add_after(*key, *delay);
        }
    });
    let delayed = queue.settle();
    let settled = start.elapsed();
    assert_eq!(delayed as u64, keys);
    vec![settled]
}

/// Delays of 1 to 60 seconds expire all at once. Times two parts: until all keys are queued, and until all are done.
pub fn expire<Q: Manual>(keys: u64) -> Vec<Duration> {
    let mut queue: Q = filled_manual(&delays(keys, SECOND..60 * SECOND));
    let mut out = Vec::with_capacity(keys as usize);
    let start = Instant::now();
    let due = queue.advance(Duration::from_secs(61));
    let ready = start.elapsed();
    for _ in 0..due {
        queue.process(|key| out.push(*key));
    }
    let done = start.elapsed();
    each_once(out, keys);
    vec![ready, done]
}

/// About `live` keys are delayed, by 0.1 to 2 seconds. Each step sets one more, every third cancels one, and every 64th
/// advances the clock and processes the expired keys.
pub fn mixed<Q: Manual>(live: u64, steps: u64) -> Vec<Duration> {
    // At this rate, as many delays are set as expire or are cancelled.
    let tick = 64 * SECOND * 4 / 5 / live;
    let plan = Plan::new(live, steps, tick);
    let mut queue: Q = filled_manual(&plan.delays[..live as usize]);
    let mut out = Vec::with_capacity((live + steps) as usize);
    let start = Instant::now();
    for (n, cancel) in (0..).zip(&plan.cancels) {
        queue.add_after(live + n, plan.delays[(live + n) as usize]);
        if let Some(key) = cancel {
            let cancelled = queue.cancel(key);
            assert!(cancelled, "a live key");
        }
        if n % 64 == 63 {
            for _ in 0..queue.advance(Duration::from_nanos(tick)) {
                queue.process(|key| out.push(*key));
            }
        }
    }
    let time = start.elapsed();
    for _ in 0..queue.advance(Duration::from_secs(3)) {
        queue.process(|key| out.push(*key));
    }
    out.extend(plan.cancels.iter().flatten());
    each_once(out, live + steps);
    vec![time]
}

/// The random choices of [`mixed`].
struct Plan {
    /// The delay of each key.
    delays: Vec<Duration>,
    /// For each step, a key that is delayed at that step.
    cancels: Vec<Option<u64>>,
}

impl Plan {
    fn new(live: u64, steps: u64, tick: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(0);
        let delays = delays(live + steps, SECOND / 10..2 * SECOND);
        let mut cancelled = vec![false; delays.len()];
        let deadline = |key: u64| {
            let ticks = key.saturating_sub(live) / 64;
            ticks * tick + delays[key as usize].as_nanos() as u64
        };
        let cancels = (0..steps).map(|n| {
            let now = n / 64 * tick;
            // Older keys are no longer delayed.
            let oldest = (live + n).saturating_sub(3 * live);
            (n % 3 == 2).then(|| {
                loop {
                    let key = random.u64(oldest..live + n + 1);
                    if deadline(key) > now && !std::mem::replace(&mut cancelled[key as usize], true) {
                        break key;
                    }
                }
            })
        });
        let cancels = cancels.collect();
        Self { delays, cancels }
    }
}

/// Moves the delays of random keys, of `keys` delayed ones, to earlier deadlines.
pub fn moved<Q: Manual>(keys: u64, moves: u64) -> Vec<Duration> {
    const HOUR: u64 = 3_600_000_000_000;
    // Short enough steps that no delay expires, even of a key with many more moves than the average.
    let most = HOUR / (2 * moves / keys).max(2);
    let mut random = fastrand::Rng::with_seed(0);
    let mut stands: Vec<u64> = (0..keys).map(|_| random.u64(10 * HOUR..11 * HOUR)).collect();
    let mut queue = Q::make();
    for (key, delay) in (0..).zip(&stands) {
        queue.add_after(key, Duration::from_nanos(*delay));
    }
    let calls: Vec<(u64, Duration)> = (0..moves)
        .map(|_| {
            let key = random.u64(0..keys);
            let stands = &mut stands[key as usize];
            *stands -= random.u64(1..most);
            (key, Duration::from_nanos(*stands))
        })
        .collect();
    assert_eq!(queue.advance(Duration::ZERO), 0);
    let start = Instant::now();
    for (key, delay) in calls {
        queue.add_after(key, delay);
    }
    let due = queue.advance(Duration::ZERO);
    let time = start.elapsed();
    assert_eq!(due, 0);
    vec![time]
}

fn each_once(mut out: Vec<u64>, keys: u64) {
    out.sort_unstable();
    assert!(out.into_iter().eq(0..keys), "a key was lost or came twice");
}
