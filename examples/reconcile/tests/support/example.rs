//! The program of this package, and a directory for it. (Dependencies of the tests are built for the program too, as it is an example,
//! and its first line would be later on the screen. So there is no `tempfile` here.)

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A new directory, deleted when this is dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static DIRS: AtomicUsize = AtomicUsize::new(0);
        loop {
            let name = format!("reconcile-{}-{}", std::process::id(), DIRS.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a process that had the same id, and was killed, or could not delete it.
                Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Cargo does not say where an example is. The executable lies beside the test: `<profile>/examples/reconcile` and `<profile>/deps/<test>-<hash>`.
pub(crate) fn command() -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let profile = test.ancestors().nth(2).expect("it is <profile>/deps/<test>");
    let example = profile.join("examples").join(format!("reconcile{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "{} is missing: run `cargo build -p reconcile --examples`", example.display());
    let mut command = Command::new(example);
    command.stdin(Stdio::null());
    command
}
