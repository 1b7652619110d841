//! The builds that users make. Their times are [`Results`]: the name of a row is the workload, its figure the build. There is a file of data for
//! each processor, since a locked RMW takes twice as long on one as on another.

pub mod builds;
pub mod tables;

use crate::REPOSITORY;
use crate::numbers::rounded;
use crate::results::{Results, Times};
use std::io;
use std::path::{Path, PathBuf};

/// Adds the output of one round of the program.
///
/// # Errors
/// If a line is not a workload, a subject and a number: that line.
pub fn record(matrix: &mut Results, build: &str, printed: &str) -> Result<(), String> {
    for line in printed.lines() {
        let bad = || format!("{build} has printed {line:?}");
        let [workload, subject, ns] = line.split('\t').collect::<Vec<_>>()[..] else { return Err(bad()) };
        let ns = rounded(ns.parse::<f64>().map_err(|_| bad())?);
        let known = matrix.times.iter().position(|times| times.name == workload && times.figure == build);
        let place = known.unwrap_or_else(|| {
            matrix.times.push(Times { name: workload.into(), figure: build.into(), ..Times::default() });
            matrix.times.len() - 1
        });
        matrix.times[place].note(subject, ns, None);
    }
    Ok(())
}

/// Writes the data of this processor, and returns the file's path.
pub fn write(matrix: &Results) -> io::Result<PathBuf> {
    let words = matrix.run.machine.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let file = folder().join(name + ".jsonl");
    std::fs::write(&file, matrix.to_lines())?;
    Ok(file)
}

/// The data of all processors, by their names.
pub fn read_all() -> io::Result<Vec<Results>> {
    let mut files = folder().read_dir()?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(|file| Ok(Results::from_lines(&std::fs::read_to_string(file)?)?)).collect()
}

fn folder() -> PathBuf {
    Path::new(REPOSITORY).join("benches/matrix/data")
}
