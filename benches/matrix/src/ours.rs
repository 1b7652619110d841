//! The ways to write a worker's loop, as users of the crate write them.

use common::threads::timed;
use futures_executor::block_on;
use keyqueue::{Item, WorkQueue};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Keys in the queue.
pub const KEYS: u64 = 1024;

/// A worker's loop: gets a key, adds it again, calls done. The number is that of the keys that it processes.
pub type Worker = fn(&WorkQueue<u64>, u64);

/// Runs the same loop in each of `threads` threads, and returns the nanoseconds per key.
pub fn ring(threads: u64, turns: u64, worker: Worker) -> f64 {
    let queue = filled();
    let each = turns / threads;
    let time = timed(threads, |_| worker(&queue, each));
    assert_eq!((queue.len() as u64, queue.stats().handed_out), (KEYS, each * threads));
    per_key(time, each * threads)
}

/// The loop, around a way to get the next key.
macro_rules! turns {
    ($queue:ident, $turns:ident, $some:pat = $next:expr => $item:ident) => {
        let mut turn = 0;
        while let $some = $next {
            $queue.add(*$item);
            drop($item);
            turn += 1;
            if turn == $turns {
                return;
            }
        }
    };
}

#[inline(never)]
pub fn get(queue: &WorkQueue<u64>, turns: u64) {
    turns!(queue, turns, Some(item) = queue.get() => item);
}

#[inline(never)]
pub fn try_get(queue: &WorkQueue<u64>, turns: u64) {
    turns!(queue, turns, Ok(item) = queue.try_get() => item);
}

#[inline(never)]
pub fn get_async(queue: &WorkQueue<u64>, turns: u64) {
    block_on(async {
        turns!(queue, turns, Some(item) = queue.get_async().await => item);
    });
}

/// The loop of `Workers`, in each of `threads` threads. The last thread to finish its share of the keys shuts the queue down. The other
/// threads process keys until then, and those keys count.
pub fn workers(threads: u64, turns: u64) -> f64 {
    let queue = filled();
    let workers = queue.workers().build();
    let (ready, runs) = (AtomicU64::new(0), AtomicU64::new(0));
    let time = timed(threads, |_| {
        let mut run = 0;
        workers.run(|item: &Item<'_, u64>| {
            queue.add(**item);
            run += 1;
            if run == turns / threads && ready.fetch_add(1, Ordering::Relaxed) + 1 == threads {
                queue.shut_down();
            }
        });
        runs.fetch_add(run, Ordering::Relaxed);
    });
    let runs = runs.into_inner();
    assert_eq!(queue.stats().handed_out, runs);
    per_key(time, runs)
}

pub fn per_key(time: Duration, keys: u64) -> f64 {
    time.as_nanos() as f64 / keys as f64
}

fn filled() -> WorkQueue<u64> {
    let queue = WorkQueue::new();
    queue.add_all(0..KEYS);
    queue
}
