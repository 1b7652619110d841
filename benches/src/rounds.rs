//! The results of one subject in one workload.

use crate::machine::{commit, cores, day, processor};
use crate::numbers::{median, rounded};
use serde::{Deserialize, Serialize};
use serde_json::json;

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

/// Prints the first line of the data of a binary apart from the report: where it runs, and the command that measures the same again.
pub fn print_run(binary: &str) {
    let commit = format!("{} of {}", commit(), day());
    println!("{}", json!({"run": {"machine": machine(), "commit": commit, "command": command(binary)}}));
}

/// The command that runs this program again.
pub fn command(binary: &str) -> String {
    let command =
        format!("cargo run --release --manifest-path benches/Cargo.toml --no-default-features --bin {binary} --");
    std::env::args().skip(1).fold(command, |command, argument| command + " " + &argument)
}

pub fn machine() -> String {
    format!("{}, {} cores, {}", processor(), cores(), std::env::consts::OS)
}

/// Prints a row of times as the report reads it. Each subject has a name and the nanoseconds of each round.
pub fn print_times<'a>(section: &str, group: &str, name: &str, row: impl IntoIterator<Item = (&'a str, Vec<f64>)>) {
    let subjects = row.into_iter().filter(|(_, ns)| !ns.is_empty());
    let subjects = subjects.map(|(name, ns)| Subject { name: name.into(), ns: ns.into_iter().map(rounded).collect() });
    let subjects: Vec<_> = subjects.collect();
    println!("{}", json!({"times": {"section": section, "group": group, "name": name, "subjects": subjects}}));
}
