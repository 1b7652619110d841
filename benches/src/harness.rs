//! One way to measure for all programs: a plan of tasks, whose subjects take turns, round after round, and whose results are one file of
//! data, from which tables are made.
//!
//! ```text
//!   workloads ──▶ Plan (tasks, each with its subjects) ──▶ run: round by round ──▶ Results ──▶ lines of JSON, or tables
//! ```
//!
//! A round goes through all tasks, and through the subjects of each in an order that rotates. So a disturbance of the machine affects all
//! subjects, but only some of the rounds of each task.

use crate::numbers::{median, rounded};
use crate::results::{Bytes, Results, Run, Spread, Subject, Times};
use crate::transfer::transfer;
use crate::workload::{self, Workload};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// All measurements of a program.
#[derive(Default)]
pub struct Plan {
    /// Only tasks whose label contains this.
    only: String,
    /// Measures before each step how long a cache line takes from core to core.
    has_transfers: bool,
    tasks: Vec<Task>,
    notes: Notes,
}

struct Task {
    label: String,
    rounds: usize,
    /// One for each subject.
    runs: Vec<Step>,
}

/// Runs one subject once, and records the results.
pub type Step = Box<dyn Fn(&mut Notes)>;

/// The results so far.
#[derive(Default)]
pub struct Notes {
    /// Complete, except for the times of the rounds to come.
    times: Vec<Times>,
    spreads: Vec<(Spread, Vec<Histogram<u64>>, Vec<f64>)>,
    pub bytes: Vec<Bytes>,
    /// Measured before this step.
    transfer: Option<f64>,
    thrown_away: u32,
}

impl Notes {
    /// How long each operation took, and how many operations per second other threads did meanwhile.
    pub fn spread(
        &mut self,
        [section, what, subject]: [&str; 3],
        histogram: Histogram<u64>,
        beside: impl IntoIterator<Item = f64>,
    ) {
        let is_known =
            |spread: &Spread| (&*spread.section, &*spread.what, &*spread.subject) == (section, what, subject);
        let known = self.spreads.iter().position(|(spread, ..)| is_known(spread)).unwrap_or_else(|| {
            let [section, what, subject] = [section, what, subject].map(Into::into);
            self.spreads.push((Spread { section, what, subject, ..Spread::default() }, Vec::new(), Vec::new()));
            self.spreads.len() - 1
        });
        self.spreads[known].1.push(histogram);
        self.spreads[known].2.extend(beside);
    }

    /// Counts measurements that were thrown away because the machine was [disturbed](crate::control).
    pub fn thrown_away(&mut self, measurements: u32) {
        self.thrown_away += measurements;
    }

    /// Nanoseconds per operation, beside other results of the same run.
    pub fn row(&mut self, [section, group, name, subject]: [&str; 4], ns: f64) {
        let is_known = |times: &Times| (&*times.section, &*times.group, &*times.name) == (section, group, name);
        let known = self.times.iter().position(is_known).unwrap_or_else(|| {
            let [section, group, name] = [section, group, name].map(Into::into);
            self.times.push(Times { section, group, name, ..Times::default() });
            self.times.len() - 1
        });
        self.times[known].note(subject, rounded(ns), self.transfer);
    }

    /// One run of `ops` operations took that long.
    fn time(&mut self, figure: usize, subject: usize, took: Duration, ops: u64) {
        let subject = &mut self.times[figure].subjects[subject];
        subject.ns.push(rounded(took.as_nanos() as f64 / ops as f64));
        subject.transfers.extend(self.transfer);
    }
}

impl Plan {
    /// A plan of the tasks whose labels contain this.
    pub fn only(only: &str) -> Self {
        Self { only: only.into(), ..Self::default() }
    }

    /// Each step of these tasks is told with the [time of a transfer](transfer) before it.
    pub fn with_transfers(mut self) -> Self {
        self.has_transfers = true;
        self
    }

    /// Adds a task with a step for each subject.
    pub fn task(&mut self, label: String, rounds: usize, runs: Vec<Step>) {
        if label.contains(&self.only) && !runs.is_empty() {
            self.tasks.push(Task { label, rounds, runs });
        }
    }

    /// Adds a task that is timed. `row` describes it, without its subjects; `figures` are the names and targets of what is timed.
    pub fn timed(
        &mut self,
        row: Times,
        figures: &[(&str, Option<f64>)],
        ops: u64,
        rounds: usize,
        subjects: Vec<(&str, workload::Run)>,
    ) {
        let label = [&row.section, &row.group, &row.name].map(String::as_str).join(" ");
        if !label.contains(&self.only) {
            return;
        }
        let (first, count) = (self.notes.times.len(), figures.len());
        for (figure, target) in figures {
            let subjects =
                subjects.iter().map(|(name, _)| Subject { name: (*name).into(), ..Subject::default() }).collect();
            self.notes.times.push(Times { figure: (*figure).into(), target: *target, subjects, ..row.clone() });
        }
        let run = |(subject, (_, work)): (usize, (&str, workload::Run))| {
            Box::new(move |notes: &mut Notes| {
                let times = work();
                assert_eq!(times.len(), count);
                for (figure, took) in times.into_iter().enumerate() {
                    notes.time(first + figure, subject, took, ops);
                }
            }) as Step
        };
        self.task(label, rounds, subjects.into_iter().enumerate().map(run).collect());
    }

    /// The same, without targets and with one figure.
    pub fn row(
        &mut self,
        [section, group, name]: [&str; 3],
        ops: u64,
        rounds: usize,
        subjects: Vec<(&str, workload::Run)>,
    ) {
        let [section, group, name] = [section, group, name].map(Into::into);
        self.timed(Times { section, group, name, ..Times::default() }, &[("", None)], ops, rounds, subjects);
    }

    pub fn workload(&mut self, section: &str, at: Option<u64>, rounds: usize, workload: Workload) {
        let rivals = workload.rivals().map(Into::into).collect();
        // A group that is the whole section has no name of its own.
        let group = if workload.group == section { String::new() } else { workload.group.into() };
        let Workload { name, figures, ops, subjects, .. } = workload;
        let row = Times { section: section.into(), group, name, at, rivals, ..Times::default() };
        self.timed(row, &figures, ops, rounds, subjects);
    }

    /// Every task in all of its rounds. Shows its progress on standard error.
    pub fn run(self, run: Run) -> Results {
        let Self { tasks, mut notes, has_transfers, .. } = self;
        let bar = ProgressBar::new(tasks.iter().map(|task| task.rounds * task.runs.len()).sum::<usize>() as u64)
            .with_style(ProgressStyle::with_template("{bar:40} {pos}/{len}, left: {eta}  {msg}").expect("a template"));
        let rounds = tasks.iter().map(|task| task.rounds).max().unwrap_or(0);
        for round in 0..rounds {
            for task in &tasks {
                // How many of its rounds the task has had. It has one now if it should have had more by the end of this round.
                let had = round * task.rounds / rounds;
                if (round + 1) * task.rounds / rounds == had {
                    continue;
                }
                bar.set_message(task.label.clone());
                for subject in 0..task.runs.len() {
                    notes.transfer = if has_transfers { transfer().map(rounded) } else { None };
                    task.runs[(subject + had) % task.runs.len()](&mut notes);
                    bar.inc(1);
                }
            }
        }
        bar.finish_and_clear();
        let Notes { times, spreads, bytes, thrown_away, .. } = notes;
        let run = Run { thrown_away, ..run };
        let spread = |(mut spread, rounds, beside): (Spread, Vec<Histogram<u64>>, Vec<f64>)| {
            spread.count = rounds.iter().map(Histogram::len).sum();
            spread.curve = curve(&rounds, ["tails", "latency"].contains(&spread.section.as_str()));
            spread.beside = (!beside.is_empty()).then(|| rounded(median(&beside)));
            spread
        };
        Results { run, times, spreads: spreads.into_iter().map(spread).collect(), bytes, ..Results::default() }
    }
}

/// Of all rounds together, because the tail matters; or the median of each percentile, where a pause of the machine in one round would hide
/// all others.
fn curve(rounds: &[Histogram<u64>], is_median: bool) -> Vec<(f64, f64)> {
    let mut all = Histogram::new(3).expect("3 digits");
    rounds.iter().for_each(|round| all.add(round).expect("resizes by itself"));
    let at = |percentile| match is_median {
        true => median(&rounds.iter().map(|round| round.value_at_percentile(percentile) as f64).collect::<Vec<_>>()),
        false => all.value_at_percentile(percentile) as f64,
    };
    let rounds = if is_median { rounds.len() as u64 } else { 1 };
    Spread::percentiles(all.len() / rounds).map(|percentile| (percentile, at(percentile))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn rounds_go_through_all_tasks_and_the_order_of_subjects_rotates() {
        let seen = Rc::new(RefCell::new(String::new()));
        let runs = |names: [&'static str; 2]| {
            let run = |name: &'static str| {
                let seen = seen.clone();
                Box::new(move |_: &mut Notes| seen.borrow_mut().push_str(name)) as Step
            };
            names.map(run).into()
        };
        let mut plan = Plan::only("t");
        plan.task("t1".into(), 4, runs(["a", "b"]));
        plan.task("an x".into(), 4, runs(["x", "y"]));
        plan.task("t2".into(), 2, runs(["C", "D"]));
        plan.run(Run::default());
        assert_eq!(*seen.borrow(), "ab baCD ab baDC".replace(' ', ""));
    }

    #[test]
    fn rounds_are_added_up_but_of_tails_the_median_counts() {
        let mut plan = Plan::default();
        let step = |section: &'static str| {
            let round = std::cell::Cell::new(0);
            Box::new(move |notes: &mut Notes| {
                round.set(round.get() + 1);
                let mut histogram = crate::latency::histogram();
                histogram.record(round.get() * 1000).unwrap();
                notes.spread([section, "what", "a"], histogram, Some(round.get() as f64));
            }) as Step
        };
        plan.task(String::new(), 3, vec![step("lateness"), step("tails")]);
        let spreads = plan.run(Run::default()).spreads;
        let maxima: Vec<_> = spreads.iter().map(|spread| spread.curve.last().unwrap().1.round() as u64 / 10).collect();
        assert_eq!((spreads.len(), spreads[0].count, maxima), (2, 3, vec![300, 200]));
        assert_eq!(spreads[0].beside, Some(2.0));
    }
}
