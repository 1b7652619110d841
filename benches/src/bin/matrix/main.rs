//! Measures keyqueue, the two mutex queues and a draft in the builds that users make: builds the program of `benches/matrix/` in nine
//! ways, runs all builds in each of several rounds, and prints the tables that benches/TABLES.md shows.

mod options;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use keyqueue_benches::machine::{cores, processor};
use keyqueue_benches::matrix::builds::Build;
use keyqueue_benches::matrix::tables::{best_and_worst, summary};
use keyqueue_benches::matrix::{record, write};
use keyqueue_benches::results::{Results, Run};
use options::Options;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    options.check()?;
    let mut programs = Vec::new();
    for build in options.builds()? {
        eprintln!("building {}", build.name);
        programs.push((build, build.make()?));
    }
    let matrix = measure(&programs, &options)?;
    if let Some(repository) = &options.write {
        eprintln!("written: {}", write(&matrix, repository)?.display());
    }
    println!("{}\n\n{}", summary(&matrix), best_and_worst(&matrix));
    Ok(())
}

/// A round runs all builds, in an order that rotates, so that a disturbance of the machine affects all of them.
fn measure(programs: &[(&Build, PathBuf)], options: &Options) -> Result<Results, Box<dyn Error>> {
    let &Options { rounds, ops, .. } = options;
    let (machine, cores) = (processor(), Some(cores()));
    let run = Run { machine, cores, rounds, ops: Some(ops), ..Run::here("matrix") };
    let mut matrix = Results { run, ..Results::default() };
    let bar = ProgressBar::new((rounds * programs.len()) as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len}, left: {eta}  {msg}")?);
    for round in 0..rounds {
        for n in 0..programs.len() {
            // The first round is in the order of the tables.
            let (build, program) = &programs[(n + round) % programs.len()];
            bar.set_message(build.name);
            record(&mut matrix, build.name, &printed(program, round, options)?)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(matrix)
}

fn printed(program: &Path, round: usize, options: &Options) -> Result<String, Box<dyn Error>> {
    let output = Command::new(program).args([&round.to_string(), &options.ops.to_string(), &options.only]).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
