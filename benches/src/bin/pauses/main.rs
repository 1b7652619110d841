//! How long one operation keeps `add` of another thread waiting: the longest call of `add` while the operation runs.
//!
//! On Linux the time in which a thread was runnable and not running is subtracted. Where other programs run too, that is too
//! much at times and too little at others: `chrt -f 1 target/release/pauses` gives both threads a core whenever they need one, and
//! lets the other programs stand still.

mod operations;
mod probe;
mod stopwatch;

use clap::Parser;
use keyqueue_benches::machine::{load, processor};
use operations::{OPERATIONS, Operation};
use probe::{Adds, Measured, Probe};
use std::time::Duration;

/// Measures the longest concurrent `add` during each long operation.
#[derive(Parser)]
struct Options {
    /// Keys in a large queue.
    #[arg(long, default_value_t = 10_000_000, default_value_if("quick", "true", "100000"))]
    keys: u64,
    /// Keys that one call of `get_many`, `processing_keys`, `take_delayed`, `turn` or `stop` moves; at most `keys`.
    #[arg(long, default_value_t = 1_000_000)]
    batch: u64,
    /// The median of the longest calls of this number of rounds counts.
    #[arg(long, default_value_t = 7, default_value_if("quick", "true", "3"))]
    rounds: usize,
    /// Only operations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Few keys and few rounds.
    #[arg(long)]
    quick: bool,
}

fn main() {
    let options = Options::parse();
    assert!(options.keys >= 10_000 && options.rounds > 0, "at least 10000 keys, and one round");
    let Options { keys, batch, rounds, .. } = options;
    let batch = batch.min(keys);
    println!("{}, load {}; {keys} keys, {batch} at a time, {rounds} rounds\n", processor(), load());
    println!(
        "The longest `add` in microseconds. Gross: with the time in which a thread was runnable and not running.\n"
    );
    println!(
        "| {:36} | adds  | {:>8} | {:>8} | {:>8} | {:>12} | {:>9} | {:>13} |",
        "operation", "median", "min", "max", "gross median", "gross min", "operation, ms"
    );
    println!("|{0:-<38}|-------|{1:->10}|{1:->10}|{1:->10}|{1:->14}|{1:->11}|{1:->15}|", "", ":");
    for operation in OPERATIONS.iter().filter(|operation| operation.name.contains(&options.only)) {
        measure(operation, Adds::Known, &options);
        if operation.new {
            measure(operation, Adds::New, &options);
        }
    }
}

/// Prints a row.
fn measure(operation: &Operation, adds: Adds, options: &Options) {
    let rounds: Vec<Measured> = (0..options.rounds)
        .map(|_| {
            let mut probe = Probe::new(options.keys, options.batch, adds);
            (operation.run)(&mut probe);
            probe.measured()
        })
        .collect();
    let sorted = |of: fn(&Measured) -> Duration| {
        let mut times: Vec<f64> = rounds.iter().map(|round| of(round).as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let median = |times: &[f64]| times[times.len() / 2];
    let (net, gross) = (sorted(|round| round.longest.net), sorted(|round| round.longest.gross));
    println!(
        "| {:36} | {:5} | {:8.0} | {:8.0} | {:8.0} | {:12.0} | {:9.0} | {:13.1} |",
        operation.name,
        adds.name(),
        median(&net),
        net[0],
        net[net.len() - 1],
        median(&gross),
        gross[0],
        median(&sorted(|round| round.took)) / 1000.0
    );
}
