//! Puts the logs of all processes together.

use crate::log::Line;
use std::collections::BTreeMap;
use std::fmt;

/// One life of a replica.
#[derive(Debug, Default, Clone)]
pub struct Life {
    pub name: String,
    pub lines: Vec<Line>,
    /// When the process ended: its runs end there at the latest.
    pub ended: u64,
    /// From when to when it was stopped.
    pub stops: Vec<(u64, u64)>,
}

#[derive(Debug, Clone)]
struct Run {
    life: usize,
    start: u64,
    end: u64,
    token: u64,
    stopped: bool,
}

#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    pub lives: usize,
    /// Pairs of runs of one key at the same time, in different processes.
    pub overlaps: usize,
    /// The same, where one of the two was caught by a stop.
    pub stopped: usize,
    /// Of all, those in which the later one had no higher token.
    pub without_higher_token: usize,
    /// The longest time in which a key was not run, in nanoseconds, and the key.
    pub silence: (u64, u64),
    pub unowned: u64,
    examples: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs in {} processes", self.runs, self.lives)?;
        writeln!(
            f,
            "overlaps: {}; and {} where a process was stopped in the middle of the work",
            self.overlaps, self.stopped
        )?;
        writeln!(f, "of all these, {} without a higher token", self.without_higher_token)?;
        write!(
            f,
            "longest silence of a key: {:.2} s; partitions without an owner at the end: {}",
            self.silence.0 as f64 / 1e9,
            self.unowned
        )?;
        self.examples.iter().try_for_each(|example| write!(f, "\n    {example}"))
    }
}

fn runs_of(number: usize, life: &Life) -> Vec<(u64, Run)> {
    let mut runs: Vec<(u64, Run)> = Vec::new();
    let mut open = BTreeMap::new();
    for line in &life.lines {
        match *line {
            Line::Start { key, token, at } => {
                open.insert(key, runs.len());
                runs.push((key, Run { life: number, start: at, end: life.ended, token, stopped: false }));
            }
            Line::End { key, at } => {
                if let Some(place) = open.remove(&key) {
                    runs[place].1.end = at;
                }
            }
            Line::Owned { .. } => {}
        }
    }
    for (_, run) in &mut runs {
        run.stopped = life.stops.iter().any(|(from, to)| run.start < *to && *from < run.end);
    }
    runs
}

/// `from` and `to`: between these times the silence of keys counts.
pub fn check(lives: &[Life], keys: u64, from: u64, to: u64) -> Report {
    let mut by_key: BTreeMap<u64, Vec<Run>> = (0..keys).map(|key| (key, Vec::new())).collect();
    for (number, life) in lives.iter().enumerate() {
        for (key, run) in runs_of(number, life) {
            by_key.entry(key).or_default().push(run);
        }
    }
    let mut report = Report { lives: lives.len(), ..Report::default() };
    for (key, mut runs) in by_key {
        runs.sort_by_key(|run| run.start);
        report.runs += runs.len();
        let mut last_end = from;
        for (i, run) in runs.iter().enumerate() {
            report.silence = report.silence.max((run.start.min(to).saturating_sub(last_end), key));
            last_end = last_end.max(run.end);
            for other in
                runs[i + 1..].iter().take_while(|other| other.start < run.end).filter(|other| other.life != run.life)
            {
                if run.stopped || other.stopped {
                    report.stopped += 1;
                } else {
                    report.overlaps += 1;
                    if report.examples.len() < 5 {
                        let ms = |at: u64| at.saturating_sub(from) / 1_000_000;
                        report.examples.push(format!(
                            "key {key}: {} from {} to {} ms with token {}, {} from {} to {} ms with token {}",
                            lives[run.life].name,
                            ms(run.start),
                            ms(run.end),
                            run.token,
                            lives[other.life].name,
                            ms(other.start),
                            ms(other.end),
                            other.token,
                        ));
                    }
                }
                report.without_higher_token += usize::from(other.token <= run.token);
            }
        }
        report.silence = report.silence.max((to.saturating_sub(last_end), key));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(lines: &[Line], stops: &[(u64, u64)]) -> Life {
        Life { name: "r".to_owned(), lines: lines.to_vec(), ended: 100, stops: stops.to_vec() }
    }

    fn start(at: u64, token: u64) -> Line {
        Line::Start { key: 0, token, at }
    }

    fn end(at: u64) -> Line {
        Line::End { key: 0, at }
    }

    #[test]
    fn overlaps_are_counted_and_those_with_a_stop_apart() {
        let a = life(&[start(10, 1), end(30), start(40, 1)], &[]); // killed at 100
        let report = check(&[a.clone(), life(&[start(29, 2), end(35)], &[])], 1, 0, 100);
        assert_eq!((report.runs, report.overlaps, report.stopped, report.without_higher_token), (3, 1, 0, 0));
        let report = check(&[a.clone(), life(&[start(30, 2), end(40)], &[])], 1, 0, 100);
        assert_eq!(report.overlaps, 0);
        let report = check(&[a.clone(), life(&[start(90, 1), end(95)], &[(94, 99)])], 1, 0, 100);
        assert_eq!((report.overlaps, report.stopped, report.without_higher_token), (0, 1, 1));
        assert_eq!(report.silence, (10, 0));
        // A stop between runs excuses nothing.
        let report = check(&[a, life(&[start(90, 1), end(95)], &[(96, 99)])], 1, 0, 100);
        assert_eq!((report.overlaps, report.stopped), (1, 0));
    }
}
