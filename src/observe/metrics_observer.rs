//! Client-go's metrics, and some that its users miss, through the `metrics` facade.

use super::{Histogram, Metrics, Observer};
use metrics::{Counter, Gauge, Unit};
use std::fmt;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// An [`Observer`] that passes each [report](crate::WorkQueue::report) to the exporter that the program has installed for the
/// `metrics` facade. Install the exporter first.
///
/// | Name | Kind | Meaning |
/// |---|---|---|
/// | `workqueue_depth` | gauge | hand-outs to come for the adds so far |
/// | `workqueue_adds_total` | counter | adds that have led, or will lead, to a hand-out of their own |
/// | `workqueue_queue_duration_seconds` | histogram | how long keys waited before they were handed out |
/// | `workqueue_work_duration_seconds` | histogram | how long keys were processing |
/// | `workqueue_unfinished_work_seconds` | gauge | the sum of the times for which keys have been processing |
/// | `workqueue_longest_running_processor_seconds` | gauge | for how long the oldest processing key has been processing |
/// | `workqueue_retries_total` | counter | adds with a delay or with the limiter's delay, including those that are no failures |
/// | `workqueue_failures_total` | counter | adds with the limiter's delay: failures |
/// | `workqueue_delayed` | gauge | keys with a delay that has not expired |
/// | `workqueue_processing` | gauge | keys that are processing |
/// | `workqueue_failing` | gauge | keys whose failures are counted |
/// | `workqueue_oldest_queued_seconds` | gauge | how long the first queued key has waited |
/// | `workqueue_next_deadline_seconds` | gauge | the time until the earliest delay expires; 0: overdue, `+Inf`: none (graphs want `< Inf`) |
/// | `workqueue_coalesced_total` | counter | adds that changed nothing |
/// | `workqueue_rejected_total` | counter | adds after the shut-down |
/// | `workqueue_given_up_total` | counter | keys that were given up |
/// | `workqueue_panics_total` | counter | panics of holders of a key |
///
/// The first seven are client-go's. Each has one label, `name`: the [queue's name](crate::WorkQueueBuilder::name). If two queues have
/// the same name, their counters and histograms are added up, and each gauge shows the queue that reported last. There is no series
/// per key, and no series at all before the first report.
///
/// Only reports call the exporter, so calls of the queue cost no more than those of a queue that only
/// [measures](crate::WorkQueueBuilder::measure). Each duration is passed on as the middle of its [bucket](Histogram), so an exporter
/// sees durations and their sum to 6 %. An exporter takes about 100 ns per duration, and may keep them in memory until they are read:
/// report every few seconds, not every hour. If several threads report at the same time, only one of the reports is passed on.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::observe::MetricsObserver;
/// use std::time::Duration;
///
/// // First install an exporter, such as that of `metrics-exporter-prometheus`.
/// let queue = WorkQueue::<u64>::builder().name("pods").observer(MetricsObserver::new()).build();
/// let reporter = queue.report_every(Duration::from_secs(1))?;
/// # drop(reporter);
/// # std::io::Result::Ok(())
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
    counters: [(Counter, Of<u64>); 7],
    histograms: [(metrics::Histogram, OfHistogram); 2],
}

/// Reads the value of a series.
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
            // The exporter panicked in an earlier report. What it missed then is not passed on again.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is reporting; or this thread is, and its exporter calls `report`.
            Err(TryLockError::WouldBlock) => return,
        };
        series.get_or_insert_with(|| Series::new(queue)).pass_on(metrics);
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
        let histogram = |name: &'static str, help: &'static str, of: OfHistogram| {
            metrics::describe_histogram!(name, Unit::Seconds, help);
            (metrics::histogram!(name, "name" => queue.to_owned()), of)
        };
        let (count, time) = (Unit::Count, Unit::Seconds);
        Self {
            last: Metrics::default(),
            gauges: [
                gauge("workqueue_depth", count, "Hand-outs to come for the adds so far", |m| m.stats.depth() as f64),
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
                    "For how long the oldest processing key has been processing",
                    |m| seconds(m.stats.longest_running),
                ),
                gauge("workqueue_oldest_queued_seconds", time, "How long the first queued key has waited", |m| {
                    seconds(m.stats.oldest_queued)
                }),
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
                counter("workqueue_retries_total", "Adds with a delay, or with the limiter's delay", |m| {
                    m.stats.retries
                }),
                counter("workqueue_failures_total", "Adds with the limiter's delay", |m| m.stats.failures),
                counter("workqueue_coalesced_total", "Adds that changed nothing", |m| m.stats.coalesced),
                counter("workqueue_rejected_total", "Adds after the shut-down", |m| m.stats.rejected),
                counter("workqueue_given_up_total", "Keys that were given up", |m| m.stats.given_up),
                counter("workqueue_panics_total", "Panics of holders of a key", |m| m.stats.panics),
            ],
            histograms: [
                histogram(
                    "workqueue_queue_duration_seconds",
                    "How long keys waited before they were handed out",
                    |m| &m.queue_duration,
                ),
                histogram("workqueue_work_duration_seconds", "How long keys were processing", |m| &m.work_duration),
            ],
        }
    }

    fn pass_on(&mut self, now: &Metrics) {
        // If two threads report, the older metrics may arrive last; with several shards, a part of them may be older. Those are ignored:
        // the next report passes on what they miss.
        let counters_are_newer = self.counters.iter().all(|(_, of)| of(now) >= of(&self.last));
        let histograms_are_newer = self.histograms.iter().all(|(_, of)| of(now).continues(of(&self.last)));
        if !counters_are_newer || !histograms_are_newer || now.stats.handed_out < self.last.stats.handed_out {
            return;
        }
        let last = std::mem::replace(&mut self.last, now.clone());
        for (gauge, of) in &self.gauges {
            gauge.set(of(now));
        }
        for (counter, of) in &self.counters {
            // Not `absolute`: counters of queues with the same name add up.
            counter.increment(of(now).saturating_sub(of(&last)));
        }
        for (histogram, of) in &self.histograms {
            for (duration, count) in of(now).since(of(&last)).buckets() {
                histogram.record_many(duration.as_secs_f64(), count as usize);
            }
        }
    }
}

impl fmt::Debug for MetricsObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsObserver").finish_non_exhaustive()
    }
}
