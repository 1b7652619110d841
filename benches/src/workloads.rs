//! The work. Each function does it once and returns how long the timed part took; threads start at a barrier, and what is
//! set up and torn down is not timed.

use crate::delays::Manual;
use crate::delays::lateness::histogram;
use crate::delays::workloads::random;
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
    let time = start.elapsed();
    assert_eq!(left(&queue), 0);
    time
}

/// Adds of keys that are in line already.
pub fn duplicates<K: Key, Q: Subject<K>>(keys: u64, threads: u64, adds: u64) -> Duration {
    let queue = Q::make();
    let keys: Vec<K> = (0..keys).map(K::nth).collect();
    keys.iter().for_each(|key| queue.add(key.clone()));
    queue.catch_up();
    let time = timed(threads, |thread| {
        let offset = thread as usize * keys.len() / 2;
        for key in keys.iter().cycle().skip(offset).take((adds / threads) as usize) {
            queue.add(key.clone());
        }
        queue.catch_up();
    });
    assert_eq!(left(&queue), keys.len() as u64);
    time
}

/// Workers that add the key they hold once more before they are done with it; `keys` keys are on their way.
pub fn ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64) -> Duration {
    let queue = Q::make();
    (0..keys).for_each(|n| queue.add(K::nth(n)));
    let time = timed(threads, |_| {
        for _ in 0..turns / threads {
            queue.process(|queue, key| queue.add(key.clone()));
        }
    });
    assert_eq!(left(&queue), keys);
    time
}

/// Threads that add a new key and take one, their own or another's. There is one for each at any time, so that nobody waits for
/// anything but the others to be let go on.
pub fn own_keys<K: Key, Q: Subject<K>>(threads: u64, keys: u64) -> Duration {
    let queue = Q::make();
    let time = timed(threads, |thread| {
        // No key twice: if two adds were one, there would be one too few.
        for n in 0..keys / threads {
            queue.add(K::nth(n * threads + thread));
            queue.process(|_, key| _ = std::hint::black_box(key));
        }
    });
    assert_eq!(left(&queue), 0);
    time
}

/// New keys all the time, from `producers` threads to as many consumers, with at most `backlog` on their way.
pub fn unique<K: Key, Q: Subject<K>>(pairs: u64, backlog: u64, keys: u64) -> Duration {
    let queue = Q::make();
    // Each consumer counts in a cache line of its own, and producers look only when they think that the line is full.
    let consumed: Vec<CachePadded<AtomicU64>> = (0..pairs).map(|_| CachePadded::default()).collect();
    let all_consumed = || consumed.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let producing = AtomicUsize::new(pairs as usize);
    let time = timed(2 * pairs, |thread| {
        let id = thread / 2;
        if thread % 2 == 0 {
            let mut seen = 0;
            for n in 0..keys / pairs {
                while n * pairs >= seen + backlog {
                    seen = all_consumed();
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
    });
    assert_eq!(all_consumed(), keys / pairs * pairs);
    time
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
    let time = start.elapsed();
    assert_eq!(left(&queue), 0);
    time
}

/// The same, so many times with one queue, and without the keys at hand: 10 million would be in the way.
pub fn refill<K: Key, Q: Subject<K>>(keys: u64, rounds: u64) -> Duration {
    let queue = Q::make();
    let start = Instant::now();
    for _ in 0..rounds {
        for n in 0..keys {
            queue.add(K::nth(n));
        }
        for _ in 0..keys {
            queue.process(|_, key| _ = std::hint::black_box(key));
        }
    }
    let time = start.elapsed();
    assert_eq!(left(&queue), 0);
    time
}

/// Adds of keys that are in line already, each time another one of so many.
pub fn touch<K: Key, Q: Subject<K>>(keys: u64, adds: u64) -> Duration {
    let mut random = random();
    let touched: Vec<K> = (0..adds).map(|_| K::nth(random(0..keys))).collect();
    let queue: Q = in_line(keys);
    let start = Instant::now();
    for key in touched {
        queue.add(key);
    }
    queue.catch_up();
    start.elapsed()
}

/// Moves of delayed keys, each time of another one of so many, to an earlier moment; at most half an hour earlier.
pub fn moved<Q: Manual<u64>>(keys: u64, moves: u64) -> Duration {
    const HOUR: u64 = 3_600_000_000_000;
    // So far that no key comes due, however often it is moved.
    let most = HOUR / (2 * moves / keys).max(2);
    let mut random = random();
    let mut stands: Vec<u64> = (0..keys).map(|_| random(10 * HOUR..11 * HOUR)).collect();
    let mut queue = Q::make();
    for (key, delay) in (0..).zip(&stands) {
        queue.add_after(key, Duration::from_nanos(*delay));
    }
    let calls: Vec<(u64, Duration)> = (0..moves)
        .map(|_| {
            let key = random(0..keys);
            let stands = &mut stands[key as usize];
            *stands -= random(1..most);
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
    time
}

/// A queue with that many keys in line.
pub fn in_line<K: Key, Q: Subject<K>>(keys: u64) -> Q {
    let queue = Q::make();
    (0..keys).for_each(|n| queue.add(K::nth(n)));
    queue.catch_up();
    queue
}

/// How many keys are in line at the end.
fn left<K: Key, Q: Subject<K>>(queue: &Q) -> u64 {
    queue.shut_down();
    let mut left = 0;
    while queue.process(|_, key| _ = std::hint::black_box(key)) {
        left += 1;
    }
    left
}

/// From `add` to the return of a get that was parked, in nanoseconds, one key at a time.
pub fn wake_latency<Q: Subject<u64>>(wakes: u64) -> Histogram<u64> {
    let queue = Q::make();
    let woken = AtomicU64::new(0);
    let epoch = Instant::now();
    let nanos = || epoch.elapsed().as_nanos() as u64;
    let mut latencies = histogram();
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

/// From the moment at which a key was to be added until it is handed out, in nanoseconds. A thread adds keys, on average one each
/// 20 microseconds, by a plan that does not wait for anybody; another takes them and is busy for 10 microseconds with each.
pub fn under_load<Q: Subject<u64>>(keys: u64) -> Histogram<u64> {
    const APART: u64 = 20_000;
    const BUSY: u64 = 10_000;
    let mut random = random();
    let mut moment = 1_000_000;
    let mut next = |_| {
        moment += random(0..2 * APART);
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
            while queue.process(|_, key| {
                let start = nanos();
                latencies.record((start - moments[*key as usize]).max(1)).expect("resizes by itself");
                until(start + BUSY);
            }) {}
        });
        for (key, moment) in (0..).zip(&moments) {
            until(*moment);
            queue.add(key);
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
