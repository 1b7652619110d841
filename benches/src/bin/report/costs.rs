//! The sections on metrics and on workers.

use crate::{Options, median};
use indicatif::ProgressBar;
use keyqueue_benches::costs::{Group, Workload, metrics, workers};
use std::fmt::Write as _;

pub fn write(options: &Options, report: &mut String, bar: &ProgressBar) {
    section("Metrics", metrics::all(options.ops), METRICS, options, report, bar);
    if "metrics scrape".contains(&options.only) {
        bar.set_message("metrics, scrape");
        scrapes(options, report);
    }
    section("Workers", workers::all(options.ops), WORKERS, options, report, bar);
}

fn section(
    title: &str,
    mut groups: Vec<Group>,
    notes: &str,
    options: &Options,
    report: &mut String,
    bar: &ProgressBar,
) {
    let section = title.to_lowercase();
    for Group { name: group, workloads, .. } in &mut groups {
        workloads.retain(|workload| format!("{section} {group} {}", workload.name).contains(&options.only));
    }
    groups.retain(|group| !group.workloads.is_empty());
    if groups.is_empty() {
        return;
    }
    bar.inc_length((groups.iter().map(|group| group.workloads.len()).sum::<usize>() * options.rounds) as u64);
    writeln!(report, "\n## {title}\n").unwrap();
    writeln!(
        report,
        "Nanoseconds per key, medians of {} rounds, and in brackets the shortest round. **Ratio**:",
        options.rounds
    )
    .unwrap();
    report.push_str(notes);
    for Group { name: group, subjects, workloads } in &groups {
        let names: Vec<_> = subjects.iter().map(|(name, _)| *name).collect();
        let ratios: Vec<_> = names[1..].iter().map(|name| format!("ratio, {name}")).collect();
        writeln!(report, "\n| {group} | {} | {} | target | |", names.join(" | "), ratios.join(" | ")).unwrap();
        writeln!(report, "|---|{}---:|---|", "---:|".repeat(names.len() + ratios.len())).unwrap();
        for workload in workloads {
            bar.set_message(format!("{section}, {group}, {}", workload.name));
            row(workload, subjects, options.rounds, report, bar);
        }
    }
}

/// Medians and the least, how many times those of the first, and which of them are too much.
fn row(workload: &Workload, subjects: &[(&str, Option<f64>)], rounds: usize, report: &mut String, bar: &ProgressBar) {
    let times = measure(workload, rounds, bar);
    let (first_median, first_least) = times[0];
    let cells: Vec<_> = times.iter().map(|(median, least)| format!("{median:.1} ({least:.1})")).collect();
    let (mut ratios, mut missed) = (Vec::new(), Vec::new());
    for ((name, target), (median, least)) in subjects.iter().zip(&times).skip(1) {
        let ratio = median / first_median;
        ratios.push(format!("**{ratio:.2}** ({:.2})", least / first_least));
        if target.is_some_and(|target| ratio > target) {
            missed.push(*name);
        }
    }
    let target = subjects.iter().find_map(|(_, target)| *target).map_or("–".into(), |target| target.to_string());
    let verdict = match missed.len() {
        0 => String::new(),
        _ if subjects.len() == 2 => "missed".into(),
        _ => format!("missed: {}", missed.join(", ")),
    };
    let (name, cells, ratios) = (&workload.name, cells.join(" | "), ratios.join(" | "));
    writeln!(report, "| {name} | {cells} | {ratios} | {target} | {verdict} |").unwrap();
}

/// Nanoseconds per operation of each subject: the median, and the least.
fn measure(workload: &Workload, rounds: usize, bar: &ProgressBar) -> Vec<(f64, f64)> {
    let count = workload.runs.len();
    let mut times = vec![Vec::new(); count];
    for round in 0..rounds {
        for subject in (0..count).map(|n| (n + round) % count) {
            let time = (workload.runs[subject])();
            times[subject].push(time.as_nanos() as f64 / workload.ops as f64);
        }
        bar.inc(1);
    }
    let both = |times: &mut Vec<f64>| {
        let median = median(times);
        (median, times[0]) // in order now
    };
    times.iter_mut().map(both).collect()
}

fn scrapes(options: &Options, report: &mut String) {
    let keys = options.ops / 4;
    let (mut reports, mut renders) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let (report, render) = metrics::scrape(keys);
        reports.push(report.as_nanos() as f64 / keys as f64);
        renders.push(render.as_nanos() as f64 / keys as f64);
    }
    let (made, rendered) = (median(&mut reports), median(&mut renders));
    writeln!(
        report,
        "\nWhere it is reported: a `MetricsObserver`'s report after {keys} keys takes **{made:.1}** ns for each of them, and\n\
         the exporter's scrape **{rendered:.1}**. The exporter takes durations one by one, so both grow with the number of keys."
    )
    .unwrap();
}

const METRICS: &str = "\
to the plain queue's, of the medians, and in brackets of the shortest rounds. All in `benches/src/costs/metrics.rs`.

* **measure**: the queue keeps times. **idle observer**: it does, and calls an observer that does nothing.
* **MetricsObserver**: the crate's metrics. Prometheus' exporter is installed, with client-go's buckets; a thread reports and
  scrapes every 20 ms, some hundred times as often as usual. It has a core to itself if one is free.
* **each event**: another design, the usual one, without a target. An observer passes each event on to the same exporter as it
  happens, to a counter, a gauge and two histograms that it has looked up beforehand. It has only those durations to pass on that
  the queue measures.
* **add, get, done**: as `cycle u64` above, one thread. **fill, drain**: as above. Keys come faster than a million a second, so
  one in eight is measured. Client-go's queue takes three times as long with its metrics as without.
* **the same, slowly**: 1.5 microseconds lie between two adds, which are not counted; so each key is measured.
";

const WORKERS: &str = "\
to the loop by hand, of the medians, and in brackets of the shortest rounds. All in `benches/src/costs/workers.rs`.

A queue is filled, shut down, and emptied, by handlers that take so long. By hand is `get`, the handler, `succeed`, and again.
Workers besides catch panics, look what came out, count it, and look whether they are to stop.

* **threads**: their start is timed, too. **this thread**: none is started.
* **tasks**: on a tokio runtime that is there already. With a key in line nobody waits, so several tasks on one thread
  take turns only if the handlers **yield**, which is tokio's `yield_now`.
";
