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
use stopwatch::SameCall;

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
    /// Only operations whose name contains this, and the controls.
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
        "Microseconds. Same call: the longest of the operation's own calls, each with its shortest time of all rounds, and its number.
Median, min, max: the longest call of `add` beside it, of each round. From these the time is subtracted in which a thread was runnable and not running. Undisturbed: the longest `add` of those from which
nothing need be subtracted, median. Gross: nothing subtracted.
No critical section is longer than the same call, nor than min if the operation is one call. An `add` that waits long parks, and is
woken a few times before it has the lock: what the machine takes for a wake-up is in the controls, below.\n"
    );
    println!(
        "| {:36} | adds  | {:>18} | {:>8} | {:>8} | {:>8} | {:>11} | {:>12} | {:>13} |",
        "operation", "same call", "median", "min", "max", "undisturbed", "gross median", "operation, ms"
    );
    println!("|{0:-<38}|-------|{1:->20}|{1:->10}|{1:->10}|{1:->10}|{1:->13}|{1:->14}|{1:->15}|", "", ":");
    let mut took = Duration::ZERO;
    for operation in
        OPERATIONS.iter().filter(|operation| operation.is_control() || operation.name.contains(&options.only))
    {
        took = took.max(measure(operation, Adds::Known, took, &options));
        if operation.new {
            took = took.max(measure(operation, Adds::New, took, &options));
        }
    }
}

/// Prints a row. Returns how long the operation took.
fn measure(operation: &Operation, adds: Adds, control: Duration, options: &Options) -> Duration {
    let mut same_call = SameCall::new(options.keys);
    let rounds: Vec<Measured> = (0..options.rounds)
        .map(|_| {
            let mut probe = Probe::new(options.keys, options.batch, control, adds, &mut same_call);
            (operation.run)(&mut probe);
            probe.measured()
        })
        .collect();
    let sorted = |of: fn(&Measured) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(of).collect();
        times.sort();
        times
    };
    let median = |times: &[Duration]| times[times.len() / 2];
    let (net, gross) = (sorted(|round| round.longest.net), sorted(|round| round.longest.gross));
    let undisturbed = sorted(|round| round.longest.undisturbed);
    let took = median(&sorted(|round| round.took));
    // Beside new keys a table grows in another call each time.
    let same_call = same_call.longest().filter(|_| adds == Adds::Known);
    let same_call = same_call.map(|(took, number)| format!("{} ({number})", took.as_micros()));
    println!(
        "| {:36} | {:5} | {:>18} | {:8} | {:8} | {:8} | {:11} | {:12} | {:13.1} |",
        operation.name,
        if operation.is_control() { "-" } else { adds.name() },
        same_call.as_deref().unwrap_or("-"),
        median(&net).as_micros(),
        net[0].as_micros(),
        net[net.len() - 1].as_micros(),
        median(&undisturbed).as_micros(),
        median(&gross).as_micros(),
        took.as_secs_f64() * 1000.0
    );
    took
}
