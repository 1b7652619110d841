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
use common::by_hand::{ByHand, MapOfStates, Order, Sets, Sorted, Turns};
use common::memory::{Counting, live_bytes};
use common::mutex::parking_lot_mutex;
use common::workloads::{self, with_queued_keys};
use common::{Key, Prioritized, Subject};
use keyqueue_benches::harness::{Notes, Plan, Step};
use keyqueue_benches::latency::histogram;
use keyqueue_benches::numbers::short;
use keyqueue_benches::results::{Bytes, Run};
use keyqueue_benches::tables;
#[cfg(keyqueue_base)]
use queues::Base;
use queues::{Crate, Twin};
use std::collections::VecDeque;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures the crate's queue beside queues that are written by hand.
#[derive(Parser)]
struct Options {
    /// Only rows whose names contain this.
    #[arg(default_value = "")]
    rows: String,
    #[arg(default_value_t = 9)]
    rounds: usize,
    /// Single calls in place of times: a call and a reading of the clock; medians of the rounds, also of the longest.
    #[arg(long)]
    slowest: bool,
    /// Bytes in place of times.
    #[arg(long)]
    memory: bool,
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
    Slowest(u64),
    /// Bytes a queued key, and bytes in all that are left when all but one are done.
    Bytes(u64),
    Left(u64),
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
            Slowest(keys) => ("calls with", keys),
            Bytes(keys) => ("bytes a key", keys),
            Left(keys) => ("bytes left of", keys),
        };
        format!("{name} {}", short(keys))
    }

    /// Runs it once on one subject.
    fn run<T: Key, Q: Subject<T>>(self, at: At, notes: &mut Notes) {
        let (took, ops) = match self {
            Cycle(keys) => (workloads::cycle::<T, Q>(keys, OPS), OPS),
            Ring(keys, threads) => (workloads::ring::<T, Q>(keys, threads, OPS), OPS),
            Duplicates(keys) => (workloads::duplicates::<T, Q>(keys, 1, OPS), OPS),
            Touch(keys) => (workloads::touch::<T, Q>(keys, OPS), OPS),
            Fill(keys) => (workloads::fill_and_drain::<T, Q>(keys), keys),
            Raise(_) => unreachable!("only where there are priorities"),
            Slowest(keys) => {
                for (call, laps) in ["add", "get and done"].into_iter().zip(workloads::laps::<T, Q>(keys)) {
                    let mut times = histogram();
                    laps.iter().for_each(|lap| times.record(u64::from(*lap)).expect("resizes by itself"));
                    notes.spread(["tails", &format!("{call}, {}", at[2]), at[3]], times, None);
                }
                return;
            }
            Bytes(keys) => {
                let bytes = live_bytes(|| with_queued_keys::<T, Q>(keys)) as f64 / keys as f64;
                return notes.bytes.push(bytes_of(at, keys, bytes));
            }
            Left(keys) => {
                let bytes = live_bytes(|| {
                    let queue: Q = with_queued_keys(keys);
                    (1..keys).for_each(|_| _ = queue.process(|_, _| {}));
                    queue
                });
                return notes.bytes.push(bytes_of(at, keys, bytes as f64));
            }
        };
        notes.row(at, took.as_nanos() as f64 / ops as f64);
    }
}

fn bytes_of([.., row, column]: At, keys: u64, bytes: f64) -> Bytes {
    Bytes { what: row.into(), subject: column.into(), keys, bytes }
}

fn raise<K: Key, Q: Prioritized<K>>(work: Work, at: At, notes: &mut Notes) {
    let Raise(keys) = work else { unreachable!() };
    notes.row(at, workloads::raise::<K, Q>(keys).as_nanos() as f64 / keys as f64);
}

/// Section, group, row and column of a result.
type At<'a> = [&'a str; 4];

/// Runs a workload once on one subject.
type Measure = fn(Work, At, &mut Notes);

const COLUMNS: [&str; 5] =
    ["crate", "control: the crate again", "base", "by hand: map of states", "by hand: client-go's sets"];

/// A form of queue. `O`, `C`: what stands for it by hand.
fn form<O: Order, C: Subject<u64>, const LEVELS: bool, const N: u64, const LIMIT: u32>() -> [Option<Measure>; 5]
where
    O::Place: 'static,
{
    [
        Some(Work::run::<u64, Crate<u64, LEVELS, N, LIMIT>>),
        Some(Work::run::<Twin, Crate<Twin, LEVELS, N, LIMIT>>),
        #[cfg(keyqueue_base)]
        Some(Work::run::<u64, Base<u64, LEVELS, N, LIMIT>>),
        #[cfg(not(keyqueue_base))]
        None,
        Some(Work::run::<u64, ByHand<O, MapOfStates<O::Place>>>),
        (LIMIT == 0).then_some(Work::run::<u64, C>),
    ]
}

const RAISES: [Option<Measure>; 5] = [
    Some(raise::<u64, Crate<u64, true, 0, 0>>),
    Some(raise::<Twin, Crate<Twin, true, 0, 0>>),
    #[cfg(keyqueue_base)]
    Some(raise::<u64, Base<u64, true, 0, 0>>),
    #[cfg(not(keyqueue_base))]
    None,
    Some(raise::<u64, ByHand<Sorted, MapOfStates<(i8, u64)>>>),
    Some(raise::<u64, ByHand<Sorted, Sets<(i8, u64)>>>),
];

fn task(plan: &mut Plan, rounds: usize, at: [&str; 3], work: Work, columns: &[(&'static str, Option<Measure>)]) {
    let [section, group, row] = at.map(str::to_owned);
    let step = |&(column, run): &(&'static str, Option<Measure>)| {
        let (run, section, group, row) = (run?, section.clone(), group.clone(), row.clone());
        Some(Box::new(move |notes: &mut Notes| run(work, [&section, &group, &row, column], notes)) as Step)
    };
    plan.task(at.join(" "), rounds, columns.iter().filter_map(step).collect());
}

/// What priorities and groups cost. A name with a remark in brackets is only shown beside the others.
fn order(options: &Options) -> Plan {
    let mut plan = Plan::only(&options.rows);
    let mut add = |group, name: &str, work, columns: &[_]| {
        task(&mut plan, options.rounds, ["order", group, name], work, columns);
    };
    let priorities: [(_, Option<Measure>); 3] = [
        ("plain (keyqueue)", Some(Work::run::<u64, Crate<u64, false, 0, 0>>)),
        ("keyqueue, 3 priorities", Some(Work::run::<u64, Crate<u64, true, 0, 0>>)),
        ("BTreeMap", Some(Work::run::<u64, ByHand<Sorted, Sets<(i8, u64)>>>)),
    ];
    let groups: [(_, Option<Measure>); 5] = [
        ("keyqueue, 1 group", Some(Work::run::<u64, Crate<u64, false, 1, 0>>)),
        ("keyqueue, 100 groups", Some(Work::run::<u64, Crate<u64, false, 100, 0>>)),
        ("100 000 groups (keyqueue)", Some(Work::run::<u64, Crate<u64, false, 100_000, 0>>)),
        ("100 groups, a limit (keyqueue)", Some(Work::run::<u64, Crate<u64, false, 100, 1000>>)),
        ("VecDeques, 100 groups", Some(Work::run::<u64, ByHand<Turns<100, 0>, Sets<()>>>)),
    ];
    for (name, work) in [
        ("cycle, 1 thread, 1024 keys", Cycle(1024)),
        ("ring, 1 thread, 1024 queued keys", Ring(1024, 1)),
        ("ring, 1 thread, 200 000 queued keys", Ring(200 * K, 1)),
        ("ring, 2 threads, 1024 queued keys", Ring(1024, 2)),
        ("fill and drain", Fill(M)),
    ] {
        add("priorities", name, work, &priorities);
        add("groups", name, work, &groups);
    }
    let raises: [(_, Option<Measure>); 2] = [
        ("keyqueue, 3 priorities", Some(raise::<u64, Crate<u64, true, 0, 0>>)),
        ("BTreeMap", Some(raise::<u64, ByHand<Sorted, Sets<(i8, u64)>>>)),
    ];
    for keys in [1_000, 100_000, 1_000_000] {
        add("priorities", &format!("raise one of {keys} queued keys"), Raise(keys), &raises);
    }
    plan
}

fn plan(options: &Options) -> Plan {
    let mut plan = Plan::only(&options.rows);
    let rounds = if options.memory { 1 } else { options.rounds };
    let mut add = |name: &str, works: &[Work], columns: [Option<Measure>; 5]| {
        let columns: Vec<_> = COLUMNS.into_iter().zip(columns).collect();
        for &work in works {
            task(&mut plan, rounds, ["core", "", &format!("{name}: {}", work.name())], work, &columns);
        }
    };
    let mut of_plain = vec![Cycle(1024), Ring(1024, 1), Ring(1024, 2), Ring(200 * K, 1)];
    of_plain.extend([Duplicates(256), Duplicates(1024), Duplicates(100 * K)]);
    of_plain.extend([Fill(300 * K), Fill(M), Touch(M), Touch(10 * M)]);
    let mut few = vec![Cycle(1024), Ring(1024, 1), Ring(200 * K, 1), Fill(300 * K)];
    let mut many = vec![Cycle(20 * K), Ring(20 * K, 1), Ring(200 * K, 1), Fill(300 * K)];
    let (mut levels, mut alone) = (few.clone(), vec![]);
    if options.slowest {
        of_plain = vec![Slowest(100 * K), Slowest(M), Slowest(10 * M)];
        (levels, few, many, alone) = (vec![Slowest(M)], vec![], vec![], vec![Slowest(M)]);
    } else if options.memory {
        of_plain = [100 * K, 300 * K, M, 1500 * K, 10 * M].map(Bytes).into_iter().chain([Left(M)]).collect();
        levels = vec![Bytes(300 * K), Bytes(M), Left(M)];
        (few, many, alone) = (levels.clone(), levels.clone(), vec![Bytes(M), Left(M)]);
    }
    add("plain", &of_plain, form::<VecDeque<u64>, parking_lot_mutex::Queue<u64>, false, 0, 0>());
    add("priorities", &levels, form::<Sorted, ByHand<Sorted, Sets<(i8, u64)>>, true, 0, 0>());
    if !options.slowest && !options.memory {
        add("priorities", &[Raise(M)], RAISES);
    }
    macro_rules! groups {
        ($($n:literal $limit:literal, $name:literal, $works:expr;)*) => {
            $(add($name, $works, form::<Turns<$n, $limit>, ByHand<Turns<$n, 0>, Sets<()>>, false, $n, $limit>());)*
        };
    }
    groups! {
        1 0, "groups 1", &few;
        100 0, "groups 100", &few;
        10_000 0, "groups 10 000", &many;
        1_000_000 0, "groups 1M", &alone;
        100 4, "groups 100, limit 4", &few;
        10_000 4, "groups 10 000, limit 4", &many;
    }
    plan
}

fn main() {
    let options = Options::parse();
    if options.check {
        return check::run();
    }
    let units = option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").unwrap_or("16");
    let arguments = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let command =
        format!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS={units} cargo run --release -p core-table -- {arguments}");
    let plan = if options.order { order(&options) } else { plan(&options) };
    let results = plan.run(Run { command, rounds: options.rounds, ..Run::here("core") });
    if options.jsonl || options.order {
        return print!("{}", results.to_lines());
    }
    println!("{}\n", tables::run(&results));
    let times: Vec<_> = results.times("core").collect();
    println!("{}", tables::against_each("ns a key, medians", &times));
    println!("{}{}", tables::tails(&results), tables::memory(&results));
}
