//! The list of measurements, section by section.

use crate::Options;
use keyqueue_benches::control::undisturbed;
use keyqueue_benches::delays::lateness::{Lateness, bare, lateness};
use keyqueue_benches::delays::{HeapQueue, TaskQueue};
use keyqueue_benches::harness::{Notes, Plan, Step};
use keyqueue_benches::{Ours, Subject as _, costs, delays, latency, limits, memory, suite};

/// Keys in a run for lateness.
const LATE_KEYS: u64 = 100_000;

/// All measurements that the options select.
pub fn plan(options: &Options) -> Plan {
    let mut plan = Planner { options, plan: Plan::only(&options.only) };
    plan.queues();
    plan.delays();
    plan.limiters();
    plan.costs();
    plan.spreads();
    plan.bytes();
    plan.plan
}

struct Planner<'a> {
    options: &'a Options,
    plan: Plan,
}

impl Planner<'_> {
    fn queues(&mut self) {
        let (rounds, few, ops) = (self.options.rounds, self.options.few_rounds(), self.options.ops);
        for workload in suite::all(ops) {
            self.plan.workload("queue", None, rounds, workload);
        }
        // Enough work for hundreds of threads: it takes some 20 ms until each has had a core for the first time.
        for (threads, workload) in suite::threads(8 * ops) {
            self.plan.workload("threads", Some(threads as u64), few, workload);
        }
        for (pairs, workload) in suite::pairs(ops) {
            self.plan.workload("pairs", Some(pairs as u64), few, workload);
        }
        for (keys, workload) in suite::sizes(self.options.keys) {
            self.plan.workload("keys", Some(keys), few, workload);
        }
    }

    fn delays(&mut self) {
        for workload in delays::all(self.options.delays) {
            self.plan.workload("delays", None, self.options.few_rounds(), workload);
        }
    }

    fn limiters(&mut self) {
        for workload in limits::all(self.options.ops) {
            self.plan.workload("limiters", None, self.options.rounds, workload);
        }
    }

    /// The costs of metrics and workers. Their targets are upper bounds.
    fn costs(&mut self) {
        let ops = self.options.ops;
        for (section, workloads) in [("metrics", costs::metrics::all(ops)), ("workers", costs::workers::all(ops))] {
            for workload in workloads {
                self.plan.workload(section, None, self.options.rounds, workload);
            }
        }
    }

    /// Distributions.
    fn spreads(&mut self) {
        let rounds = self.options.few_rounds();
        // Many short rounds, so that a disturbance affects all subjects.
        let short_rounds = 10 * rounds;
        for (what, times, subjects) in latency::all() {
            let keys = times * self.options.wakes.div_ceil(short_rounds as u64);
            let step = |(subject, measure): (&'static str, latency::Measure)| {
                Box::new(move |notes: &mut Notes| {
                    let (latencies, thrown_away) = undisturbed(20, || measure(keys));
                    notes.spread(["latency", what, subject], latencies, None);
                    notes.thrown_away(thrown_away);
                }) as Step
            };
            self.plan.task(format!("latency {what}"), short_rounds, subjects.into_iter().map(step).collect());
        }
        type Subject = (&'static str, fn(u64, bool) -> Lateness);
        let subjects: &[Subject] = &[
            ("a bare thread", bare),
            (Ours::<u64>::NAME, lateness::<Ours<u64>>),
            (HeapQueue::NAME, lateness::<HeapQueue>),
            (TaskQueue::NAME, lateness::<TaskQueue>),
        ];
        for (what, flood) in [("quiet", false), ("flood", true)] {
            let run = |&(name, run): &Subject| {
                Box::new(move |notes: &mut Notes| {
                    let (run, thrown_away) = undisturbed(3, || run(LATE_KEYS, flood));
                    notes.thrown_away(thrown_away);
                    notes.spread(["lateness", what, name], run.late, Some(run.flood).filter(|flood| *flood > 0.0));
                }) as Step
            };
            self.plan.task(format!("delays lateness {what}"), rounds, subjects.iter().map(run).collect());
        }
    }

    fn bytes(&mut self) {
        let keys = self.options.delays;
        let run = move |notes: &mut Notes| notes.bytes.extend(memory::per_key_of(keys));
        self.plan.task("memory".into(), 1, vec![Box::new(run)]);
    }
}
