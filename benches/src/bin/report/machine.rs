//! Where and of what a run was made.

use crate::options::Options;
use crate::results::Run;
use std::process::Command;

pub fn run(options: &Options) -> Run {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |line| line.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    Run {
        machine: format!("{cpu}, {cores} cores, {}", std::env::consts::OS),
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
