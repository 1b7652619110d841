//! How long a key takes on the hot paths: `cargo bench` at the root of the repository, ten seconds. Delays, limiters, rivals and
//! many threads are in BENCHMARKS.md, instruction counts in `benches/instructions/`.

use criterion::{Bencher, Criterion};
use keyqueue::WorkQueue;
use std::hint::black_box;
use std::time::Duration;

/// The calls cycle through this number of keys.
const KEYS: u64 = 1024;

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

fn main() {
    let config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let mut criterion = config.configure_from_args();
    main_paths(&mut criterion);
    criterion.final_summary();
}
