//! The data of a run, from which tables and charts are made.
//!
//! A file has one JSON value per line, so that two runs can be compared line by line.

use crate::REPOSITORY;
use crate::machine::{commit, compiler, cores, day, processor};
use crate::numbers::median;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The name of keyqueue in all tables and charts.
pub const OURS: &str = "keyqueue";

/// The command that has measured tails.
pub const TAILS: &str = "--bin shards -- --json";

/// keyqueue, in one of its forms.
pub fn is_ours(subject: &str) -> bool {
    subject == OURS || subject.starts_with("keyqueue, ")
}

/// A subject with a remark in brackets does less or other work, and a thread without a queue is no rival.
pub fn is_rival(subject: &str) -> bool {
    !is_ours(subject) && !subject.ends_with(')') && subject != "a bare thread"
}

/// With commas, without the parts that are empty.
pub fn joined(parts: &[&str]) -> String {
    parts.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    pub run: Run,
    pub times: Vec<Times>,
    pub spreads: Vec<Spread>,
    pub bytes: Vec<Bytes>,
    /// The runs of the binaries `shards` and `order`.
    pub apart: Vec<Run>,
}

/// The machine, the code and the size of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    #[serde(alias = "processor")]
    pub machine: String,
    pub commit: String,
    pub compiler: String,
    pub command: String,
    pub quick: bool,
    /// Rounds of most workloads, and of those that take long.
    pub rounds: usize,
    pub few_rounds: usize,
    pub wakes: u64,
    /// Keys in a run with delays.
    pub delays: u64,
    /// Of a matrix: the cores, and keys in a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
}

impl Run {
    /// Of this program, now. The command measures the same again, but for the directory that it writes to.
    pub fn here(binary: &str) -> Self {
        let command =
            format!("cargo run --release --manifest-path benches/Cargo.toml --no-default-features --bin {binary} --");
        let arguments = std::env::args().skip(1).filter(|argument| !argument.contains('/'));
        Self {
            machine: format!("{}, {} cores, {}", processor(), cores(), std::env::consts::OS),
            commit: format!("{} of {}", commit(), day()),
            compiler: compiler(),
            command: arguments.fold(command, |command, argument| command + " " + &argument),
            ..Self::default()
        }
    }
}

/// Nanoseconds per operation, round by round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub name: String,
    pub ns: Vec<f64>,
}

impl Subject {
    pub fn median(&self) -> f64 {
        median(&self.ns)
    }

    pub fn least(&self) -> f64 {
        self.ns.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// One figure of one workload: how long each subject took. keyqueue, or what stands for it, is the first subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    pub section: String,
    pub group: String,
    #[serde(alias = "workload")]
    pub name: String,
    /// The name of the timed part, if a run has several; or the build.
    #[serde(alias = "build")]
    pub figure: String,
    /// The number of threads, pairs or keys: the position on a chart.
    pub at: Option<u64>,
    /// The target: the lowest acceptable ratio, or, for metrics and workers, the highest.
    pub target: Option<f64>,
    /// The rivals to which the target applies.
    pub rivals: Vec<String>,
    pub subjects: Vec<Subject>,
}

/// The distribution of many durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spread {
    pub section: String,
    pub what: String,
    pub subject: String,
    pub count: u64,
    /// Percentiles and nanoseconds, up to the last percentile that at least four values exceed, and the maximum.
    pub curve: Vec<(f64, f64)>,
    /// Operations per second that other threads did meanwhile.
    pub beside: Option<f64>,
}

/// Bytes allocated per key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    pub what: String,
    pub subject: String,
    pub keys: u64,
    pub bytes: f64,
}

impl Times {
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    pub fn median(&self, name: &str) -> Option<f64> {
        self.subject(name).map(Subject::median)
    }

    /// The other subject's time divided by that of the first.
    pub fn ratio(&self, name: &str) -> Option<f64> {
        Some(self.median(name)? / self.subjects[0].median())
    }

    /// The ratio to the fastest rival to which the target applies.
    pub fn least_ratio(&self) -> Option<f64> {
        self.rivals.iter().filter_map(|rival| self.ratio(rival)).min_by(f64::total_cmp)
    }

    pub fn missed(&self) -> bool {
        matches!((self.target, self.least_ratio()), (Some(target), Some(ratio)) if ratio < target)
    }
}

impl Spread {
    const PERCENTILES: [f64; 14] =
        [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99];

    /// Those that at least four of this number of values exceed, and the maximum.
    pub fn percentiles(count: u64) -> impl Iterator<Item = f64> {
        let is_enough =
            move |percentile: &f64| *percentile < 99.0 || (100.0 - percentile) / 100.0 * count as f64 >= 4.0;
        Self::PERCENTILES.into_iter().filter(is_enough).chain([100.0])
    }

    /// In microseconds, if there were enough values.
    pub fn micros(&self, percentile: f64) -> Option<f64> {
        self.curve.iter().find(|point| point.0 == percentile).map(|point| point.1 / 1000.0)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Run(Run),
    Times(Times),
    Spread(Spread),
    Bytes(Bytes),
}

impl Results {
    pub fn to_lines(&self) -> String {
        let mut text = String::new();
        let run = [Line::Run(self.run.clone())].into_iter();
        let times = self.times.iter().cloned().map(Line::Times);
        let spreads = self.spreads.iter().cloned().map(Line::Spread);
        let bytes = self.bytes.iter().cloned().map(Line::Bytes);
        for line in run.chain(times).chain(spreads).chain(bytes) {
            writeln!(text, "{}", serde_json::to_string(&line).expect("plain data")).unwrap();
        }
        text
    }

    pub fn from_lines(text: &str) -> serde_json::Result<Self> {
        let mut results = Self::default();
        for line in text.lines() {
            match serde_json::from_str(line)? {
                Line::Run(run) => results.run = run,
                Line::Times(times) => results.times.push(times),
                Line::Spread(spread) => results.spreads.push(spread),
                Line::Bytes(bytes) => results.bytes.push(bytes),
            }
        }
        Ok(results)
    }

    /// Adds the rows of another run.
    pub fn add(&mut self, other: Self) {
        self.apart.push(other.run);
        self.times.extend(other.times);
        self.spreads.extend(other.spreads);
    }

    /// The first run apart whose command contains this.
    pub fn apart(&self, command: &str) -> Run {
        self.apart.iter().find(|run| run.command.contains(command)).cloned().unwrap_or_default()
    }

    /// What the binaries `shards` (with `--all`, and without) and `order` have measured.
    pub fn read_apart() -> Result<[Self; 3], Box<dyn std::error::Error>> {
        let read = |name| std::fs::read_to_string(format!("{REPOSITORY}/benches/charts/{name}.jsonl"));
        let [shards, tails, order] = ["shards", "tails", "order"].map(read);
        Ok([Self::from_lines(&shards?)?, Self::from_lines(&tails?)?, Self::from_lines(&order?)?])
    }

    pub fn times<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Times> {
        self.times.iter().filter(move |times| times.section == section)
    }

    pub fn spreads<'a>(&'a self, section: &'a str, what: &'a str) -> impl Iterator<Item = &'a Spread> {
        self.spreads.iter().filter(move |spread| spread.section == section && spread.what == what)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn times(section: &str, group: &str, name: &str, at: Option<u64>, times: &[(&str, f64)]) -> Times {
        let subject = |(name, ns): &(&str, f64)| Subject { name: (*name).into(), ns: vec![*ns, ns * 3.0, ns / 2.0] };
        Times {
            section: section.into(),
            group: group.into(),
            name: name.into(),
            figure: String::new(),
            at,
            target: Some(1.0),
            rivals: vec![times[1].0.into(), times[2].0.into()],
            subjects: times.iter().map(subject).collect(),
        }
    }

    fn spread(section: &str, what: &str, subject: &str, scale: u64) -> Spread {
        let at = |percentile: f64| (scale as f64 * (100.0 + 100.0 / (100.001 - percentile))).round();
        let curve = Spread::percentiles(10_000).map(|percentile| (percentile, at(percentile))).collect();
        let [section, what, subject] = [section, what, subject].map(String::from);
        Spread {
            section,
            what: what.clone(),
            subject,
            count: 10_000,
            curve,
            beside: (what == "flood").then_some(2.5e6),
        }
    }

    /// Invented data for every section.
    pub fn made_up() -> Results {
        let run = Run { machine: "a <machine> & more".into(), rounds: 3, few_rounds: 1, ..Run::default() };
        let mut results = Results { run, ..Results::default() };
        let four = |ours, first, second, third| {
            [(OURS, ours), ("parking_lot mutex", first), ("std mutex", second), ("DashMap + SegQueue", third)]
        };
        results.times = vec![
            times("queue", "cycle u64", "1 keys", None, &four(50.0, 60.0, 180.0, 80.0)),
            times("queue", "fill, drain", "300000 keys", None, &four(120.0, 90.0, 250.0, 160.0)),
            times("parts", "", "1", Some(1), &[("cycle", 50.0), ("parts", 60.0), ("parts", 60.0)]),
            times("delays", "", "insert, 1 threads", None, &four(200.0, 300.0, 170.0, 190.0)),
            times("limiters", "bucket", "refused", None, &[(OURS, 25.0), ("governor", 24.0), ("other", 32.0)]),
            times("limiters", "retry", "in waves", None, &[(OURS, 470.0), ("heap", 1100.0), ("DelayQueue", 1400.0)]),
        ];
        for (at, drop) in [(1, 1.0), (2, 1.5), (16, 1.6), (512, 2.0)] {
            let name = format!("{at} threads");
            results.times.push(times("threads", "", &name, Some(at), &four(50.0 * drop, 60.0 * drop, 180.0, 81.0)));
            results.times.push(times("pairs", "", &name, Some(at), &four(90.0 * drop, 60.0 * drop, 180.0, 81.0)));
        }
        for group in ["fill", "touch", "delays"] {
            for at in [10, 1000, 10_000_000] {
                let ns = 10.0 * (at as f64).log10();
                results.times.push(times("keys", group, "", Some(at), &four(ns, 2.0 * ns, 3.0 * ns, 4.0 * ns)));
            }
        }
        for group in ["priorities", "groups"] {
            results.times.push(times("order", group, "ring", None, &four(50.0, 60.0, 180.0, 80.0)));
        }
        let shards = |name: &'static str| name.replace(OURS, "keyqueue, 1 shard");
        results.times.push(times("shards", "", "ring, 2 threads", None, &four(50.0, 60.0, 180.0, 80.0)));
        results.times.last_mut().unwrap().subjects[0].name = shards(OURS);
        results.apart = vec![Run { command: "--bin shards".into(), ..Run::default() }];
        for name in ["turn and clock, 32 threads", "ring, 2 threads"] {
            results.times.push(times("tails", "", name, None, &four(50.0, 60.0, 180.0, 80.0)));
        }
        for group in ["metrics", "workers"] {
            results.times.push(times(group, "loop", "1 keys", None, &[("plain", 50.0), ("a", 60.0), ("b", 80.0)]));
        }
        for (section, what) in [
            ("latency", "wake-up"),
            ("latency", "under load"),
            ("lateness", "quiet"),
            ("lateness", "flood"),
            ("shards", "wake-up"),
            ("tails", "get, 32 threads"),
            ("tails", "add, 32 threads"),
            ("tails", "turn, 32 threads"),
            ("tails", "get, 2 threads"),
        ] {
            for (subject, scale) in [(OURS, 100), ("parking_lot mutex", 110), ("a bare thread", 90)] {
                results.spreads.push(spread(section, what, subject, scale));
            }
        }
        for what in ["queued", "delayed"] {
            for (subject, bytes) in [(OURS, 50.0), ("std mutex", 71.25)] {
                let (what, subject) = (what.into(), subject.into());
                results.bytes.push(Bytes { what, subject, keys: 1_000_000, bytes });
            }
        }
        results
    }

    #[test]
    fn written_results_are_read_back() {
        let results = made_up();
        let text = results.to_lines();
        assert_eq!(Results { apart: results.apart.clone(), ..Results::from_lines(&text).unwrap() }, results);
        let lines = 1 + results.times.len() + results.spreads.len() + results.bytes.len();
        assert_eq!(text.lines().count(), lines);
    }

    #[test]
    fn ratios_are_of_medians_and_the_fastest_rival_counts() {
        let results = made_up();
        let [cycle, fill] = &results.times[..2] else { panic!() };
        assert_eq!(cycle.ratio("std mutex"), Some(3.6));
        assert_eq!(cycle.least_ratio(), Some(1.2));
        assert!(!cycle.missed());
        assert_eq!(fill.least_ratio(), Some(0.75));
        assert!(fill.missed());
        assert_eq!(fill.ratio("not there"), None);
        assert_eq!((cycle.subjects[0].median(), cycle.subjects[0].least()), (50.0, 25.0));
    }

    #[test]
    fn a_spread_has_only_percentiles_that_four_values_exceed() {
        let last = |count| Spread::percentiles(count).collect::<Vec<_>>().into_iter().rev().take(2).collect::<Vec<_>>();
        assert_eq!([last(1000), last(5000)], [[100.0, 99.5], [100.0, 99.9]]);
    }
}
