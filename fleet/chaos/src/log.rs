//! The logs of the replicas. A line is written with one call, so a process that is killed leaves no half line but the last.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// Nanoseconds of the machine's clock, which all processes share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    Start {
        key: u64,
        token: u64,
        at: u64,
    },
    End {
        key: u64,
        at: u64,
    },
    /// Partitions that this replica owns, as it ends.
    Owned {
        partitions: u64,
    },
}

pub struct Log(Mutex<File>);

impl Log {
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::options().create(true).append(true).open(path)?)))
    }

    pub fn write(&self, line: Line) {
        let text = match line {
            Line::Start { key, token, at } => format!("S {key} {token} {at}\n"),
            Line::End { key, at } => format!("E {key} {at}\n"),
            Line::Owned { partitions } => format!("O {partitions}\n"),
        };
        self.0.lock().expect("no writer panics").write_all(text.as_bytes()).expect("the log can be written");
    }
}

/// The lines of a log. The last one may be cut off.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    Ok(text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let mut number = || words.next()?.parse().ok();
    match kind {
        "S" => Some(Line::Start { key: number()?, token: number()?, at: number()? }),
        "E" => Some(Line::End { key: number()?, at: number()? }),
        "O" => Some(Line::Owned { partitions: number()? }),
        _ => None,
    }
}
