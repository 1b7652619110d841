//! The machine, the commit and the compiler of a measurement.

use std::process::Command;

/// The processor's name.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name"));
    name.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':'])).to_owned()
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

pub fn commit() -> String {
    output("git", &["describe", "--always", "--dirty"])
}

pub fn compiler() -> String {
    output("rustc", &["--version"])
}

/// The day, as 2026-11-24.
pub fn day() -> String {
    output("date", &["+%Y-%m-%d"])
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
