//! The workloads. Each function runs one of them once and returns how long the timed part took. Threads start at a barrier; set-up and
//! clean-up are not timed.

use crate::threads::timed;
use crate::{Key, Prioritized, Subject};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// add + get + done, one key at a time, cycling through `keys` keys. Includes making the owned key that `add` takes.
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

/// Adds keys that are queued already.
pub fn duplicates<K: Key, Q: Subject<K>>(keys: u64, threads: u64, adds: u64) -> Duration {
    let queue = Q::make();
    let keys: Vec<K> = (0..keys).map(K::nth).collect();
    keys.iter().for_each(|key| queue.add(key.clone()));
    let time = timed(threads, |thread| {
        let offset = thread as usize * keys.len() / 2;
        for key in keys.iter().cycle().skip(offset).take((adds / threads) as usize) {
            queue.add(key.clone());
        }
    });
    assert_eq!(left(&queue), keys.len() as u64);
    time
}

/// Each thread gets a key, adds it again and calls done. There are `keys` keys.
pub fn ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64) -> Duration {
    let queue: Q = with_queued_keys(keys);
    let time = timed(threads, |_| {
        for _ in 0..turns / threads {
            queue.process(|queue, key| queue.add(key.clone()));
        }
    });
    assert_eq!(left(&queue), keys);
    time
}

/// Each thread adds a new key and gets one, its own or another thread's. There is a key for each thread at any time, so no thread waits
/// for a key.
pub fn own_keys<K: Key, Q: Subject<K>>(threads: u64, keys: u64) -> Duration {
    let queue = Q::make();
    let time = timed(threads, |thread| {
        // No key is added twice: if two adds coalesced, a thread would wait forever for the missing key.
        for n in 0..keys / threads {
            queue.add(K::nth(n * threads + thread));
            queue.process(|_, key| _ = std::hint::black_box(key));
        }
    });
    assert_eq!(left(&queue), 0);
    time
}

/// New keys only, from `pairs` producers to as many consumers, with at most `backlog` keys queued.
pub fn unique<K: Key, Q: Subject<K>>(pairs: u64, backlog: u64, keys: u64) -> Duration {
    let queue = Q::make();
    // Each consumer counts in a cache line of its own, and producers read the counts only when the backlog may be full.
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
    refill::<K, Q>(keys, 1)
}

/// Fills and drains one queue `rounds` times. The keys are not made beforehand: 10 million would fill the caches.
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

/// Adds keys that are queued already, each time a random one of `keys`.
pub fn touch<K: Key, Q: Subject<K>>(keys: u64, adds: u64) -> Duration {
    let mut random = fastrand::Rng::with_seed(0);
    let touched: Vec<K> = (0..adds).map(|_| K::nth(random.u64(0..keys))).collect();
    let queue: Q = with_queued_keys(keys);
    let start = Instant::now();
    for key in touched {
        queue.add(key);
    }
    start.elapsed()
}

/// Raises each of the queued keys, in an order that no prefetcher guesses. One key more stays at a priority of its own.
pub fn raise<K: Key, Q: Prioritized<K>>(keys: u64) -> Duration {
    let queue: Q = Q::make();
    queue.add_at(K::nth(keys), -100);
    (0..keys).for_each(|n| queue.add_at(K::nth(n), 0));
    let start = Instant::now();
    (0..keys).for_each(|n| queue.add_at(K::nth(n * 6_700_417 % keys), 100));
    let time = start.elapsed();
    assert_eq!(left(&queue), keys + 1);
    time
}

/// A queue with this number of queued keys.
pub fn with_queued_keys<K: Key, Q: Subject<K>>(keys: u64) -> Q {
    let queue = Q::make();
    (0..keys).for_each(|n| queue.add(K::nth(n)));
    queue
}

/// Returns the number of keys that are queued at the end.
fn left<K: Key, Q: Subject<K>>(queue: &Q) -> u64 {
    queue.shut_down();
    let mut left = 0;
    while queue.process(|_, key| _ = std::hint::black_box(key)) {
        left += 1;
    }
    left
}
