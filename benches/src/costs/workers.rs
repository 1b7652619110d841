//! The loop of `Workers`, compared with a loop written by hand, which catches no panics, counts nothing and cannot be stopped.

use super::Spin;
use crate::workload::{Workload, once};
use keyqueue::{Item, WorkQueue};
use std::hint::black_box;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
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

/// Threads that run the loop, written by hand or by `spawn`. Their start is timed too.
fn threads(is_by_hand: bool, keys: u64, threads: usize, work: Work) -> Duration {
    emptied(keys, |queue| {
        if !is_by_hand {
            let workers = queue.workers().spawn(threads, move |item: &Item<'_, u64>| work.on(item));
            return workers.expect("can start threads").join();
        }
        let start = |_| {
            let queue = queue.clone();
            thread::spawn(move || by_hand(&queue, |item| work.on(item)))
        };
        let threads: Vec<_> = (0..threads).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a loop panicked"));
    })
}

/// The loop on this thread, written by hand or by `run`.
fn here(is_by_hand: bool, keys: u64, work: Work) -> Duration {
    emptied(keys, |queue| match is_by_hand {
        true => by_hand(queue, |item| work.on(item)),
        false => queue.workers().build().run(|item| work.on(item)),
    })
}

/// Tasks that run the loop, written by hand or by `run_async`, on a runtime that was started before.
fn tasks(is_by_hand: bool, keys: u64, many_threads: bool, tasks: usize, work: Work) -> Duration {
    let mut builder = if many_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let runtime = builder.build().expect("can start a runtime");
    emptied(keys, |queue| {
        runtime.block_on(async {
            let workers = queue.workers().build();
            let handler = async move |item: &Item<'_, u64>| work.on_async(item).await;
            let start = |_| match is_by_hand {
                true => tokio::spawn(by_hand_async(queue.clone(), handler)),
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
    let mut add = |group, name, by, run: Rc<dyn Fn(bool) -> Duration>| {
        let of = |is_by_hand| {
            let run = Rc::clone(&run);
            once(move || run(is_by_hand))
        };
        let subjects = vec![("by hand", of(true)), (by, of(false))];
        list.push(Workload { group, name, figures: vec![("", TARGET)], ops: keys, subjects, rivals: 1 });
    };
    // Calibrated once, so that all loops do the same work.
    let spinning = |nanos| Work { spin: Spin::lasting(Duration::from_nanos(nanos)), yields: false };
    let handlers = [0, 100, 1000].map(|nanos| (format!("{nanos} ns"), spinning(nanos)));
    for (handler, work) in handlers.clone() {
        for count in [1, 2] {
            let run = Rc::new(move |by_hand| threads(by_hand, keys, count, work));
            add("threads", format!("{count} threads, {handler}"), "`spawn`", run);
        }
    }
    for (handler, work) in handlers.clone() {
        add("this thread", handler, "`run`", Rc::new(move |by_hand| here(by_hand, keys, work)));
    }
    let yielding = ("0 ns, yields".to_owned(), Work { yields: true, ..handlers[0].1 });
    for (group, many_threads) in [("tasks, current_thread", false), ("tasks, multi_thread", true)] {
        for (handler, work) in handlers.iter().chain([&yielding]) {
            let work = *work;
            for count in [1, 8] {
                let run = Rc::new(move |by_hand| tasks(by_hand, keys, many_threads, count, work));
                add(group, format!("{count} tasks, {handler}"), "`run_async`", run);
            }
        }
    }
    list
}
