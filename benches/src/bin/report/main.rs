//! Measures keyqueue and its rivals, and writes `BENCHMARKS.md`, its charts, and `benches/TABLES.md`.
//!
//! ```text
//! options ──▶ plan ──▶ run ──▶ results ──▶ page (tables, losses)
//!                                 ▲  │        ▲
//!                         --draw ─┘  │        └─── data of `matrix`, `shards`, `core-table`
//!                                    └───▶ charts
//! ```

mod plan;

use clap::Parser;
use keyqueue_benches::memory::Counting;
use keyqueue_benches::results::{Results, Run};
use keyqueue_benches::{REPOSITORY, charts, matrix, page};
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures keyqueue and its rivals, and writes BENCHMARKS.md, its charts, and benches/TABLES.md.
#[derive(Parser)]
struct Options {
    /// A run of a minute: few rounds of little work.
    #[arg(long)]
    quick: bool,
    /// Rounds per workload; the median counts. Workloads that take long get a third of the rounds.
    #[arg(long, default_value_t = 9, default_value_if("quick", "true", "3"))]
    rounds: usize,
    /// Operations per run.
    #[arg(long, default_value_t = 400_000, default_value_if("quick", "true", "50000"))]
    ops: u64,
    /// Wake-ups per subject, in all rounds together.
    #[arg(long, default_value_t = 15_000, default_value_if("quick", "true", "1000"))]
    wakes: u64,
    /// Keys per run of the workloads with delays.
    #[arg(long, default_value_t = 1_000_000, default_value_if("quick", "true", "100000"))]
    delays: u64,
    /// The largest queue in the section "keys".
    #[arg(long, default_value_t = 10_000_000, default_value_if("quick", "true", "100000"))]
    keys: u64,
    /// Only workloads whose section, group and name contain this: "queue ring", "threads", "pairs", "keys", "latency",
    /// "memory", "delays", "limiters", "metrics", "workers".
    #[arg(long, default_value = "")]
    only: String,
    /// Writes BENCHMARKS.md, benches/TABLES.md, benches/charts/*.svg and the data they are drawn from, in this directory or, without a
    /// name, in the repository. Without `--write` the pages go to standard output.
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, default_missing_value = REPOSITORY)]
    write: Option<PathBuf>,
    /// Measures nothing, and writes the page from the data of an earlier run.
    #[arg(long, value_name = "DATA")]
    draw: Option<PathBuf>,
}

impl Options {
    /// Whether the options fit together.
    fn check(&self) -> Result<(), &'static str> {
        let partial = self.quick || !self.only.is_empty();
        if partial && self.draw.is_none() && self.write.as_deref() == Some(Path::new(REPOSITORY)) {
            return Err("a quick or partial run does not replace the published page: name a directory for --write");
        }
        Ok(())
    }

    /// Rounds of the workloads that take long.
    fn few_rounds(&self) -> usize {
        self.rounds.div_ceil(3)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    options.check()?;
    let (apart, matrices) = (Results::read_apart()?, matrix::read_all()?);
    let mut results = match &options.draw {
        Some(data) => Results::from_lines(&std::fs::read_to_string(data)?)?,
        None => {
            let &Options { quick, rounds, wakes, delays, .. } = &options;
            let run = Run { quick, rounds, few_rounds: options.few_rounds(), wakes, delays, ..Run::here("report") };
            plan::plan(&options).run(run)
        }
    };
    let lines = results.to_lines();
    apart.into_iter().for_each(|run| results.add(run));
    let (short, tables) = (page::short(&results, &matrices), page::tables(&results, &matrices));
    match &options.write {
        Some(directory) => write(&lines, &results, &short, &tables, directory)?,
        None => print!("{short}\n{tables}"),
    }
    Ok(())
}

/// Writes the data first: if they were lost, they would have to be measured again.
fn write(lines: &str, results: &Results, short: &str, tables: &str, directory: &Path) -> std::io::Result<()> {
    let charts = directory.join("benches/charts");
    std::fs::create_dir_all(&charts)?;
    std::fs::write(charts.join("results.jsonl"), lines)?;
    for (name, svg) in charts::all(results) {
        std::fs::write(charts.join(name), svg)?;
    }
    std::fs::write(directory.join("benches/TABLES.md"), tables)?;
    std::fs::write(directory.join("BENCHMARKS.md"), short)
}
