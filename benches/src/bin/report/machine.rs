//! The machine and the code of a run.

use crate::options::Options;
use crate::results::Run;
use keyqueue_benches::machine::{commit, compiler, cores, processor};

pub fn run(options: &Options) -> Run {
    Run {
        machine: format!("{}, {} cores, {}", processor(), cores(), std::env::consts::OS),
        commit: commit(),
        compiler: compiler(),
        command: command(options),
        quick: options.quick,
        rounds: options.rounds,
        few_rounds: options.few_rounds(),
        wakes: options.wakes,
        delays: options.delays,
    }
}

/// The command that measures the same again. The directory of `--write` is left out.
fn command(options: &Options) -> String {
    let Options { quick, rounds, ops, wakes, delays, keys, only, .. } = options;
    let features = if cfg!(feature = "kube") { "" } else { "--no-default-features " };
    let mut command = format!("cargo run --release --manifest-path benches/Cargo.toml {features}--bin report --");
    if *quick {
        command += " --quick";
    }
    command += &format!(" --rounds {rounds} --ops {ops} --wakes {wakes} --delays {delays} --keys {keys}");
    if !only.is_empty() {
        command += &format!(" --only '{only}'");
    }
    command + " --write"
}
