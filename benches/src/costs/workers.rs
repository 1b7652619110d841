//! The loop of `Workers` in tasks, compared with a loop written by hand, which catches no panics, counts nothing and cannot be stopped.

use super::spin::Spin;
use crate::workload::{Workload, once};
use keyqueue::{Item, WorkQueue};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The highest acceptable ratio of the time of the loop of `Workers` to that of the loop written by hand.
const TARGET: Option<f64> = Some(1.05);

/// Returns how long `work` takes to empty a queue of `keys` keys.
fn emptied(keys: u64, work: impl FnOnce(&WorkQueue<u64>)) -> Duration {
    let queue = WorkQueue::new();
    for key in 0..keys {
        queue.add(key);
    }
    queue.shut_down();
    let start = Instant::now();
    work(&queue);
    let time = start.elapsed();
    let stats = queue.stats();
    assert_eq!((stats.handed_out, stats.len, stats.processing), (keys, 0, 0), "a key was left");
    time
}

async fn by_hand(queue: WorkQueue<u64>, handler: impl AsyncFn(&Item<'_, u64>)) {
    while let Some(item) = queue.get_async().await {
        handler(&item).await;
        item.succeed();
    }
}

/// Tasks that run the loop, written by hand or by `run_async`, on a runtime that was started before.
fn tasks(is_by_hand: bool, keys: u64, many_threads: bool, tasks: usize, work: Spin) -> Duration {
    let mut builder = if many_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.build().expect("can start a runtime");
    emptied(keys, |queue| {
        runtime.block_on(async {
            let workers = queue.workers().build();
            let handler = async move |item: &Item<'_, u64>| {
                black_box(**item);
                work.run();
            };
            let start = |_| match is_by_hand {
                true => tokio::spawn(by_hand(queue.clone(), handler)),
                false => tokio::spawn(workers.run_async(handler)),
            };
            let tasks: Vec<_> = (0..tasks).map(start).collect();
            for task in tasks {
                task.await.expect("a loop panicked");
            }
        });
    })
}

/// All workloads. A run has `ops / 4` keys.
pub fn all(ops: u64) -> Vec<Workload> {
    let keys = ops / 4;
    let mut list = Vec::new();
    // Calibrated once, so that all loops do the same work.
    let handlers = [0, 100, 1000].map(|nanos| (nanos, Spin::lasting(Duration::from_nanos(nanos))));
    for (group, many_threads) in [("tasks, current_thread", false), ("tasks, multi_thread", true)] {
        for (nanos, work) in handlers {
            for count in [1, 8] {
                let run = move |is_by_hand| once(move || tasks(is_by_hand, keys, many_threads, count, work));
                let subjects = vec![("by hand", run(true)), ("`run_async`", run(false))];
                let name = format!("{count} tasks, {nanos} ns");
                list.push(Workload { group, name, figures: vec![("", TARGET)], ops: keys, subjects, rivals: 1 });
            }
        }
    }
    list
}
