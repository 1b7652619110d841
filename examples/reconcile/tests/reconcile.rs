//! Runs the example as its users do. `cargo test` builds it. `cargo test --test reconcile` does not: run
//! `cargo build --example reconcile` first.

#![cfg(not(miri))] // Miri starts no processes

mod support {
    pub(crate) mod example;
}

use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::example::value;

fn example() -> Command {
    support::example::command("reconcile", "")
}

fn once(path: &Path) -> Output {
    example().arg(path).arg("--once").output().expect("the example starts")
}

fn stdout_of_success(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "stdout:\n{stdout}\nstderr:\n{stderr}");
    stdout
}

#[test]
fn one_pass_looks_at_every_regular_file_once() {
    const FILES: u64 = 2000; // Enough for work to begin before the listing ends.
    let dir = tempfile::tempdir().unwrap();
    for sub in ["a/b/c", ".git", "a/target"] {
        std::fs::create_dir_all(dir.path().join(sub)).unwrap();
    }
    let mut bytes = 0;
    for i in 0..FILES {
        let sub = ["", "a", "a/b", "a/b/c"][i as usize % 4];
        std::fs::write(dir.path().join(sub).join(format!("file {i}")), "x".repeat(i as usize % 300)).unwrap();
        bytes += i % 300;
    }
    for skipped in [".git/HEAD", "a/target/out"] {
        std::fs::write(dir.path().join(skipped), "not mine").unwrap();
    }
    // Files that are not regular must neither be read nor make the example fail.
    #[cfg(unix)]
    {
        use std::os::unix::{fs::symlink, net::UnixListener};
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        symlink("..", dir.path().join("a/loop")).unwrap();
        UnixListener::bind(dir.path().join("socket")).unwrap();
        let made = Command::new("mkfifo").arg(dir.path().join("fifo")).status().expect("mkfifo is POSIX");
        assert!(made.success());
    }

    let summary = stdout_of_success(&once(dir.path()));
    assert_eq!(value(&summary, "keys seen"), FILES, "{summary}");
    assert_eq!(value(&summary, "adds"), FILES, "{summary}");
    assert_eq!(value(&summary, "coalesced"), 0, "{summary}");
    assert_eq!(value(&summary, "deferred"), 0, "{summary}");
    assert_eq!(value(&summary, "debounced"), 0, "{summary}");
    assert_eq!(value(&summary, "runs"), FILES, "{summary}");
    assert_eq!(value(&summary, "verified"), 0, "{summary}");
    assert_eq!(value(&summary, "dropped"), 0, "no check is delayed: {summary}");
    assert_eq!(value(&summary, "files"), FILES, "{summary}");
    assert_eq!(value(&summary, "unreadable"), 0, "{summary}");
    assert_eq!(value(&summary, "bytes"), bytes, "{summary}");
    for measured in ["wait", "work"] {
        let line = summary.lines().find(|line| line.starts_with(measured)).expect("a line of the summary");
        assert!(!line.ends_with("ns"), "a file takes microseconds: {line}");
    }
}

#[test]
fn a_single_file_can_be_the_root() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("neighbour"), "no").unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "hello").unwrap();
    let summary = stdout_of_success(&once(&file));
    assert_eq!((value(&summary, "runs"), value(&summary, "bytes")), (1, 5), "{summary}");
}

/// Linux only: macOS and Windows have no such names.
#[cfg(target_os = "linux")]
#[test]
fn a_name_need_not_be_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\xfe")), "hello").unwrap();
    let summary = stdout_of_success(&once(dir.path()));
    assert_eq!((value(&summary, "runs"), value(&summary, "bytes")), (1, 5), "{summary}");
}

/// Root can read files whatever their permissions. But even root cannot read the memory of a process, which is a regular file,
/// at offset 0.
#[cfg(target_os = "linux")]
fn once_unreadable(options: &[&str], retries: u64, tried: &str) {
    let output = example().args(["--once", "/proc/self/mem"]).args(options).output().expect("the example starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary = String::from_utf8_lossy(&output.stdout);
    for (name, expected) in [
        ("keys seen", 1),
        ("runs", retries + 1),
        ("retried", retries),
        ("verified", 0),
        ("dropped", 0),
        ("files", 1),
        ("unreadable", 1),
        ("given up", 1),
    ] {
        assert_eq!(value(&summary, name), expected, "{name}: {summary}");
    }
    // Printed when it happens, and in the summary.
    for start in ["gave up  /proc/", "gave up: /proc/"] {
        let lines = summary.lines().filter(|line| line.starts_with(start) && line.ends_with(tried));
        assert_eq!(lines.count(), 1, "{start}: {summary}");
    }
    assert!(!summary.contains("unreadable: /proc/"), "the file is listed once: {summary}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_read_is_given_up_after_its_retries() {
    once_unreadable(&[], 5, "Input/output error (os error 5), tried 6 times");
    once_unreadable(&["--max-retries", "2"], 2, "Input/output error (os error 5), tried 3 times");
}

#[cfg(target_os = "linux")]
#[test]
fn without_retries_a_file_is_tried_once() {
    once_unreadable(&["--max-retries", "0"], 0, "Input/output error (os error 5), tried once");
}

/// The example, started so that permissions apply to it. `None` if that cannot be done here; the reason is printed.
#[cfg(unix)]
fn unprivileged_example() -> Option<Command> {
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    std::fs::write(&locked, "").unwrap();
    permit(&locked, 0);
    if std::fs::File::open(&locked).is_err() {
        return Some(example());
    }
    // Permissions do not apply to root, except without these two capabilities.
    let without = ["--bounding-set", "-dac_override,-dac_read_search"];
    let kept_out = Command::new("setpriv").args(without).arg("cat").arg(&locked).output();
    if kept_out.as_ref().is_ok_and(|output| String::from_utf8_lossy(&output.stderr).contains("Permission denied")) {
        let mut command = Command::new("setpriv");
        command.args(without).arg(example().get_program()).stdin(Stdio::null());
        return Some(command);
    }
    println!("skipped: permissions do not apply to this user, and setpriv does not help: {kept_out:?}");
    None
}

#[cfg(unix)]
fn permit(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[cfg(unix)]
#[test]
fn the_summary_lists_only_some_of_many_given_up_files() {
    let Some(mut example) = unprivileged_example() else { return };
    let dir = tempfile::tempdir().unwrap();
    for i in 0..23 {
        let file = dir.path().join(format!("locked {i}"));
        std::fs::write(&file, "no").unwrap();
        permit(&file, 0);
    }
    std::fs::write(dir.path().join("open"), "hello").unwrap();
    let output = example.arg(dir.path()).args(["--once", "--max-retries", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary = String::from_utf8_lossy(&output.stdout);
    let expected = [("runs", 47), ("retried", 23), ("files", 24), ("unreadable", 23), ("given up", 23), ("bytes", 5)];
    for (name, expected) in expected {
        assert_eq!(value(&summary, name), expected, "{name}: {summary}");
    }
    assert_eq!(summary.lines().filter(|line| line.starts_with("gave up  ")).count(), 23, "{summary}");
    assert_eq!(summary.lines().filter(|line| line.starts_with("gave up: ")).count(), 21, "{summary}");
    assert_eq!(summary.lines().last(), Some("gave up: and 3 more"));
}

#[test]
fn a_missing_path_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = once(&dir.path().join("no-such-thing"));
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no-such-thing"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn zero_workers_is_an_error() {
    let output = example().args(["--once", "--workers", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--workers"));
}

#[cfg(not(feature = "metrics"))]
#[test]
fn metrics_without_the_feature_are_an_error_that_says_how_to_get_it() {
    let output = example().args(["--once", "--metrics", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--features metrics"), "{stderr}");
}

#[cfg(unix)]
mod watching {
    use super::{example, permit, unprivileged_example, value};
    use std::io::{BufRead, BufReader, Read};
    use std::path::Path;
    use std::process::{Child, Command, ExitStatus, Stdio};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(60);

    /// A running example, and the lines it prints. Killed when dropped, so that a test that fails leaves no process behind.
    struct Running {
        child: Child,
        lines: Receiver<String>,
        read: String,
    }

    fn forward(from: impl Read + Send + 'static, to: Sender<String>) {
        let lines = BufReader::new(from).lines().map_while(Result::ok);
        std::thread::spawn(move || lines.for_each(|line| drop(to.send(line))));
    }

    impl Running {
        fn start(path: &Path, options: &[&str]) -> Self {
            Self::spawn(example(), path, options)
        }

        fn spawn(mut command: Command, path: &Path, options: &[&str]) -> Self {
            command.arg(path).args(["--workers", "2"]).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (sender, lines) = mpsc::channel();
            forward(child.stdout.take().unwrap(), sender.clone());
            forward(child.stderr.take().unwrap(), sender);
            Self { child, lines, read: String::new() }
        }

        /// Reads up to a line with this start and this end.
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
            let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
            assert!(sent.success());
        }

        /// Reads all that is left of the output.
        fn finish(mut self) -> (ExitStatus, String) {
            let deadline = Instant::now() + LONG;
            while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                self.read += &format!("{line}\n");
            }
            assert!(Instant::now() < deadline, "it does not end; it printed:\n{}", self.read);
            (self.child.wait().unwrap(), std::mem::take(&mut self.read))
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    #[test]
    fn changes_are_seen_and_ctrl_c_drains() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "as it was").unwrap();
        let mut running = Running::start(dir.path(), &[]);
        running.wait_for("watching", ": 1 files, 0 unreadable");

        let hello = ": 5 bytes, crc32 3610a686";
        std::fs::write(dir.path().join("fresh"), "hello").unwrap();
        running.wait_for("", &format!("fresh{hello}"));
        std::fs::write(dir.path().join("old"), "hello").unwrap();
        running.wait_for("changed", &format!("old{hello}"));
        std::fs::remove_file(dir.path().join("old")).unwrap();
        running.wait_for("gone", "old");

        // A directory is moved in and out. The file in it has no events of its own.
        std::fs::create_dir(outside.path().join("sub")).unwrap();
        std::fs::write(outside.path().join("sub/file"), "hello").unwrap();
        std::fs::rename(outside.path().join("sub"), dir.path().join("sub")).unwrap();
        running.wait_for("new", &format!("file{hello}"));
        std::fs::rename(dir.path().join("sub"), outside.path().join("sub")).unwrap();
        running.wait_for("gone", "file");

        running.interrupt();
        let (status, summary) = running.finish();
        assert_eq!(status.code(), Some(0), "{summary}");
        assert_eq!(value(&summary, "files"), 1, "{summary}");
        assert!(value(&summary, "adds") >= value(&summary, "runs"), "{summary}");
        assert!(value(&summary, "runs") >= 6, "{summary}");
    }

    /// Writes to a file repeatedly for this time, then expects one check of it, when it has been quiet.
    #[cfg(target_os = "linux")]
    fn is_checked_when_quiet(write_for: Duration) {
        const QUIET: Duration = Duration::from_secs(2);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "as it was").unwrap();
        let mut running = Running::start(dir.path(), &["--debounce", "2000", "--verify-every", "2"]);
        running.wait_for("watching", ": 1 files, 0 unreadable");

        let start = Instant::now();
        let (mut last, mut longest_gap, mut writes) = (start, Duration::ZERO, 0);
        while writes < 20 || start.elapsed() < write_for {
            std::thread::sleep(write_for / 500);
            longest_gap = longest_gap.max(last.elapsed());
            last = Instant::now();
            writes += 1;
            std::fs::write(&file, format!("draft {writes}")).unwrap();
        }
        longest_gap = longest_gap.max(last.elapsed());
        last = Instant::now();
        std::fs::write(&file, "hello").unwrap();
        running.wait_for("changed", "file: 5 bytes, crc32 3610a686");
        let waited = last.elapsed();

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(value(&output, "debounced") > writes, "{output}");
        // If this machine stopped for so long that the file was quiet between two writes, an earlier check is right.
        if longest_gap < QUIET / 2 {
            assert!(waited >= QUIET, "too early, after {waited:?}: {output}");
            assert_eq!(value(&output, "runs") - value(&output, "verified"), 2, "the first pass and one more: {output}");
            assert_eq!(output.lines().filter(|line| line.contains("crc32")).count(), 1, "{output}");
        }
    }

    /// Linux only: elsewhere, events may be merged, late, or about earlier changes.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_burst_of_writes_causes_one_check() {
        is_checked_when_quiet(Duration::ZERO);
    }

    /// Linux only: elsewhere, events may be merged, late, or about earlier changes.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_is_written_for_long_is_checked_when_it_is_quiet() {
        is_checked_when_quiet(Duration::from_secs(5));
    }

    #[test]
    fn verifying_finds_changes_without_events() {
        let dir = tempfile::tempdir().unwrap();
        let [steady, rotten, fresh] = ["steady", "rotten", "fresh"].map(|name| dir.path().join(name));
        std::fs::write(&steady, "hello").unwrap();
        std::fs::write(&rotten, "hello").unwrap();
        let modified = std::fs::metadata(&rotten).unwrap().modified().unwrap();
        let mut running = Running::start(dir.path(), &["--no-watch", "--verify-every", "1"]);
        running.wait_for("watching", ": 2 files, 0 unreadable");

        // Like a decaying disk: other bytes, but the same length and time. Twice, because verifying must go on.
        for (text, crc) in [("jello", "4cd0f5e6"), ("hello", "3610a686")] {
            std::fs::write(&rotten, text).unwrap();
            std::fs::File::options().write(true).open(&rotten).unwrap().set_modified(modified).unwrap();
            running.wait_for("drifted", &format!("rotten: 5 bytes, crc32 {crc}"));
        }
        std::fs::write(&fresh, "").unwrap();
        running.wait_for("new", "fresh: 0 bytes, crc32 00000000");
        std::fs::remove_file(&rotten).unwrap();
        running.wait_for("gone", "rotten");

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(value(&output, "verified") >= 4, "{output}");
        assert_eq!(value(&output, "debounced"), 0, "{output}");
        assert!(!output.contains("steady") && !output.contains("changed"), "{output}");
    }

    #[test]
    fn ctrl_c_drops_delayed_checks_and_a_file_that_is_gone_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        for name in ["a", "b", "c", "sub/d"] {
            std::fs::write(dir.path().join(name), "hello").unwrap();
        }
        let mut running = Running::start(dir.path(), &["--verify-every", "3600"]);
        running.wait_for("watching", ": 4 files, 0 unreadable");
        std::fs::remove_file(dir.path().join("c")).unwrap();
        running.wait_for("gone", "c");
        std::fs::rename(dir.path().join("sub"), outside.path().join("sub")).unwrap();
        running.wait_for("gone", "sub/d");
        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!(value(&output, "dropped"), 3, "a, b and the directory: {output}");
    }

    /// Linux only: a sparse file takes no room there.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_second_ctrl_c_exits_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::start(dir.path(), &[]);
        running.wait_for("watching", ": 0 files, 0 unreadable");
        // The first worker reads for minutes. It has begun when the other worker is done with the file that was queued next.
        std::fs::File::create(dir.path().join("endless")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(dir.path().join("short"), "hello").unwrap();
        running.wait_for("", "short: 5 bytes, crc32 3610a686");

        running.interrupt();
        running.wait_for("stopping", "");
        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(130), "{output}");
    }

    const HELLO: &str = ": 5 bytes, crc32 3610a686";

    /// A directory with these files, which cannot be read.
    fn locked(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(dir.path().join(name), "hello").unwrap();
            permit(&dir.path().join(name), 0);
        }
        dir
    }

    /// Without events and verifying, only a retry sees changes.
    const RETRIES_ONLY: [&str; 5] = ["--no-watch", "--verify-every", "0", "--max-retries", "40"];

    #[test]
    fn a_retry_finds_files_that_became_readable_or_are_gone() {
        let Some(example) = unprivileged_example() else { return };
        let dir = locked(&["opened", "removed", "locked"]);
        let mut running = Running::spawn(example, dir.path(), &RETRIES_ONLY);
        running.wait_for("watching", ": 3 files, 3 unreadable");
        permit(&dir.path().join("opened"), 0o600);
        running.wait_for("changed", &format!("opened{HELLO}"));
        std::fs::remove_file(dir.path().join("removed")).unwrap();
        running.wait_for("gone", "removed");

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "unreadable files are no error without --once: {output}");
        assert!(value(&output, "retried") >= 2, "{output}");
        assert_eq!(value(&output, "verified"), 0, "{output}");
        assert_eq!((value(&output, "files"), value(&output, "unreadable")), (2, 1), "{output}");
        assert_eq!(value(&output, "given up"), 0, "{output}");
        assert!(!output.contains("gave up"), "{output}");
        let listed =
            |line: &str| line.starts_with("unreadable: ") && line.ends_with("locked: Permission denied (os error 13)");
        assert!(output.lines().any(listed), "{output}");
    }

    #[test]
    fn a_directory_that_cannot_be_listed_is_tried_again() {
        let Some(example) = unprivileged_example() else { return };
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("file"), "hello").unwrap();
        permit(&sub, 0);
        let mut running = Running::spawn(example, dir.path(), &RETRIES_ONLY);
        running.wait_for("watching", ": 1 files, 1 unreadable");
        permit(&sub, 0o700);
        running.wait_for("readable", "sub");
        running.wait_for("new", &format!("sub/file{HELLO}"));

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!((value(&output, "files"), value(&output, "unreadable")), (1, 0), "{output}");
        assert!(!output.contains("gone"), "{output}");
    }

    /// Linux only: elsewhere, events may be merged, late, or about earlier changes.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_event_after_a_give_up_starts_new_retries() {
        let Some(example) = unprivileged_example() else { return };
        let dir = locked(&["file"]);
        let options = ["--max-retries", "2", "--verify-every", "0"];
        let mut running = Running::spawn(example, dir.path(), &options);
        let given_up = "file: unreadable: Permission denied (os error 13), tried 3 times";
        running.wait_for("gave up", given_up);
        if !running.read.contains("watching") {
            running.wait_for("watching", "");
        }
        permit(&dir.path().join("file"), 0o000); // an event without a change
        running.wait_for("gave up", given_up);
        permit(&dir.path().join("file"), 0o600);
        running.wait_for("changed", &format!("file{HELLO}"));

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!(value(&output, "retried"), 4, "{output}");
        assert_eq!((value(&output, "unreadable"), value(&output, "given up")), (0, 0), "{output}");
    }

    /// Linux only: elsewhere, events may be merged, late, or about earlier changes.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_directory_that_was_given_up_is_tried_when_its_permissions_change() {
        let Some(example) = unprivileged_example() else { return };
        let dir = tempfile::tempdir().unwrap();
        let mut running = Running::spawn(example, dir.path(), &["--max-retries", "2", "--verify-every", "0"]);
        running.wait_for("watching", ": 0 files, 0 unreadable");
        let sub = dir.path().join("sub");
        std::fs::create_dir(&sub).unwrap();
        permit(&sub, 0);
        running.wait_for("gave up", "sub: unreadable: Permission denied (os error 13), tried 3 times");
        permit(&sub, 0o700);
        running.wait_for("readable", "sub");

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert_eq!((value(&output, "files"), value(&output, "given up")), (0, 0), "{output}");
    }

    #[test]
    fn verifying_retries_a_given_up_file_and_prints_nothing_new() {
        let Some(example) = unprivileged_example() else { return };
        let dir = locked(&["file"]);
        let beat = dir.path().join("beat");
        std::fs::write(&beat, "").unwrap();
        let options = ["--no-watch", "--verify-every", "1", "--max-retries", "2"];
        let mut running = Running::spawn(example, dir.path(), &options);
        running.wait_for("watching", ": 2 files, 1 unreadable");
        // A verification finds each change within a second, and tries the locked file in that second.
        for beats in 1..=3 {
            std::fs::write(&beat, "x".repeat(beats)).unwrap();
            running.wait_for("drifted", "");
        }
        permit(&dir.path().join("file"), 0o600);
        running.wait_for("changed", &format!("file{HELLO}"));

        running.interrupt();
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(0), "{output}");
        assert!(value(&output, "retried") >= 4, "{output}");
        assert_eq!((value(&output, "unreadable"), value(&output, "given up")), (0, 0), "{output}");
        assert_eq!(output.lines().filter(|line| line.contains("unreadable: ")).count(), 1, "{output}");
    }

    /// Linux only: even root cannot read this file there, and the threads of a process are listed.
    #[cfg(target_os = "linux")]
    #[test]
    fn ctrl_c_does_not_wait_for_retries() {
        let running = Running::start(Path::new("/proc/self/mem"), &["--once", "--max-retries", "40"]);
        // The queue's thread starts with the first delay, and here only retries are delayed.
        let tasks = format!("/proc/{}/task", running.child.id());
        let deadline = Instant::now() + LONG;
        let is_driver = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("keyqueue-delay"))
        };
        while !std::fs::read_dir(&tasks).unwrap().map_while(Result::ok).any(is_driver) {
            assert!(Instant::now() < deadline, "no retry");
            std::thread::yield_now();
        }

        running.interrupt(); // otherwise it would take hours
        let (status, output) = running.finish();
        assert_eq!(status.code(), Some(1), "{output}");
        assert_eq!((value(&output, "unreadable"), value(&output, "given up")), (1, 0), "{output}");
        // None if the key was processing at that moment: then its retry was rejected.
        assert!(value(&output, "dropped") <= 1, "{output}");
        assert!(output.lines().any(|line| line.starts_with("unreadable: /proc/")), "{output}");
    }
}
