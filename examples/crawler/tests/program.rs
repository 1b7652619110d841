//! Runs the program as its users do.

#![cfg(not(miri))] // Miri starts no processes

use std::process::{Command, Output};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_crawler"))
}

#[test]
fn it_prints_a_summary() {
    let options = ["--hosts", "3", "--pages", "20", "--rate", "1000", "--timeout", "60000", "--workers", "2"];
    let Output { status, stdout, .. } = program().args(options).output().unwrap();
    let stdout = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{stdout}");
    let missing = stdout.matches(": given up without a retry: 404 Not Found\n").count();
    assert!(stdout.starts_with("crawling http://h0.test/p/0: 3 hosts of 20 pages each\n"), "{stdout}");
    assert!(stdout.contains(&format!("\n60 pages, {missing} given up, 0 retries\n0 left, 0 of them")), "{stdout}");
}

#[test]
fn chaos_means_errors() {
    let options = ["--chaos", "--hosts", "1", "--rate", "1000", "--timeout", "250", "--max-retries", "2"];
    let stdout = String::from_utf8(program().args(options).output().unwrap().stdout).unwrap();
    let broken =
        "http://h0.test/p/59: given up after 2 retries: HTTP status server error (500 Internal Server Error)\n";
    assert!(stdout.contains(broken), "{stdout}");
}

#[test]
fn wrong_options_are_errors() {
    let wrong: [&[&str]; 7] = [
        &["--rate", "0"],
        &["--rate", "NaN"],
        &["--workers", "0"],
        &["--hosts", "0"],
        &["--pages", "many"],
        &["--no-such-option"],
        &["file"],
    ];
    for options in wrong {
        let Output { status, stdout, stderr } = program().args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!((status.code(), &*stdout), (Some(1), &b""[..]), "{options:?}: {stderr}");
        assert!(stderr.starts_with("Error: "), "{stderr}");
    }
    assert!(program().arg("--help").output().unwrap().stdout.starts_with(b"Crawls a site"));
}

#[cfg(unix)]
mod ctrl_c {
    use super::program;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::{Duration, Instant};

    /// The running program. Killed when dropped, so that a test that fails leaves no process behind.
    struct Running {
        child: Child,
        stdout: BufReader<ChildStdout>,
        read: String,
    }

    impl Running {
        fn start(options: &[&str]) -> Self {
            let mut child = program().args(options).stdout(Stdio::piped()).spawn().unwrap();
            let stdout = BufReader::new(child.stdout.take().unwrap());
            Self { child, stdout, read: String::new() }
        }

        /// Reads up to a line with this start.
        fn wait_for(&mut self, start: &str) {
            let before = self.read.len();
            while !self.read[before..].lines().any(|line| line.starts_with(start)) {
                assert!(self.stdout.read_line(&mut self.read).unwrap() > 0, "no line {start:?} in:\n{}", self.read);
            }
        }

        fn interrupt(&self) {
            assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        }

        /// The rest of the output.
        fn finish(mut self) -> String {
            self.wait_for("took");
            assert!(self.child.wait().unwrap().success(), "{}", self.read);
            std::mem::take(&mut self.read)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn ctrl_c_finishes_what_is_queued() {
        let mut running = Running::start(&["--hosts", "1", "--pages", "40", "--rate", "20"]);
        running.wait_for("gave up"); // a link of one of the first pages leads to none
        running.interrupt();
        running.wait_for("finishing");
        let output = running.finish();
        assert!(output.contains("\n0 left, "), "{output}");
    }

    #[test]
    fn a_second_ctrl_c_leaves_the_rest() {
        // This would take hours.
        let mut running = Running::start(&["--hosts", "1", "--pages", "100000", "--rate", "20"]);
        running.wait_for("gave up");
        running.interrupt();
        running.wait_for("finishing");
        let start = Instant::now();
        running.interrupt();
        let output = running.finish();
        assert!(start.elapsed() < Duration::from_secs(9), "it ends after ten by itself: {output}");
        assert!(!output.contains("\n0 left, "), "{output}");
    }
}
