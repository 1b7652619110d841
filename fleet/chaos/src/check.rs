//! Puts the logs of all processes together.

use crate::log::Line;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One life of a replica.
#[derive(Debug, Default, Clone)]
pub struct Life {
    pub name: String,
    pub lines: Vec<Line>,
    /// When the process ended: its runs end there at the latest.
    pub ended: u64,
    /// When it was stopped, and the moment before it was told to go on.
    pub stops: Vec<(u64, u64)>,
}

impl Life {
    /// The partitions that it owns, as it said last.
    pub fn owned(&self) -> BTreeSet<u32> {
        let mut owned = BTreeSet::new();
        for line in &self.lines {
            match *line {
                Line::Acquired { partition } => _ = owned.insert(partition),
                Line::Gone { partition } => _ = owned.remove(&partition),
                _ => {}
            }
        }
        owned
    }
}

/// How many partitions have no owner, and how many have more than one.
pub fn owners(lives: &[Life], partitions: u32) -> (usize, usize) {
    let mut owners = vec![0; partitions as usize];
    lives.iter().flat_map(Life::owned).for_each(|partition| owners[partition as usize] += 1);
    (owners.iter().filter(|n| **n == 0).count(), owners.iter().filter(|n| **n > 1).count())
}

#[derive(Debug, Clone)]
struct Run {
    life: usize,
    start: u64,
    end: u64,
    token: u64,
    /// The stops that caught it in the middle and were longer than the grace.
    caught: Vec<(u64, u64)>,
}

/// What the check depends on, besides the logs.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub keys: u64,
    /// Between these times the silence of keys counts.
    pub from: u64,
    pub to: u64,
    pub grace: u64,
    /// No other replica takes over sooner after the moment at which a replica's handlers could still be handed out: the expiry without the lease
    /// and the grace.
    pub margin: u64,
}

#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    pub lives: usize,
    /// Pairs of runs of one key at the same time.
    pub overlaps: usize,
    /// Pairs of which a stop explains the overlap: see [`explained`].
    pub explained: usize,
    /// The longest time for which a run of such a pair went on after the stop, in nanoseconds.
    pub after_stop: u64,
    /// The longest time in which a key was not run, in nanoseconds, and the key.
    pub silence: (u64, u64),
    examples: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        writeln!(f, "{} runs in {} processes; overlaps: {}", self.runs, self.lives, self.overlaps)?;
        writeln!(
            f,
            "overlaps of a run that a stop caught in the middle: {}; the run ended {:.3} s after the stop at the latest",
            self.explained,
            seconds(self.after_stop)
        )?;
        write!(f, "longest silence of a key: {:.2} s", seconds(self.silence.0))?;
        self.examples.iter().try_for_each(|example| write!(f, "\n    {example}"))
    }
}

fn runs_of(number: usize, life: &Life, grace: u64) -> Vec<(u64, Run)> {
    let mut runs: Vec<(u64, Run)> = Vec::new();
    let mut open = BTreeMap::new();
    for line in &life.lines {
        match *line {
            Line::Start { key, token, at } => {
                open.insert(key, runs.len());
                runs.push((key, Run { life: number, start: at, end: life.ended, token, caught: Vec::new() }));
            }
            Line::End { key, at } => {
                if let Some(place) = open.remove(&key) {
                    runs[place].1.end = at;
                }
            }
            _ => {}
        }
    }
    for (_, run) in &mut runs {
        // Nothing runs just before the process goes on: what began before that and ends after it was in the middle.
        let caught = |(from, to): &(u64, u64)| to - from > grace && run.start < *to && *to < run.end;
        run.caught = life.stops.iter().copied().filter(caught).collect();
    }
    runs
}

/// For how long `caught` went on after a stop in its middle that explains why `other` ran at the same time. The protocol cannot prevent
/// that, but `other` has a higher token; it has begun later than the margin after the stop began, because just before the stop `caught` was within its
/// deadline and the grace; and `caught` has ended within a grace after the process went on.
fn explained(caught: &Run, other: &Run, rules: Rules) -> Option<u64> {
    let explains = |(from, to): &(u64, u64)| from + rules.margin <= other.start && caught.end <= to + rules.grace;
    let newer = caught.life != other.life && other.token > caught.token;
    let (_, to) = caught.caught.iter().find(|stop| newer && explains(stop))?;
    Some(caught.end - to)
}

pub fn check(lives: &[Life], rules: Rules) -> Report {
    let Rules { keys, from, to, grace, .. } = rules;
    let mut by_key: BTreeMap<u64, Vec<Run>> = (0..keys).map(|key| (key, Vec::new())).collect();
    for (number, life) in lives.iter().enumerate() {
        for (key, run) in runs_of(number, life, grace) {
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
            for other in runs[i + 1..].iter().take_while(|other| other.start < run.end) {
                let pairs = [(run, other), (other, run)];
                if let Some(went_on) = pairs.into_iter().find_map(|(caught, other)| explained(caught, other, rules)) {
                    report.explained += 1;
                    report.after_stop = report.after_stop.max(went_on);
                } else {
                    report.overlaps += 1;
                    if report.examples.len() < 5 {
                        report.examples.push(format!(
                            "key {key}: {}, {}",
                            describe(run, lives, from),
                            describe(other, lives, from)
                        ));
                    }
                }
            }
        }
        report.silence = report.silence.max((to.saturating_sub(last_end), key));
    }
    report
}

fn describe(run: &Run, lives: &[Life], from: u64) -> String {
    let ms = |at: u64| at.saturating_sub(from) / 1_000_000;
    let caught: String =
        run.caught.iter().map(|(from, to)| format!(", stopped from {} to {}", ms(*from), ms(*to))).collect();
    format!(
        "{} (life {}) from {} to {} ms with token {}{}",
        lives[run.life].name,
        run.life,
        ms(run.start),
        ms(run.end),
        run.token,
        caught
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of key 0, as (start, end, token). An end of 0: it has none.
    fn life(runs: &[(u64, u64, u64)], stops: &[(u64, u64)]) -> Life {
        let mut lines = Vec::new();
        for &(start, end, token) in runs {
            lines.push(Line::Start { key: 0, token, at: start });
            if end > 0 {
                lines.push(Line::End { key: 0, at: end });
            }
        }
        Life { name: "r".to_owned(), lines, ended: 1000, stops: stops.to_vec() }
    }

    const RULES: Rules = Rules { keys: 1, from: 0, to: 1000, grace: 20, margin: 5 };

    /// The number of overlaps, and of those that a stop explains.
    fn count(lives: &[Life]) -> (usize, usize) {
        let report = check(lives, RULES);
        assert_eq!(report.lives, lives.len());
        (report.overlaps, report.explained)
    }

    #[test]
    fn overlaps_are_found() {
        let a = || life(&[(100, 300, 1)], &[]);
        assert_eq!(count(&[a(), life(&[(299, 350, 2)], &[])]), (1, 0), "at its end");
        assert_eq!(count(&[a(), life(&[(50, 101, 2)], &[])]), (1, 0), "at its start");
        assert_eq!(count(&[a(), life(&[(150, 200, 2), (200, 250, 2)], &[])]), (2, 0), "two within");
        assert_eq!(count(&[a(), life(&[(50, 400, 2)], &[])]), (1, 0), "around it");
        assert_eq!(count(&[a(), life(&[(150, 160, 2)], &[]), life(&[(155, 170, 3)], &[])]), (3, 0), "of three");
        assert_eq!(count(&[a(), life(&[(300, 350, 2), (50, 100, 2)], &[])]), (0, 0), "before and after are none");
    }

    #[test]
    fn a_run_without_an_end_lasts_until_its_process_ends() {
        assert_eq!(count(&[life(&[(100, 0, 1)], &[]), life(&[(990, 995, 2)], &[])]), (1, 0));
        assert_eq!(count(&[life(&[(100, 0, 1)], &[]), life(&[(1000, 1001, 2)], &[])]), (0, 0));
    }

    #[test]
    fn two_runs_in_one_process_overlap_as_well() {
        assert_eq!(count(&[life(&[(100, 0, 1), (200, 210, 1)], &[])]), (1, 0));
        assert_eq!(count(&[life(&[(100, 0, 1), (200, 210, 2)], &[(150, 190)])]), (1, 0), "and no stop explains it");
    }

    #[test]
    fn other_keys_do_not_overlap() {
        let mut b = life(&[(100, 300, 2)], &[]);
        b.lines = vec![
            Line::Start { key: 1, token: 2, at: 100 },
            Line::End { key: 0, at: 150 },
            Line::End { key: 1, at: 300 },
        ];
        assert_eq!(count(&[life(&[(100, 300, 1)], &[]), b]), (0, 0));
    }

    #[test]
    fn a_stop_in_the_middle_explains_an_overlap() {
        let b = || life(&[(200, 400, 2)], &[]);
        assert_eq!(count(&[life(&[(100, 310, 1)], &[(150, 300)]), b()]), (0, 1));
        assert_eq!(count(&[b(), life(&[(100, 310, 1)], &[(150, 300)])]), (0, 1), "in any order");
        assert_eq!(count(&[life(&[(100, 320, 1)], &[(150, 300)]), b()]), (0, 1), "up to a grace after it");
        let report = check(&[life(&[(100, 310, 1)], &[(150, 300)]), b()], RULES);
        assert_eq!(report.after_stop, 10);
    }

    #[test]
    fn a_stop_that_is_not_longer_than_the_grace_explains_nothing() {
        let b = || life(&[(160, 400, 2)], &[]);
        assert_eq!(count(&[life(&[(100, 175, 1)], &[(150, 170)]), b()]), (1, 0));
        assert_eq!(count(&[life(&[(100, 175, 1)], &[(150, 171)]), b()]), (0, 1));
    }

    #[test]
    fn each_of_several_stops_may_explain_an_overlap() {
        let stops = [(120, 145), (150, 300)];
        assert_eq!(count(&[life(&[(100, 310, 1)], &stops), life(&[(200, 400, 2)], &[])]), (0, 1), "the second one");
        assert_eq!(count(&[life(&[(100, 160, 1)], &stops), life(&[(130, 400, 2)], &[])]), (0, 1), "the first one");
    }

    #[test]
    fn a_stop_explains_nothing_of_runs_that_it_did_not_catch() {
        let b = || life(&[(200, 400, 2)], &[]);
        assert_eq!(count(&[life(&[(300, 310, 1)], &[(150, 300)]), b()]), (1, 0), "begun after the stop");
        assert_eq!(count(&[life(&[(100, 300, 1)], &[(320, 380)]), b()]), (1, 0), "ended before the stop");
        assert_eq!(count(&[life(&[(100, 210, 1)], &[(150, 300)]), b()]), (1, 0), "ended as the stop began");
    }

    #[test]
    fn a_stop_explains_nothing_that_it_did_not_cause() {
        let stopped = || life(&[(100, 310, 1)], &[(150, 300)]);
        assert_eq!(count(&[stopped(), life(&[(149, 400, 2)], &[])]), (1, 0), "begun before the stop");
        assert_eq!(count(&[stopped(), life(&[(154, 400, 2)], &[])]), (1, 0), "taken over too early");
        assert_eq!(count(&[stopped(), life(&[(155, 400, 2)], &[])]), (0, 1), "at the earliest moment");
        assert_eq!(count(&[stopped(), life(&[(200, 400, 1)], &[])]), (1, 0), "with the same token");
        assert_eq!(count(&[stopped(), life(&[(200, 400, 0)], &[])]), (1, 0), "with a lower token");
        assert_eq!(
            count(&[life(&[(100, 321, 1)], &[(150, 300)]), life(&[(200, 400, 2)], &[])]),
            (1, 0),
            "went on for longer than the grace after the stop"
        );
    }

    #[test]
    fn the_longest_silence_of_a_key_is_found() {
        let silence = |lives: &[Life], keys, from, to| check(lives, Rules { keys, from, to, ..RULES }).silence;
        let a = life(&[(100, 300, 1), (350, 400, 1)], &[]);
        assert_eq!(silence(std::slice::from_ref(&a), 1, 0, 400), (100, 0), "before the first run");
        assert_eq!(silence(std::slice::from_ref(&a), 1, 90, 400), (50, 0), "between two");
        assert_eq!(silence(std::slice::from_ref(&a), 1, 90, 500), (100, 0), "after the last");
        assert_eq!(silence(std::slice::from_ref(&a), 2, 90, 500), (410, 1), "a key without runs");
        assert_eq!(silence(&[a.clone(), life(&[(50, 360, 2)], &[])], 1, 90, 400), (0, 0), "another process ran it");
        assert_eq!(silence(&[a], 1, 90, 320), (20, 0), "what is later does not count");
        assert_eq!(silence(&[], 1, 90, 320), (230, 0), "no runs at all");
    }

    #[test]
    fn owners_are_counted_as_they_were_said_last() {
        let says = |lines: &[Line]| Life { lines: lines.to_vec(), ..Life::default() };
        let (a, gone) = (|partition| Line::Acquired { partition }, |partition| Line::Gone { partition });
        assert_eq!(owners(&[], 3), (3, 0));
        assert_eq!(owners(&[says(&[a(0), a(1)]), says(&[a(2)])], 3), (0, 0));
        assert_eq!(owners(&[says(&[a(0), a(1), gone(0)]), says(&[a(2)])], 3), (1, 0));
        assert_eq!(owners(&[says(&[a(0), a(1), gone(0), a(0)]), says(&[a(2), a(1)])], 3), (0, 1));
    }
}
