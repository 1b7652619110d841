//! Lateness and pauses: how long a key waits for a getter that does not run, and how long an `add` waits for another thread's operation.
//!
//! ```text
//!   workload ──▶ waits of one round (a histogram) ──▶ medians of the rounds: p50, p99, max, and max without the time off the cores
//! ```
//!
//! Linux only. Where other programs run too, `chrt -f 1 target/release/late` gives each thread a core whenever it needs one.

mod getters;
mod operations;
mod probe;

use clap::Parser;
use common::Subject;
use common::mutex::{parking_lot_mutex, std_mutex};
use keyqueue_benches::machine::{load, processor};
use keyqueue_benches::markdown::Table;
use keyqueue_benches::numbers::{figures, median};
use keyqueue_benches::{Ours, latency};
use operations::OPERATIONS;
use probe::{Probe, Waits};

/// Measures how late keys are, and how long adds wait.
#[derive(Parser)]
struct Options {
    /// Only workloads whose name contains this: "getter", "burst", "shrink_to_fit", "control".
    #[arg(long, default_value = "")]
    only: String,
    /// The medians of this number of rounds count.
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "1"))]
    rounds: usize,
    /// Keys of a large queue.
    #[arg(long, default_value_t = 10_000_000, default_value_if("quick", "true", "100000"))]
    keys: u64,
    /// Keys that one call of `get_many`, `processing_keys`, `take_delayed`, `turn` or `stop` moves.
    #[arg(long, default_value_t = 1_000_000, default_value_if("quick", "true", "100000"))]
    batch: u64,
    /// Few keys, and one round.
    #[arg(long)]
    quick: bool,
}

/// A workload, its subject or the keys that are added beside it, and one round of it.
type Row = (&'static str, &'static str, Box<dyn Fn() -> Waits>);

macro_rules! subjects {
    ($rows:ident, $name:expr, $work:path $(, $argument:expr)*) => {
        subjects!(@ $rows, $name, Ours<u64>, $work $(, $argument)*);
        subjects!(@ $rows, $name, parking_lot_mutex::Queue<u64>, $work $(, $argument)*);
        subjects!(@ $rows, $name, std_mutex::Queue<u64>, $work $(, $argument)*);
    };
    (@ $rows:ident, $name:expr, $queue:ty, $work:path $(, $argument:expr)*) => {{
        use $work as work;
        $rows.push(($name, <$queue>::NAME, Box::new(|| Waits::of(work::<$queue>($($argument),*)))));
    }};
}

fn rows(keys: u64, batch: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    subjects!(rows, "first parked getter `SCHED_IDLE`", getters::idle);
    subjects!(rows, "one key, 1 getter", latency::wake_latency, 1000);
    subjects!(rows, "burst of 1000 keys, 1 getter", getters::burst, 1);
    subjects!(rows, "burst of 1000 keys, 4 getters", getters::burst, 4);
    for &(name, run) in OPERATIONS {
        for new in [false, true] {
            let round = move || {
                let mut probe = Probe { keys, batch: batch.min(keys), new, waits: None };
                run(&mut probe);
                probe.waits.expect("an operation is measured")
            };
            rows.push((name, if new { "adds of new keys" } else { "adds of a known key" }, Box::new(round)));
        }
    }
    rows
}

fn main() {
    let Options { only, rounds, keys, batch, .. } = Options::parse();
    println!(
        "{}, load {}; {keys} keys, {batch} at a time, medians of {rounds} rounds. Microseconds.\n",
        processor(),
        load()
    );
    let mut table = Table::new(["workload", "", "p50", "p99", "max", "max on the cores", "took, ms"]);
    for (name, beside, run) in rows(keys, batch).iter().filter(|row| row.0.contains(&only)) {
        let rounds: Vec<Waits> = (0..rounds).map(|_| run()).collect();
        let of = |value: &dyn Fn(&Waits) -> f64| figures(median(&rounds.iter().map(value).collect::<Vec<_>>()));
        let at = |percentile| of(&|waits| waits.all.value_at_percentile(percentile) as f64 / 1000.0);
        let net = of(&|waits| waits.longest.as_nanos() as f64 / 1000.0);
        let took = of(&|waits| waits.took.as_secs_f64() * 1000.0);
        table.row([(*name).into(), (*beside).into(), at(50.0), at(99.0), at(100.0), net, took]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_measured() {
        for (name, beside, run) in rows(2000, 1000) {
            let waits = run();
            assert!(!waits.all.is_empty() && waits.all.max() > 0, "{name}, {beside}");
            assert!(waits.longest.as_nanos() as u64 <= waits.all.max() * 101 / 100, "{name}, {beside}");
        }
    }
}
