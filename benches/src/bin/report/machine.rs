//! Where and of what a run was made.

use crate::options::Options;
use crate::results::Run;
use keyqueue_benches::machine::processor;
use std::process::Command;

pub fn run(options: &Options) -> Run {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Run {
        machine: format!("{}, {cores} cores, {}", processor(), std::env::consts::OS),
        commit: output("git", &["describe", "--always", "--dirty"]),
        compiler: output("rustc", &["--version"]),
        command: command(options),
        quick: options.quick,
        rounds: options.rounds,
        few_rounds: options.few_rounds(),
        wakes: options.wakes,
        delays: options.delays,
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What measures the same again, wherever it was written.
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
