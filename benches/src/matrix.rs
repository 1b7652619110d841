//! The builds that users make. Their times are [`Results`]: the name of a row is the workload, its figure the build. There is a file of data for
//! each processor, since a locked RMW takes twice as long on one as on another.

pub mod builds;
pub mod tables;

use crate::numbers::rounded;
use crate::results::{Results, Subject, Times};
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
        let subjects = &mut matrix.times[place].subjects;
        match subjects.iter_mut().find(|known| known.name == subject) {
            Some(known) => known.ns.push(ns),
            None => subjects.push(Subject { name: subject.into(), ns: vec![ns] }),
        }
    }
    Ok(())
}

/// Writes the data of this processor below a copy of the repository, and returns the file's path.
pub fn write(matrix: &Results, repository: &Path) -> io::Result<PathBuf> {
    let folder = folder(repository);
    std::fs::create_dir_all(&folder)?;
    let words = matrix.run.machine.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    let file = folder.join(name + ".jsonl");
    std::fs::write(&file, matrix.to_lines())?;
    Ok(file)
}

/// The data of all processors, by their names.
pub fn read_all(repository: &Path) -> io::Result<Vec<Results>> {
    let entries = std::fs::read_dir(folder(repository))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(|file| Ok(Results::from_lines(&std::fs::read_to_string(file)?)?)).collect()
}

fn folder(repository: &Path) -> PathBuf {
    repository.join("benches/matrix/data")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::results::Run;

    /// Two workloads in the first two builds, three rounds each, all made up.
    pub fn made_up() -> Results {
        let mut matrix =
            Results { run: Run { machine: "A <fast> CPU (R)".into(), ..Run::default() }, ..Results::default() };
        for (build, ours) in [("16-off", 20.0), ("16-thin", 24.0)] {
            for factor in [1.0, 0.5, 3.0] {
                let subjects = [
                    ("keyqueue", ours),
                    ("try_get", 20.0),
                    ("std mutex", 50.0),
                    ("parking_lot mutex", 30.0),
                    ("draft", 16.0),
                ];
                let ring = subjects.map(|(subject, ns)| format!("ring, 1 thread\t{subject}\t{}\n", ns * factor));
                let threads = format!("ring, 2 threads\tkeyqueue\t{}\n", 23.0 * factor);
                record(&mut matrix, build, &(ring.concat() + &threads)).unwrap();
            }
        }
        matrix
    }

    #[test]
    fn a_line_that_is_no_measurement_is_an_error() {
        for line in ["ring\tkeyqueue", "ring\tkeyqueue\tfast", "a\tb\t1\t2"] {
            assert!(record(&mut Results::default(), "16-off", line).unwrap_err().contains("16-off"), "{line}");
        }
    }

    #[test]
    fn written_results_are_read_back_from_a_file_for_each_processor() {
        let repository = std::env::temp_dir().join(format!("keyqueue-matrix-{}", std::process::id()));
        let mut other = made_up();
        other.run.machine = "B".into();
        for _ in 0..2 {
            assert!(write(&made_up(), &repository).unwrap().ends_with("benches/matrix/data/a-fast-cpu-r.jsonl"));
            write(&other, &repository).unwrap();
        }
        assert_eq!(read_all(&repository).unwrap(), [made_up(), other]);
        std::fs::remove_dir_all(repository).unwrap();
    }
}
