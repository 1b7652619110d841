//! The workloads, and the queues that run them.

use common::mutex::{parking_lot_mutex, std_mutex};
use common::threads::timed;
use common::workloads::{cycle, fill_and_drain, own_keys, ring, unique, with_queued_keys};
use common::{Key, Subject, subject};
use keyqueue::{AddOptions, Driver, WorkQueue};
use keyqueue_benches::rivals::{DashSeg, Papaya, Scc};
use std::time::{Duration, Instant};

pub const NAMES: [&str; 8] = [
    "keyqueue, 1 shard",
    "keyqueue, 16 shards",
    "2 queues (keyqueue)",
    "parking_lot mutex",
    "std mutex",
    "DashMap + SegQueue",
    "papaya + SegQueue",
    "scc + SegQueue",
];

/// A row of the table. A subject that cannot run the workload is `None`.
pub struct Row {
    pub name: String,
    pub subjects: [Option<Box<dyn Fn() -> f64>>; 8],
}

/// A queue with this number of shards.
pub struct Shards<const N: usize>(pub WorkQueue<u64>);

subject!(Shards<const N: usize>, WorkQueue::builder().shards(N).build(), |queue, key| queue.add(key));

/// Keys that are queued in the workloads with a fixed set of keys.
const KEYS: u64 = 1024;

type One = Shards<1>;
type Many = Shards<16>;
type ParkingLot = parking_lot_mutex::Queue<u64>;
type Std = std_mutex::Queue<u64>;

macro_rules! row {
    ($name:expr, $ops:expr, $two:expr, $workload:ident($($argument:expr),*)) => {
        Row {
            name: $name,
            subjects: [
                of($ops, move || $workload::<u64, One>($($argument),*)),
                of($ops, move || $workload::<u64, Many>($($argument),*)),
                $two,
                of($ops, move || $workload::<u64, ParkingLot>($($argument),*)),
                of($ops, move || $workload::<u64, Std>($($argument),*)),
                of($ops, move || $workload::<u64, DashSeg<u64>>($($argument),*)),
                of($ops, move || $workload::<u64, Papaya<u64>>($($argument),*)),
                of($ops, move || $workload::<u64, Scc<u64>>($($argument),*)),
            ],
        }
    };
}

/// Nanoseconds per operation.
fn of(ops: u64, run: impl Fn() -> Duration + 'static) -> Option<Box<dyn Fn() -> f64>> {
    Some(Box::new(move || run().as_nanos() as f64 / ops as f64))
}

pub fn rows(ops: u64) -> Vec<Row> {
    let mut rows = vec![
        row!("cycle, 1 thread".into(), ops, None, cycle(KEYS, ops)),
        row!(format!("fill and drain, {ops} keys"), ops, None, fill_and_drain(ops)),
    ];
    rows.extend(rings(&[1, 2, 4, 16, 64, 512], ops));
    for threads in [2, 16, 64] {
        let two = if threads == 2 { of(ops, move || two_queues_of_own_keys(ops)) } else { None };
        rows.push(row!(format!("own keys, {threads} threads"), ops, two, own_keys(threads, ops)));
    }
    for (pairs, backlog) in [(1, 1000), (1, 100_000), (2, 1000), (8, 1000), (8, 100_000)] {
        let name = format!("unique {pairs}x{pairs}, backlog {backlog}");
        rows.push(row!(name, ops, None, unique(pairs, backlog, ops)));
    }
    let two = of(ops, move || two_queues_of_duplicates(ops));
    let parted = |n| -> Option<Box<dyn Fn() -> f64>> {
        of(ops, move || parted_duplicates(&WorkQueue::builder().shards(n).build(), ops))
    };
    rows.push(Row {
        name: "duplicates, 2 threads".into(),
        subjects: [parted(1), parted(16), two, None, None, None, None, None],
    });
    for threads in [1, 2] {
        let delays = |n| of(ops, move || delays(n, threads, ops));
        let name = format!("add_after, {threads} threads");
        rows.push(Row { name, subjects: [delays(1), delays(16), None, None, None, None, None, None] });
    }
    rows
}

pub fn rings(threads: &[u64], ops: u64) -> Vec<Row> {
    let ring_of = |&threads: &u64| {
        let two = if threads == 2 { of(ops, move || two_rings(ops)) } else { None };
        row!(format!("ring, {threads} threads"), ops, two, ring(KEYS, threads, ops))
    };
    threads.iter().map(ring_of).collect()
}

/// Rings whose threads work for a tenth of a microsecond after each call.
pub fn busy_rings(ops: u64) -> Vec<Row> {
    let name = |threads| format!("busy ring, {threads} threads");
    [2, 16].map(|threads| row!(name(threads), ops, None, busy_ring(KEYS, threads, ops))).into()
}

fn busy_ring<K: Key, Q: Subject<K>>(keys: u64, threads: u64, turns: u64) -> Duration {
    let work = || {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_nanos(100) {}
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

/// Two threads with a queue each: the limit for two threads that share nothing.
fn two_rings(turns: u64) -> Duration {
    let queues = [One::make(), One::make()];
    queues.iter().for_each(|queue| (0..KEYS / 2).for_each(|key| queue.add(key)));
    timed(2, |thread| {
        for _ in 0..turns / 2 {
            queues[thread as usize].process(|queue, &key| queue.add(key));
        }
    })
}

fn two_queues_of_own_keys(keys: u64) -> Duration {
    let queues = [One::make(), One::make()];
    timed(2, |thread| {
        for key in 0..keys / 2 {
            queues[thread as usize].add(key);
            queues[thread as usize].process(|_, key| _ = std::hint::black_box(key));
        }
    })
}

/// Each of two threads adds its own half of the queued keys again and again.
fn parted_duplicates(queue: &WorkQueue<u64>, adds: u64) -> Duration {
    queue.add_all(0..KEYS);
    timed(2, |thread| {
        for n in 0..adds / 2 {
            queue.add(n % (KEYS / 2) * 2 + thread);
        }
    })
}

fn two_queues_of_duplicates(adds: u64) -> Duration {
    let queues = [WorkQueue::new(), WorkQueue::new()];
    queues.iter().for_each(|queue| _ = queue.add_all(0..KEYS / 2));
    timed(2, |thread| {
        for n in 0..adds / 2 {
            queues[thread as usize].add(n % (KEYS / 2));
        }
    })
}

/// New delayed keys, each with a deadline of its own within an hour.
fn delays(shards: usize, threads: u64, keys: u64) -> Duration {
    let queue = WorkQueue::builder().shards(shards).driver(Driver::Manual).build();
    timed(threads, |thread| {
        for n in 0..keys / threads {
            let key = u64::nth(n * threads + thread);
            let delay = Duration::from_micros(1_000_000 + key.wrapping_mul(0x9e37_79b9) % 3_600_000_000);
            queue.add_with(key, AddOptions::new().after(delay));
        }
    })
}
