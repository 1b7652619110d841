//! The list of workloads of the report.

use crate::delays::workloads::moved;
use crate::delays::{Manual, ManualHeap, ManualOurs, ManualWheel};
use crate::floors::Channel;
use crate::rivals::DashSeg;
use crate::workload::{Run, Workload, once};
use crate::{Key, Ours, runs, subjects};
use common::mutex::{parking_lot_mutex, std_mutex};
use common::workloads::{cycle, duplicates, fill_and_drain, own_keys, refill, ring, touch, unique};
use keyqueue::WorkQueue;
use std::time::{Duration, Instant};

/// Subjects: names and runs.
type Subjects = Vec<(&'static str, Run)>;

/// The numbers of threads of [`threads`].
const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 64, 512];
/// The numbers of producers, and of consumers, of [`pairs`].
const PAIRS: [usize; 7] = [1, 2, 4, 8, 16, 64, 256];
/// The numbers of keys of [`sizes`].
const SIZES: [u64; 7] = [10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
/// The least number of operations in a run of [`sizes`].
const SIZES_OPS: u64 = 200_000;

/// The subjects that deduplicate, and others.
macro_rules! queues {
    ($key:ty, [$($more:ty),*] $($run:tt)*) => {
        runs!(
            $key;
            Ours<$key>, parking_lot_mutex::Queue<$key>, std_mutex::Queue<$key>, DashSeg<$key> $(, $more)*;
            $($run)*
        )
    };
}

macro_rules! dedup {
    ($key:ty, $($run:tt)*) => { queues!($key, [] $($run)*) };
}

/// The same, and the subject that does not deduplicate, for workloads without repeated keys.
macro_rules! everyone {
    ($key:ty, $($run:tt)*) => { queues!($key, [Channel<$key>] $($run)*) };
}

/// All workloads. A run has `ops` operations, unless its name says otherwise.
pub fn all(ops: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push = |group, name: String, target, ops, subjects| {
        list.push(workload(group, name, Some(target), ops, subjects));
    };
    for keys in [1, 1024, 100_000] {
        push("cycle u64", format!("{keys} keys"), 1.0, ops, everyone!(u64, cycle(keys, ops)));
    }
    for keys in [1, 1024, 100_000] {
        push("cycle String", format!("{keys} keys"), 1.5, ops, everyone!(String, cycle(keys, ops)));
    }
    for (threads, keys) in [(1, 1), (1, 1024), (2, 1), (2, 1024)] {
        let subjects = dedup!(u64, duplicates(keys, threads, ops));
        push("duplicate add", format!("{threads} threads, {keys} keys"), 1.0, ops, subjects);
    }
    // The others add their keys in turn, so the branches of a look-up are predicted.
    push("duplicate add", "1024 keys, at random".into(), 1.0, ops, dedup!(u64, touch(1024, ops)));
    for threads in [1, 2, 4, 16] {
        let subjects = everyone!(u64, ring(1024, threads, ops));
        push("ring", format!("{threads} threads"), 1.0, ops, subjects);
    }
    for (backlog, target) in [(1000, 3.0), (100_000, 1.0)] {
        for pairs in [1, 2, 8] {
            let name = format!("{pairs}x{pairs}, backlog {backlog}");
            push("unique", name, target, ops, unique_keys(pairs, backlog, ops));
        }
    }
    for keys in [1024, 1_000_000] {
        many(&mut list, format!("u64, {keys} keys"), keys, many_adds::<u64>);
    }
    many(&mut list, "String, 1000000 keys".into(), 1_000_000, many_adds::<String>);
    let mut push = |group, name: String, target, ops, subjects| {
        list.push(workload(group, name, Some(target), ops, subjects));
    };
    push("fill, drain", "300000 keys".into(), 1.0, 300_000, everyone!(u64, fill_and_drain(300_000)));
    list
}

/// Two workloads of `add_all`, beside as many single adds: of new keys, and of keys that are queued, in random order.
fn many(list: &mut Vec<Workload>, name: String, keys: u64, subjects: fn(u64, bool) -> Subjects) {
    for (group, touches) in [("add_all, new", false), ("add_all, queued", true)] {
        let (ops, subjects) = (keys * SIZES_OPS.div_ceil(keys), subjects(keys, touches));
        list.push(Workload { group, name: name.clone(), figures: vec![("", None)], ops, subjects, rivals: 0 });
    }
}

fn many_adds<K: Key>(keys: u64, touches: bool) -> Subjects {
    let run = move |at_once| once(move || add_many::<K>(keys, touches, at_once));
    vec![("keyqueue", run(true)), ("keyqueue, a loop of adds", run(false))]
}

/// Adds keys by `add_all` or by a loop: `keys` of them, which are new each time, or which are queued. The keys are made beforehand.
fn add_many<K: Key>(keys: u64, touches: bool, at_once: bool) -> Duration {
    let queue = WorkQueue::new();
    let (mut time, mut random) = (Duration::ZERO, fastrand::Rng::with_seed(0));
    if touches {
        queue.add_all((0..keys).map(K::nth));
    }
    for _ in 0..SIZES_OPS.div_ceil(keys) {
        let keys: Vec<K> = (0..keys).map(|n| K::nth(if touches { random.u64(0..keys) } else { n })).collect();
        let start = Instant::now();
        if at_once {
            std::hint::black_box(queue.add_all(keys));
        } else {
            keys.into_iter().for_each(|key| _ = std::hint::black_box(queue.add(key)));
        }
        time += start.elapsed();
        if !touches {
            while queue.try_get().is_ok() {}
        }
    }
    time
}

/// A workload with one timed part. The target applies to the two mutex queues.
fn workload(group: &'static str, name: String, target: Option<f64>, ops: u64, subjects: Subjects) -> Workload {
    Workload { group, name, figures: vec![("", target)], ops, subjects, rivals: 2 }
}

fn unique_keys(pairs: u64, backlog: u64, ops: u64) -> Subjects {
    everyone!(u64, unique(pairs, backlog, ops))
}

/// A workload for each number of threads, with that number. Each thread adds a new key and takes one; the total work is the same.
pub fn threads(ops: u64) -> Vec<(usize, Workload)> {
    let row = |count: usize| {
        let threads = count as u64;
        let ops = ops / threads * threads;
        let subjects = everyone!(u64, own_keys(threads, ops));
        (count, workload("threads", format!("{count} threads"), None, ops, subjects))
    };
    THREADS.map(row).into()
}

/// A workload for each number of pairs of a producer and a consumer, with that number. The total work is the same.
pub fn pairs(ops: u64) -> Vec<(usize, Workload)> {
    let row = |count: usize| {
        let pairs = count as u64;
        let ops = ops / pairs * pairs;
        let subjects = unique_keys(pairs, 1000, ops);
        (count, workload("pairs", format!("{count}x{count}"), None, ops, subjects))
    };
    PAIRS.map(row).into()
}

/// Workloads for each number of keys up to `max`, with that number.
///
/// * "fill": all are added, then taken; repeatedly where there are few. A key counts as one operation.
/// * "touch": all are queued, and one of them is added again. Without the subject that does not deduplicate.
/// * "delays": all are delayed, and one is moved to an earlier moment; by the subjects of [`crate::delays`], without their
///   threads.
pub fn sizes(max: u64) -> Vec<(u64, Workload)> {
    let mut list = Vec::new();
    let sizes = SIZES.into_iter().filter(|keys| *keys <= max);
    let name = |keys| format!("{keys} keys");
    for keys in sizes.clone() {
        let rounds = SIZES_OPS.div_ceil(keys);
        let subjects = everyone!(u64, refill(keys, rounds));
        let ops = keys * rounds;
        list.push((keys, workload("fill", name(keys), None, ops, subjects)));
    }
    for keys in sizes.clone() {
        let ops = SIZES_OPS.max(keys / 10);
        let subjects = dedup!(u64, touch(keys, ops));
        list.push((keys, workload("touch", name(keys), None, ops, subjects)));
    }
    for keys in sizes {
        let ops = SIZES_OPS.max(keys / 10);
        let subjects = subjects!(Manual; ManualOurs, ManualHeap, ManualWheel; moved(keys, ops));
        list.push((keys, workload("delays", name(keys), None, ops, subjects)));
    }
    list
}
