//! The workloads, and the queues that run them.

use common::mutex::{parking_lot_mutex, std_mutex};
use common::threads::timed;
use common::workloads::{cycle, fill_and_drain, own_keys, ring, unique, with_queued_keys};
use common::{Key, Subject};
pub use keyqueue_benches::forms::{LOCK_FREE, LOCK_FREE_16, Shards};
use keyqueue_benches::harness::Plan;
use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
use keyqueue_benches::runs;
use keyqueue_benches::workload::Run;
use std::time::{Duration, Instant};

/// Keys that are queued in the workloads with a fixed set of keys.
const KEYS: u64 = 1024;

pub type ParkingLot = parking_lot_mutex::Queue<u64>;
pub type Std = std_mutex::Queue<u64>;

macro_rules! everyone {
    ($($run:tt)*) => {
        runs!(u64; Shards<1>, Shards<16>, Shards<LOCK_FREE>, Shards<LOCK_FREE_16>, ParkingLot, Std, DashSeg<u64>, Papaya<u64>, Scc<u64>; $($run)*)
    };
}

pub fn plan(plan: &mut Plan, ops: u64, rounds: usize) {
    rings(plan, "shards", &[1, 2, 4, 16, 64, 512], ops, rounds);
    let mut row = |name: &str, subjects| plan.row(["shards", "", name], ops, rounds, subjects);
    row("cycle, 1 thread", everyone!(cycle(KEYS, ops)));
    row(&format!("fill and drain, {ops} keys"), everyone!(fill_and_drain(ops)));
    for threads in [2, 16, 64] {
        row(&format!("own keys, {threads} threads"), without_scc_if(threads > 2, everyone!(own_keys(threads, ops))));
    }
    for (pairs, backlog) in [(1, 1000), (1, 100_000), (2, 1000), (8, 1000), (8, 100_000)] {
        let subjects = without_scc_if(pairs > 2, everyone!(unique(pairs, backlog, ops)));
        row(&format!("unique {pairs}x{pairs}, backlog {backlog}"), subjects);
    }
}

/// With many threads and keys that are new, those of `scc` spin for each other in its lock (`saa`): a round took minutes, and was not
/// waited for.
fn without_scc_if(many: bool, mut subjects: Vec<(&'static str, Run)>) -> Vec<(&'static str, Run)> {
    subjects.retain(|&(subject, _)| !many || subject != Scc::<u64>::NAME);
    subjects
}

pub fn rings(plan: &mut Plan, section: &str, threads: &[u64], ops: u64, rounds: usize) {
    for &threads in threads {
        let name = format!("ring, {threads} threads");
        plan.row([section, "", &name], ops, rounds, everyone!(ring(KEYS, threads, ops)));
    }
}

/// Rings whose threads work for this many nanoseconds after each call.
pub fn busy_rings(plan: &mut Plan, ops: u64, rounds: usize) {
    for threads in [2, 16] {
        for nanos in [30, 100, 300, 1000] {
            let ops = ops * 100 / (100 + nanos);
            let name = format!("busy ring, {nanos} ns, {threads} threads");
            plan.row(["tails", "", &name], ops, rounds, everyone!(busy_ring(KEYS, threads, ops, nanos)));
        }
    }
}

fn busy_ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64, nanos: u64) -> Duration {
    let work = || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(nanos) {}
    };
    let queue: Q = with_queued_keys(keys);
    timed(threads, |_| {
        for _ in 0..turns / threads {
            queue.process(|queue, key| {
                work();
                queue.add(key.clone());
                work();
            });
            work();
        }
    })
}
