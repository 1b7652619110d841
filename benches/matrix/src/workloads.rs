//! The list of workloads, each with its subjects: keyqueue first.

use crate::ours::{self, KEYS};
use common::Ours;
use common::limiter::{ParkingLotLimiter, StdLimiter, when};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::{cycle, duplicates, ring, unique};
use keyqueue::rate_limiter::ItemExponentialFailure;
use std::thread;
use std::time::Duration;

pub struct Workload {
    pub name: String,
    pub subjects: Vec<(&'static str, Run)>,
}

/// Runs a workload once, in threads of its own, and returns the nanoseconds per key.
pub type Run = Box<dyn Fn() -> f64>;

/// A run of this number of keys in a thread of its own, or in those that it starts.
fn run(ops: u64, work: impl Fn() -> Duration + Send + Sync + Clone + 'static) -> Run {
    Box::new(move || {
        let work = work.clone();
        let time = thread::spawn(work).join().expect("the worker panicked");
        time.as_nanos() as f64 / ops as f64
    })
}

/// keyqueue, and the two mutex queues.
macro_rules! subjects {
    ($ops:expr, $key:ty; $work:ident $arguments:tt) => {
        vec![
            subjects!(@ $ops, $key, Ours<$key>, $work $arguments),
            subjects!(@ $ops, $key, parking_lot_mutex::Queue<$key>, $work $arguments),
            subjects!(@ $ops, $key, std_mutex::Queue<$key>, $work $arguments),
        ]
    };
    (@ $ops:expr, $key:ty, $queue:ty, $work:ident($($argument:expr),*)) => {
        (<$queue as common::Subject<$key>>::NAME, run($ops, move || $work::<$key, $queue>($($argument),*)))
    };
}

/// All workloads; `ops` is the number of keys that a run passes through a queue.
pub fn all(ops: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push = |name: String, subjects| list.push(Workload { name, subjects });
    for threads in [1, 2, 4, 16] {
        // A worker gets a key, adds it again, and calls done. keyqueue takes part with each way to write the loop.
        let ops = ops / threads * threads;
        let by = |name, worker: ours::Worker| (name, Box::new(move || ours::ring(threads, ops, worker)) as Run);
        let mut subjects = vec![
            by("keyqueue", ours::get),
            by("try_get", ours::try_get),
            by("get_async", ours::get_async),
            ("Workers", Box::new(move || ours::workers(threads, ops)) as Run),
        ];
        subjects.extend(subjects!(ops, u64; ring(KEYS, threads, ops)).into_iter().skip(1));
        push(threaded("ring", threads), subjects);
    }
    push("cycle, u64".into(), subjects!(ops, u64; cycle(KEYS, ops)));
    push("cycle, String".into(), subjects!(ops, String; cycle(KEYS, ops)));
    for threads in [1, 2] {
        let subjects = subjects!(ops, u64; duplicates(KEYS, threads, ops));
        push(threaded("duplicate add", threads), subjects);
    }
    // Failures of keys that failed before.
    let limiters = vec![
        ("keyqueue", run(ops, move || when::<u64, ItemExponentialFailure<u64>>(KEYS, 1, ops)[0])),
        ("parking_lot mutex", run(ops, move || when::<u64, ParkingLotLimiter<u64>>(KEYS, 1, ops)[0])),
        ("std mutex", run(ops, move || when::<u64, StdLimiter<u64>>(KEYS, 1, ops)[0])),
    ];
    push("when, known".into(), limiters);
    for backlog in [1000, 100_000] {
        for pairs in [1, 2, 8] {
            // More keys than the backlog takes, so that it can fill.
            let ops = ops.max(2 * backlog) / pairs * pairs;
            let subjects = subjects!(ops, u64; unique(pairs, backlog, ops));
            push(format!("unique {pairs}x{pairs}, backlog {backlog}"), subjects);
        }
    }
    list
}

/// "1 thread", "2 threads".
fn threaded(group: &str, threads: u64) -> String {
    format!("{group}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}
