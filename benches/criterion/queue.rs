//! The workloads of the report under criterion, with throughput and plots: `cargo bench` in `benches/`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keyqueue_benches::suite;
use std::time::Duration;

fn queue(criterion: &mut Criterion) {
    for workload in suite::all(50_000) {
        let mut group = criterion.benchmark_group(workload.group);
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Elements(workload.ops));
        for (subject, run) in &workload.subjects {
            group.bench_function(BenchmarkId::new(*subject, &workload.name), |bencher| {
                bencher.iter_custom(|runs| (0..runs).map(|_| run()).sum());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, queue);
criterion_main!(benches);
