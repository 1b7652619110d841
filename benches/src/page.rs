//! The two pages: the texts of `benches/text/`, one for each section. What is in double braces is the place of a table, or, after `=`, of
//! words and numbers.

use crate::results::Results;
use crate::{losses, tables};

macro_rules! texts {
    ($($name:literal),* $(,)?) => { [$(include_str!(concat!("../text/", $name, ".md"))),*] };
}

/// The texts of `benches/TABLES.md`, in their order.
const TEXTS: [&str; 16] = texts![
    "head",
    "queues",
    "matrix",
    "threads",
    "shards",
    "order",
    "keys",
    "memory",
    "latency",
    "delays",
    "limiters",
    "metrics",
    "workers",
    "wins",
    "falls-short",
    "designs",
];

/// `BENCHMARKS.md`: what a reader takes in at a glance.
pub fn short(results: &Results, matrices: &[Results]) -> String {
    page_of(&texts!["short"], results, matrices)
}

/// `benches/TABLES.md`: all figures.
pub fn tables(results: &Results, matrices: &[Results]) -> String {
    page_of(&TEXTS, results, matrices)
}

/// A section whose tables are all empty is left out.
fn page_of(texts: &[&str], results: &Results, matrices: &[Results]) -> String {
    let sections = texts.iter().filter_map(|text| fill(text, results, matrices));
    sections.map(|section| section.trim().to_owned() + "\n").collect::<Vec<_>>().join("\n")
}

fn fill(text: &str, results: &Results, matrices: &[Results]) -> Option<String> {
    let (mut places, mut tables) = (0, 0);
    let mut parts = text.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, after) = part.split_once("}}").expect("a place ends");
        match name.strip_prefix('=') {
            Some(name) => filled += &value(name, results),
            None => {
                let table = table(name, results, matrices);
                places += 1;
                tables += usize::from(!table.is_empty());
                filled += &table;
            }
        }
        filled += after;
    }
    (places == 0 || tables > 0).then(|| filled.replace("\n\n\n", "\n\n"))
}

/// # Panics
/// If there is no such value.
fn value(name: &str, results: &Results) -> String {
    let run = &results.run;
    match name {
        "rounds" => run.rounds.to_string(),
        "few rounds" => run.few_rounds.to_string(),
        "wakes" => run.wakes.to_string(),
        "delays keys" => run.delays.to_string(),
        _ => panic!("no value is called {name:?}"),
    }
}

/// # Panics
/// If there is no such table.
fn table(name: &str, results: &Results, matrices: &[Results]) -> String {
    let (table, of) = name.split_once(' ').unwrap_or((name, ""));
    let (section, part) = of.split_once(' ').unwrap_or((of, ""));
    match table {
        "won" => losses::won(results, matrices),
        "lost" => losses::lost(results, matrices),
        "reasons" => losses::reasons(results, matrices),
        "losses" => losses::all_lost(results, matrices),
        "matrix" => tables::matrices(matrices),
        "run" => tables::run(results),
        "runs" => tables::runs(results, matrices),
        "workloads" => tables::workloads(results),
        "mean" => tables::mean(results),
        "scaling" => tables::scaling(results, section),
        "plain" => tables::plain(results, section, part, if section == "keys" { "keys" } else { "" }),
        "groups" => tables::groups(results, section),
        "percentiles" => tables::percentiles(results, section, part),
        "tails" => tables::tails(results),
        "instead" => tables::instead(results),
        "memory" => tables::memory(results),
        "delays" => tables::against_each("delays", &results.times("delays").collect::<Vec<_>>()),
        "lateness" => tables::lateness(results),
        "limiters" => tables::by_group(results, "limiters", tables::against_each),
        "costs" => tables::costs(results, section),
        _ => panic!("no table is called {name:?}"),
    }
}
