//! What shards buy, and what they cost: queues with 1 and with 16 shards beside two mutex queues and queues of lock-free parts.
//!
//! Without options: the **tails** of calls and **rings** of threads, as a page of markdown, in three minutes. On a machine with more than two
//! cores the same command measures more of them. `--json` prints the data instead, for `benches/charts/tails.jsonl`.
//!
//! With `--all`: all workloads, two independent queues among the subjects, how many later keys overtake a key, and a model of more cores.
//! The data go to standard output, for `benches/charts/shards.jsonl`; the tables of the order and of the model, to standard error.
//!
//! The subjects of a row run in turn, round after round.

mod latencies;
mod model;
mod order;
mod subjects;
mod tails;

use crate::subjects::Row;
use clap::Parser;
use hdrhistogram::Histogram;
use keyqueue_benches::machine::{commit, day, load};
use keyqueue_benches::markdown::Table;
use keyqueue_benches::numbers::{figures, median};
use keyqueue_benches::rounds::{command, machine, print_run, print_times};

/// Measures shards.
#[derive(Parser)]
struct Options {
    /// Only the tails of calls.
    #[arg(long)]
    tails: bool,
    /// Only the rings.
    #[arg(long)]
    rings: bool,
    /// In half a minute.
    #[arg(long)]
    quick: bool,
    /// Only subjects whose name contains this, as "keyqueue" or "16 shards".
    #[arg(long, default_value = "")]
    subject: String,
    /// Prints data in place of markdown.
    #[arg(long)]
    json: bool,
    /// The number of rounds; their median counts. (7, or 3 with `--quick`.)
    #[arg(long)]
    rounds: Option<usize>,
    /// Keys of a run. (A million; a fifth with `--quick`.)
    #[arg(long)]
    ops: Option<u64>,
    /// How long each measurement of tails takes. (0.7; 0.3 with `--quick`.)
    #[arg(long)]
    seconds: Option<f64>,
    /// All other tables.
    #[arg(long)]
    all: bool,
    /// Of all other tables, the rows whose name contains this; `order`, `latencies` and `model` are the names of tables.
    #[arg(long)]
    only: Option<String>,
}

/// A row, and for each subject the nanoseconds of each round.
type Times = (String, Vec<(&'static str, Vec<f64>)>);

fn main() {
    let options = Options::parse();
    let (rounds, ops, seconds) = if options.quick { (3, 200_000, 0.3) } else { (7, 1_000_000, 0.7) };
    let ops = options.ops.unwrap_or(ops);
    let wanted = |name: &str| name.contains(&options.subject);
    if options.all || options.only.is_some() {
        return all(options.rounds.unwrap_or(7), ops, options.only.as_deref().unwrap_or_default(), wanted);
    }
    let (rounds, seconds) = (options.rounds.unwrap_or(rounds), options.seconds.unwrap_or(seconds));
    assert!(rounds > 0 && ops > 0, "at least one round, and one key");
    let tails = if options.rings { Vec::new() } else { tails::measure(rounds, seconds, wanted) };
    let mut times: Vec<Times> = tails.iter().map(|tails| (tails.name(), tails.turns.clone())).collect();
    if !options.tails {
        let rings = subjects::rings(&[1, 2, 16, 64], ops).into_iter().chain(subjects::busy_rings(ops / 5));
        times.extend(run(rings.collect(), rounds, wanted));
    }
    if options.json {
        print_run("shards");
        times.into_iter().for_each(|(name, row)| print_times("tails", "", &name, row));
        tails.iter().for_each(tails::Tails::print);
        return;
    }
    println!("{}, commit {} of {}, load {}", machine(), commit(), day(), load());
    println!(
        "`{}`: medians of {rounds} rounds\n\nNanoseconds a turn (get, add, done; busy: with 100 ns of work after each call):\n\n{}",
        command("shards"),
        medians(&times)
    );
    println!("\nMicroseconds a call, among them the reading of a clock:");
    tails.iter().for_each(|tails| println!("\n{}", tails.table()));
}

/// A column for each subject.
fn medians(times: &[Times]) -> Table {
    let names: Vec<_> = subjects::NAMES
        .into_iter()
        .filter(|name| times.iter().any(|(_, row)| row.iter().any(|(other, _)| other == name)))
        .collect();
    let mut table = Table::new([""].into_iter().chain(names.iter().copied()));
    for (name, row) in times {
        let cell = |name: &&str| {
            row.iter().find(|(other, _)| other == name).map_or("–".into(), |(_, ns)| figures(median(ns)))
        };
        table.row([name.clone()].into_iter().chain(names.iter().map(cell)));
    }
    table
}

/// Runs the rows and their subjects in turn, round after round.
fn run(rows: Vec<Row>, rounds: usize, wanted: impl Fn(&str) -> bool) -> Vec<Times> {
    let is_run = |(name, run): &(&str, Option<_>)| run.is_some() && wanted(name);
    let mut all: Vec<Times> = Vec::new();
    for round in 0..rounds {
        for (at, row) in rows.iter().enumerate() {
            let subjects: Vec<_> =
                subjects::NAMES.into_iter().zip(row.subjects.iter().map(Option::as_ref)).filter(is_run).collect();
            if round == 0 {
                all.push((row.name.clone(), subjects.iter().map(|(name, _)| (*name, Vec::new())).collect()));
            }
            for n in (0..subjects.len()).map(|n| (n + round) % subjects.len()) {
                all[at].1[n].1.extend(subjects[n].1.map(|run| run()));
            }
        }
    }
    all
}

fn all(rounds: usize, ops: u64, only: &str, wanted: impl Fn(&str) -> bool) {
    print_run("shards");
    eprintln!("load {}", load());
    for row in subjects::rows(ops).into_iter().filter(|row| row.name.contains(only)) {
        eprintln!("{}", row.name);
        let times = run(vec![row], rounds, &wanted);
        times.into_iter().for_each(|(name, times)| print_times("shards", "", &name, times));
    }
    if "order".contains(only) {
        eprintln!("{}\n", order::table(ops / 5));
    }
    if "latencies".contains(only) {
        latencies::print(rounds);
    }
    if "model".contains(only) {
        eprintln!("{}\n", model::table(rounds));
    }
}

/// Prints a distribution of nanoseconds as the report reads it.
fn print_spread(what: &str, subject: &str, all: &Histogram<u64>) {
    let curve = [50.0, 99.0, 99.9, 100.0].map(|percentile| (percentile, all.value_at_percentile(percentile) as f64));
    let row =
        serde_json::json!({"section": "shards", "what": what, "subject": subject, "count": all.len(), "curve": curve});
    println!("{}", serde_json::json!({"spread": row}));
}
