//! What `fleet-chaos` starts ends with it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The state of a process, as in `/proc/<pid>/stat`: `Z` if it has ended and its parent has not waited for it.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// A shell stands for the parent: it starts two processes, stops one of them, and is killed.
#[test]
fn a_process_ends_with_its_parent_even_if_it_is_stopped() {
    let script = r#""$0" --tied $$ sleep 1000 & echo $!; "$0" --tied $$ sleep 1000 & echo $!; wait"#;
    let mut shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_fleet-chaos")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let lines = BufReader::new(shell.stdout.take().expect("it is a pipe")).lines();
    let children: Vec<String> = lines.take(2).map(|line| line.expect("the shell writes")).collect();
    let name = |pid: &str| std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("comm")).unwrap_or_default();
    for child in &children {
        until("both execute their program", || name(child).trim() == "sleep");
    }
    let stopped = Command::new("kill").args(["-STOP", &children[0]]).status().expect("there is a kill");
    assert!(stopped.success());
    until("one is stopped", || state(&children[0]) == Some('T'));
    shell.kill().expect("the shell runs");
    shell.wait().expect("the shell has ended");
    for child in &children {
        until("each ends with its parent", || matches!(state(child), None | Some('Z')));
    }
}
