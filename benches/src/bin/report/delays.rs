//! The section on delays.

use crate::{Options, median};
use indicatif::ProgressBar;
use keyqueue_benches::Ours;
use keyqueue_benches::delays::lateness::{Lateness, bare, histogram, lateness};
use keyqueue_benches::delays::{HeapQueue, NAMES, TaskQueue, Workload, all, bytes_a_key};
use std::fmt::Write as _;

/// Keys that come due in a run for lateness.
const KEYS: u64 = 100_000;

/// How many times the lateness of a bare parked thread it may be.
const QUIET_TARGET: f64 = 1.5;
/// How many times that of its own quiet run, under the flood.
const FLOOD_TARGET: f64 = 2.0;

pub fn write(options: &Options, report: &mut String, bar: &ProgressBar) {
    let wanted = |name: &str| format!("delays {name}").contains(&options.only);
    let workloads: Vec<_> = all(options.delays).into_iter().filter(|workload| wanted(&workload.name)).collect();
    // These take longer than the others.
    let rounds = (options.rounds / 4).max(3).min(options.rounds);
    if !(workloads.is_empty() && !wanted("lateness") && !wanted("bytes")) {
        writeln!(report, "\n## Delays").unwrap();
    }
    if !workloads.is_empty() {
        times(&workloads, options, rounds, report, bar);
    }
    if wanted("bytes") {
        bar.set_message("delays, bytes");
        writeln!(report, "\nBytes allocated per delayed key, {} keys set: {}.", options.delays, bytes(options))
            .unwrap();
    }
    if wanted("lateness") {
        late(rounds, report, bar);
    }
}

fn times(workloads: &[Workload], options: &Options, rounds: usize, report: &mut String, bar: &ProgressBar) {
    bar.inc_length((workloads.len() * rounds) as u64);
    writeln!(
        report,
        "\nNanoseconds per operation, medians of {rounds} rounds, {} keys a run. **Ratio**:",
        options.delays
    )
    .unwrap();
    writeln!(report, "the rival's time by keyqueue's; both are meant to reach the target.\n").unwrap();
    report.push_str(NOTES);
    let [ours, heap, task] = NAMES;
    writeln!(report, "| delays | until | {ours} | {heap} | {task} | ratio, heap | ratio, task | target | |").unwrap();
    writeln!(report, "|---|---|---:|---:|---:|---:|---:|---:|---|").unwrap();
    for workload in workloads {
        bar.set_message(format!("delays, {}", workload.name));
        rows(workload, 2, rounds, report, bar);
    }
}

/// A row for each figure: medians, ratios, and whether the first of so many rivals reach the target.
pub fn rows(workload: &Workload, rivals: usize, rounds: usize, report: &mut String, bar: &ProgressBar) {
    for ((figure, target), medians) in workload.figures.iter().zip(measure(workload, rounds, bar)) {
        let ratios: Vec<_> = medians[1..].iter().map(|rival| rival / medians[0]).collect();
        let (target, missed) = match *target {
            Some(target) => (target.to_string(), ratios[..rivals].iter().any(|ratio| *ratio < target)),
            None => ("–".into(), false),
        };
        let verdict = if missed { "missed" } else { "" };
        let cells: Vec<_> = medians.iter().map(|ns| format!("{ns:.1}")).collect();
        let ratios: Vec<_> = ratios.iter().map(|ratio| format!("**{ratio:.2}**")).collect();
        let (name, cells, ratios) = (&workload.name, cells.join(" | "), ratios.join(" | "));
        writeln!(report, "| {name} | {figure} | {cells} | {ratios} | {target} | {verdict} |").unwrap();
    }
}

/// For each figure, median nanoseconds per operation of each subject.
fn measure(workload: &Workload, rounds: usize, bar: &ProgressBar) -> Vec<Vec<f64>> {
    let count = workload.subjects.len();
    let mut times = vec![vec![Vec::new(); count]; workload.figures.len()];
    for round in 0..rounds {
        for subject in (0..count).map(|n| (n + round) % count) {
            for (figure, time) in (workload.subjects[subject])().into_iter().enumerate() {
                times[figure][subject].push(time.as_nanos() as f64 / workload.ops as f64);
            }
        }
        bar.inc(1);
    }
    times.iter_mut().map(|figure| figure.iter_mut().map(|times| median(times)).collect()).collect()
}

fn bytes(options: &Options) -> String {
    let cells: Vec<_> =
        NAMES.iter().zip(bytes_a_key(options.delays)).map(|(name, bytes)| format!("{name} {bytes:.0}")).collect();
    cells.join(", ")
}

/// All rounds in one histogram: what counts here is the tail.
fn late(rounds: usize, report: &mut String, bar: &ProgressBar) {
    type Run = fn(u64, bool) -> Lateness;
    let subjects: [(&str, Run); 4] = [
        ("a bare thread", bare),
        (NAMES[0], lateness::<Ours<u64>>),
        (NAMES[1], lateness::<HeapQueue<u64>>),
        (NAMES[2], lateness::<TaskQueue<u64>>),
    ];
    bar.inc_length(2 * rounds as u64);
    bar.set_message("delays, lateness");
    report.push_str(LATENESS);
    writeln!(report, "| | | p50 | p99 | max | target p99 | | beside, millions a second |").unwrap();
    writeln!(report, "|---|---|---:|---:|---:|---:|---|---:|").unwrap();
    let mut quiet = 0.0;
    for (condition, flood) in [("quiet", false), ("flood", true)] {
        let mut late = subjects.map(|_| histogram());
        let mut beside = subjects.map(|_| Vec::new());
        for round in 0..rounds {
            for subject in (0..subjects.len()).map(|n| (n + round) % subjects.len()) {
                let run = subjects[subject].1(KEYS, flood);
                late[subject].add(run.late).expect("resizes by itself");
                beside[subject].push(run.flood / 1e6);
            }
            bar.inc(1);
        }
        let micros = |subject: usize, quantile| late[subject].value_at_quantile(quantile) as f64 / 1000.0;
        let most = if flood { FLOOD_TARGET * quiet } else { QUIET_TARGET * micros(0, 0.99) };
        quiet = micros(1, 0.99);
        for (subject, (name, _)) in subjects.iter().enumerate() {
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantile| micros(subject, quantile));
            let (target, verdict) = match subject {
                1 => (format!("{most:.0}"), if p99 > most { "missed" } else { "" }),
                _ => (String::new(), ""),
            };
            let beside = match median(&mut beside[subject]) {
                0.0 => String::new(),
                beside => format!("{beside:.2}"),
            };
            let cells = format!("{p50:.0} | {p99:.0} | {max:.0} | {target} | {verdict} | {beside}");
            writeln!(report, "| {name} | {condition} | {cells} |").unwrap();
        }
    }
}

const NOTES: &str = "\
The heap is a `BinaryHeap`, a map and a line under one `parking_lot` mutex, with a thread; a key that moves leaves its old entry in
the heap. The task owns `tokio-util`'s `DelayQueue` and is told what to do through a channel: its calls return long before they have
taken effect, and with one thread that adds it has a core more than the others. All in `benches/src/delays/`.

* **insert**: new keys, 1 to 60 seconds. **re-add**: keys that have a delay, a tenth as many; half of the calls come later, which
  changes nothing, half earlier, which moves the key.
* **expire**: all due at one moment. **insert, cancel, expire**: a tenth of the keys delayed at any time; an insert a step, a
  cancel every third, and every 64th the clock moves and what is due is processed. In these two the clock is made up, and no subject
  has its thread, the task not even its channel.

";

const LATENESS: &str = "
From a key's deadline until a thread that waits in `get` has it, microseconds, all rounds together: 100000 keys due within two
seconds, one every 20 microseconds on average. Quiet, and with a flood: two threads set delays of an hour, as fast as the queue
lets them; they wait for the task every thousand, or its channel would grow without end, which leaves the cores to others more
often. The bare thread has no queue: it parks until the next of as many moments (its flood: two threads that compute), and
does not hand over to another thread. Target: its p99, times 1.5; under the flood, twice the p99 of the quiet run. No key is ever
early, by the system's clock: or the benchmark fails.

";
