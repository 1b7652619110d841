//! The command line.

use clap::Parser;
use keyqueue_benches::REPOSITORY;
use std::path::{Path, PathBuf};

/// Measures keyqueue and its rivals, and writes BENCHMARKS.md, its charts, and benches/TABLES.md.
#[derive(Parser, Clone, Debug, PartialEq)]
pub struct Options {
    /// A run of a minute: few rounds of little work.
    #[arg(long)]
    pub quick: bool,
    /// Rounds per workload; the median counts. Workloads that take long get a third of the rounds.
    #[arg(long, default_value_t = 9, default_value_if("quick", "true", "3"))]
    pub rounds: usize,
    /// Operations per run.
    #[arg(long, default_value_t = 400_000, default_value_if("quick", "true", "50000"))]
    pub ops: u64,
    /// Wake-ups per subject, in all rounds together.
    #[arg(long, default_value_t = 5_000, default_value_if("quick", "true", "1000"))]
    pub wakes: u64,
    /// Keys per run of the workloads with delays.
    #[arg(long, default_value_t = 1_000_000, default_value_if("quick", "true", "100000"))]
    pub delays: u64,
    /// The largest queue in the section "keys".
    #[arg(long, default_value_t = 10_000_000, default_value_if("quick", "true", "100000"))]
    pub keys: u64,
    /// Only workloads whose section, group and name contain this: "queue ring", "threads", "pairs", "keys", "latency",
    /// "memory", "delays", "limiters", "metrics", "workers".
    #[arg(long, default_value = "")]
    pub only: String,
    /// Writes BENCHMARKS.md, benches/TABLES.md, benches/charts/*.svg and the data they are drawn from, in this directory or, without a
    /// name, in the repository. Without `--write` the pages go to standard output.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = REPOSITORY)]
    pub write: Option<PathBuf>,
    /// Measures nothing, and writes the page from the data of an earlier run.
    #[arg(long, value_name = "DATA")]
    pub draw: Option<PathBuf>,
}

impl Options {
    /// Whether the options fit together.
    pub fn check(&self) -> Result<(), &'static str> {
        let partial = self.quick || !self.only.is_empty();
        if partial && self.draw.is_none() && self.write.as_deref() == Some(Path::new(REPOSITORY)) {
            return Err("a quick or partial run does not replace the published page: name a directory for --write");
        }
        Ok(())
    }

    /// Rounds of the workloads that take long.
    pub fn few_rounds(&self) -> usize {
        self.rounds.div_ceil(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Options {
        Options::parse_from([&["report"], arguments].concat())
    }

    #[test]
    fn the_published_page_is_of_a_full_run() {
        for partial in [&["--quick", "--write"][..], &["--only", "ring", "--write"]] {
            assert!(parse(partial).check().is_err(), "{partial:?}");
        }
        for fine in [&["--write"][..], &["--quick"], &["--quick", "--write", "there"], &["--draw", "data", "--write"]] {
            assert!(parse(fine).check().is_ok(), "{fine:?}");
        }
    }
}
