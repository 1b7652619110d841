//! What priorities, groups and limits cost: the crate's queue beside a plain one and beside queues that are written by hand.
//!
//! ```text
//!   cargo run --release --manifest-path benches/Cargo.toml -p core-table -- [rows] [rounds]
//!   … -- --order                                         the data of `benches/charts/order.jsonl`
//!   CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 cargo run …    the same in the other build
//!   benches/core/beside.sh <commit> …                    the same, with the crate of another commit in more columns
//!   … -- 40                                              the rows of keys of 40 bytes, whose slots have 64
//! ```

mod queues;
mod tenants;

use clap::Parser;
use common::by_hand::{ByHand, Sorted, Turns};
use common::workloads::{cycle, duplicates, fill_and_drain, raise, ring};
use keyqueue_benches::harness::Plan;
use keyqueue_benches::results::Run;
use keyqueue_benches::tables;
use keyqueue_benches::workload::once;
#[cfg(keyqueue_base)]
use queues::{Base, WideBase};
use queues::{Crate, Wide};

/// Measures the crate's queue beside queues that are written by hand.
#[derive(Parser)]
struct Options {
    /// Only rows whose names contain this.
    #[arg(default_value = "")]
    rows: String,
    #[arg(default_value_t = 9)]
    rounds: usize,
    /// Prints the data of each round, for benches/TABLES.md.
    #[arg(long)]
    order: bool,
}

const OPS: u64 = 400_000;

/// A workload, and the subjects that run it. `crate` is followed by a name and by the parameters of the crate's queue: beside it runs
/// that of the other commit, if there is one. A name with a remark in brackets is only shown beside the others.
macro_rules! row {
    ($plan:ident, $rounds:ident, $group:literal, $name:expr, $ops:expr, $work:ident $arguments:tt;
     $(crate $ours:literal $parameters:tt)*; $by_hand:literal $queue:ty) => {
        let subjects = vec![
            $(
                ($ours, row!(@ Crate $parameters $work $arguments)),
                #[cfg(keyqueue_base)]
                (concat!("base, ", $ours), row!(@ Base $parameters $work $arguments)),
            )*
            ($by_hand, row!(@@ $queue, $work $arguments)),
        ];
        $plan.row(["order", $group, $name], $ops, $rounds, subjects);
    };
    (@ $queue:ident($levels:literal, $groups:literal, $limit:literal) $work:ident $arguments:tt) => {
        row!(@@ $queue<$levels, $groups, $limit>, $work $arguments)
    };
    (@@ $queue:ty, $work:ident($($argument:expr),*)) => { once(move || $work::<u64, $queue>($($argument),*)) };
}

/// A workload in queues of each order.
macro_rules! orders {
    ($plan:ident, $rounds:ident, $name:literal, $ops:expr, $work:ident $arguments:tt) => {
        row!($plan, $rounds, "priorities", $name, $ops, $work $arguments;
            crate "plain (keyqueue)" (false, 0, 0) crate "keyqueue, 3 priorities" (true, 0, 0); "BTreeMap" ByHand<Sorted>);
        row!($plan, $rounds, "groups", $name, $ops, $work $arguments;
            crate "keyqueue, 1 group" (false, 1, 0)
            crate "keyqueue, 100 groups" (false, 100, 0)
            crate "100 000 groups (keyqueue)" (false, 100_000, 0)
            crate "100 groups, a limit (keyqueue)" (false, 100, 1000);
            "VecDeques, 100 groups" ByHand<Turns<100>>);
    };
}

fn order(plan: &mut Plan, rounds: usize) {
    orders!(plan, rounds, "cycle, 1 thread, 1024 keys", OPS, cycle(1024, OPS));
    orders!(plan, rounds, "ring, 1 thread, 1024 queued keys", OPS, ring(1024, 1, OPS));
    orders!(plan, rounds, "ring, 1 thread, 200 000 queued keys", OPS, ring(200_000, 1, OPS));
    orders!(plan, rounds, "ring, 2 threads, 1024 queued keys", OPS, ring(1024, 2, OPS));
    orders!(plan, rounds, "fill and drain", 1_000_000, fill_and_drain(1_000_000));
    for keys in [1_000, 100_000, 1_000_000] {
        let name = format!("raise one of {keys} queued keys");
        row!(plan, rounds, "priorities", &name, keys, raise(keys);
            crate "keyqueue, 3 priorities" (true, 0, 0); "BTreeMap" ByHand<Sorted>);
    }
}

/// Plain queues of keys of 40 bytes.
fn wide(plan: &mut Plan, rounds: usize) {
    macro_rules! row {
        ($name:literal, $ops:expr, $work:ident $arguments:tt) => {
            let subjects = vec![
                ("plain (keyqueue)", row!(@ Wide, $work $arguments)),
                #[cfg(keyqueue_base)]
                ("base, plain (keyqueue)", row!(@ WideBase, $work $arguments)),
            ];
            plan.row(["order", "keys of 40 bytes", $name], $ops, rounds, subjects);
        };
        (@ $queue:ty, $work:ident($($argument:expr),*)) => { once(move || $work::<[u64; 5], $queue>($($argument),*)) };
    }
    row!("cycle of 40 bytes, 1024 keys", OPS, cycle(1024, OPS));
    row!("ring of 40 bytes, 1024 queued keys", OPS, ring(1024, 1, OPS));
    row!("ring of 40 bytes, 200 000 queued keys", OPS, ring(200_000, 1, OPS));
    row!("ring of 40 bytes, 1 000 000 queued keys", 1_000_000, ring(1_000_000, 1, 1_000_000));
    row!("add again of 40 bytes, 1 000 000 queued keys", 1_000_000, duplicates(1_000_000, 1, 1_000_000));
    row!("fill and drain of 40 bytes", 1_000_000, fill_and_drain(1_000_000));
}

fn main() {
    let options = Options::parse();
    let units = option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").unwrap_or("16");
    let quoted = |argument: String| if argument.is_empty() { "''".into() } else { argument };
    let arguments = std::env::args().skip(1).map(quoted).collect::<Vec<_>>().join(" ");
    let command = format!(
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS={units} cargo run --release --manifest-path benches/Cargo.toml -p core-table -- {arguments}"
    );
    let mut plan = Plan::only(&options.rows);
    order(&mut plan, options.rounds);
    tenants::plan(&mut plan, options.rounds);
    if !options.order {
        wide(&mut plan, options.rounds);
    }
    let results = plan.run(Run { command, rounds: options.rounds, ..Run::here("core") });
    if options.order {
        return print!("{}", results.to_lines());
    }
    println!("{}\n\n{}", tables::run(&results), tables::groups(&results, "order"));
}
