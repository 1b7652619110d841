//! The loop of `Workers`, compared with a loop written by hand, which catches no panics, counts nothing and cannot be stopped.

use super::Spin;
use crate::workload::{Run, Workload, once};
use keyqueue::{Item, WorkQueue};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

/// The highest acceptable ratio of the time of the loop of `Workers` to that of the loop written by hand.
const TARGET: Option<f64> = Some(1.05);

/// The work of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    spin: Spin,
    /// Lets other tasks run.
    yields: bool,
}

impl Work {
    #[inline]
    fn on(self, key: &u64) {
        black_box(key);
        self.spin.run();
    }

    #[inline]
    async fn on_async(self, key: &u64) {
        self.on(key);
        if self.yields {
            yield_now().await;
        }
    }
}

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

fn by_hand(queue: &WorkQueue<u64>, handler: impl Fn(&Item<'_, u64>)) {
    while let Some(item) = queue.get() {
        handler(&item);
        item.succeed();
    }
}

async fn by_hand_async(queue: WorkQueue<u64>, handler: impl AsyncFn(&Item<'_, u64>)) {
    while let Some(item) = queue.get_async().await {
        handler(&item).await;
        item.succeed();
    }
}

/// Threads that run the loop written by hand. Their start is timed too.
pub fn threads_by_hand(keys: u64, threads: usize, work: Work) -> Duration {
    emptied(keys, |queue| {
        let start = |_| {
            let queue = queue.clone();
            thread::spawn(move || by_hand(&queue, |item| work.on(item)))
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a loop panicked"));
    })
}

/// The same by `spawn`.
pub fn threads_spawned(keys: u64, threads: usize, work: Work) -> Duration {
    emptied(keys, |queue| {
        let workers =
            queue.workers().spawn(threads, move |item: &Item<'_, u64>| work.on(item)).expect("can start threads");
        workers.join();
    })
}

/// The loop written by hand, on this thread.
pub fn here_by_hand(keys: u64, work: Work) -> Duration {
    emptied(keys, |queue| by_hand(queue, |item| work.on(item)))
}

/// The same by `run`.
pub fn here_run(keys: u64, work: Work) -> Duration {
    emptied(keys, |queue| queue.workers().build().run(|item| work.on(item)))
}

fn runtime(many_threads: bool) -> Runtime {
    let mut builder = if many_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.build().expect("can start a runtime")
}

/// Tasks that run the loop written by hand, on a runtime that was started before.
pub fn tasks_by_hand(keys: u64, many_threads: bool, tasks: usize, work: Work) -> Duration {
    let runtime = runtime(many_threads);
    emptied(keys, |queue| {
        runtime.block_on(async {
            let start = |_| {
                let own = queue.clone();
                tokio::spawn(by_hand_async(own, async move |item: &Item<'_, u64>| work.on_async(item).await))
            };
            let tasks: Vec<_> = (0..tasks).map(start).collect();
            for task in tasks {
                task.await.expect("a loop panicked");
            }
        });
    })
}

/// The same by `run_async`.
pub fn tasks_run(keys: u64, many_threads: bool, tasks: usize, work: Work) -> Duration {
    let runtime = runtime(many_threads);
    emptied(keys, |queue| {
        runtime.block_on(async {
            let workers = queue.workers().build();
            let start =
                |_| tokio::spawn(workers.run_async(async move |item: &Item<'_, u64>| work.on_async(item).await));
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
    // Calibrated once, so that all loops do the same work.
    let spinning = |nanos| Work { spin: Spin::lasting(Duration::from_nanos(nanos)), yields: false };
    let handlers = [0, 100, 1000].map(|nanos| (format!("{nanos} ns"), spinning(nanos)));
    let against = |group, name, by_hand, workers: (&'static str, Run)| {
        let subjects = vec![("by hand", by_hand), workers];
        Workload { group, name, figures: vec![("", TARGET)], ops: keys, subjects, rivals: 1 }
    };
    let mut list = Vec::new();
    for (handler, work) in &handlers {
        let work = *work;
        for threads in [1, 2] {
            let name = format!("{threads} threads, {handler}");
            let by_hand = once(move || threads_by_hand(keys, threads, work));
            list.push(against(
                "threads",
                name,
                by_hand,
                ("`spawn`", once(move || threads_spawned(keys, threads, work))),
            ));
        }
    }
    for (handler, work) in &handlers {
        let work = *work;
        let by_hand = once(move || here_by_hand(keys, work));
        list.push(against("this thread", handler.clone(), by_hand, ("`run`", once(move || here_run(keys, work)))));
    }
    let [nothing, ..] = &handlers;
    let yielding = ("0 ns, yields".to_owned(), Work { yields: true, ..nothing.1 });
    for (group, many_threads) in [("tasks, current_thread", false), ("tasks, multi_thread", true)] {
        for (handler, work) in handlers.iter().chain([&yielding]) {
            let work = *work;
            for tasks in [1, 8] {
                let name = format!("{tasks} tasks, {handler}");
                let by_hand = once(move || tasks_by_hand(keys, many_threads, tasks, work));
                let run_async = once(move || tasks_run(keys, many_threads, tasks, work));
                list.push(against(group, name, by_hand, ("`run_async`", run_async)));
            }
        }
    }
    list
}
