//! The workloads of the report under criterion, with throughput and plots: `cargo bench` in `benches/`, `cargo bench -- delays` for one
//! section. If a workload has several timed parts, criterion shows the first.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use keyqueue_benches::costs::{metrics, workers};
use keyqueue_benches::workload::Workload;
use keyqueue_benches::{delays, limits, suite};
use std::time::Duration;

fn all(criterion: &mut Criterion) {
    section(criterion, "queue", suite::all(50_000));
    section(criterion, "delays", delays::all(20_000));
    section(criterion, "limiters", limits::all(50_000));
    section(criterion, "metrics", metrics::all(20_000));
    section(criterion, "workers", workers::all(20_000));
}

fn section(criterion: &mut Criterion, section: &str, workloads: Vec<Workload>) {
    for workload in workloads {
        let mut group = criterion.benchmark_group(format!("{section} {}", workload.group).trim());
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        group.throughput(Throughput::Elements(workload.ops));
        for (subject, run) in &workload.subjects {
            group.bench_function(BenchmarkId::new(*subject, &workload.name), |bencher| {
                bencher.iter_custom(|runs| (0..runs).map(|_| run()[0]).sum());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, all);
criterion_main!(benches);
