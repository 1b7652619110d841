//! Reads gungraun's counts from standard input, and compares them with a file of recorded counts, or writes that file.

use clap::Parser;
use instructions::CALLS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::read_to_string;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{error::Error, fs, io};

/// The highest ratio of a count to the recorded one.
const TOLERANCE: f64 = 0.02;

/// The head of the file.
const HEAD: &str = "\
# Instructions a call on keyqueue's hot paths, recorded by `ci/instructions.sh --accept`; that script fails when a count is more
# than 2 % above its line. The benchmarks are in benches/instructions/gungraun.
";

/// Fails when a hot path takes 2 % more instructions than the file says.
#[derive(Parser)]
struct Options {
    /// Records the counts as they are now, instead of comparing.
    #[arg(long)]
    accept: bool,
    /// The file of counts.
    #[arg(long)]
    file: PathBuf,
    /// The file has counts of an earlier commit, which may have other benchmarks.
    #[arg(long)]
    earlier: bool,
    /// A tool or version that the counts depend on; recorded in the file.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    with: Vec<(String, String)>,
}

fn pair(argument: &str) -> Result<(String, String), String> {
    let (name, value) = argument.split_once('=').ok_or("no `=` in it")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Instructions per call, by the benchmark's name.
type Calls = BTreeMap<String, f64>;

/// Reads gungraun's output with `--output-format=json`: a line for each benchmark.
fn from_gungraun(json: &str) -> Result<Calls, String> {
    let count = |line: &str| {
        let summary: Value = serde_json::from_str(line).ok()?;
        let name = format!("{} {}", summary["function_name"].as_str()?, summary["id"].as_str().unwrap_or_default());
        let instructions = summary.pointer("/profiles/0/data/total/metrics/Ir/values/new")?.as_u64()?;
        Some((name.trim_end().to_owned(), instructions as f64 / CALLS as f64))
    };
    json.lines().map(|line| count(line).ok_or_else(|| format!("no count in: {line}"))).collect()
}

/// Reads the file: the tools with which it was made, and the counts.
fn parse(file: &str) -> Result<(BTreeMap<String, String>, Calls), String> {
    let (mut made_with, mut calls) = (BTreeMap::new(), Calls::new());
    for line in file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (first, rest) = line.split_once(' ').ok_or_else(|| format!("half a line: {line}"))?;
        match first.parse() {
            Ok(count) => _ = calls.insert(rest.trim_start().to_owned(), count),
            Err(_) => _ = made_with.insert(first.to_owned(), rest.trim_start().to_owned()),
        }
    }
    Ok((made_with, calls))
}

/// What a line says of one benchmark, and a word: "WORSE", "better", "NOT RECORDED", "NOT RUN", or nothing.
fn compared(recorded: Option<f64>, now: Option<f64>) -> (String, &'static str) {
    let cell = |count: Option<f64>| count.map_or(String::new(), |count| format!("{count:.2}"));
    let counts = format!("{:>9} -> {:>9}", cell(recorded), cell(now));
    let (Some(recorded), Some(now)) = (recorded, now) else {
        return (format!("{counts}          "), if now.is_some() { "NOT RECORDED" } else { "NOT RUN" });
    };
    let change = now / recorded - 1.0;
    let word = match change {
        _ if change > TOLERANCE => "WORSE",
        _ if change < -TOLERANCE => "better",
        _ => "",
    };
    (format!("{counts} {:>+7.2} %", 100.0 * change), word)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let calls = from_gungraun(&read_to_string(io::stdin())?)?;
    let made_with: BTreeMap<_, _> = options.with.into_iter().collect();
    if options.accept {
        let made_with: String = made_with.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        let counts: String = calls.iter().map(|(name, count)| format!("{count:>9.2}  {name}\n")).collect();
        fs::write(&options.file, format!("{HEAD}{made_with}\n{counts}"))?;
        println!("recorded: {} counts", calls.len());
        return Ok(ExitCode::SUCCESS);
    }
    let (was_made_with, recorded) = parse(&fs::read_to_string(&options.file)?)?;
    let names: BTreeSet<_> = calls.keys().chain(recorded.keys()).collect();
    let mut words = Vec::new();
    for name in &names {
        let (line, word) = compared(recorded.get(*name).copied(), calls.get(*name).copied());
        println!("{}", format!("{name:24} {line}  {word}").trim_end());
        words.push(word);
    }

    // With other tools the counts cannot be compared. The crate's own version does not count: the crate is what is measured.
    let was = |name: &String| was_made_with.get(name).map_or("unknown", String::as_str);
    let is_other = |(name, now): &(&String, &String)| *name != "keyqueue" && was(name) != *now;
    let differences: Vec<_> = made_with.iter().filter(is_other).collect();
    let count = |word: &str| words.iter().filter(|other| **other == word).count();
    let (worse, better, unmatched) = (count("WORSE"), count("better"), count("NOT RECORDED") + count("NOT RUN"));
    let whose = if options.earlier { "those of the earlier commit" } else { "the recorded counts" };
    println!("{} counts: {worse} more than 2 % above {whose}, {better} more than 2 % below", names.len());
    if options.earlier {
        return Ok(if worse > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    for (name, now) in &differences {
        println!("higher counts are no failure here: recorded with {name} {}, counted with {now}", was(name));
    }
    if worse > 0 && differences.is_empty() {
        println!("to accept higher counts: `ci/instructions.sh --accept`, and say why in the commit");
    }
    if better > 0 && differences.is_empty() {
        println!("to lower the limits to the better counts: `ci/instructions.sh --accept`");
    }
    if unmatched > 0 {
        println!("{unmatched} are only in the file, or only among the benchmarks: `ci/instructions.sh --accept`");
    }
    let failed = unmatched > 0 || worse > 0 && differences.is_empty();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_percent_more_is_worse_and_every_name_must_be_on_both_sides() {
        let words = [102.1, 101.9, 97.9, 98.1].map(|now| compared(Some(100.0), Some(now)).1);
        assert_eq!(words, ["WORSE", "", "better", ""]);
        assert_eq!([compared(None, Some(1.0)).1, compared(Some(1.0), None).1], ["NOT RECORDED", "NOT RUN"]);
    }
}
