//! Runs the program as its users do. `cargo test` builds it; `cargo test --test reconcile` does not: run
//! `cargo build -p reconcile --examples` first.

#![cfg(not(miri))] // Miri starts no processes
#![cfg_attr(not(unix), allow(dead_code, unused_imports))] // the tests with Ctrl-C are for Unix

mod support {
    pub(crate) mod example;
}

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use support::example::{TempDir, command};

const LONG: Duration = Duration::from_secs(60);
const HELLO: &str = ": 5 bytes, crc32 3610a686";

fn once(path: &Path) -> Output {
    command().arg(path).arg("--once").output().expect("it starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number before a word of the summary.
fn number(summary: &str, name: &str) -> u64 {
    let before = summary.rsplit_once(&format!(" {name}")).unwrap_or_else(|| panic!("no {name:?} in:\n{summary}")).0;
    before.rsplit([' ', '\n']).next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{summary}"))
}

#[test]
fn one_pass_looks_at_every_file_once() {
    const FILES: usize = 2000;
    let dir = TempDir::new();
    let mut paths = 1; // the directory
    for sub in ["a/b/c", ".git", "a/target"] {
        fs::create_dir_all(dir.path().join(sub)).unwrap();
    }
    for i in 0..FILES {
        let sub = ["", "a", "a/b", "a/b/c"][i % 4];
        fs::write(dir.path().join(sub).join(format!("file {i}")), "x".repeat(i % 300)).unwrap();
    }
    paths += FILES + 3; // and a, b and c
    for skipped in [".git/HEAD", "a/target/out"] {
        fs::write(dir.path().join(skipped), "not mine").unwrap();
    }
    // Files that are not regular must neither be read nor make the program fail or wait.
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        symlink("..", dir.path().join("a/loop")).unwrap();
        assert!(Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap().success());
        paths += 3;
    }
    let output = once(dir.path());
    let summary = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{summary}");
    for (name, expected) in [("files", FILES), ("runs", paths), ("retried", 0), ("given up", 0), ("delayed", 0)] {
        assert_eq!(number(&summary, name), expected as u64, "{name}: {summary}");
    }
    assert_eq!(summary.matches("new      ").count(), FILES, "{summary}");
    assert!(summary.contains(": 299 bytes, crc32 ") && summary.contains("file 1999"), "{summary}");
}

#[test]
fn a_single_file_can_be_the_root() {
    let dir = TempDir::new();
    fs::write(dir.path().join("neighbour"), "no").unwrap();
    fs::write(dir.path().join("file"), "hello").unwrap();
    let summary = stdout(&once(&dir.path().join("file")));
    assert!(summary.contains(&format!("file{HELLO}")), "{summary}");
    assert_eq!((number(&summary, "files"), number(&summary, "runs")), (1, 1), "{summary}");
}

/// Even root cannot read the memory of a process, which is a regular file, at offset 0.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_is_given_up_after_five_retries() {
    let output = once(Path::new("/proc/self/mem"));
    let summary = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(summary.contains("mem: given up after 5 retries: Input/output error (os error 5)\n"), "{summary}");
    for (name, expected) in [("files", 0), ("runs", 6), ("retried", 5), ("given up", 1), ("delayed", 0)] {
        assert_eq!(number(&summary, name), expected, "{name}: {summary}");
    }
}

#[test]
fn wrong_options_are_errors() {
    let wrong: [(&[&str], &str); 7] = [
        (&["no-such-thing"], "no-such-thing: "),
        (&["--no-such-option"], "--no-such-option"),
        (&["--debounce"], "--debounce"),
        (&["--debounce", "often"], "often"),
        (&["--verify-every", "-1"], "-1"),
        (&["--once=5"], "--once"),
        (&["--metrics", "localhost"], if cfg!(feature = "metrics") { "localhost" } else { "--metrics" }),
    ];
    for (options, says) in wrong {
        let Output { status, stdout, stderr } = command().arg("--once").args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!((status.code(), &*stdout), (Some(1), &b""[..]), "{options:?}: {stderr}");
        assert!(stderr.contains(says), "{options:?}: {stderr}");
    }
}

#[test]
fn help_names_each_option() {
    let help = stdout(&command().arg("--help").output().unwrap());
    for option in ["--once", "--debounce", "--verify-every", "--metrics"] {
        assert!(help.contains(&format!("\n  {option} ")), "{help}");
    }
}

/// The running program, and the lines that it prints. Killed when dropped, so that a test that fails leaves no process behind.
struct Running {
    child: Child,
    lines: Receiver<String>,
    read: String,
}

impl Running {
    fn start(path: &Path, options: &[&str]) -> Self {
        Self::spawn(command(), path, options)
    }

    fn spawn(mut command: Command, path: &Path, options: &[&str]) -> Self {
        let mut child = command.arg(path).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        Self { child, lines, read: String::new() }
    }

    /// Reads up to a line with this start and this end. A file that is written meanwhile may be read before it has its content.
    fn wait_for(&mut self, start: &str, end: &str) {
        let deadline = Instant::now() + LONG;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.read += &format!("{line}\n");
                    if line.starts_with(start) && line.ends_with(end) {
                        return;
                    }
                }
                Err(error) => panic!("no line {start:?} .. {end:?}: {error}; there were:\n{}", self.read),
            }
        }
    }

    fn interrupt(&self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
    }

    /// Interrupts it, and reads all that is left of the output.
    fn finish(mut self) -> String {
        self.interrupt();
        self.wait_for("", " delayed");
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.read);
        std::mem::take(&mut self.read)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(unix)]
#[test]
fn changes_are_seen_and_ctrl_c_drains() {
    let dir = TempDir::new();
    let outside = TempDir::new();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("old"), "as it was").unwrap();
    fs::create_dir(at("target")).unwrap();
    (0..100).for_each(|i| fs::write(at(&format!("steady {i}")), "").unwrap());
    let mut running = Running::start(dir.path(), &["--verify-every", "3600"]);
    running.wait_for("watching", "; Ctrl-C ends");
    running.wait_for("new", "old: 9 bytes, crc32 27bc9db0");

    fs::write(at("target/out"), "not mine").unwrap();
    fs::write(at("fresh"), "hello").unwrap();
    running.wait_for("", &format!("fresh{HELLO}"));
    fs::write(at("old"), "hello").unwrap();
    running.wait_for("changed", &format!("old{HELLO}"));
    fs::remove_file(at("old")).unwrap();
    running.wait_for("gone", "old");
    // The file in a directory that is moved has no event.
    fs::create_dir(outside.path().join("sub")).unwrap();
    fs::write(outside.path().join("sub/file"), "hello").unwrap();
    fs::rename(outside.path().join("sub"), at("sub")).unwrap();
    running.wait_for("new", &format!("file{HELLO}"));
    // The run of the directory adds none of the files, as they have a check to come.
    permit(dir.path(), 0o700);
    fs::write(at("last"), "hello").unwrap();
    running.wait_for("", &format!("last{HELLO}"));

    let output = running.finish();
    assert_eq!(number(&output, "files"), 103, "steady, fresh, file and last: {output}");
    // These and the directories, but none that was in the hands of a worker.
    assert!((100..=105).contains(&number(&output, "delayed")), "{output}");
    // Reading is no change, or each run would cause the next.
    assert!((109..150).contains(&number(&output, "runs")), "{output}");
    assert!(!output.contains("target"), "{output}");
}

/// Linux only: elsewhere, events may be late, or about earlier changes.
#[cfg(target_os = "linux")]
#[test]
fn a_burst_of_writes_causes_one_run() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    fs::write(&file, "as it was").unwrap();
    let mut running = Running::start(dir.path(), &["--debounce", "2000"]);
    running.wait_for("new", "file: 9 bytes, crc32 27bc9db0");
    let start = Instant::now();
    for n in 0..100 {
        fs::write(&file, format!("draft {n}")).unwrap();
    }
    fs::write(&file, "hello").unwrap();
    let is_burst = start.elapsed() < Duration::from_secs(1); // if this machine did not stop meanwhile
    running.wait_for("changed", &format!("file{HELLO}"));
    let waited = start.elapsed();
    let output = running.finish();
    assert!(!is_burst || waited >= Duration::from_secs(2), "after {waited:?}: {output}");
    assert!(!is_burst || number(&output, "runs") == 3, "the directory, the file, and once more: {output}");
    assert!(number(&output, "coalesced") >= 100, "{output}");
}

#[cfg(unix)]
#[test]
fn verifying_finds_changes_without_events() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    fs::write(&file, "hello").unwrap();
    // Each event has its effect after an hour.
    let mut running = Running::start(dir.path(), &["--debounce", "3600000", "--verify-every", "1"]);
    running.wait_for("new", &format!("file{HELLO}"));
    // Twice, because verifying must go on.
    for (text, crc) in [("jello", "4cd0f5e6"), ("hello", "3610a686")] {
        fs::write(&file, text).unwrap();
        running.wait_for("changed", &format!("file: 5 bytes, crc32 {crc}"));
    }
    fs::remove_file(&file).unwrap();
    running.wait_for("gone", "file");
    let output = running.finish();
    assert_eq!(number(&output, "files"), 0, "{output}");
}

/// The program, started so that permissions apply to it. `None` if that cannot be done here.
#[cfg(unix)]
fn unprivileged(locked: &Path) -> Option<Command> {
    if File::open(locked).is_err() {
        return Some(command());
    }
    // Permissions do not apply to root, except without these two capabilities.
    let without = ["--bounding-set", "-dac_override,-dac_read_search"];
    let kept_out = Command::new("setpriv").args(without).arg("cat").arg(locked).output();
    if kept_out.as_ref().is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("Permission denied")) {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(without).arg(command().get_program());
        return Some(setpriv);
    }
    println!("skipped: permissions do not apply to this user, and setpriv does not help: {kept_out:?}");
    None
}

#[cfg(unix)]
fn permit(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
const GIVEN_UP: &str = ": given up after 5 retries: Permission denied (os error 13)";

/// Linux only: elsewhere, events may be late, or about earlier changes.
#[cfg(target_os = "linux")]
#[test]
fn what_was_given_up_is_looked_at_when_it_can_be_read() {
    let dir = TempDir::new();
    let (file, sub) = (dir.path().join("file"), dir.path().join("sub"));
    fs::write(&file, "hello").unwrap();
    permit(&file, 0);
    let Some(command) = unprivileged(&file) else { return };
    let mut running = Running::spawn(command, dir.path(), &["--verify-every", "3600"]);
    running.wait_for("gave up", &format!("file{GIVEN_UP}"));
    fs::create_dir(&sub).unwrap();
    permit(&sub, 0);
    running.wait_for("gave up", &format!("sub{GIVEN_UP}"));

    permit(&file, 0o600);
    running.wait_for("new", &format!("file{HELLO}"));
    permit(&sub, 0o700);
    fs::write(sub.join("below"), "hello").unwrap();
    running.wait_for("", &format!("below{HELLO}"));
    let output = running.finish();
    assert_eq!((number(&output, "retried"), number(&output, "given up")), (10, 2), "{output}");
}

/// A directory in the tree that cannot be read: its files have no events, and all else works.
#[cfg(unix)]
#[test]
fn the_run_of_a_directory_adds_what_has_no_delay() {
    let dir = TempDir::new();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    permit(&locked, 0);
    let Some(command) = unprivileged(&locked) else { return };
    let mut running = Running::spawn(command, dir.path(), &["--verify-every", "1"]);
    for _ in 0..3 {
        running.wait_for("gave up", &format!("locked{GIVEN_UP}"));
    }
    fs::write(dir.path().join("file"), "hello").unwrap();
    running.wait_for("", &format!("file{HELLO}"));
    running.finish();
}

/// Linux only: a sparse file takes no room there.
#[cfg(target_os = "linux")]
#[test]
fn a_second_ctrl_c_exits_at_once() {
    let dir = TempDir::new();
    File::create(dir.path().join("endless")).unwrap().set_len(1 << 40).unwrap(); // a worker reads for minutes
    let mut running = Running::start(dir.path(), &[]);
    running.wait_for("watching", "");
    // When the second of these is seen, the run of the directory is over, and a worker has the endless file, or will have it.
    fs::write(dir.path().join("short"), "hello").unwrap();
    running.wait_for("", &format!("short{HELLO}"));
    fs::write(dir.path().join("later"), "hello").unwrap();
    running.wait_for("", &format!("later{HELLO}"));
    let deadline = Instant::now() + LONG;
    // Two signals may arrive as one, so there are more than two.
    let status = loop {
        running.interrupt();
        match running.child.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(Instant::now() < deadline, "it does not end"),
        }
    };
    assert_eq!(status.code(), Some(130));
}
