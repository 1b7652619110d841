//! A lower bound for a queue made of concurrent parts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The parts of one cycle: a map look-up, a push and a pop, and the atomic steps of a key's life (add, get, done, and the
/// check for parked getters).
pub fn parts(keys: u64, cycles: u64) -> Duration {
    let map: dashmap::DashMap<u64, AtomicU64, ahash::RandomState> = (0..keys).map(|n| (n, AtomicU64::new(0))).collect();
    let line = crossbeam_queue::SegQueue::new();
    let waiters = AtomicU64::new(0);
    let start = Instant::now();
    for key in (0..keys).cycle().take(cycles as usize) {
        let state = map.get(&key).expect("there");
        state.fetch_or(1, Ordering::AcqRel);
        line.push(key);
        std::sync::atomic::fence(Ordering::SeqCst);
        std::hint::black_box(waiters.load(Ordering::Relaxed));
        std::hint::black_box(line.pop());
        state.fetch_xor(3, Ordering::AcqRel);
        std::hint::black_box(state.compare_exchange(2, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok());
    }
    start.elapsed()
}
