//! What priorities and groups cost: queues that use them beside a plain one and beside what a user would write by hand, in one run. The
//! data, for `benches/charts/order.jsonl`, go to standard output.

use clap::Parser;
use common::by_hand::{ByHand, Sets, Sorted, Turns, priority_of};
use common::workloads::{cycle, fill_and_drain, raise, ring};
use common::{Prioritized, subject};
use keyqueue::{AddOptions, Priority, WorkQueue};
use keyqueue_benches::harness::Plan;
use keyqueue_benches::results::Run;
use keyqueue_benches::runs;

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

/// A queue without priorities and groups. A name with a remark in brackets is only shown beside the others.
struct Plain(WorkQueue<u64>);

/// A queue whose keys have three priorities.
struct Levels(WorkQueue<u64>);

/// A queue whose keys are in this number of groups.
struct Fair<const GROUPS: u64>(WorkQueue<u64>);

/// The same, with a limit of processing keys that is not reached.
struct Limited<const GROUPS: u64>(WorkQueue<u64>);

type ByPriority = ByHand<Sorted, Sets<(i8, u64)>>;
type ByGroup = ByHand<Turns<100, 0>, Sets<()>>;

const fn groups(number: u64) -> &'static str {
    match number {
        1 => "keyqueue, 1 group",
        100 => "keyqueue, 100 groups",
        _ => "100 000 groups (keyqueue)",
    }
}

subject!([] Plain, u64, "plain (keyqueue)", WorkQueue::new(), |queue, key| queue.add(key));
subject!([] Levels, u64, "keyqueue, 3 priorities", WorkQueue::new(), |queue, key| {
    queue.add_with(key, AddOptions::new().priority(Priority(priority_of(key))))
});
impl Prioritized<u64> for Levels {
    fn add_at(&self, key: u64, priority: i8) {
        self.0.add_with(key, AddOptions::new().priority(Priority(priority)));
    }
}
subject!(
    [const N: u64] Fair<N>,
    u64,
    groups(N),
    WorkQueue::builder().fair_by(|key: &u64| key % N).build(),
    |queue, key| queue.add(key)
);
subject!(
    [const N: u64] Limited<N>,
    u64,
    "100 groups, a limit (keyqueue)",
    WorkQueue::builder().fair_by(|key: &u64| key % N).max_processing_per_group(1000).build(),
    |queue, key| queue.add(key)
);

fn main() {
    let Options { rounds, ops } = Options::parse();
    let mut plan = Plan::default();
    macro_rules! rows {
        ($($name:literal, $work:ident $arguments:tt;)*) => {$(
            let subjects = runs!(u64; Plain, Levels, ByPriority; $work $arguments);
            plan.row(["order", "priorities", $name], ops, rounds, subjects);
            let subjects = runs!(u64; Fair<1>, Fair<100>, Fair<100_000>, Limited<100>, ByGroup; $work $arguments);
            plan.row(["order", "groups", $name], ops, rounds, subjects);
        )*};
    }
    rows! {
        "cycle, 1 thread, 1024 keys", cycle(1024, ops);
        "ring, 1 thread, 1024 queued keys", ring(1024, 1, ops);
        "ring, 1 thread, 200 000 queued keys", ring(200_000, 1, ops);
        "ring, 2 threads, 1024 queued keys", ring(1024, 2, ops);
        "fill and drain", fill_and_drain(ops);
    }
    for keys in [1_000, 100_000, 1_000_000] {
        let name = format!("raise one of {keys} queued keys");
        plan.row(["order", "priorities", &name], keys, rounds, runs!(u64; Levels, ByPriority; raise(keys)));
    }
    print!("{}", plan.run(Run::here("order")).to_lines());
}
