//! The data of a run, from which tables and charts are made.
//!
//! A file has one JSON value per line, so that two runs can be compared line by line.

use crate::REPOSITORY;
use crate::machine::{commit, compiler, cores, day, processor};
use crate::numbers::median;
use itertools::Itertools;
use serde::{Deserialize, Serialize};

/// The name of keyqueue in all tables and charts.
pub const OURS: &str = "keyqueue";

/// The default queue, where its name says how many shards it has.
pub const DEFAULT: &str = "keyqueue, 1 shard";

/// The command that has measured tails.
pub const TAILS: &str = "--bin shards -- --json";

/// keyqueue, in one of its forms.
pub fn is_ours(subject: &str) -> bool {
    subject == OURS || subject.starts_with("keyqueue, ")
}

/// The form alone: "16 shards". Empty for keyqueue without a form.
pub fn form(subject: &str) -> &str {
    subject.trim_start_matches(OURS).trim_start_matches(", ")
}

/// A subject with a remark in brackets does less or other work, and a thread without a queue is no rival.
pub fn is_rival(subject: &str) -> bool {
    !is_ours(subject) && !subject.ends_with(')') && subject != "a bare thread"
}

/// All subjects of these rows, in the order in which they first come.
pub fn subjects<'a>(rows: &[&'a Times]) -> Vec<&'a str> {
    rows.iter().flat_map(|times| &times.subjects).map(|subject| subject.name.as_str()).unique().collect()
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
    /// The runs of the binaries `shards` and `core-table`.
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
    /// Measurements of latencies that did not count, because the machine was disturbed.
    pub thrown_away: u32,
    /// Of a matrix: the cores, and keys in a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops: Option<u64>,
}

impl Run {
    /// Of this program, now. The command measures the same again, but for the directory that it writes to.
    pub fn here(binary: &str) -> Self {
        let command = format!("cargo run --release --manifest-path benches/Cargo.toml --bin {binary} --");
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
    /// How long a cache line took from core to core just before each round, if that was measured: see [`transfer`](crate::transfer).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<f64>,
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
    /// One more round of a subject.
    pub fn note(&mut self, subject: &str, ns: f64, transfer: Option<f64>) {
        let known = self.subjects.iter().position(|known| known.name == subject).unwrap_or_else(|| {
            self.subjects.push(Subject { name: subject.into(), ..Subject::default() });
            self.subjects.len() - 1
        });
        self.subjects[known].ns.push(ns);
        self.subjects[known].transfers.extend(transfer);
    }

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
        let mut lines = vec![Line::Run(self.run.clone())];
        lines.extend(self.times.iter().cloned().map(Line::Times));
        lines.extend(self.spreads.iter().cloned().map(Line::Spread));
        lines.extend(self.bytes.iter().cloned().map(Line::Bytes));
        lines.iter().map(|line| serde_json::to_string(line).expect("plain data") + "\n").collect()
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

    /// What the binaries `shards` (with `--all`, and without) and `core-table` have measured.
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
