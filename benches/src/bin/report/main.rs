//! Measures keyqueue and its rivals, and writes `BENCHMARKS.md`, its charts, and `benches/TABLES.md`.
//!
//! ```text
//! options ──▶ plan ──▶ measure ──▶ results ──▶ page (tables, losses)
//!                                     ▲  │        ▲
//!                             --draw ─┘  │        └─── data of the binaries `matrix`, `shards`, `order`
//!                                        └───▶ charts
//! ```

mod charts;
mod losses;
mod machine;
mod measure;
mod options;
mod page;
mod plan;
mod results;
mod tables;

use clap::Parser;
use keyqueue_benches::REPOSITORY;
use keyqueue_benches::matrix::results::Matrix;
use keyqueue_benches::memory::Counting;
use options::Options;
use plan::Plan;
use results::Results;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    options.check()?;
    let (apart, matrices) = (Results::read_apart()?, Matrix::read_all(Path::new(REPOSITORY))?);
    let mut results = match &options.draw {
        Some(data) => Results::from_lines(&std::fs::read_to_string(data)?)?,
        None => {
            let Plan { tasks, mut notes, .. } = Plan::new(&options);
            measure::measure(&tasks, &mut notes);
            Results { run: machine::run(&options), ..notes.into_results() }
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
