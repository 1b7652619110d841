//! The list of measurements, section by section.

use crate::measure::{Notes, Run, Task};
use crate::options::Options;
use crate::results::{Bytes, Subject, Times};
use common::workloads::cycle;
#[cfg(feature = "kube")]
use keyqueue_benches::delays::KubeTask;
use keyqueue_benches::delays::lateness::{Lateness, bare, lateness};
use keyqueue_benches::delays::{HeapQueue, TaskQueue, WheelTimer};
use keyqueue_benches::parts::parts;
use keyqueue_benches::workload::{self, Workload, once};
use keyqueue_benches::{Ours, Subject as _, costs, delays, latency, limits, memory, suite};

/// Keys in a run for lateness.
const LATE_KEYS: u64 = 100_000;

pub struct Plan<'a> {
    options: &'a Options,
    pub tasks: Vec<Task>,
    pub notes: Notes,
}

impl<'a> Plan<'a> {
    /// All measurements that the options select.
    pub fn new(options: &'a Options) -> Self {
        let mut plan = Self { options, tasks: Vec::new(), notes: Notes::default() };
        plan.queues();
        plan.parts();
        plan.delays();
        plan.limiters();
        plan.costs();
        plan.spreads();
        plan.bytes();
        plan
    }

    /// Adds a task that is timed. `row` describes it, without its subjects; `figures` are the names and targets of what is timed.
    fn timed(
        &mut self,
        row: Times,
        figures: &[(&str, Option<f64>)],
        ops: u64,
        rounds: usize,
        subjects: Vec<(&str, workload::Run)>,
    ) {
        let label = [&row.section, &row.group, &row.name].map(String::as_str).join(" ");
        if !self.options.wants(&label) || subjects.is_empty() {
            return;
        }
        let (first, count) = (self.notes.times.len(), figures.len());
        for (figure, target) in figures {
            let subjects = subjects.iter().map(|(name, _)| Subject { name: (*name).into(), ns: Vec::new() }).collect();
            self.notes.times.push(Times { figure: (*figure).into(), target: *target, subjects, ..row.clone() });
        }
        let run = |(subject, (_, work)): (usize, (&str, workload::Run))| {
            Box::new(move |notes: &mut Notes| {
                let times = work();
                assert_eq!(times.len(), count);
                for (figure, took) in times.into_iter().enumerate() {
                    notes.time(first + figure, subject, took, ops);
                }
            }) as Run
        };
        let runs = subjects.into_iter().enumerate().map(run).collect();
        self.tasks.push(Task { label, rounds, runs });
    }

    fn workload(&mut self, section: &str, at: Option<u64>, rounds: usize, workload: Workload) {
        let rivals = workload.rivals().map(Into::into).collect();
        // A group that is the whole section has no name of its own.
        let group = if workload.group == section { String::new() } else { workload.group.into() };
        let Workload { name, figures, ops, subjects, .. } = workload;
        let row = Times { section: section.into(), group, name, at, rivals, ..Times::default() };
        self.timed(row, &figures, ops, rounds, subjects);
    }

    fn queues(&mut self) {
        let (rounds, few, ops) = (self.options.rounds, self.options.few_rounds(), self.options.ops);
        for workload in suite::all(ops) {
            self.workload("queue", None, rounds, workload);
        }
        // Enough work for hundreds of threads: it takes some 20 ms until each has had a core for the first time.
        for (threads, workload) in suite::threads(8 * ops) {
            self.workload("threads", Some(threads as u64), few, workload);
        }
        for (pairs, workload) in suite::pairs(ops) {
            self.workload("pairs", Some(pairs as u64), few, workload);
        }
        for (keys, workload) in suite::sizes(self.options.keys) {
            self.workload("keys", Some(keys), few, workload);
        }
    }

    fn parts(&mut self) {
        let ops = self.options.ops;
        for keys in [1, 1024, 100_000] {
            let row = Times { section: "parts".into(), name: keys.to_string(), at: Some(keys), ..Times::default() };
            let subjects = vec![
                ("cycle", once(move || cycle::<u64, Ours<u64>>(keys, ops))),
                ("parts", once(move || parts(keys, ops))),
            ];
            self.timed(row, &[("", None)], ops, self.options.rounds, subjects);
        }
    }

    fn delays(&mut self) {
        for workload in delays::all(self.options.delays) {
            self.workload("delays", None, self.options.few_rounds(), workload);
        }
    }

    fn limiters(&mut self) {
        for workload in limits::all(self.options.ops) {
            self.workload("limiters", None, self.options.rounds, workload);
        }
    }

    /// The costs of metrics and workers. Their targets are upper bounds.
    fn costs(&mut self) {
        let ops = self.options.ops;
        for (section, workloads) in [("metrics", costs::metrics::all(ops)), ("workers", costs::workers::all(ops))] {
            for workload in workloads {
                self.workload(section, None, self.options.rounds, workload);
            }
        }
        let keys = ops / 4;
        let (section, name) = ("metrics scrape".into(), keys.to_string());
        let scrape = move || {
            let (report, scrape) = costs::metrics::scrape(keys);
            vec![report, scrape]
        };
        let subjects: Vec<(&str, workload::Run)> = vec![("MetricsObserver", Box::new(scrape))];
        let row = Times { section, name, at: Some(keys), ..Times::default() };
        self.timed(row, &[("report", None), ("scrape", None)], keys, self.options.rounds, subjects);
    }

    /// Distributions.
    fn spreads(&mut self) {
        let rounds = self.options.few_rounds();
        if self.options.wants("latency") {
            let wakes = self.options.wakes / rounds as u64;
            let run = move |notes: &mut Notes| {
                for (what, subject, histogram) in latency::distributions(wakes) {
                    notes.spread("latency", what, subject, &histogram, None);
                }
            };
            self.tasks.push(Task { label: "latency".into(), rounds, runs: vec![Box::new(run)] });
        }
        type Subject = (&'static str, fn(u64, bool) -> Lateness);
        let subjects: &[Subject] = &[
            ("a bare thread", bare),
            (Ours::<u64>::NAME, lateness::<Ours<u64>>),
            (HeapQueue::<u64>::NAME, lateness::<HeapQueue<u64>>),
            (TaskQueue::<u64>::NAME, lateness::<TaskQueue<u64>>),
            (WheelTimer::<u64>::NAME, lateness::<WheelTimer<u64>>),
            #[cfg(feature = "kube")]
            (KubeTask::<u64>::NAME, lateness::<KubeTask<u64>>),
        ];
        for (what, flood) in [("quiet", false), ("flood", true)] {
            let label = format!("delays lateness {what}");
            if !self.options.wants(&label) {
                continue;
            }
            let run = |&(name, run): &Subject| {
                Box::new(move |notes: &mut Notes| {
                    let run = run(LATE_KEYS, flood);
                    notes.spread("lateness", what, name, &run.late, Some(run.flood).filter(|flood| *flood > 0.0));
                }) as Run
            };
            self.tasks.push(Task { label, rounds, runs: subjects.iter().map(run).collect() });
        }
    }

    fn bytes(&mut self) {
        if self.options.wants("memory") {
            let keys = self.options.delays;
            let run = move |notes: &mut Notes| {
                for memory::MemoryRow { subject, what, keys, bytes } in memory::per_key_of(keys) {
                    let (what, subject, bytes) =
                        (what.into(), subject.into(), keyqueue_benches::numbers::rounded(bytes));
                    notes.bytes.push(Bytes { what, subject, keys, bytes });
                }
            };
            self.tasks.push(Task { label: "memory".into(), rounds: 1, runs: vec![Box::new(run)] });
        }
    }
}
