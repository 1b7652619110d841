//! Runs an example of this crate, and reads its summary.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The example's binary lies beside the test: `<profile>/examples/<name>` and `<profile>/deps/<test>-<hash>`. `options` are those
/// with which `cargo build` builds it.
pub(crate) fn command(name: &str, options: &str) -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).expect("it is <profile>/deps/<test>");
    let example: PathBuf = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "{} is missing: run `cargo build {options}--example {name}`", example.display());
    let mut command = Command::new(example);
    command.stdin(Stdio::null());
    command
}

/// The number after `name` at the start of a line of the summary.
pub(crate) fn value(summary: &str, name: &str) -> u64 {
    let line = summary.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
    let word = line.and_then(|line| line.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number for {name:?} in:\n{summary}"))
}
