//! The workloads with limiters under criterion: `cargo bench --bench limits` in `benches/`. Of those that are timed for more than
//! one thing, the first.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keyqueue_benches::limits::all;
use std::time::Duration;

fn limits(criterion: &mut Criterion) {
    for list in all(50_000) {
        let mut group = criterion.benchmark_group(format!("limiters, {}", list.name));
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for workload in &list.workloads {
            group.throughput(Throughput::Elements(workload.ops));
            for (subject, run) in &workload.subjects {
                group.bench_function(BenchmarkId::new(*subject, &workload.name), |bencher| {
                    bencher.iter_custom(|runs| (0..runs).map(|_| run()[0]).sum());
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, limits);
criterion_main!(benches);
