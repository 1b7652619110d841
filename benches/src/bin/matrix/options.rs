//! The command line.

use clap::Parser;
use keyqueue_benches::REPOSITORY;
use keyqueue_benches::matrix::builds::{BUILDS, Build};
use std::path::{Path, PathBuf};

/// The builds of a quick run.
const QUICK: [&str; 2] = ["16-off", "1-fat"];

/// Measures keyqueue in the builds that users make.
#[derive(Parser, Clone, Debug, PartialEq)]
pub struct Options {
    /// In less than a minute, without the time that compiling takes: two builds and short rounds.
    #[arg(long)]
    pub quick: bool,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 9, default_value_if("quick", "true", "5"))]
    pub rounds: usize,
    /// Keys in a run.
    #[arg(long, default_value_t = 400_000, default_value_if("quick", "true", "40000"))]
    pub ops: u64,
    /// Only these builds: "16-off,1-fat". The names are codegen units and LTO, "abort", "opt2", "native".
    #[arg(long, value_delimiter = ',')]
    pub builds: Vec<String>,
    /// Only workloads whose name begins with this: "ring", "cycle, String", "unique 1x1".
    #[arg(long, default_value = "")]
    pub only: String,
    /// Writes the data to benches/matrix/data/, in a file that has the processor's name, in this directory or, without a name, in
    /// the repository. `report --draw benches/charts/results.jsonl --write` puts them into benches/TABLES.md.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = REPOSITORY)]
    pub write: Option<PathBuf>,
}

impl Options {
    /// Whether the options fit together.
    pub fn check(&self) -> Result<(), &'static str> {
        let partial = self.quick || !self.only.is_empty() || !self.builds.is_empty();
        if partial && self.write.as_deref() == Some(Path::new(REPOSITORY)) {
            return Err("a quick or partial run does not replace the published data: name a directory for --write");
        }
        if self.rounds == 0 {
            return Err("--rounds 0: there is no median of nothing");
        }
        Ok(())
    }

    /// The builds that are wanted, in the order of the tables.
    pub fn builds(&self) -> Result<Vec<&'static Build>, String> {
        let unknown = self.builds.iter().find(|name| BUILDS.iter().all(|build| build.name != **name));
        if let Some(name) = unknown {
            let names: Vec<_> = BUILDS.iter().map(|build| build.name).collect();
            return Err(format!("there is no build {name:?}, but {names:?}"));
        }
        let wanted = |build: &&Build| match &self.builds[..] {
            [] => !self.quick || QUICK.contains(&build.name),
            names => names.iter().any(|name| name == build.name),
        };
        Ok(BUILDS.iter().filter(wanted).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Options {
        Options::parse_from([&["matrix"], arguments].concat())
    }

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        parse(arguments).builds().unwrap().iter().map(|build| build.name).collect()
    }

    #[test]
    fn quick_means_two_builds_unless_other_options_say_otherwise() {
        assert_eq!(names(&[]).len(), BUILDS.len());
        assert_eq!(names(&["--quick"]), ["16-off", "1-fat"]);
        assert_eq!(names(&["--quick", "--builds", "native,16-thin"]), ["16-thin", "native"]);
        assert_eq!(parse(&["--quick", "--rounds", "7"]).rounds, 7);
    }

    #[test]
    fn an_unknown_build_is_named() {
        let error = parse(&["--builds", "1-fat,17-off"]).builds().unwrap_err();
        assert!(error.contains("\"17-off\"") && error.contains("\"native\""), "{error}");
    }
}
