//! The crate's queue beside queues that are written by hand: one table.
//!
//! ```text
//!   cargo run --release --manifest-path benches/Cargo.toml -p core-table -- [rows] [rounds] [what]
//!   … -- --order                                         the data of `benches/charts/order.jsonl`
//!   CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 cargo run …    the same in the other build
//!   benches/core/beside.sh <commit> …                    the same, with the crate of another commit in one more column
//! ```

mod check;
mod queues;

use clap::Parser;
use common::by_hand::{ByHand, Sorted, Turns};
use common::mutex::parking_lot_mutex;
use common::workloads;
use common::{Prioritized, Subject};
use keyqueue_benches::harness::Plan;
use keyqueue_benches::numbers::short;
use keyqueue_benches::results::Run;
use keyqueue_benches::tables;
use keyqueue_benches::workload::once;
#[cfg(keyqueue_base)]
use queues::Base;
use queues::Crate;
use std::time::Duration;

/// Measures the crate's queue beside queues that are written by hand.
#[derive(Parser)]
struct Options {
    /// Only rows whose names contain this.
    #[arg(default_value = "")]
    rows: String,
    #[arg(default_value_t = 9)]
    rounds: usize,
    /// What priorities and groups cost beside a plain queue, for benches/TABLES.md.
    #[arg(long)]
    order: bool,
    /// Measures nothing: compares what the subjects do.
    #[arg(long)]
    check: bool,
    /// Prints the data of each round.
    #[arg(long)]
    jsonl: bool,
}

const K: u64 = 1000;
const M: u64 = 1000 * K;
const OPS: u64 = 400 * K;

/// A workload, with its number of keys.
#[derive(Clone, Copy)]
enum Work {
    Cycle(u64),
    Ring(u64, u64),
    Duplicates(u64),
    Touch(u64),
    Fill(u64),
    Raise(u64),
}
use Work::*;

impl Work {
    fn name(self) -> String {
        let (name, keys) = match self {
            Cycle(keys) => ("cycle", keys),
            Ring(keys, threads) => (["", "ring", "2 threads, ring"][threads as usize], keys),
            Duplicates(keys) => ("duplicates", keys),
            Touch(keys) => ("touch", keys),
            Fill(keys) => ("fill and drain", keys),
            Raise(keys) => ("raise", keys),
        };
        format!("{name} {}", short(keys))
    }

    fn ops(self) -> u64 {
        if let Fill(keys) | Raise(keys) = self { keys } else { OPS }
    }

    /// Runs it once on one subject.
    fn run<Q: Subject<u64>>(self) -> Duration {
        match self {
            Cycle(keys) => workloads::cycle::<u64, Q>(keys, OPS),
            Ring(keys, threads) => workloads::ring::<u64, Q>(keys, threads, OPS),
            Duplicates(keys) => workloads::duplicates::<u64, Q>(keys, 1, OPS),
            Touch(keys) => workloads::touch::<u64, Q>(keys, OPS),
            Fill(keys) => workloads::fill_and_drain::<u64, Q>(keys),
            Raise(_) => unreachable!("only where there are priorities"),
        }
    }
}

fn raise<Q: Prioritized<u64>>(work: Work) -> Duration {
    workloads::raise::<u64, Q>(work.ops())
}

/// A subject's name, and a run of a workload on it.
type Column = (&'static str, fn(Work) -> Duration);

/// A form of queue. `C` stands for it by hand, if there is no limit.
fn form<C: Subject<u64>, const LEVELS: bool, const N: u64, const LIMIT: u32>() -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("crate", Work::run::<Crate<LEVELS, N, LIMIT>>),
        #[cfg(keyqueue_base)]
        ("base", Work::run::<Base<LEVELS, N, LIMIT>>),
    ];
    if LIMIT == 0 {
        columns.push(("by hand", Work::run::<C>));
    }
    columns
}

const RAISES: &[Column] = &[
    ("crate", raise::<Crate<true, 0, 0>>),
    #[cfg(keyqueue_base)]
    ("base", raise::<Base<true, 0, 0>>),
    ("by hand", raise::<ByHand<Sorted>>),
];

fn row(plan: &mut Plan, rounds: usize, at: [&str; 3], work: Work, columns: &[Column]) {
    let runs = columns.iter().map(|&(name, run)| (name, once(move || run(work))));
    plan.row(at, work.ops(), rounds, runs.collect());
}

/// What priorities and groups cost. A name with a remark in brackets is only shown beside the others.
fn order(plan: &mut Plan, rounds: usize) {
    let priorities: [Column; 3] = [
        ("plain (keyqueue)", Work::run::<Crate<false, 0, 0>>),
        ("keyqueue, 3 priorities", Work::run::<Crate<true, 0, 0>>),
        ("BTreeMap", Work::run::<ByHand<Sorted>>),
    ];
    let groups: [Column; 5] = [
        ("keyqueue, 1 group", Work::run::<Crate<false, 1, 0>>),
        ("keyqueue, 100 groups", Work::run::<Crate<false, 100, 0>>),
        ("100 000 groups (keyqueue)", Work::run::<Crate<false, 100_000, 0>>),
        ("100 groups, a limit (keyqueue)", Work::run::<Crate<false, 100, 1000>>),
        ("VecDeques, 100 groups", Work::run::<ByHand<Turns<100>>>),
    ];
    for (name, work) in [
        ("cycle, 1 thread, 1024 keys", Cycle(1024)),
        ("ring, 1 thread, 1024 queued keys", Ring(1024, 1)),
        ("ring, 1 thread, 200 000 queued keys", Ring(200 * K, 1)),
        ("ring, 2 threads, 1024 queued keys", Ring(1024, 2)),
        ("fill and drain", Fill(M)),
    ] {
        row(plan, rounds, ["order", "priorities", name], work, &priorities);
        row(plan, rounds, ["order", "groups", name], work, &groups);
    }
    let raises: [Column; 2] =
        [("keyqueue, 3 priorities", raise::<Crate<true, 0, 0>>), ("BTreeMap", raise::<ByHand<Sorted>>)];
    for keys in [1_000, 100_000, 1_000_000] {
        let name = format!("raise one of {keys} queued keys");
        row(plan, rounds, ["order", "priorities", &name], Raise(keys), &raises);
    }
}

fn forms(plan: &mut Plan, rounds: usize) {
    let mut add = |name: &str, works: &[Work], columns: &[Column]| {
        for &work in works {
            row(plan, rounds, ["core", "", &format!("{name}: {}", work.name())], work, columns);
        }
    };
    let mut plain = vec![Cycle(1024), Ring(1024, 1), Ring(1024, 2), Ring(200 * K, 1)];
    plain.extend([Duplicates(256), Duplicates(1024), Duplicates(100 * K)]);
    plain.extend([Fill(300 * K), Fill(M), Touch(M), Touch(10 * M)]);
    let few = [Cycle(1024), Ring(1024, 1), Ring(200 * K, 1), Fill(300 * K)];
    let many = [Cycle(20 * K), Ring(20 * K, 1), Ring(200 * K, 1), Fill(300 * K)];
    add("plain", &plain, &form::<parking_lot_mutex::Queue<u64>, false, 0, 0>());
    add("priorities", &few, &form::<ByHand<Sorted>, true, 0, 0>());
    add("priorities", &[Raise(M)], RAISES);
    add("groups 1", &few, &form::<ByHand<Turns<1>>, false, 1, 0>());
    add("groups 100", &few, &form::<ByHand<Turns<100>>, false, 100, 0>());
    add("groups 10 000", &many, &form::<ByHand<Turns<10_000>>, false, 10_000, 0>());
    add("groups 100, limit 4", &few, &form::<ByHand<Turns<100>>, false, 100, 4>());
    add("groups 10 000, limit 4", &many, &form::<ByHand<Turns<10_000>>, false, 10_000, 4>());
}

fn main() {
    let options = Options::parse();
    if options.check {
        return check::run();
    }
    let units = option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").unwrap_or("16");
    let quoted = |argument: String| if argument.is_empty() { "''".into() } else { argument };
    let arguments = std::env::args().skip(1).map(quoted).collect::<Vec<_>>().join(" ");
    let command =
        format!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS={units} cargo run --release -p core-table -- {arguments}");
    let mut plan = Plan::only(&options.rows);
    let add = if options.order { order } else { forms };
    add(&mut plan, options.rounds);
    let results = plan.run(Run { command, rounds: options.rounds, ..Run::here("core") });
    if options.jsonl || options.order {
        return print!("{}", results.to_lines());
    }
    let times: Vec<_> = results.times("core").collect();
    println!("{}\n\n{}", tables::run(&results), tables::against_each("ns a key, medians", &times));
}
