//! The cost of wake-ups, for one key and for a burst.

use crate::system::parks;
use crate::{Values, quantile};
use crossbeam_utils::CachePadded;
use keyqueue_benches::Subject;
use keyqueue_benches::latency::wake_latency;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYS: u64 = 1000;
const BURSTS: u64 = 100;

/// The time from `add` of one key until a parked getter has the key.
pub fn single<Q: Subject<u64>>(wakes: usize) -> Values {
    let latencies = wake_latency::<Q>(wakes as u64);
    let at = |part| latencies.value_at_quantile(part) as f64 / 1000.0;
    vec![("p50, µs", at(0.5)), ("p99, µs", at(0.99))]
}

/// 1000 keys at once, while `getters` getters are parked.
pub fn burst<Q: Subject<u64>>(getters: usize) -> Values {
    let queue = Q::make();
    let handed_out: Vec<CachePadded<AtomicU64>> = (0..getters).map(|_| CachePadded::default()).collect();
    let (mut adding, mut all) = (Vec::new(), Vec::new());
    let parked: u64 = thread::scope(|scope| {
        let get = |count: &AtomicU64| {
            while queue.process(|_, _| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed)) {}
            parks()
        };
        let getters: Vec<_> = handed_out.iter().map(|count| scope.spawn(move || get(count))).collect();
        for burst in 1..=BURSTS {
            // Until all getters are parked.
            thread::sleep(Duration::from_millis(2));
            let start = Instant::now();
            (0..KEYS).for_each(|key| queue.add(key));
            adding.push(start.elapsed().as_secs_f64());
            while handed_out.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>() < burst * KEYS {
                thread::yield_now();
            }
            all.push(start.elapsed().as_secs_f64());
        }
        queue.shut_down();
        getters.into_iter().map(|getter| getter.join().expect("a getter panicked")).sum()
    });
    vec![
        ("parks of getters, a burst", parked as f64 / BURSTS as f64),
        ("adding, µs a burst", quantile(&mut adding, 0.5) * 1e6),
        ("million keys/s", KEYS as f64 / quantile(&mut all, 0.5) / 1e6),
    ]
}
