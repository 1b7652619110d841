//! The workloads with delays under criterion: `cargo bench --bench delays` in `benches/`. Of those that are timed for more than
//! one thing, the first.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keyqueue_benches::delays::all;
use std::time::Duration;

fn delays(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("delays");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for workload in all(20_000) {
        group.throughput(Throughput::Elements(workload.ops));
        for (subject, run) in &workload.subjects {
            group.bench_function(BenchmarkId::new(*subject, &workload.name), |bencher| {
                bencher.iter_custom(|runs| (0..runs).map(|_| run()[0]).sum());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, delays);
criterion_main!(benches);
