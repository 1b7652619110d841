//! The work. Each function does it once and returns how long the timed part took; threads start at a barrier, and what is
//! set up and torn down is not timed.

use crate::{Key, Subject};
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// add + get + done, one key at a time, going round `keys` keys. Includes making the owned key that `add` takes.
pub fn cycle<K: Key, Q: Subject<K>>(keys: u64, cycles: u64) -> Duration {
    let queue = Q::make();
    let keys: Vec<K> = (0..keys).map(K::nth).collect();
    let round = |n: u64| {
        for key in keys.iter().cycle().take(n as usize) {
            queue.add(key.clone());
            queue.process(|_, key| _ = std::hint::black_box(key));
        }
    };
    round(keys.len().min(cycles as usize) as u64);
    let start = Instant::now();
    round(cycles);
    start.elapsed()
}

/// Adds of keys that are in line already.
pub fn duplicates<K: Key, Q: Subject<K>>(keys: u64, threads: u64, adds: u64) -> Duration {
    let queue = Q::make();
    let keys: Vec<K> = (0..keys).map(K::nth).collect();
    keys.iter().for_each(|key| queue.add(key.clone()));
    timed(threads, |thread| {
        let offset = thread as usize * keys.len() / 2;
        for key in keys.iter().cycle().skip(offset).take((adds / threads) as usize) {
            queue.add(key.clone());
        }
    })
}

/// Workers that add the key they hold once more before they are done with it; `keys` keys are on their way.
pub fn ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64) -> Duration {
    let queue = Q::make();
    (0..keys).for_each(|n| queue.add(K::nth(n)));
    timed(threads, |_| {
        for _ in 0..turns / threads {
            queue.process(|queue, key| queue.add(key.clone()));
        }
    })
}

/// New keys all the time, from `producers` threads to as many consumers, with at most `backlog` on their way.
pub fn unique<K: Key, Q: Subject<K>>(pairs: u64, backlog: u64, keys: u64) -> Duration {
    let queue = Q::make();
    // Each consumer counts in a cache line of its own, and producers look only when they think that the line is full.
    let consumed: Vec<CachePadded<AtomicU64>> = (0..pairs).map(|_| CachePadded::default()).collect();
    let producing = AtomicUsize::new(pairs as usize);
    timed(2 * pairs, |thread| {
        let id = thread / 2;
        if thread % 2 == 0 {
            let mut seen = 0;
            for n in 0..keys / pairs {
                while n * pairs >= seen + backlog {
                    seen = consumed.iter().map(|count| count.load(Ordering::Relaxed)).sum();
                    if n * pairs >= seen + backlog {
                        thread::yield_now();
                    }
                }
                queue.add(K::nth(n * pairs + id));
            }
            if producing.fetch_sub(1, Ordering::SeqCst) == 1 {
                queue.shut_down();
            }
        } else {
            let mut count = 0;
            while queue.process(|_, key| _ = std::hint::black_box(key)) {
                count += 1;
                consumed[id as usize].store(count, Ordering::Relaxed);
            }
        }
    })
}

/// Fills the queue with new keys, then drains it.
pub fn fill_and_drain<K: Key, Q: Subject<K>>(keys: u64) -> Duration {
    let queue = Q::make();
    let keys: Vec<K> = (0..keys).map(K::nth).collect();
    let start = Instant::now();
    for key in &keys {
        queue.add(key.clone());
    }
    for _ in &keys {
        queue.process(|_, key| _ = std::hint::black_box(key));
    }
    start.elapsed()
}

/// From `add` to the return of a get that was parked, in nanoseconds, one key at a time.
pub fn wake_latency<Q: Subject<u64>>(wakes: u64) -> Histogram<u64> {
    let queue = Q::make();
    let woken = AtomicU64::new(0);
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    let mut latencies = Histogram::new(3).expect("3 digits");
    thread::scope(|scope| {
        scope.spawn(|| while queue.process(|_, _| woken.store(nanos(), Ordering::Release)) {});
        for n in 0..wakes {
            // Long enough for the getter to park. A sleep, so that both cores are idle as in a quiet process.
            thread::sleep(Duration::from_micros(100));
            let before = woken.load(Ordering::Acquire);
            let start = nanos();
            queue.add(n);
            let end = loop {
                match woken.load(Ordering::Acquire) {
                    woken if woken != before => break woken,
                    _ => std::hint::spin_loop(),
                }
            };
            latencies.record(end.saturating_sub(start).max(1)).expect("resizes by itself");
        }
        queue.shut_down();
    });
    latencies
}

/// What one cycle is made of: a map look-up, a push and a pop, and the atomic steps of a key's life (add, get, done, and the
/// check for sleepers).
pub fn parts(keys: u64, cycles: u64) -> Duration {
    let map: dashmap::DashMap<u64, AtomicU64, ahash::RandomState> = (0..keys).map(|n| (n, AtomicU64::new(0))).collect();
    let line = crossbeam_queue::SegQueue::new();
    let sleepers = AtomicU64::new(0);
    let start = Instant::now();
    for key in (0..keys).cycle().take(cycles as usize) {
        let state = map.get(&key).expect("there");
        state.fetch_or(1, Ordering::AcqRel);
        line.push(key);
        std::sync::atomic::fence(Ordering::SeqCst);
        std::hint::black_box(sleepers.load(Ordering::Relaxed));
        std::hint::black_box(line.pop());
        state.fetch_xor(3, Ordering::AcqRel);
        std::hint::black_box(state.compare_exchange(2, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    }
    start.elapsed()
}

/// Runs `work` on that many threads; how long that took.
fn timed(threads: u64, work: impl Fn(u64) + Sync) -> Duration {
    let (first, last) = span(threads, work);
    last - first
}

/// Runs `work` on that many threads; when the first began and when the last was finished, by their own clocks: on a full
/// machine the thread that waits for them may not see them begin.
pub(crate) fn span(threads: u64, work: impl Fn(u64) + Sync) -> (Instant, Instant) {
    let ready = Barrier::new(threads as usize);
    let times: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let spawn = |thread| {
            let (ready, work) = (&ready, &work);
            scope.spawn(move || {
                ready.wait();
                let start = Instant::now();
                work(thread);
                (start, Instant::now())
            })
        };
        let handles: Vec<_> = (0..threads).map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a worker panicked")).collect()
    });
    let first = times.iter().map(|(start, _)| *start).min().expect("a thread");
    let last = times.iter().map(|(_, end)| *end).max().expect("a thread");
    (first, last)
}
