//! Measures keyqueue beside its rivals and writes `BENCHMARKS.md`.
//!
//! Round by round, every subject does the same work once, in an order that rotates, so that drift of the machine hits all
//! alike. What counts is the ratio of medians within this one run.

mod costs;
mod delays;
mod limits;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue_benches::memory::Counting;
use keyqueue_benches::rivals::{DashSeg, parking_lot_mutex, std_mutex};
use keyqueue_benches::suite::{self, RIVALS, Workload};
use keyqueue_benches::workloads::{cycle, parts, wake_latency};
use keyqueue_benches::{Ours, Subject};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Parser)]
#[command(about)]
struct Options {
    /// Rounds per workload; the median counts.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Operations per run.
    #[arg(long, default_value_t = 400_000)]
    ops: u64,
    /// Wake-ups per subject.
    #[arg(long, default_value_t = 5_000)]
    wakes: u64,
    /// Keys per run of the workloads with delays, which have a quarter of the rounds.
    #[arg(long, default_value_t = 1_000_000)]
    delays: u64,
    /// Only workloads whose group and name contain this ("delays" for all with delays, and so "limiters",
    /// "metrics" and "workers").
    #[arg(long, default_value = "")]
    only: String,
    /// Write the report here; without it, it goes to standard output.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn main() {
    let options = Options::parse();
    let workloads: Vec<Workload> = suite::all(options.ops)
        .into_iter()
        .filter(|workload| format!("{} {}", workload.group, workload.name).contains(&options.only))
        .collect();
    let bar = ProgressBar::new((workloads.len() * options.rounds) as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} (left: {eta})").expect("a template"));

    let mut report = head(&options);
    if !workloads.is_empty() {
        times(&workloads, &options, &mut report, &bar);
    }
    if options.only.is_empty() {
        bar.set_message("parts");
        parts_of_a_cycle(&options, &mut report);
        bar.set_message("wake-ups");
        wake_ups(&options, &mut report);
    }
    delays::write(&options, &mut report, &bar);
    limits::write(&options, &mut report, &bar);
    costs::write(&options, &mut report, &bar);
    if options.only.is_empty() {
        report.push_str(DESIGNS);
    }
    bar.finish_and_clear();
    match &options.write {
        Some(path) => std::fs::write(path, report).expect("can write the report"),
        None => print!("{report}"),
    }
}

fn times(workloads: &[Workload], options: &Options, report: &mut String, bar: &ProgressBar) {
    let mut ratios = Vec::new();
    writeln!(report, "\n## Workloads\n").unwrap();
    writeln!(report, "Nanoseconds per operation, medians. **Ratio**: the faster mutex queue's time by keyqueue's.\n")
        .unwrap();
    let names: Vec<_> = workloads.first().map_or(vec![], |workload| workload.subjects.iter().map(|s| s.0).collect());
    writeln!(report, "| workload | | {} | ratio | target | |", names.join(" | ")).unwrap();
    writeln!(report, "|---|---|{}---:|---:|---|", "---:|".repeat(names.len())).unwrap();
    for workload in workloads {
        let Workload { group, name, target, .. } = workload;
        let medians = measure(workload, options.rounds, bar);
        let ratio = medians[RIVALS].iter().copied().fold(f64::INFINITY, f64::min) / medians[0];
        let verdict = if ratio >= *target { "" } else { "missed" };
        let cells: Vec<_> = medians.iter().map(|ns| format!("{ns:.1}")).collect();
        writeln!(report, "| {group} | {name} | {} | **{ratio:.2}** | {target} | {verdict} |", cells.join(" | "))
            .unwrap();
        ratios.push(ratio);
    }
    writeln!(report, "\nGeometric mean of the ratios: **{:.2}** (target 1.5).", geometric_mean(&ratios)).unwrap();
}

/// Median nanoseconds per operation of each subject.
fn measure(workload: &Workload, rounds: usize, bar: &ProgressBar) -> Vec<f64> {
    bar.set_message(format!("{}, {}", workload.group, workload.name));
    let count = workload.subjects.len();
    let mut times = vec![Vec::new(); count];
    for round in 0..rounds {
        for subject in (0..count).map(|n| (n + round) % count) {
            let time = (workload.subjects[subject].1)();
            times[subject].push(time.as_nanos() as f64 / workload.ops as f64);
        }
        bar.inc(1);
    }
    times.iter_mut().map(|times| median(times)).collect()
}

fn parts_of_a_cycle(options: &Options, report: &mut String) {
    writeln!(report, "\n## A cycle beside its parts\n").unwrap();
    writeln!(
        report,
        "add + get + done against one `DashMap` look-up, one `SegQueue` push and pop, three atomic steps and a"
    )
    .unwrap();
    writeln!(report, "fence, nanoseconds, medians. Target: at most 1.3.\n").unwrap();
    writeln!(report, "| keys | cycle | parts | cycle / parts |\n|---:|---:|---:|---:|").unwrap();
    for keys in [1, 1024, 100_000] {
        let (mut cycles, mut sums) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            cycles.push(cycle::<u64, Ours<u64>>(keys, options.ops).as_nanos() as f64 / options.ops as f64);
            sums.push(parts(keys, options.ops).as_nanos() as f64 / options.ops as f64);
        }
        let (cycle, sum) = (median(&mut cycles), median(&mut sums));
        writeln!(report, "| {keys} | {cycle:.1} | {sum:.1} | {:.2} |", cycle / sum).unwrap();
    }
}

fn wake_ups(options: &Options, report: &mut String) {
    fn one<Q: Subject<u64>>(wakes: u64, report: &mut String) {
        let latencies = wake_latency::<Q>(wakes);
        let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        let (p50, p99, p999) = (micros(0.5), micros(0.99), micros(0.999));
        writeln!(report, "| {} | {p50:.1} | {p99:.1} | {p999:.1} |", Q::NAME).unwrap();
    }
    writeln!(report, "\n## Waking one parked getter\n").unwrap();
    writeln!(report, "From `add` to the return of `get`, microseconds, {} wake-ups each.\n", options.wakes).unwrap();
    writeln!(report, "| | p50 | p99 | p99.9 |\n|---|---:|---:|---:|").unwrap();
    one::<Ours<u64>>(options.wakes, report);
    one::<parking_lot_mutex::Queue<u64>>(options.wakes, report);
    one::<std_mutex::Queue<u64>>(options.wakes, report);
    one::<DashSeg<u64>>(options.wakes, report);
}

fn head(options: &Options) -> String {
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = output("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|| "unknown".into());
    let rustc = output("rustc", &["--version"]).unwrap_or_else(|| "unknown".into());
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "# Benchmarks\n\n\
         Written by the benchmark itself: do not edit. Machines are shared and noisy, so only ratios within one run mean\n\
         anything.\n\n\
         | | |\n|---|---|\n\
         | machine | {cpu}, {cores} cores, {} |\n\
         | commit | {commit} |\n\
         | compiler | {rustc} |\n\
         | command | `cargo run --release --manifest-path benches/Cargo.toml --bin report -- --rounds {} --ops {} --wakes {} --delays {} --write BENCHMARKS.md` |\n\n\
         The mutex queues are client-go's design as one would write it in an hour: two hash sets, a deque and a condition variable\n\
         under one lock, with `ahash`. `DashMap + SegQueue` is the shape that comes to mind first for speed. All are in\n\
         `benches/src/rivals.rs`, the work in `benches/src/workloads.rs`.\n",
        std::env::consts::OS,
        options.rounds,
        options.ops,
        options.wakes,
        options.delays,
    )
}

/// Where it falls short, and what was tried and lost, kept with the figures of its day.
const DESIGNS: &str = "
## Where it falls short

* **Duplicate adds from one thread** are level with the rival, within ten percent either way. Both pay one lock and one look-up;
  keyqueue's look-up also reads the slot, which the rival keeps in the set itself.
* **Unique keys, few threads, small backlog**: meant to be 3 times as fast, and is where the rival sleeps and wakes for every few keys,
  that is with 8 pairs of threads, and for any number of them on one CPU (`taskset -c 0`, `--only 'backlog 1000'`: 37, 41 and 49 ns
  against 610, 696 and 1116). With one or two pairs on two idle cores the rival does not sleep either, and both are held up by the same
  thing: three critical sections a key, between cores that take the lock and the slots from each other. A lock that lets the running
  thread go on longer gained a third there; a split of the line in two locks, one for each end, would not help, since add
  and done meet in the table.
* **Filling with new keys**: the rival's sets are smaller than table and slots together, and the first touch of memory is most of the
  cost here. Besides, a table that doubles is gone through at once (some milliseconds) only up to 2^18 keys; beyond, in steps that
  cost more.
* **Delays, inserts**: meant to be 3 times as fast as the rivals, and are 1.4 to 2 times as fast as the heap, less when the machine's
  memory is busy. A new key costs a lock, a reading of the clock and a line of the cache that nobody has touched for long (its bucket),
  and the rival pays two or three such lines. Against the task, whose calls only push to a channel while a second core does the
  work, a call takes longer, and is over when it returns: it can say whether the delay was set or an earlier one stands.
* **Delays, re-adds**: to know that an earlier delay stands, three lines of the cache have to come one after the other (bucket, slot,
  ticket), and five to move it; the rival's map needs two, and leaves the old entry in its heap, which grows.
* **Delays under a flood**: two threads that do nothing but set delays have both cores and the lock; the driver and a worker wait for a
  core first, and for the lock then, which whoever was just put off its core may hold. A bare thread that only wants to be woken waits
  for milliseconds there too. The p99 was 9 ms one day and 65 to 90 ms another, for the same commit; the heap's 20 and 27.
* **Exponential limiter, several threads**: meant to be twice as fast as the mutex version, and is that against the standard library's
  mutex and map; the one under `parking_lot`'s mutex is as fast. Every call writes two lines of the cache, a lock and an entry, which the
  other core has just written: no number of locks changes that (nor does `DashMap`, whose lock is such a line too), and a
  mutex that lets one thread go on for long has fewer such transfers. With the queue's own back-off, the parts' locks were worse (18 ns
  instead of 13 with two threads that day).
* **A new key in a limiter** costs two looks: it is cloned between them, without the lock. In a queue, with a limiter that only counts,
  it costs nothing of the kind: the queue counts in the key's own place.
* **Bucket, refused**: some three nanoseconds more than governor: the instant is multiplied to be a place on a line that has no
  rounding errors to add up, and the clock is compared with the system's from time to time. With the standard library's
  clock on both sides it is faster.
* **Bucket by key**: all keys of a `DedupingBucket` share one bucket, so several threads write one line; governor's keys have one each.
* **Retries one by one**: meant to be 3 times as fast as the heap. With 5000 keys delayed at a time, that heap is small and in the cache.
  Nine locks a key, at ten nanoseconds, are a quarter of keyqueue's time.
* **Metrics, keys that come slowly**: below a million a second every key is measured, which costs some 70 ns: more than add, get and done
  together, half of it three readings of the processor's counter. At a million a second that is 7 % of a core.
* **Metrics, the thread that reports**: the `metrics` facade takes durations one by one, also if it is given a number of equal ones, so that
  a report costs it some 100 ns for each key that was handed out since the last.

## Designs

**Measuring.** Every key measured, as it was first: add + get + done of 1000 keys 119 ns, 2.1 times as long as without (the three
readings of the counter 33 of them, hence never below 1.6). One in eight if more than a million a second come: 69 to 73 ns, 1.3 times. An
observer that passes each event on to the facade: 2.1 times, even if it is told of one duration in eight.

Before this design there was another, and it is in the history (commit 250dcab): the table in eight shards, each
with its lock; the key's state in an atomic word, every step one read-modify-write; the ready line and its waiters under a lock of
their own; idle keys kept in the table for a while and swept. Figures of that day, same machine, same workloads, two
cores, nanoseconds per operation (`parking_lot` mutex queue in brackets, measured in the same run):

| | cycle u64, 1024 keys | cycle u64, 100k keys | duplicate add, 1 thread | ring, 2 threads | unique 2x2, backlog 1000 |
|---|---:|---:|---:|---:|---:|
| sharded, atomic steps, std mutex | 27.8 (32.4) | 44.5 (32.2) | 13.2 (5.9) | 138 (70) | 203 (92) |
| sharded, atomic steps, `parking_lot` mutex | 29.4 (32.0) | 47.1 (31.9) | 14.1 (5.8) | 327 (154) | 181 (88) |
| one lock, state plain under it | 22.9 (32.3) | 22.9 (32.1) | 6.1 (5.8) | 21.4 (42.0) | 48 (69), backlog 100k |

A critical section of ten nanoseconds is cheaper than the locked instructions that avoid it, and a line that two cores take from
each other costs more than either. `SegQueue` besides allocates every 31 keys, and a steady set of keys must not allocate.

Failures were first counted by the limiter alone, in its own table, as a limiter that is not the queue's own still does. Then the queue
began to count them beside the key's deadline, and a retry became one critical section with its `done`; then it was seen that each
delayed call had a stack frame of 20 KB to probe, for a wheel that was made but once. 100k keys, nanoseconds each:

| | add | get, retry (three times) | turn (three times) | get, succeed | all |
|---|---:|---:|---:|---:|---:|
| limiter's table | 35 | 157, 122, 106 | 46, 42, 50 | 83 | 640 |
| counted by the queue | 31 | 58, 60, 59 | 39, 40, 50 | 41 | 378 |
| no large stack frame | 31 | 50, 48, 48 | 42, 41, 51 | 40 | 352 |

The bucket read the system's clock (`Instant`) at first: 28.8 ns admitted, 25.9 refused, governor 22.6 and 12.9 in the same run; with the
processor's counter, compared with the system's clock every 50 microseconds, 23.7 and 14.1 beside 24.3 and 13.3.

The timing wheel was first made of lists of the keys' slots, linked through them. Lists of blocks of entries took its place, which are read in
order, where a linked list waits for one cache miss after the other. A million keys, nanoseconds each, in brackets the heap queue in the
same run:

| | insert | expire, all at once |
|---|---:|---:|
| linked slots | 205 (305) | 375 (595) |
| blocks | 193 (310) | 250 (620) |
| blocks; buckets and due slots fetched ahead | 155 (310) | 172 (620) |

An inbox (`SegQueue`) that producers push to, and a thread that sets the delays, in place of the lock in each call: with one producer the
calls return in 76 to 124 ns instead of 309 to 357, and all are set after 350 to 459; with two, 80 to 145 instead of 335 to
458, and 389 to 503.
";

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}
