//! The machine behind the crate's lock, beside the crate's queue: nanoseconds a key, one thread.
//!
//! `machine [rows] [rounds]`: only the rows whose names contain this. The subjects of a row run in turn, round after round; medians.

#![allow(dead_code, unused_imports, reason = "the files of the crate have more than is measured here")]
#![allow(unreachable_pub, reason = "they are private here")]

#[path = "../../../src/key/mod.rs"]
mod key;
#[path = "../../../src/machine/mod.rs"]
mod machine;
#[path = "../../../src/numbers.rs"]
mod numbers;
#[path = "../../../src/options.rs"]
mod options;
#[path = "../../../src/order/mod.rs"]
mod order;
#[path = "../../../src/panics.rs"]
mod panics;
#[path = "../../../src/prefetch.rs"]
mod prefetch;
mod queue;
#[path = "../../../src/sync/mod.rs"]
mod sync;

/// What these files need of the rest of the crate.
#[path = "../../../src/time"]
mod time {
    use crate::numbers;
    use std::time::Duration;

    pub(crate) mod wheel;
    pub(crate) mod clock {
        pub(crate) fn now_real() -> u64 {
            unreachable!("the machine has no clock")
        }
    }

    pub(crate) fn nanos(delay: Duration) -> u64 {
        u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
    }
}
#[path = "../../../src/observe"]
mod observe {
    mod histogram;
    pub(crate) use histogram::Histogram;
}
mod rate_limiter {
    pub(crate) trait Schedule {
        fn delay(&self, failures: u32) -> std::time::Duration;
    }
}
use keyqueue::Added;
use options::{DelayConflict, DelayedAdd};

use common::workloads::{cycle, duplicates, fill_and_drain, ring, touch};
use common::{Ours, subject};
use keyqueue::{AddOptions, Priority, WorkQueue};
use std::time::Duration;

struct Plain(queue::Queue<u64>);
struct Levels(queue::Queue<u64>);
struct Groups<const N: u64>(queue::Queue<u64>);
struct OurLevels(WorkQueue<u64>);
struct OurGroups<const N: u64>(WorkQueue<u64>);

fn priority(key: u64) -> i8 {
    [-100, 0, 100][key as usize % 3]
}

subject!(Plain, queue::Queue::plain(), |queue, key| queue.add(key));
subject!(Levels, queue::Queue::plain(), |queue, key| queue.add_at(key, priority(key)));
subject!(Groups<const N: u64>, queue::Queue::fair_by(|key: &u64| key % N), |queue, key| queue.add(key));
subject!(OurLevels, WorkQueue::new(), |queue, key| {
    queue.add_with(key, AddOptions::new().priority(Priority(priority(key))))
});
subject!(OurGroups<const N: u64>, WorkQueue::builder().fair_by(|key: &u64| key % N).build(), |queue, key| {
    queue.add(key)
});

/// A row: its name, its operations, and the crate and the machine.
type Row = (&'static str, u64, [fn(u64) -> Duration; 2]);

fn rows() -> Vec<Row> {
    const OPS: u64 = 400_000;
    const MILLION: u64 = 1_000_000;
    macro_rules! both {
        ($workload:ident($($argument:expr),*), $crate_:ty, $machine:ty) => {
            [|ops| $workload::<u64, $crate_>($($argument,)* ops), |ops| $workload::<u64, $machine>($($argument,)* ops)]
        };
    }
    vec![
        ("plain: cycle, 1024 keys", OPS, both!(cycle(1024), Ours<u64>, Plain)),
        ("plain: ring, 1024 keys", OPS, both!(ring(1024, 1), Ours<u64>, Plain)),
        ("plain: ring, 200 000 keys", OPS, both!(ring(200_000, 1), Ours<u64>, Plain)),
        ("plain: duplicates, 1024 keys", OPS, both!(duplicates(1024, 1), Ours<u64>, Plain)),
        ("plain: touch of 1M", OPS, both!(touch(MILLION), Ours<u64>, Plain)),
        ("plain: fill and drain, 1M", MILLION, both!(fill_and_drain(), Ours<u64>, Plain)),
        ("levels: cycle, 1024 keys", OPS, both!(cycle(1024), OurLevels, Levels)),
        ("levels: ring, 1024 keys", OPS, both!(ring(1024, 1), OurLevels, Levels)),
        ("groups 1: cycle, 1024 keys", OPS, both!(cycle(1024), OurGroups<1>, Groups<1>)),
        ("groups 1: ring, 1024 keys", OPS, both!(ring(1024, 1), OurGroups<1>, Groups<1>)),
        ("groups 100: cycle, 1024 keys", OPS, both!(cycle(1024), OurGroups<100>, Groups<100>)),
        ("groups 100: ring, 1024 keys", OPS, both!(ring(1024, 1), OurGroups<100>, Groups<100>)),
        ("groups 10 000: cycle, 20 000 keys", OPS, both!(cycle(20_000), OurGroups<10_000>, Groups<10_000>)),
        ("groups 10 000: ring, 20 000 keys", OPS, both!(ring(20_000, 1), OurGroups<10_000>, Groups<10_000>)),
    ]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let only = arguments.next().unwrap_or_default();
    let rounds: usize = arguments.next().map_or(9, |text| text.parse().expect("a number of rounds"));
    for (name, ops, subjects) in rows().into_iter().filter(|(name, ..)| name.contains(&only)) {
        let mut results = [const { Vec::new() }; 2];
        for round in 0..rounds {
            for n in [round % 2, 1 - round % 2] {
                results[n].push(subjects[n](ops).as_nanos() as f64 / ops as f64);
            }
        }
        let [ours, machine] = results.map(|mut results| {
            results.sort_by(f64::total_cmp);
            results[rounds / 2]
        });
        println!("{name:34} crate {ours:6.1} | machine {machine:6.1}");
    }
}
