//! Measures keyqueue and its rivals, and writes `BENCHMARKS.md`, its charts, and `benches/TABLES.md`.
//!
//! ```text
//! options ──▶ plan ──▶ run ──▶ results ──▶ page (tables, losses)
//!                                 ▲  │        ▲
//!                         --draw ─┘  │        └─── data of the binaries `matrix`, `shards`, `order`
//!                                    └───▶ charts
//! ```

mod options;
mod plan;

use clap::Parser;
use keyqueue_benches::memory::Counting;
use keyqueue_benches::results::{Results, Run};
use keyqueue_benches::{REPOSITORY, charts, matrix, page};
use options::Options;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    options.check()?;
    let (apart, matrices) = (Results::read_apart()?, matrix::read_all(Path::new(REPOSITORY))?);
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
