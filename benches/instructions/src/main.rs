//! Reads gungraun's counts from standard input, and compares them with a file of recorded counts, or writes that file.

use clap::Parser;
use instructions::CALLS;
use instructions::counts::{Counts, Finding};
use std::io::read_to_string;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{error::Error, fs, io};

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

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::parse();
    let calls = Counts::from_gungraun(&read_to_string(io::stdin())?, CALLS)?;
    let now = Counts { made_with: options.with.into_iter().collect(), calls };
    if options.accept {
        fs::write(&options.file, now.to_string())?;
        println!("recorded: {} counts", now.calls.len());
        return Ok(ExitCode::SUCCESS);
    }
    let recorded = Counts::parse(&fs::read_to_string(&options.file)?)?;
    let findings = now.compare(&recorded);
    for (name, finding) in &findings {
        println!("{name:24} {finding}");
    }

    let differences = now.differences(&recorded);
    let count = |wanted: fn(&Finding) -> bool| findings.values().filter(|&finding| wanted(finding)).count();
    let worse = count(|finding| matches!(finding, Finding::Worse { .. }));
    let better = count(|finding| matches!(finding, Finding::Better { .. }));
    let unmatched = count(|finding| matches!(finding, Finding::NotRecorded { .. } | Finding::NotRun { .. }));
    let whose = if options.earlier { "those of the earlier commit" } else { "the recorded counts" };
    println!("{} counts: {worse} more than 2 % above {whose}, {better} more than 2 % below", findings.len());
    if options.earlier {
        return Ok(if worse > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    for (name, was, now) in &differences {
        println!("higher counts are no failure here: recorded with {name} {was}, counted with {now}");
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
