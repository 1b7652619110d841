//! The file of recorded counts, and the comparison of new counts with it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The highest ratio of a count to the recorded one.
const TOLERANCE: f64 = 0.02;

/// The head of the file.
const HEAD: &str = "\
# Instructions a call on keyqueue's hot paths, recorded by `ci/instructions.sh --accept`; that script fails when a count is more
# than 2 % above its line. The benchmarks are in benches/instructions/gungraun.
";

/// Instructions per call, by the benchmark's name.
type Calls = BTreeMap<String, f64>;

/// Counts, and the tools with which they were made.
#[derive(Debug, Default, PartialEq)]
pub struct Counts {
    /// The versions of the compiler and the other tools, by name.
    pub made_with: BTreeMap<String, String>,
    pub calls: Calls,
}

/// The result of a comparison of one benchmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finding {
    Same {
        recorded: f64,
        now: f64,
    },
    Worse {
        recorded: f64,
        now: f64,
    },
    Better {
        recorded: f64,
        now: f64,
    },
    /// The benchmark is not in the file.
    NotRecorded {
        now: f64,
    },
    /// The benchmark is in the file, but was not run.
    NotRun {
        recorded: f64,
    },
}

impl Counts {
    /// Reads gungraun's output with `--output-format=json`: a line for each benchmark.
    pub fn from_gungraun(json: &str, calls: u64) -> Result<Calls, String> {
        let count = |line: &str| {
            let summary: Value = serde_json::from_str(line).ok()?;
            let id = summary["id"].as_str().unwrap_or_default();
            let name = format!("{} {id}", summary["function_name"].as_str()?);
            let instructions = summary.pointer("/profiles/0/data/total/metrics/Ir/values/new")?.as_u64()?;
            Some((name.trim_end().to_owned(), instructions as f64 / calls as f64))
        };
        json.lines().map(|line| count(line).ok_or_else(|| format!("no count in: {line}"))).collect()
    }

    /// Reads the file.
    pub fn parse(file: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        for line in file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (first, rest) = line.split_once(' ').ok_or_else(|| format!("half a line: {line}"))?;
            let rest = rest.trim_start().to_owned();
            match first.parse() {
                Ok(count) => _ = counts.calls.insert(rest, count),
                Err(_) => _ = counts.made_with.insert(first.to_owned(), rest),
            }
        }
        Ok(counts)
    }

    /// Compares these counts with the recorded ones, by name.
    pub fn compare(&self, recorded: &Self) -> BTreeMap<String, Finding> {
        let names: BTreeSet<_> = self.calls.keys().chain(recorded.calls.keys()).collect();
        let find = |name: &String| match (recorded.calls.get(name).copied(), self.calls.get(name).copied()) {
            (Some(recorded), Some(now)) => Finding::of(recorded, now),
            (Some(recorded), None) => Finding::NotRun { recorded },
            (None, now) => Finding::NotRecorded { now: now.unwrap_or_default() },
        };
        names.into_iter().map(|name| (name.clone(), find(name))).collect()
    }

    /// The tools whose versions differ, so that the counts cannot be compared: the name, the recorded version, and the current one. The
    /// crate's own version is left out: the crate is what is measured.
    pub fn differences<'a>(&'a self, recorded: &'a Self) -> Vec<(&'a str, &'a str, &'a str)> {
        let was = |name| recorded.made_with.get(name).map_or("unknown", String::as_str);
        let all = self.made_with.iter().map(|(name, now)| (name.as_str(), was(name), now.as_str()));
        all.filter(|&(name, was, now)| name != "keyqueue" && was != now).collect()
    }
}

impl fmt::Display for Counts {
    /// Formats the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        self.made_with.iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))?;
        writeln!(f)?;
        self.calls.iter().try_for_each(|(name, count)| writeln!(f, "{count:>9.2}  {name}"))
    }
}

impl Finding {
    fn of(recorded: f64, now: f64) -> Self {
        let change = now / recorded - 1.0;
        if change > TOLERANCE {
            Self::Worse { recorded, now }
        } else if change < -TOLERANCE {
            Self::Better { recorded, now }
        } else {
            Self::Same { recorded, now }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotRecorded { now } => write!(f, "{:>9} -> {now:>9.2}           NOT RECORDED", ""),
            Self::NotRun { recorded } => write!(f, "{recorded:>9.2} -> {:>9}           NOT RUN", ""),
            Self::Same { recorded, now } | Self::Worse { recorded, now } | Self::Better { recorded, now } => {
                let word = match self {
                    Self::Worse { .. } => "  WORSE",
                    Self::Better { .. } => "  better",
                    _ => "",
                };
                write!(f, "{recorded:>9.2} -> {now:>9.2} {:>+7.2} %{word}", 100.0 * (now / recorded - 1.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(calls: &[(&str, f64)]) -> Counts {
        let made_with =
            [("rustc".to_owned(), "1.2.3 (of today)".to_owned()), ("keyqueue".to_owned(), "0.1".to_owned())];
        Counts { made_with: made_with.into(), calls: calls.iter().map(|&(name, n)| (name.to_owned(), n)).collect() }
    }

    #[test]
    fn two_percent_more_is_worse_and_every_name_must_be_on_both_sides() {
        let recorded =
            counts(&[("a up", 100.0), ("b little", 100.0), ("c down", 100.0), ("d less", 100.0), ("gone", 1.0)]);
        let now = counts(&[("a up", 102.1), ("b little", 101.9), ("c down", 97.9), ("d less", 98.1), ("new", 2.0)]);
        let findings: Vec<_> = now.compare(&recorded).into_values().collect();
        assert!(matches!(
            findings[..],
            [
                Finding::Worse { .. },
                Finding::Same { .. },
                Finding::Better { .. },
                Finding::Same { .. },
                Finding::NotRun { .. },
                Finding::NotRecorded { .. }
            ]
        ));
    }

    #[test]
    fn a_written_file_is_read_back() {
        let counts = counts(&[("add new", 58.25), ("turn", 12_345.5)]);
        assert_eq!(Counts::parse(&counts.to_string()), Ok(counts));
        assert!(Counts::parse("12.5\n").is_err());
    }

    #[test]
    fn another_compiler_is_reported_and_another_version_of_the_crate_is_not() {
        let (recorded, mut now) = (counts(&[]), counts(&[]));
        now.made_with.insert("keyqueue".to_owned(), "0.2".to_owned());
        assert_eq!(now.differences(&recorded), []);
        now.made_with.insert("rustc".to_owned(), "1.2.4".to_owned());
        assert_eq!(now.differences(&recorded), [("rustc", "1.2.3 (of today)", "1.2.4")]);
    }
}
