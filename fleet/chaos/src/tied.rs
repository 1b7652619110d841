//! Processes that end when this one ends, however it ends: also by a panic, or by `kill -9`.
//!
//! This program starts itself with [`FLAG`]. The new process asks the kernel for a `SIGKILL` at the end of its parent, which also ends a
//! process that is stopped, and then executes the program that is wanted.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tokio::process::Command;

const FLAG: &str = "--tied";

/// A command that runs `program`. Spawn it from the main thread: the kernel sends the signal when the *thread* that has spawned ends.
pub fn command(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(FLAG).arg(std::process::id().to_string()).arg(program).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Executes what [`command`] has asked for, and returns only if that fails; or does nothing.
pub fn exec_if_asked() -> Option<io::Error> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let parent = arguments.next()?.to_str()?.parse().ok().and_then(Pid::from_raw);
    let program = arguments.next()?;
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Some(error.into());
    }
    if getppid() != parent {
        return Some(io::Error::other("the parent has ended already"));
    }
    Some(std::process::Command::new(program).args(arguments).exec())
}
