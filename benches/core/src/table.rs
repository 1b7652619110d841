//! The rows of the table, and how they are measured: the subjects of a row in turn, round after round, each round in another order.

use crate::check;
#[cfg(keyqueue_base)]
use crate::queues::Base;
use crate::queues::{Crate, Twin};
use common::by_hand::{ByHand, MapOfStates, Order, Sets, Sorted, Turns};
use common::memory::live_bytes;
use common::mutex::parking_lot_mutex;
use common::workloads::{self, with_queued_keys};
use common::{Key, Prioritized, Subject};
use std::collections::VecDeque;
use std::time::Duration;

#[path = "../../src/numbers.rs"]
mod figures;
#[path = "../../src/machine.rs"]
mod host;

const HEAD: [&str; 5] =
    ["crate", "control: the crate again", "base", "by hand: map of states", "by hand: client-go's sets"];
/// The columns of this build.
fn head() -> impl Iterator<Item = &'static str> {
    HEAD.into_iter().filter(|name| cfg!(keyqueue_base) || *name != "base")
}
const OPS: u64 = 400_000;

#[derive(Clone, Copy, PartialEq)]
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

/// Runs a workload once on one subject: a number for each line of the row.
type Run = fn(Work) -> Vec<f64>;

struct Row {
    name: String,
    work: Work,
    subjects: [Option<Run>; 5],
}

impl Work {
    /// What is measured, and the names of the row's lines.
    fn names(self) -> (String, &'static [&'static str]) {
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
        let slowest: &[_] = &[": add, longest", ": add, p99.99", ": get + done, longest", ": get + done, p99.99"];
        (format!("{name} {}", figures::short(keys)), if let Slowest(_) = self { slowest } else { &[""] })
    }

    fn run<K: Key, Q: Subject<K>>(self) -> Vec<f64> {
        let per = |ops: u64, time: Duration| vec![time.as_nanos() as f64 / ops as f64];
        match self {
            Cycle(keys) => per(OPS, workloads::cycle::<K, Q>(keys, OPS)),
            Ring(keys, threads) => per(OPS, workloads::ring::<K, Q>(keys, threads, OPS)),
            Duplicates(keys) => per(OPS, workloads::duplicates::<K, Q>(keys, 1, OPS)),
            Touch(keys) => per(OPS, workloads::touch::<K, Q>(keys, OPS)),
            Fill(keys) => per(keys, workloads::fill_and_drain::<K, Q>(keys)),
            Raise(_) => unreachable!("a row of its own"),
            Slowest(keys) => workloads::laps::<K, Q>(keys).into_iter().flat_map(slowest).collect(),
            Bytes(keys) => vec![live_bytes(|| with_queued_keys::<K, Q>(keys)) as f64 / keys as f64],
            Left(keys) => vec![live_bytes(|| {
                let queue: Q = with_queued_keys(keys);
                (1..keys).for_each(|_| _ = queue.process(|_, _| {}));
                queue
            }) as f64],
        }
    }

    fn raise<K: Key, Q: Prioritized<K>>(self) -> Vec<f64> {
        let Raise(keys) = self else { unreachable!() };
        vec![workloads::raise::<K, Q>(keys).as_nanos() as f64 / keys as f64]
    }
}

/// The longest, and the 99.99th percentile.
fn slowest(mut laps: Vec<u32>) -> [f64; 2] {
    let p = laps.len() - 1 - laps.len() / 10_000;
    let (_, p, longer) = laps.select_nth_unstable(p);
    [*longer.iter().max().unwrap_or(p), *p].map(f64::from)
}

/// Rows of a form of queue. `O`, `C`: what stands for it by hand.
fn rows_of<O: Order, C: Subject<u64>, const LEVELS: bool, const N: u64, const LIMIT: u32>(
    name: &str,
    of: &[Work],
) -> Vec<Row>
where
    O::Place: 'static,
{
    let subjects = [
        Some(Work::run::<u64, Crate<u64, LEVELS, N, LIMIT>> as Run),
        Some(Work::run::<Twin, Crate<Twin, LEVELS, N, LIMIT>>),
        #[cfg(keyqueue_base)]
        Some(Work::run::<u64, Base<u64, LEVELS, N, LIMIT>>),
        #[cfg(not(keyqueue_base))]
        None,
        Some(Work::run::<u64, ByHand<O, MapOfStates<O::Place>>>),
        (LIMIT == 0).then_some(Work::run::<u64, C>),
    ];
    of.iter().map(|&work| Row { name: format!("{name}: {}", work.names().0), work, subjects }).collect()
}

fn raises() -> Row {
    let subjects = [
        Some(Work::raise::<u64, Crate<u64, true, 0, 0>> as Run),
        Some(Work::raise::<Twin, Crate<Twin, true, 0, 0>>),
        #[cfg(keyqueue_base)]
        Some(Work::raise::<u64, Base<u64, true, 0, 0>>),
        #[cfg(not(keyqueue_base))]
        None,
        Some(Work::raise::<u64, ByHand<Sorted, MapOfStates<(i8, u64)>>>),
        Some(Work::raise::<u64, ByHand<Sorted, Sets<(i8, u64)>>>),
    ];
    Row { name: "priorities: raise 1M".into(), work: Raise(M), subjects }
}

const K: u64 = 1000;
const M: u64 = 1000 * K;

fn rows(what: &str) -> Vec<Row> {
    let of_levels = [Cycle(1024), Ring(1024, 1), Ring(200 * K, 1), Fill(300 * K)];
    let of_many = [Cycle(20 * K), Ring(20 * K, 1), Ring(200 * K, 1), Fill(300 * K)];
    let mut of_plain = vec![Cycle(1024), Ring(1024, 1), Ring(1024, 2), Ring(200 * K, 1)];
    of_plain.extend([Duplicates(256), Duplicates(1024), Duplicates(100 * K)]);
    of_plain.extend([Fill(300 * K), Fill(M), Touch(M), Touch(10 * M)]);
    let (mut few, mut many, mut alone) = (&of_levels[..], &of_many[..], &[][..]);
    let mut levels = few;
    match what {
        "--slowest" => {
            of_plain = vec![Slowest(100 * K), Slowest(M), Slowest(10 * M)];
            (levels, few, many, alone) = (&[Slowest(M)], &[], &[], &[Slowest(M)]);
        }
        "--memory" => {
            of_plain = [100 * K, 300 * K, M, 1500 * K, 10 * M].map(Bytes).to_vec();
            of_plain.push(Left(M));
            levels = &[Bytes(300 * K), Bytes(M), Left(M)];
            (few, many, alone) = (levels, levels, &[Bytes(M), Left(M)]);
        }
        _ => {}
    }
    let mut rows = rows_of::<VecDeque<u64>, parking_lot_mutex::Queue<u64>, false, 0, 0>("plain", &of_plain);
    rows.extend(rows_of::<Sorted, ByHand<Sorted, Sets<(i8, u64)>>, true, 0, 0>("priorities", levels));
    rows.extend(what.is_empty().then(raises));
    macro_rules! groups {
        ($($n:literal $limit:literal, $name:literal, $works:expr;)*) => {
            $(rows.extend(rows_of::<Turns<$n, $limit>, ByHand<Turns<$n, 0>, Sets<()>>, false, $n, $limit>($name, $works));)*
        };
    }
    groups! {
        1 0, "groups 1", few;
        100 0, "groups 100", few;
        10_000 0, "groups 10 000", many;
        1_000_000 0, "groups 1M", alone;
        100 4, "groups 100, limit 4", few;
        10_000 4, "groups 10 000, limit 4", many;
    }
    rows
}

/// The data of each subject, line by line, round by round.
fn measure(row: &Row, rounds: usize) -> Vec<Vec<Vec<f64>>> {
    let subjects: Vec<Run> = row.subjects.into_iter().flatten().collect();
    let count = subjects.len();
    let mut data = vec![vec![Vec::new(); row.work.names().1.len()]; count];
    for round in 0..rounds {
        for turn in 0..count {
            let turn = (turn + round) % count;
            let n = if round % 2 == 0 { turn } else { count - 1 - turn };
            data[n].iter_mut().zip(subjects[n](row.work)).for_each(|(line, value)| line.push(value));
        }
    }
    data
}

fn print(row: &Row, data: &[Vec<Vec<f64>>]) {
    for (n, line) in row.work.names().1.iter().enumerate() {
        // A pause of the thread spoils the longest call of its round.
        let least = |rounds: &[f64]| rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let of_rounds = if line.ends_with("longest") { least } else { figures::median };
        let values: Vec<f64> = data.iter().map(|lines| of_rounds(&lines[n])).collect();
        let mut cells: Vec<String> = values.iter().map(|&value| figures::figures(value)).collect();
        cells.resize(head().count(), "–".into());
        let mut ratios = format!("{:.2} |", values[1] / values[0]);
        if cfg!(keyqueue_base) {
            ratios += &format!(" {:.2} |", values[0] / values[2]);
        }
        println!("| {}{line} | {} | {ratios}", row.name, cells.join(" | "));
    }
}

fn print_head(unit: &str, rounds: usize) {
    let [processor, compiler, commit] = [host::processor(), host::compiler(), host::commit()];
    println!("{unit}; rounds: {rounds}. {processor}, {} cores, {compiler}, commit {commit}.\n", host::cores());
    let units = option_env!("CARGO_PROFILE_RELEASE_CODEGEN_UNITS").unwrap_or("16");
    let command = "cargo run --release --manifest-path benches/Cargo.toml -p core-table --";
    let arguments: String = std::env::args().skip(1).map(|argument| format!(" {argument:?}")).collect();
    println!("`CARGO_PROFILE_RELEASE_CODEGEN_UNITS={units} {command}{arguments}`\n");
    let ratio = if cfg!(keyqueue_base) { " crate / base |" } else { "" };
    println!("| | {} | control / crate |{ratio}", head().collect::<Vec<_>>().join(" | "));
    println!("|---{}|", "|---:".repeat(head().count() + 1 + usize::from(cfg!(keyqueue_base))));
}

pub fn run() {
    let (flags, arguments): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|text| text.starts_with("--"));
    let what = flags.iter().find(|flag| *flag != "--jsonl").map_or("", |flag| flag);
    let is_data = flags.iter().any(|flag| flag == "--jsonl");
    let only = arguments.first().map_or("", |only| only);
    let rounds = arguments.get(1).map_or(9, |text| text.parse().expect("a number of rounds"));
    let (unit, rounds) = match what {
        "" => ("Nanoseconds a key; medians", rounds),
        "--slowest" => {
            ("Nanoseconds of a call and a look at the clock; medians, and of the longest calls the least", rounds)
        }
        "--memory" => ("Bytes", 1),
        "--check" => return check::run(),
        _ => panic!("no such option: {what}"),
    };
    if !is_data {
        print_head(unit, rounds);
    }
    for row in rows(what).iter().filter(|row| row.name.contains(only)) {
        let (data, lines) = (measure(row, rounds), row.work.names().1);
        if is_data {
            println!(
                r#"{{"row":{:?},"subjects":{:?},"lines":{lines:?},"data":{data:?}}}"#,
                row.name,
                head().collect::<Vec<_>>()
            );
        } else {
            print(row, &data);
        }
    }
}
