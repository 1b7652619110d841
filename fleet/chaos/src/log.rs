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
    /// The replica handles signals from now on.
    Ready,
    Start {
        key: u64,
        token: u64,
        at: u64,
    },
    End {
        key: u64,
        at: u64,
    },
    /// The replica owns this partition from now on. It says so whenever that changes.
    Acquired {
        partition: u32,
    },
    /// Released or lost.
    Gone {
        partition: u32,
    },
}

pub struct Log(Mutex<File>);

impl Log {
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(File::options().create(true).append(true).open(path)?)))
    }

    pub fn write(&self, line: Line) {
        let text = match line {
            Line::Ready => "B\n".to_owned(),
            Line::Start { key, token, at } => format!("S {key} {token} {at}\n"),
            Line::End { key, at } => format!("E {key} {at}\n"),
            Line::Acquired { partition } => format!("A {partition}\n"),
            Line::Gone { partition } => format!("G {partition}\n"),
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
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| parse(line).ok_or_else(|| io::Error::other(format!("a line of a log: {line:?}")))).collect()
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let kind = words.next()?;
    let mut number = || words.next()?.parse().ok();
    match kind {
        "B" => Some(Line::Ready),
        "S" => Some(Line::Start { key: number()?, token: number()?, at: number()? }),
        "E" => Some(Line::End { key: number()?, at: number()? }),
        "A" => Some(Line::Acquired { partition: number()?.try_into().ok()? }),
        "G" => Some(Line::Gone { partition: number()?.try_into().ok()? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written_and_half_of_one_is_left_out() {
        let file = tempfile::NamedTempFile::new().expect("there is a folder for it");
        let lines = [
            Line::Ready,
            Line::Acquired { partition: 7 },
            Line::Start { key: 1, token: 2, at: 3 },
            Line::End { key: 1, at: 4 },
            Line::Gone { partition: 7 },
        ];
        let log = Log::append(file.path()).expect("it can be written");
        lines.into_iter().for_each(|line| log.write(line));
        log.0.lock().unwrap().write_all(b"S 1 2").expect("it can be written");
        assert_eq!(read(file.path()).expect("it can be read"), lines);
        log.0.lock().unwrap().write_all(b"\n").expect("it can be written");
        read(file.path()).expect_err("a whole line that lacks a number is an error");
        assert_eq!(read(&file.path().join("none")).unwrap_or_default(), []);
    }
}
