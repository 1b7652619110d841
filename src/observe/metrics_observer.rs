//! Client-go's metrics, and some that its users miss, through the `metrics` facade.

use super::{GroupMetrics, Histogram, LevelMetrics, Metrics, Observer};
use crate::Priority;
use metrics::{Counter, Gauge, Unit};
use std::fmt;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// An [`Observer`] that passes the queue's metrics to the exporter that the program has installed for the `metrics` facade, every 500 ms
/// while there are keys, and once more when there are none. Nothing has to be started, but the exporter must be installed before the first
/// add.
///
/// | Name | Kind | Meaning |
/// |---|---|---|
/// | `workqueue_depth` | gauge | keys that wait: queued, or processing and to be queued again; by `priority` |
/// | `workqueue_adds_total` | counter | adds that queued their key, or will queue it when it is done |
/// | `workqueue_queue_duration_seconds` | histogram | how long keys waited before they were handed out; by `priority` |
/// | `workqueue_work_duration_seconds` | histogram | how long keys were processing |
/// | `workqueue_unfinished_work_seconds` | gauge | how long the processing keys have been processing, added up |
/// | `workqueue_longest_running_processor_seconds` | gauge | how long the oldest processing key has been processing; 0: none |
/// | `workqueue_retries_total` | counter | adds with a delay, also without a failure |
/// | `workqueue_failures_total` | counter | adds with the limiter's delay: failures |
/// | `workqueue_delayed` | gauge | keys that have a delay |
/// | `workqueue_processing` | gauge | keys that are processing |
/// | `workqueue_failing` | gauge | keys whose failures are counted |
/// | `workqueue_oldest_queued_seconds` | gauge | how long the first queued key has waited, also in a full group; 0: none |
/// | `workqueue_next_deadline_seconds` | gauge | the time until the earliest delay expires; 0: overdue, `+Inf`: none (graphs want `< Inf`) |
/// | `workqueue_coalesced_total` | counter | adds that cause no further run |
/// | `workqueue_rejected_total` | counter | adds after the shut-down |
/// | `workqueue_full_total` | counter | adds of new keys to a [full](crate::WorkQueueBuilder::max_keys) queue |
/// | `workqueue_given_up_total` | counter | keys that were given up |
/// | `workqueue_panics_total` | counter | panics of holders of a key |
/// | `workqueue_runs_total` | counter | runs of [`Workers`](crate::Workers); by `result` |
/// | `workqueue_late_runs_total` | counter | runs past their [time limit](crate::WorkersBuilder::time_limit), also while they go on |
///
/// A queue with [groups](crate::WorkQueueBuilder::fair_by) has these, too (see [`GroupMetrics`]):
///
/// | Name | Kind | Meaning |
/// |---|---|---|
/// | `workqueue_groups` | gauge | groups with queued or processing keys |
/// | `workqueue_groups_limited` | gauge | groups that have a limit or a rate |
/// | `workqueue_groups_full`, `_throttled`, `_paused` | gauge | groups that are held back, and why |
/// | `workqueue_group_fairness` | gauge | Jain's index of the shares of groups: 1 if they are equal |
/// | `workqueue_group_largest_share` | gauge | the largest share of a group, from 0 to 1 |
/// | `workqueue_group_longest_wait_seconds` | gauge | how long the first queued key of a group has waited; 0: none |
///
/// The first seven of the upper table are client-go's. `workqueue_runs_total` is controller-runtime's `controller_runtime_reconcile_total`:
/// when a run ends, it counts in one `result` of `success`, `requeue`, `pause`, `error`, `give_up`, `panic` and `timeout` (see
/// [`Runs`](super::Runs)), so the share of runs that fail is
/// `sum(rate(workqueue_runs_total{result=~"error|give_up|panic|timeout"}[5m])) / sum(rate(workqueue_runs_total[5m]))`.
///
/// Each has the label `name`, which is the [queue's name](crate::WorkQueueBuilder::name). If two queues have the same name, their counters
/// and histograms are added up, and each gauge shows the queue that reported last. There is no series per key or group, and no series at
/// all before the first report, 500 ms after the first add.
///
/// A queue with [priorities](crate::AddOptions::priority) has two more series for each priority but NORMAL, with a second label:
/// `workqueue_depth{name="pods",priority="-100"}`, as in controller-runtime, and the same for `workqueue_queue_duration_seconds`. The first
/// 25 priorities have series of their own, and further ones share `priority="other"`. The series without the label count the other keys,
/// which are NORMAL ones, and in the depth also keys that are processing and dirty. A sum over `priority` therefore counts each key once.
///
/// Only reports call the exporter, so calls of the queue cost no more than in a queue that only
/// [measures](crate::WorkQueueBuilder::measure). A report passes each duration on as the middle of its [bucket](Histogram), so an exporter
/// sees durations and their sum to 6 %. An exporter takes about 100 ns per duration, and may keep them in memory until they are read. If
/// several threads report at the same time, only one of the reports is passed on.
///
/// For the numbers of this moment, as in a scrape or at the end of the program, call [`Inspect::report`](crate::Inspect::report). For
/// another interval, pass [`report`](Observer::report) on from an observer of your own.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::observe::MetricsObserver;
///
/// // First install an exporter, such as `metrics-exporter-prometheus`.
/// let queue =
///     WorkQueue::<u64>::builder().name("pods").observer(MetricsObserver::new()).build();
/// ```
#[derive(Default)]
pub struct MetricsObserver {
    /// Created by the first report, which has the queue's name.
    series: Mutex<Option<Series>>,
}

/// The exporter's series, and the metrics that were passed on last.
struct Series {
    last: Metrics,
    gauges: [(Gauge, Of<f64>); 8],
    counters: [(Counter, Of<u64>); 16],
    histograms: [(metrics::Histogram, OfHistogram); 2],
    /// Empty unless the queue has groups.
    groups: Vec<(Gauge, Of<f64>)>,
    /// The series of the first [`LEVELS`] priorities other than NORMAL, and then those of all others.
    levels: Vec<LevelSeries>,
}

/// The number of priorities that have series of their own, as in controller-runtime.
const LEVELS: usize = 25;

struct LevelSeries {
    /// `None` stands for all priorities that have no series of their own.
    priority: Option<Priority>,
    depth: Gauge,
    queue_duration: metrics::Histogram,
}

const DEPTH: &str = "workqueue_depth";
const RUNS: &str = "workqueue_runs_total";
const QUEUE_DURATION: &str = "workqueue_queue_duration_seconds";

type Of<V> = fn(&Metrics) -> V;
type OfHistogram = fn(&Metrics) -> &Histogram;

impl MetricsObserver {
    /// Uses the exporter that is installed at the first report.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Observer for MetricsObserver {
    fn report(&self, queue: &str, metrics: &Metrics) {
        let mut series = match self.series.try_lock() {
            Ok(series) => series,
            // The exporter panicked in an earlier report, and what it missed then is not passed on again.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is reporting, or this thread is, and its exporter calls `report`.
            Err(TryLockError::WouldBlock) => return,
        };
        series.get_or_insert_with(|| Series::new(queue)).pass_on(queue, metrics);
    }

    /// 500 ms, as in client-go.
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

fn seconds(duration: Option<Duration>) -> f64 {
    duration.unwrap_or_default().as_secs_f64()
}

impl Series {
    fn new(queue: &str) -> Self {
        let gauge = |name: &'static str, unit, help: &'static str, of: Of<f64>| {
            metrics::describe_gauge!(name, unit, help);
            (metrics::gauge!(name, "name" => queue.to_owned()), of)
        };
        let counter = |name: &'static str, help: &'static str, of: Of<u64>| {
            metrics::describe_counter!(name, Unit::Count, help);
            (metrics::counter!(name, "name" => queue.to_owned()), of)
        };
        metrics::describe_counter!(RUNS, Unit::Count, "Runs of workers, each in one result");
        let runs = |result: &'static str, of: Of<u64>| {
            (metrics::counter!(RUNS, "name" => queue.to_owned(), "result" => result), of)
        };
        let histogram = |name: &'static str, help: &'static str, of: OfHistogram| {
            metrics::describe_histogram!(name, Unit::Seconds, help);
            (metrics::histogram!(name, "name" => queue.to_owned()), of)
        };
        let (count, time) = (Unit::Count, Unit::Seconds);
        Self {
            last: Metrics::default(),
            gauges: [
                gauge(DEPTH, count, "Hand-outs to come for the adds so far", |m| {
                    let others: usize = levels(m).map(|level| level.len).sum();
                    m.stats.depth().saturating_sub(others as u64) as f64
                }),
                gauge("workqueue_processing", count, "Keys that are processing", |m| m.stats.processing as f64),
                gauge("workqueue_delayed", count, "Keys with a delay that has not expired", |m| m.stats.delayed as f64),
                gauge("workqueue_failing", count, "Keys whose failures are counted", |m| m.stats.failing as f64),
                gauge(
                    "workqueue_unfinished_work_seconds",
                    time,
                    "Sum of the times for which keys have been processing",
                    |m| seconds(m.stats.unfinished_work),
                ),
                gauge(
                    "workqueue_longest_running_processor_seconds",
                    time,
                    "For how long the oldest processing key has been processing; 0: none",
                    |m| seconds(m.stats.longest_running),
                ),
                gauge(
                    "workqueue_oldest_queued_seconds",
                    time,
                    "How long the first queued key has waited; 0: none",
                    |m| seconds(m.stats.oldest_queued),
                ),
                gauge(
                    "workqueue_next_deadline_seconds",
                    time,
                    "Time until the earliest delay expires; 0: overdue, infinite: none",
                    |m| {
                        m.stats
                            .next_deadline
                            .filter(|&left| left < Duration::MAX)
                            .map_or(f64::INFINITY, |left| left.as_secs_f64())
                    },
                ),
            ],
            counters: [
                counter("workqueue_adds_total", "Adds that have led, or will lead, to a hand-out of their own", |m| {
                    m.stats.adds()
                }),
                counter(
                    "workqueue_retries_total",
                    "Adds with a delay, failures or not: see workqueue_failures_total",
                    |m| m.stats.retries,
                ),
                counter("workqueue_failures_total", "Adds with the limiter's delay: failures", |m| m.stats.failures),
                counter("workqueue_coalesced_total", "Adds that cause no further run", |m| m.stats.coalesced),
                counter("workqueue_rejected_total", "Adds after the shut-down", |m| m.stats.rejected),
                counter("workqueue_full_total", "Adds of new keys to a full queue", |m| m.stats.full),
                counter("workqueue_given_up_total", "Keys that were given up", |m| m.stats.given_up),
                counter("workqueue_panics_total", "Panics of holders of a key", |m| m.stats.panics),
                runs("success", |m| m.runs.success),
                runs("requeue", |m| m.runs.requeue),
                runs("pause", |m| m.runs.pause),
                runs("error", |m| m.runs.error),
                runs("give_up", |m| m.runs.give_up),
                runs("panic", |m| m.runs.panic),
                runs("timeout", |m| m.runs.timeout),
                counter("workqueue_late_runs_total", "Runs past their time limit", |m| m.runs.late),
            ],
            histograms: [
                histogram(QUEUE_DURATION, "How long keys waited before they were handed out", |m| {
                    level(m, Priority::NORMAL).map_or(&m.queue_duration, |normal| &normal.queue_duration)
                }),
                histogram("workqueue_work_duration_seconds", "How long keys were processing", |m| &m.work_duration),
            ],
            groups: Vec::new(),
            levels: Vec::new(),
        }
    }

    fn of_groups(queue: &str) -> Vec<(Gauge, Of<f64>)> {
        let series: [(&'static str, &'static str, Of<f64>); 8] = [
            ("workqueue_groups", "Groups with queued or processing keys", |m| of_groups(m).active as f64),
            ("workqueue_groups_limited", "Groups that have a limit or a rate", |m| of_groups(m).limited as f64),
            ("workqueue_groups_full", "Groups at their limit", |m| m.stats.groups_full as f64),
            ("workqueue_groups_throttled", "Groups without a token", |m| m.stats.groups_throttled as f64),
            ("workqueue_groups_paused", "Groups that are paused", |m| m.stats.groups_paused as f64),
            ("workqueue_group_fairness", "Jain's index of the shares of groups", |m| of_groups(m).fairness),
            ("workqueue_group_largest_share", "The largest share of a group", |m| of_groups(m).largest_share),
            ("workqueue_group_longest_wait_seconds", "How long the first key of a group has waited; 0: none", |m| {
                seconds(of_groups(m).longest_wait)
            }),
        ];
        let gauges = series.into_iter().map(|(name, help, of)| {
            let unit = if name.ends_with("seconds") { Unit::Seconds } else { Unit::Count };
            metrics::describe_gauge!(name, unit, help);
            (metrics::gauge!(name, "name" => queue.to_owned()), of)
        });
        gauges.collect()
    }

    fn pass_on(&mut self, queue: &str, now: &Metrics) {
        // If two threads report, the older metrics may arrive last, or a part of them may be older with several shards. These are ignored,
        // because the next report passes on what they miss.
        let counters_are_newer = self.counters.iter().all(|(_, of)| of(now) >= of(&self.last));
        let histograms_are_newer = self.histograms.iter().all(|(_, of)| of(now).continues(of(&self.last)));
        let levels_are_newer = levels(&self.last).all(|last| {
            let is_unused = last.queue_duration.count() == 0;
            level(now, last.priority).map_or(is_unused, |now| now.queue_duration.continues(&last.queue_duration))
        });
        if !counters_are_newer
            || !histograms_are_newer
            || !levels_are_newer
            || now.stats.handed_out < self.last.stats.handed_out
        {
            return;
        }
        let last = std::mem::replace(&mut self.last, now.clone());
        if now.groups.is_some() && self.groups.is_empty() {
            self.groups = Self::of_groups(queue);
        }
        for (gauge, of) in self.gauges.iter().chain(&self.groups) {
            gauge.set(of(now));
        }
        for (counter, of) in &self.counters {
            // Not `absolute`, because counters of queues with the same name add up.
            counter.increment(of(now).saturating_sub(of(&last)));
        }
        for (histogram, of) in &self.histograms {
            record(histogram, of(now), Some(of(&last)));
        }
        let mut lens = vec![0; self.levels.len()];
        for of in levels(now) {
            let series = self.level_series(queue, of.priority);
            lens.resize(self.levels.len(), 0);
            lens[series] += of.len;
            let last = level(&last, of.priority).map(|last| &last.queue_duration);
            record(&self.levels[series].queue_duration, &of.queue_duration, last);
        }
        for (series, len) in self.levels.iter().zip(lens) {
            series.depth.set(len as f64);
        }
    }

    /// The series of a priority other than NORMAL, by number. They are made if there are none.
    fn level_series(&mut self, queue: &str, priority: Priority) -> usize {
        let own = self.levels.iter().position(|series| series.priority == Some(priority));
        // Beyond the limit, these are the series of all others, which come last.
        if let Some(series) = own.or((self.levels.len() > LEVELS).then_some(LEVELS)) {
            return series;
        }
        let priority = (self.levels.len() < LEVELS).then_some(priority);
        let name = || queue.to_owned();
        let label = || priority.map_or_else(|| "other".to_owned(), |priority| priority.0.to_string());
        self.levels.push(LevelSeries {
            priority,
            depth: metrics::gauge!(DEPTH, "name" => name(), "priority" => label()),
            queue_duration: metrics::histogram!(QUEUE_DURATION, "name" => name(), "priority" => label()),
        });
        self.levels.len() - 1
    }
}

fn of_groups(metrics: &Metrics) -> GroupMetrics {
    metrics.groups.unwrap_or_default()
}

/// The levels other than NORMAL.
fn levels(metrics: &Metrics) -> impl Iterator<Item = &LevelMetrics> {
    metrics.levels.iter().filter(|level| level.priority != Priority::NORMAL)
}

fn level(metrics: &Metrics, priority: Priority) -> Option<&LevelMetrics> {
    metrics.levels.iter().find(|level| level.priority == priority)
}

/// Passes on the durations that are new.
fn record(to: &metrics::Histogram, now: &Histogram, last: Option<&Histogram>) {
    let new = last.map(|last| now.since(last));
    for (duration, count) in new.as_ref().unwrap_or(now).buckets() {
        to.record_many(duration.as_secs_f64(), count as usize);
    }
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsObserver").finish_non_exhaustive()
    }
}
