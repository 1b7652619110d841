//! What shards buy, and what they cost: queues with 1 and with 16 shards beside two mutex queues and queues of lock-free parts.
//!
//! Without options: the **tails** of calls and **rings** of threads, as a page of markdown, in three minutes. On a machine with more than two
//! cores the same command measures more of them. `--json` prints the data instead, for `benches/charts/tails.jsonl`.
//!
//! With `--all`: other workloads, as data for `benches/charts/shards.jsonl`.

mod tails;
mod workloads;

use clap::Parser;
use keyqueue_benches::harness::Plan;
use keyqueue_benches::results::Run;
use keyqueue_benches::tables;

/// Measures shards.
#[derive(Parser)]
struct Options {
    /// Prints data in place of markdown.
    #[arg(long)]
    json: bool,
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Keys of a run.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// How long each measurement of tails takes.
    #[arg(long, default_value_t = 0.7)]
    seconds: f64,
    /// All other workloads.
    #[arg(long)]
    all: bool,
    /// Only rows whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() {
    let Options { json, rounds, ops, seconds, all, only } = Options::parse();
    let mut plan = Plan::only(&only).with_transfers();
    if all {
        workloads::plan(&mut plan, ops, rounds);
    } else {
        tails::plan(&mut plan, seconds, rounds);
        workloads::rings(&mut plan, "tails", &[1, 2, 16, 64], ops, rounds);
        workloads::busy_rings(&mut plan, ops / 5, rounds);
    }
    let results = plan.run(Run::here("shards"));
    if all || json {
        return print!("{}", results.to_lines());
    }
    println!(
        "{}\n\nNanoseconds a turn (get, add, done; busy: with work after each call), medians of {rounds} rounds; in brackets, what a \
         transfer of a cache line from core to core took before:\n\n{}\n\n\
         Microseconds a call, among them the reading of a clock:\n\n{}",
        tables::run(&results),
        tables::with_transfers(&results, "tails"),
        tables::tails(&results)
    );
}
