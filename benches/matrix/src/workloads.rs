//! The list of workloads, each with its subjects: keyqueue first.

use crate::draft::Draft;
use crate::ours::{self, KEYS, per_key};
use common::limiter::{ParkingLotLimiter, StdLimiter, when};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::{cycle, duplicates, ring, unique};
use common::{Ours, Subject};
use keyqueue::rate_limiter::ItemExponentialFailure;
use std::thread;
use std::time::Duration;

const OURS: &str = <Ours<u64> as Subject<u64>>::NAME;
const PARKING_LOT: &str = <parking_lot_mutex::Queue<u64> as Subject<u64>>::NAME;
const STD: &str = <std_mutex::Queue<u64> as Subject<u64>>::NAME;
const DRAFT: &str = <Draft<u64> as Subject<u64>>::NAME;

pub struct Workload {
    pub name: String,
    pub subjects: Vec<(&'static str, Run)>,
}

/// Runs a workload once, in threads of its own, and returns the nanoseconds per key.
pub type Run = Box<dyn Fn() -> f64>;

/// All workloads; `ops` is the number of keys that a run passes through a queue.
pub fn all(ops: u64) -> Vec<Workload> {
    let mut list: Vec<Workload> = [1, 2, 4, 16].map(|threads| rings(threads, ops)).into();
    list.push(cycles(ops));
    list.push(string_cycles(ops));
    list.extend([1, 2].map(|threads| duplicate_adds(threads, ops)));
    list.push(delays(ops));
    list.push(limiters(ops));
    for backlog in [1000, 100_000] {
        // More keys than the backlog takes, so that it can fill.
        list.extend([1, 2, 8].map(|pairs| unique_keys(pairs, backlog, ops.max(2 * backlog))));
    }
    list
}

/// "1 thread", "2 threads".
fn threaded(group: &str, threads: u64) -> String {
    format!("{group}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn subject(name: &'static str, ops: u64, run: impl Fn() -> Duration + 'static) -> (&'static str, Run) {
    (name, Box::new(move || per_key(run(), ops)))
}

/// Runs a workload that starts no threads in a thread of its own.
fn alone(run: fn(u64, u64) -> Duration, ops: u64) -> Duration {
    thread::spawn(move || run(KEYS, ops)).join().expect("the worker panicked")
}

/// A worker gets a key, adds it again, and calls done. keyqueue takes part with each way to write the loop.
fn rings(threads: u64, ops: u64) -> Workload {
    let ops = ops / threads * threads;
    let by = |name, worker: ours::Worker| (name, Box::new(move || ours::ring(threads, ops, worker)) as Run);
    let subjects = vec![
        by(OURS, ours::get),
        by("try_get", ours::try_get),
        by("get_async", ours::get_async),
        ("Workers", Box::new(move || ours::workers(threads, ops)) as Run),
        subject(PARKING_LOT, ops, move || ring::<u64, parking_lot_mutex::Queue<u64>>(KEYS, threads, ops)),
        subject(STD, ops, move || ring::<u64, std_mutex::Queue<u64>>(KEYS, threads, ops)),
        subject(DRAFT, ops, move || ring::<u64, Draft<u64>>(KEYS, threads, ops)),
    ];
    Workload { name: threaded("ring", threads), subjects }
}

/// add + get + done of one key after the other.
fn cycles(ops: u64) -> Workload {
    let subjects = vec![
        subject(OURS, ops, move || alone(cycle::<u64, Ours<u64>>, ops)),
        subject(PARKING_LOT, ops, move || alone(cycle::<u64, parking_lot_mutex::Queue<u64>>, ops)),
        subject(STD, ops, move || alone(cycle::<u64, std_mutex::Queue<u64>>, ops)),
        subject(DRAFT, ops, move || alone(cycle::<u64, Draft<u64>>, ops)),
    ];
    Workload { name: "cycle, u64".into(), subjects }
}

fn string_cycles(ops: u64) -> Workload {
    let subjects = vec![
        subject(OURS, ops, move || alone(cycle::<String, Ours<String>>, ops)),
        subject(PARKING_LOT, ops, move || alone(cycle::<String, parking_lot_mutex::Queue<String>>, ops)),
        subject(STD, ops, move || alone(cycle::<String, std_mutex::Queue<String>>, ops)),
    ];
    Workload { name: "cycle, String".into(), subjects }
}

/// Adds of keys that are queued.
fn duplicate_adds(threads: u64, ops: u64) -> Workload {
    let subjects = vec![
        subject(OURS, ops, move || duplicates::<u64, Ours<u64>>(KEYS, threads, ops)),
        subject(PARKING_LOT, ops, move || duplicates::<u64, parking_lot_mutex::Queue<u64>>(KEYS, threads, ops)),
        subject(STD, ops, move || duplicates::<u64, std_mutex::Queue<u64>>(KEYS, threads, ops)),
        subject(DRAFT, ops, move || duplicates::<u64, Draft<u64>>(KEYS, threads, ops)),
    ];
    Workload { name: threaded("duplicate add", threads), subjects }
}

fn delays(ops: u64) -> Workload {
    let run = move || thread::spawn(move || ours::add_after(ops)).join().expect("the worker panicked");
    Workload { name: "add_after, new".into(), subjects: vec![(OURS, Box::new(run) as Run)] }
}

/// Failures of keys that failed before.
fn limiters(ops: u64) -> Workload {
    let subjects = vec![
        subject(OURS, ops, move || when::<u64, ItemExponentialFailure<u64>>(KEYS, 1, ops)[0]),
        subject(PARKING_LOT, ops, move || when::<u64, ParkingLotLimiter<u64>>(KEYS, 1, ops)[0]),
        subject(STD, ops, move || when::<u64, StdLimiter<u64>>(KEYS, 1, ops)[0]),
    ];
    Workload { name: "when, known".into(), subjects }
}

/// New keys only, from `pairs` producers to as many consumers.
fn unique_keys(pairs: u64, backlog: u64, ops: u64) -> Workload {
    let ops = ops / pairs * pairs;
    let subjects = vec![
        subject(OURS, ops, move || unique::<u64, Ours<u64>>(pairs, backlog, ops)),
        subject(PARKING_LOT, ops, move || unique::<u64, parking_lot_mutex::Queue<u64>>(pairs, backlog, ops)),
        subject(STD, ops, move || unique::<u64, std_mutex::Queue<u64>>(pairs, backlog, ops)),
        subject(DRAFT, ops, move || unique::<u64, Draft<u64>>(pairs, backlog, ops)),
    ];
    Workload { name: format!("unique {pairs}x{pairs}, backlog {backlog}"), subjects }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workloads check themselves.
    #[test]
    fn each_workload_runs_on_each_subject() {
        for Workload { name, subjects } in all(5000) {
            for (subject, run) in subjects {
                assert!(run() > 0.0, "{name}, {subject}");
            }
        }
    }
}
