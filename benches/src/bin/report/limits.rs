//! The section on limiters.

use crate::Options;
use crate::delays::rows;
use indicatif::ProgressBar;
use keyqueue_benches::limits::{Group, all};
use std::fmt::Write as _;

pub fn write(options: &Options, report: &mut String, bar: &ProgressBar) {
    let mut groups = all(options.ops);
    for Group { name: group, workloads, .. } in &mut groups {
        workloads.retain(|workload| format!("limiters {group} {}", workload.name).contains(&options.only));
    }
    groups.retain(|group| !group.workloads.is_empty());
    if groups.is_empty() {
        return;
    }
    bar.inc_length((groups.iter().map(|group| group.workloads.len()).sum::<usize>() * options.rounds) as u64);
    writeln!(report, "\n## Limiters\n").unwrap();
    writeln!(report, "Nanoseconds per operation, medians of {} rounds. **Ratio**: the rival's time by", options.rounds)
        .unwrap();
    report.push_str(NOTES);
    for Group { name: group, subjects, rivals, workloads } in &groups {
        let ratios: Vec<_> = subjects[1..].iter().map(|rival| format!("ratio, {rival}")).collect();
        writeln!(report, "\n| {group} | | {} | {} | target | |", subjects.join(" | "), ratios.join(" | ")).unwrap();
        writeln!(report, "|---|---|{}---:|---|", "---:|".repeat(subjects.len() + ratios.len())).unwrap();
        for workload in workloads {
            bar.set_message(format!("limiters, {group}, {}", workload.name));
            rows(workload, *rivals, options.rounds, report, bar);
        }
    }
}

const NOTES: &str = "\
keyqueue's. All in `benches/src/limits/`.

* **exponential**: 5 ms to 1000 s. A map of counts under one mutex (`parking_lot` with `ahash`; the standard library's own), and a
  concurrent map of counters with `ahash`, which has no target. **when** is of 1024 keys that failed before, each thread in an
  order of its own; **new keys** all fail, then all are forgotten.
* **bucket**: against governor's `check`, which reads the processor's counter (`quanta`), and with the clock of the standard library.
  **admitted**: 5 * 10^8 tokens a second. **refused**: 10.
* **bucket by key**: 1024 keys. Not the same work: governor has a bucket for each key, in a `DashMap` with `ahash`; `DedupingBucket`
  one for all, and it remembers which key has a token.
* **retry**: an operation is a key's whole life: added, handed out four times, retried three times, succeeded. The rivals are those
  with delays, and the `parking_lot` limiter; the clock is made up, and no subject has its thread. **one by one**: the clock moves
  on by a microsecond a key, and a key comes due by itself. **in waves**: it stands still until the line is empty, and all come due at
  one moment. `DelayQueue` has no target.
";
