//! What metrics and workers cost under criterion: `cargo bench --bench workers` in `benches/`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keyqueue_benches::costs::{metrics, workers};
use std::time::Duration;

fn costs(criterion: &mut Criterion) {
    for (section, groups) in [("metrics", metrics::all(20_000)), ("workers", workers::all(20_000))] {
        for list in groups {
            let mut group = criterion.benchmark_group(format!("{section}, {}", list.name));
            group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
            for workload in &list.workloads {
                group.throughput(Throughput::Elements(workload.ops));
                for ((subject, _), run) in list.subjects.iter().zip(&workload.runs) {
                    group.bench_function(BenchmarkId::new(*subject, &workload.name), |bencher| {
                        bencher.iter_custom(|runs| (0..runs).map(|_| run()).sum());
                    });
                }
            }
            group.finish();
        }
    }
}

criterion_group!(benches, costs);
criterion_main!(benches);
