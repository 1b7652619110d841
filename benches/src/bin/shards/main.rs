//! What shards buy, and what they cost: queues with 1 and with 16 shards beside two independent queues, two mutex queues and
//! `DashMap` + `SegQueue`, a lock-free rival in one run; how many later keys overtake a key; and how long
//! calls take beside threads that do not run.
//!
//! The subjects of a row run in turn, round after round. On a machine with more than two cores the same command measures more of them.
//! The data go to standard output, for `benches/charts/shards.jsonl`; the tables of the order and of the model, to standard error.

mod latencies;
mod model;
mod order;
mod stalls;
mod subjects;

use clap::Parser;
use hdrhistogram::Histogram;
use keyqueue_benches::machine::load;
use keyqueue_benches::rounds::{print_run, print_times};

/// Measures shards.
#[derive(Parser)]
struct Options {
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Keys of a run.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// How long each measurement of stalls takes.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Only rows whose name contains this; `order`, `latencies`, `model` and `stalls` are the names of the other tables.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() {
    let options = Options::parse();
    assert!(options.rounds > 0 && options.ops > 0, "at least one round, and one key");
    print_run("shards");
    eprintln!("load {}", load());
    for row in subjects::rows(options.ops).into_iter().filter(|row| row.name.contains(&options.only)) {
        eprintln!("{}", row.name);
        let mut times = vec![Vec::new(); row.subjects.len()];
        for _ in 0..options.rounds {
            for (times, run) in times.iter_mut().zip(&row.subjects) {
                times.extend(run.as_ref().map(|run| run()));
            }
        }
        print_times("shards", "", &row.name, subjects::NAMES.into_iter().zip(times));
    }
    if "order".contains(&options.only) {
        eprintln!("{}\n", order::table(options.ops / 5));
    }
    if "latencies".contains(&options.only) {
        latencies::print(options.rounds);
    }
    if "model".contains(&options.only) {
        eprintln!("{}\n", model::table(options.rounds));
    }
    if "stalls".contains(&options.only) {
        stalls::print(options.seconds);
    }
}

/// Prints a distribution of nanoseconds as the report reads it.
fn print_spread(what: &str, subject: &str, all: &Histogram<u64>) {
    let curve = [50.0, 99.0, 99.9, 100.0].map(|percentile| (percentile, all.value_at_percentile(percentile) as f64));
    let row =
        serde_json::json!({"section": "shards", "what": what, "subject": subject, "count": all.len(), "curve": curve});
    println!("{}", serde_json::json!({"spread": row}));
}
