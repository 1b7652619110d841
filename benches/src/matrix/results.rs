//! The times of all builds, as data. There is a file for each processor, since a locked RMW takes twice as long on one as on another. A
//! file has one JSON value per line.

use crate::numbers::rounded;
use crate::rounds::Subject;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The subject that is keyqueue in its simplest use: a loop with `get`.
pub const OURS: &str = "keyqueue";

/// All results of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    pub run: Run,
    pub times: Vec<Times>,
}

/// The machine, the code, and the size of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub processor: String,
    pub cores: usize,
    pub commit: String,
    pub compiler: String,
    pub rounds: usize,
    /// Keys in a run.
    pub ops: u64,
}

/// One workload in one build; keyqueue is the first subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub workload: String,
    pub build: String,
    pub subjects: Vec<Subject>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Run(Run),
    Times(Times),
}

impl Times {
    pub fn median(&self, subject: &str) -> Option<f64> {
        Some(self.subjects.iter().find(|known| known.name == subject)?.median())
    }

    /// The subject's time divided by that of the faster mutex queue.
    pub fn by_mutex(&self, subject: &str) -> Option<f64> {
        let mutexes = self.subjects.iter().filter(|subject| subject.name.ends_with(" mutex"));
        let fastest = mutexes.map(Subject::median).min_by(f64::total_cmp)?;
        Some(self.median(subject)? / fastest)
    }

    /// keyqueue's time divided by that of another subject.
    pub fn by(&self, subject: &str) -> Option<f64> {
        Some(self.median(OURS)? / self.median(subject)?)
    }
}

impl Matrix {
    /// Adds the output of one round of the program.
    ///
    /// # Errors
    /// If a line is not a workload, a subject and a number: that line.
    pub fn record(&mut self, build: &str, printed: &str) -> Result<(), String> {
        for line in printed.lines() {
            let bad = || format!("{build} has printed {line:?}");
            let [workload, subject, ns] = line.split('\t').collect::<Vec<_>>()[..] else { return Err(bad()) };
            let ns = ns.parse::<f64>().map_err(|_| bad())?;
            let subjects = self.subjects(workload, build);
            match subjects.iter_mut().find(|known| known.name == subject) {
                Some(known) => known.ns.push(rounded(ns)),
                None => subjects.push(Subject { name: subject.into(), ns: vec![rounded(ns)] }),
            }
        }
        Ok(())
    }

    fn subjects(&mut self, workload: &str, build: &str) -> &mut Vec<Subject> {
        let known = self.times.iter().position(|times| times.workload == workload && times.build == build);
        let place = known.unwrap_or_else(|| {
            self.times.push(Times { workload: workload.into(), build: build.into(), subjects: Vec::new() });
            self.times.len() - 1
        });
        &mut self.times[place].subjects
    }

    pub fn to_lines(&self) -> String {
        let mut text = String::new();
        let run = [Line::Run(self.run.clone())];
        for line in run.into_iter().chain(self.times.iter().cloned().map(Line::Times)) {
            writeln!(text, "{}", serde_json::to_string(&line).expect("plain data")).expect("a string takes it all");
        }
        text
    }

    pub fn from_lines(text: &str) -> serde_json::Result<Self> {
        let mut matrix = Self::default();
        for line in text.lines() {
            match serde_json::from_str(line)? {
                Line::Run(run) => matrix.run = run,
                Line::Times(times) => matrix.times.push(times),
            }
        }
        Ok(matrix)
    }

    /// Writes the data of this processor below a copy of the repository, and returns the file's path.
    pub fn write(&self, repository: &Path) -> io::Result<PathBuf> {
        let folder = folder(repository);
        std::fs::create_dir_all(&folder)?;
        let words = self.run.processor.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
        let file = folder.join(name + ".jsonl");
        std::fs::write(&file, self.to_lines())?;
        Ok(file)
    }

    /// The data of all processors, by their names.
    pub fn read_all(repository: &Path) -> io::Result<Vec<Self>> {
        let mut files = match std::fs::read_dir(folder(repository)) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        files.sort();
        files.iter().map(|file| Ok(Self::from_lines(&std::fs::read_to_string(file)?)?)).collect()
    }
}

fn folder(repository: &Path) -> PathBuf {
    repository.join("benches/matrix/data")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two workloads in the first two builds, three rounds each, all made up.
    pub fn made_up() -> Matrix {
        let mut matrix =
            Matrix { run: Run { processor: "A <fast> CPU (R)".into(), ..Run::default() }, ..Matrix::default() };
        for (build, ours) in [("16-off", 20.0), ("16-thin", 24.0)] {
            for factor in [1.0, 0.5, 3.0] {
                let ring = format!(
                    "ring, 1 thread\tkeyqueue\t{}\nring, 1 thread\ttry_get\t{}\nring, 1 thread\tstd mutex\t{}\n\
                     ring, 1 thread\tparking_lot mutex\t{}\nring, 1 thread\tdraft\t{}\n",
                    ours * factor,
                    20.0 * factor,
                    50.0 * factor,
                    30.0 * factor,
                    16.0 * factor
                );
                let threads = format!("ring, 2 threads\tkeyqueue\t{}\n", 23.0 * factor);
                matrix.record(build, &(ring + &threads)).unwrap();
            }
        }
        matrix
    }

    #[test]
    fn rounds_are_collected_by_workload_build_and_subject() {
        let matrix = made_up();
        assert_eq!(matrix.times.len(), 4);
        let ring = &matrix.times[0];
        assert_eq!((&*ring.workload, &*ring.build, ring.subjects.len()), ("ring, 1 thread", "16-off", 5));
        assert_eq!(ring.subjects[0].ns, [20.0, 10.0, 60.0]);
        assert_eq!((ring.by_mutex(OURS), ring.by("try_get")), (Some(20.0 / 30.0), Some(1.0)));
        assert_eq!((ring.by_mutex("draft"), ring.by_mutex("Workers")), (Some(16.0 / 30.0), None));
        assert_eq!((matrix.times[1].by_mutex(OURS), matrix.times[1].by("draft")), (None, None));
    }

    #[test]
    fn a_line_that_is_no_measurement_is_an_error() {
        for line in ["ring\tkeyqueue", "ring\tkeyqueue\tfast", "a\tb\t1\t2"] {
            assert!(Matrix::default().record("16-off", line).unwrap_err().contains("16-off"), "{line}");
        }
    }

    #[test]
    fn written_results_are_read_back_from_a_file_for_each_processor() {
        let repository = std::env::temp_dir().join(format!("keyqueue-matrix-{}", std::process::id()));
        assert_eq!(Matrix::read_all(&repository).unwrap(), []);
        let mut other = made_up();
        other.run.processor = "B".into();
        for _ in 0..2 {
            assert!(made_up().write(&repository).unwrap().ends_with("benches/matrix/data/a-fast-cpu-r.jsonl"));
            other.write(&repository).unwrap();
        }
        assert_eq!(Matrix::read_all(&repository).unwrap(), [made_up(), other]);
        std::fs::remove_dir_all(repository).unwrap();
    }
}
