//! Replays the metrics of the real client-go (`data/metrics.jsonl`: 80 traces, each with all nine metrics after every call), on
//! a queue that measures, with a mock clock.
//!
//! Checks that [`Stats::depth`], [`Stats::adds`] and `retries` count what client-go counts, that both histograms have as many
//! durations and the same sum, and that `unfinished_work` and `longest_running` are the values that client-go shows. client-go
//! updates them at each step of the clock, until the shut-down. The crate computes them at each call, so the replay keeps the
//! values of the last step.
//!
//! In three traces of four all times are multiples of 1/512 s: there the numbers are equal, otherwise to 1e-9.
//!
//! With the system's clock, not every key is measured if keys come fast. The counts stay exact nevertheless, and no age is too
//! high.

#[path = "support/limits.rs"]
mod limits;
mod support {
    pub(crate) mod client_go;
}

use keyqueue::observe::Metrics;
use keyqueue::{Item, Stats, WorkQueue};
use serde_json::Value;
use std::time::{Duration, Instant};
use support::client_go::{Crate, call};

const TRACES: &str = include_str!("data/metrics.jsonl");

/// The metrics' names, as client-go has them, in the order of the traces.
const NAMES: [&str; 9] = [
    "depth",
    "adds_total",
    "retries_total",
    "queue_duration_count",
    "queue_duration_sum",
    "work_duration_count",
    "work_duration_sum",
    "unfinished_work_seconds",
    "longest_running_processor_seconds",
];

/// What client-go shows: 0 if no key is processing.
fn seconds(duration: Option<Duration>) -> f64 {
    duration.unwrap_or_default().as_secs_f64()
}

/// `unfinished` and `longest` are those of the last step.
fn metrics_of(queue: &WorkQueue<u64>, [unfinished, longest]: [f64; 2]) -> [f64; 9] {
    let metrics = queue.inspect().metrics();
    assert_eq!(metrics.stats, queue.stats());
    let Metrics { stats, queue_duration, work_duration, .. } = metrics;
    [
        stats.depth() as f64,
        stats.adds() as f64,
        stats.retries as f64,
        queue_duration.count() as f64,
        queue_duration.sum().as_secs_f64(),
        work_duration.count() as f64,
        work_duration.sum().as_secs_f64(),
        unfinished,
        longest,
    ]
}

fn agrees(exact: bool, expected: f64, found: f64) -> bool {
    expected == found || !exact && (found / expected - 1.0).abs() <= 1e-9
}

#[test]
fn the_metrics_are_those_of_client_go() {
    let (mut traces, mut exact_traces, mut calls) = (0, 0, 0);
    // How many times each metric changed, and the depth differed from the length.
    let (mut changes, mut dirty) = ([0; 9], 0);
    for line in TRACES.lines() {
        let trace: Value = serde_json::from_str(line).expect("one JSON object per line");
        let exact = trace["config"]["exact"].as_bool().expect("it says whether its times are");
        let mut replay = Crate::new(&trace["config"]);
        let (mut last, mut shown) = ([0.0; 9], [0.0; 2]);
        for (at, op) in trace["ops"].as_array().expect("a list of calls").iter().enumerate() {
            let [name, arguments @ .., result, metrics] = op.as_array().expect("a call is a list").as_slice() else {
                panic!("a call has a name, a result and its metrics: {op:?}");
            };
            let name = name.as_str().expect("its name comes first");
            assert_eq!(&call(&mut replay, name, arguments), result, "{}, call {at}: {op:?}", trace["id"]);
            let expected = metrics.as_array().expect("a list of metrics");
            assert_eq!(expected.len(), NAMES.len());
            let Stats { unfinished_work, longest_running, processing, shutting_down, .. } = replay.queue.stats();
            assert_eq!((longest_running.is_some(), unfinished_work.is_some()), (processing > 0, true));
            if name == "step" && !shutting_down {
                shown = [seconds(unfinished_work), seconds(longest_running)];
            }
            let found = metrics_of(&replay.queue, shown);
            for ((metric, expected), found) in NAMES.iter().zip(expected).zip(found) {
                let expected = expected.as_f64().expect("a number");
                let place = format_args!("{}, call {at}: {metric} is {found}: {op:?}", trace["id"]);
                assert!(agrees(exact, expected, found), "{place}");
            }
            (0..9).for_each(|n| changes[n] += usize::from(last[n] != found[n]));
            dirty += usize::from(found[0] as usize != replay.queue.len());
            last = found;
            calls += 1;
        }
        traces += 1;
        exact_traces += usize::from(exact);
    }
    assert_eq!((traces, exact_traces, calls), (80, 60, 9_201));
    assert!(changes.iter().all(|&changes| changes > 500) && dirty > 1_000, "{changes:?}, {dirty}");
}

// ---- the system's clock ----

#[test]
fn counts_stay_exact_if_not_each_key_is_measured() {
    let queue = WorkQueue::builder().measure(true).build();
    let begin = Instant::now();
    let mut unmeasured = 0;
    let mut last = queue.inspect().metrics();
    for round in 0..200_u64 {
        queue.add_all(round * 100..(round + 1) * 100);
        let items = queue.get_many(100);
        unmeasured += items.iter().filter(|item| item.waited().is_none()).count();
        if round % 3 == 0 {
            items.into_iter().for_each(Item::done);
        } else {
            items.into_iter().rev().for_each(Item::succeed);
        }
        let metrics = queue.inspect().metrics();
        let so_far = begin.elapsed();
        for (now, before) in
            [(&metrics.queue_duration, &last.queue_duration), (&metrics.work_duration, &last.work_duration)]
        {
            assert_eq!(now.count(), (round + 1) * 100, "an idle queue has counted every key");
            assert!(before.buckets().all(|(at, count)| now.buckets().any(|(also, more)| at == also && count <= more)));
            assert!(now.sum() >= before.sum() && now.quantile(1.0) <= so_far.mul_f64(1.1) + Duration::from_micros(10));
        }
        assert_eq!((metrics.stats.depth(), metrics.stats.unfinished_work), (0, Some(Duration::ZERO)));
        last = metrics;
    }
    println!("{unmeasured} of 20000 keys were not measured");
}

#[test]
fn no_age_is_too_high() {
    let queue = WorkQueue::builder().measure(true).build();
    let slack = Duration::from_micros(100); // the coarse clock is off by less
    for round in 0..50 {
        let before_add = Instant::now();
        queue.add_all((0..100_u64).map(|key| round * 100 + key));
        assert!(queue.stats().oldest_queued.unwrap() <= before_add.elapsed() + slack);
        let before_get = Instant::now();
        let mut items = queue.get_many(100);
        for _ in 0..20 {
            let stats = queue.stats();
            let longest = stats.longest_running.unwrap();
            assert!(longest <= before_get.elapsed() + slack);
            assert!(stats.unfinished_work.unwrap() <= (before_get.elapsed() + slack) * items.len() as u32);
            let ages: Vec<_> =
                queue.inspect().processing_keys().into_iter().map(|held| held.elapsed.unwrap()).collect();
            assert_eq!(ages.len(), items.len());
            assert!(ages.iter().all(|&age| age <= before_get.elapsed() + slack));
            drop(items.pop());
            drop(items.swap_remove(0));
        }
    }
}

/// Items that were not measured have their place in the order, too.
#[test]
fn the_longest_running_item_is_listed_first() {
    let queue = WorkQueue::builder().measure(true).build();
    for round in 0..50 {
        queue.add_all((0..100_u64).map(|key| round * 100 + key));
        let mut items = queue.get_many(100);
        items.remove(0).done(); // the first item was measured
        let ages: Vec<_> = queue.inspect().processing_keys().into_iter().map(|held| held.elapsed.unwrap()).collect();
        let longest = queue.stats().longest_running.unwrap();
        assert!(ages.is_sorted_by(|older, newer| older >= newer), "documented as longest first: {ages:?}");
        assert!(longest >= ages[0], "{longest:?}: {ages:?}");
    }
}
