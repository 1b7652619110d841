//! What shards buy, and what they cost: queues with 1 and with 16 shards beside two independent queues, two mutex queues and
//! `DashMap` + `SegQueue`, a lock-free rival in one run; how many later keys overtake a key; and how long
//! calls take beside threads that do not run.
//!
//! The subjects of a row run in turn, round after round. On a machine with more than two cores the same command measures more of them.

mod latencies;
mod model;
mod order;
mod stalls;
mod subjects;

use clap::Parser;
use keyqueue_benches::machine::{cores, load, processor};
use keyqueue_benches::markdown::Table;
use keyqueue_benches::numbers::median;

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
    println!("{}, {} cores, load {}; {} rounds\n", processor(), cores(), load(), options.rounds);

    let rows: Vec<_> = subjects::rows(options.ops).into_iter().filter(|row| row.name.contains(&options.only)).collect();
    if !rows.is_empty() {
        let mut table = Table::new(["ns a key".to_owned()].into_iter().chain(subjects::NAMES.map(str::to_owned)));
        for row in rows {
            let mut times = vec![Vec::new(); row.subjects.len()];
            for _ in 0..options.rounds {
                for (times, run) in times.iter_mut().zip(&row.subjects) {
                    times.extend(run.as_ref().map(|run| run()));
                }
            }
            let cell = |times: &Vec<f64>| if times.is_empty() { "–".into() } else { format!("{:.1}", median(times)) };
            let cells: Vec<String> = std::iter::once(row.name).chain(times.iter().map(cell)).collect();
            println!("{}", cells.join(" | "));
            table.row(cells);
        }
        println!("\n{table}\n");
    }
    if "order".contains(&options.only) {
        println!("{}\n", order::table(options.ops / 5));
    }
    if "latencies".contains(&options.only) {
        println!("{}\n", latencies::table(options.rounds));
    }
    if "model".contains(&options.only) {
        println!("{}\n", model::table(options.rounds));
    }
    if "stalls".contains(&options.only) {
        println!("{}", stalls::table(options.seconds));
    }
}
