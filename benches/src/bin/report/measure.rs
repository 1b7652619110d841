//! Runs all workloads, round by round.
//!
//! A round goes through all workloads, and through the subjects of each in an order that rotates. So a disturbance of the machine
//! affects all subjects, but only some of the rounds of each workload.

use crate::results::{Bytes, Results, Spread, Times};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A workload, its subjects, and its number of rounds.
pub struct Task {
    pub label: String,
    pub rounds: usize,
    /// One for each subject.
    pub runs: Vec<Run>,
}

/// Runs the workload once, and records the results.
pub type Run = Box<dyn Fn(&mut Notes)>;

/// The results so far.
#[derive(Default)]
pub struct Notes {
    /// Complete, except for the times of the rounds to come.
    pub times: Vec<Times>,
    spreads: Vec<Seen>,
    pub bytes: Vec<Bytes>,
}

/// One histogram for all rounds, because the tail matters.
struct Seen {
    section: &'static str,
    what: String,
    subject: String,
    histogram: Histogram<u64>,
    beside: Vec<f64>,
}

impl Notes {
    /// One run of `ops` operations took that long.
    pub fn time(&mut self, figure: usize, subject: usize, took: Duration, ops: u64) {
        let ns = took.as_nanos() as f64 / ops as f64;
        self.times[figure].subjects[subject].ns.push(keyqueue_benches::numbers::rounded(ns));
    }

    /// How long each operation took, and how many operations per second other threads did meanwhile.
    pub fn spread(
        &mut self,
        section: &'static str,
        what: &str,
        subject: &str,
        histogram: &Histogram<u64>,
        beside: Option<f64>,
    ) {
        let known = self
            .spreads
            .iter_mut()
            .find(|seen| (seen.section, &*seen.what, &*seen.subject) == (section, what, subject));
        match known {
            Some(seen) => {
                seen.histogram.add(histogram).expect("resizes by itself");
                seen.beside.extend(beside);
            }
            None => self.spreads.push(Seen {
                section,
                what: what.into(),
                subject: subject.into(),
                histogram: histogram.clone(),
                beside: beside.into_iter().collect(),
            }),
        }
    }

    pub fn into_results(self) -> Results {
        let spread = |seen: Seen| {
            let beside = (!seen.beside.is_empty()).then(|| keyqueue_benches::numbers::median(&seen.beside));
            Spread::new(seen.section, &seen.what, &seen.subject, &seen.histogram, beside)
        };
        let spreads = self.spreads.into_iter().map(spread).collect();
        Results { times: self.times, spreads, bytes: self.bytes, ..Results::default() }
    }
}

/// Every task in all of its rounds.
pub fn measure(tasks: &[Task], notes: &mut Notes) {
    let bar = ProgressBar::new(tasks.iter().map(|task| task.rounds * task.runs.len()).sum::<usize>() as u64)
        .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len}, left: {eta}  {msg}").expect("a template"));
    let rounds = tasks.iter().map(|task| task.rounds).max().unwrap_or(0);
    for round in 0..rounds {
        for task in tasks {
            // How many of its rounds the task has had. It has one now if it should have had more by the end of this round.
            let had = round * task.rounds / rounds;
            if (round + 1) * task.rounds / rounds == had {
                continue;
            }
            bar.set_message(task.label.clone());
            for subject in 0..task.runs.len() {
                task.runs[(subject + had) % task.runs.len()](notes);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn rounds_go_through_all_tasks_and_the_order_of_subjects_rotates() {
        let seen = Rc::new(RefCell::new(String::new()));
        let task = |rounds, names: [&'static str; 2]| {
            let run = |name: &'static str| {
                let seen = seen.clone();
                Box::new(move |_: &mut Notes| seen.borrow_mut().push_str(name)) as Run
            };
            Task { label: String::new(), rounds, runs: names.map(run).into() }
        };
        measure(&[task(4, ["a", "b"]), task(2, ["C", "D"])], &mut Notes::default());
        assert_eq!(*seen.borrow(), "ab baCD ab baDC".replace(' ', ""));
    }

    #[test]
    fn histograms_of_the_same_are_added_up() {
        let histogram = |value| {
            let mut histogram = Histogram::new(3).unwrap();
            histogram.record(value).unwrap();
            histogram
        };
        let mut notes = Notes::default();
        notes.spread("latency", "quiet", "a", &histogram(1000), Some(3.0));
        notes.spread("latency", "quiet", "a", &histogram(3000), Some(5.0));
        notes.spread("latency", "quiet", "b", &histogram(5000), None);
        let results = notes.into_results();
        assert_eq!(results.spreads.iter().map(|spread| spread.count).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(results.spreads[0].beside, Some(5.0));
        assert_eq!(results.spreads[1].beside, None);
    }
}
