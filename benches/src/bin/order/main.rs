//! What priorities and groups cost: queues that use them beside a plain one and beside what a user would write by hand, in one run.
//!
//! The subjects of a row run in turn, round after round. The data, for `benches/charts/order.jsonl`, go to standard output.

mod rivals;

use clap::Parser;
use common::{Prioritized, subject, workloads};
use keyqueue::{AddOptions, Priority, WorkQueue};
use keyqueue_benches::machine::load;
use keyqueue_benches::rounds::{print_run, print_times};
use std::time::Duration;

/// Measures priorities and groups.
#[derive(Parser)]
struct Options {
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Keys of a run.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
}

/// A queue without priorities and groups.
struct Plain(WorkQueue<u64>);

/// A queue whose keys have three priorities.
struct Levels(WorkQueue<u64>);

/// A queue whose keys are in this number of groups.
struct Fair<const GROUPS: u64>(WorkQueue<u64>);

/// The same, with a limit of processing keys that is not reached.
struct Limited<const GROUPS: u64>(WorkQueue<u64>);

/// The priority of a key.
fn priority_of(key: u64) -> i8 {
    [Priority::LOW, Priority::NORMAL, Priority::HIGH][key as usize % 3].0
}

subject!(Plain, WorkQueue::new(), |queue, key| queue.add(key));
subject!(Levels, WorkQueue::new(), |queue, key| {
    queue.add_with(key, AddOptions::new().priority(Priority(priority_of(key))))
});
impl Prioritized<u64> for Levels {
    fn add_at(&self, key: u64, priority: i8) {
        self.0.add_with(key, AddOptions::new().priority(Priority(priority)));
    }
}

subject!(Fair<const N: u64>, WorkQueue::builder().fair_by(|key: &u64| key % N).build(), |queue, key| queue.add(key));
subject!(
    Limited<const N: u64>,
    WorkQueue::builder().fair_by(|key: &u64| key % N).max_processing_per_group(1000).build(),
    |queue, key| queue.add(key)
);

/// The first three are compared with each other, and the last five. A name with a remark in brackets is only shown beside them.
const NAMES: [&str; 8] = [
    "plain (keyqueue)",
    "keyqueue, 3 priorities",
    "BTreeMap",
    "keyqueue, 1 group",
    "keyqueue, 100 groups",
    "100 000 groups (keyqueue)",
    "100 groups, a limit (keyqueue)",
    "VecDeques, 100 groups",
];

type Run = fn(u64) -> Duration;

macro_rules! runs {
    ($workload:ident, $($argument:expr),*) => {
        [
            |ops| workloads::$workload::<u64, Plain>($($argument,)* ops),
            |ops| workloads::$workload::<u64, Levels>($($argument,)* ops),
            |ops| workloads::$workload::<u64, rivals::ByPriority>($($argument,)* ops),
            |ops| workloads::$workload::<u64, Fair<1>>($($argument,)* ops),
            |ops| workloads::$workload::<u64, Fair<100>>($($argument,)* ops),
            |ops| workloads::$workload::<u64, Fair<100_000>>($($argument,)* ops),
            |ops| workloads::$workload::<u64, Limited<100>>($($argument,)* ops),
            |ops| workloads::$workload::<u64, rivals::ByGroup<100>>($($argument,)* ops),
        ]
    };
}

fn main() {
    let options = Options::parse();
    assert!(options.rounds > 0 && options.ops > 0, "at least one round, and one key");
    print_run("order");
    eprintln!("load {}", load());

    let rows: [(&str, [Run; 8]); 5] = [
        ("cycle, 1 thread, 1024 keys", runs!(cycle, 1024)),
        ("ring, 1 thread, 1024 queued keys", runs!(ring, 1024, 1)),
        ("ring, 1 thread, 200 000 queued keys", runs!(ring, 200_000, 1)),
        ("ring, 2 threads, 1024 queued keys", runs!(ring, 1024, 2)),
        ("fill and drain", runs!(fill_and_drain,)),
    ];
    for (name, runs) in rows {
        eprintln!("{name}");
        let mut times = vec![Vec::new(); runs.len()];
        for _ in 0..options.rounds {
            for (times, run) in times.iter_mut().zip(runs) {
                times.push(run(options.ops).as_nanos() as f64 / options.ops as f64);
            }
        }
        let mut row = NAMES.into_iter().zip(times);
        print_times("order", "priorities", name, row.by_ref().take(3));
        print_times("order", "groups", name, row);
    }
    for keys in [1_000, 100_000, 1_000_000] {
        let times = |raise: Run| (0..options.rounds).map(|_| raise(keys).as_nanos() as f64 / keys as f64).collect();
        let row = [
            (NAMES[1], times(workloads::raise::<u64, Levels>)),
            (NAMES[2], times(workloads::raise::<u64, rivals::ByPriority>)),
        ];
        print_times("order", "priorities", &format!("raise one of {keys} queued keys"), row);
    }
}
