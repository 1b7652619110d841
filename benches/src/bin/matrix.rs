//! Measures keyqueue and the two mutex queues in the builds that users make: builds the program of `benches/matrix/` in nine
//! ways, runs all builds in each of several rounds, and prints the table that benches/TABLES.md shows.

use clap::Parser;
use clap::builder::PossibleValuesParser;
use keyqueue_benches::machine::{cores, processor};
use keyqueue_benches::matrix::builds::{BUILDS, Build};
use keyqueue_benches::matrix::tables::best_and_worst;
use keyqueue_benches::matrix::{record, write};
use keyqueue_benches::results::{Results, Run};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Measures keyqueue in the builds that users make.
#[derive(Parser)]
struct Options {
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Keys in a run.
    #[arg(long, default_value_t = 400_000)]
    ops: u64,
    /// Only these builds: "16-off,1-fat". The names are codegen units and LTO, "abort", "opt2", "native".
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(BUILDS.iter().map(|build| build.name)))]
    builds: Vec<String>,
    /// Writes the data to benches/matrix/data/, in a file that has the processor's name. `report --draw benches/charts/results.jsonl
    /// --write` puts them into benches/TABLES.md.
    #[arg(long, conflicts_with = "builds")]
    write: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let is_wanted = |build: &&Build| options.builds.is_empty() || options.builds.iter().any(|name| name == build.name);
    let mut programs = Vec::new();
    for build in BUILDS.iter().filter(is_wanted) {
        eprintln!("building {}", build.name);
        programs.push((build, build.make()?));
    }
    let matrix = measure(&programs, &options)?;
    if options.write {
        eprintln!("written: {}", write(&matrix)?.display());
    }
    println!("{}", best_and_worst(&matrix));
    Ok(())
}

/// A round runs all builds, in an order that rotates, so that a disturbance of the machine affects all of them.
fn measure(programs: &[(&Build, PathBuf)], options: &Options) -> Result<Results, Box<dyn Error>> {
    let (rounds, ops) = (usize::from(options.rounds), options.ops);
    let (machine, cores) = (processor(), Some(cores()));
    let run = Run { machine, cores, rounds, ops: Some(ops), ..Run::here("matrix") };
    let mut matrix = Results { run, ..Results::default() };
    for round in 0..rounds {
        for n in 0..programs.len() {
            // The first round is in the order of the tables.
            let (build, program) = &programs[(n + round) % programs.len()];
            eprintln!("round {round}: {}", build.name);
            record(&mut matrix, build.name, &printed(program, round, options)?)?;
        }
    }
    Ok(matrix)
}

fn printed(program: &Path, round: usize, options: &Options) -> Result<String, Box<dyn Error>> {
    let output = Command::new(program).args([round.to_string(), options.ops.to_string()]).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
