//! How long a call takes on the hot paths: `cargo bench` at the root of the repository, half a minute. Rivals and
//! many threads are in BENCHMARKS.md, instruction counts in `benches/instructions/`.

use criterion::{Bencher, Criterion};
use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{Clock, Driver, WorkQueue};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The calls cycle through this number of keys.
const KEYS: u64 = 1024;

/// A delay that does not expire meanwhile.
const LATER: Duration = Duration::from_secs(3600);

fn main_paths(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    group.bench_function("add + get + done, u64", |bencher| cycle(bencher, &(0..KEYS).collect::<Vec<_>>()));
    let strings: Vec<_> = (0..KEYS).map(|n| format!("namespace-{}/pod-{n}", n % 100)).collect();
    group.bench_function("add + get + done, String (cloned)", |bencher| cycle(bencher, &strings));
    group.bench_function("add of a queued key", |bencher| {
        let (queue, mut keys) = (queued(), (0..KEYS).cycle());
        bencher.iter(|| queue.add(keys.next().unwrap()));
    });
    group.bench_function("get + add again + done", |bencher| {
        let queue = queued();
        bencher.iter(|| {
            // The key comes from the front, is added while it is processed, and so is queued again at the back.
            let item = queue.get().unwrap();
            queue.add(black_box(*item));
            item.done();
        });
    });
    group.finish();
}

fn delays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("delays");
    let set = |queue: &WorkQueue<u64>, key| _ = black_box(queue.add_after(black_box(key), LATER));
    let cancel = |queue: &WorkQueue<u64>, key| assert!(queue.cancel(black_box(&key)));
    group.bench_function("add_after of a new key", |bencher| in_rounds(bencher, |_, _| (), set, cancel));
    group.bench_function("cancel", |bencher| in_rounds(bencher, set, cancel, |_, _| ()));
    group.finish();
}

fn limiters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limiters");
    group.bench_function("ItemExponentialFailure::when", |bencher| {
        let limiter = ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
        let mut keys = (0..KEYS).cycle();
        bencher.iter(|| limiter.when(&keys.next().unwrap()));
    });
    group.bench_function("Bucket::when", |bencher| {
        // Never runs out of tokens: 100 for each nanosecond.
        let limiter = Bucket::with_clock(1e11, u32::MAX, Clock::new());
        bencher.iter(|| limiter.when(black_box(&1_u64)));
    });
    group.finish();
}

fn cycle<K: std::hash::Hash + Eq + Clone + Send + Sync + 'static>(bencher: &mut Bencher<'_>, keys: &[K]) {
    let (queue, mut keys) = (WorkQueue::new(), keys.iter().cycle());
    bencher.iter(|| {
        queue.add(black_box(keys.next().unwrap().clone()));
        black_box(queue.get().unwrap()).done();
    });
}

/// [`KEYS`] keys that are queued.
fn queued() -> WorkQueue<u64> {
    let queue = WorkQueue::new();
    queue.add_all(0..KEYS);
    queue
}

/// Times rounds of `call`, each for [`KEYS`] keys in a row. What comes before and after a round is not timed.
fn in_rounds(
    bencher: &mut Bencher<'_>,
    before: impl Fn(&WorkQueue<u64>, u64),
    call: impl Fn(&WorkQueue<u64>, u64),
    after: impl Fn(&WorkQueue<u64>, u64),
) {
    let queue = WorkQueue::builder().driver(Driver::Manual).build();
    bencher.iter_custom(|calls| {
        let mut time = Duration::ZERO;
        for first in (0..calls).step_by(KEYS as usize) {
            let keys = 0..KEYS.min(calls - first);
            keys.clone().for_each(|key| before(&queue, key));
            let start = Instant::now();
            keys.clone().for_each(|key| call(&queue, key));
            time += start.elapsed();
            keys.for_each(|key| after(&queue, key));
        }
        time
    });
}

fn main() {
    let config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let mut criterion = config.configure_from_args();
    main_paths(&mut criterion);
    delays(&mut criterion);
    limiters(&mut criterion);
    criterion.final_summary();
}
