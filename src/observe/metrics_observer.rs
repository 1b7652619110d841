//! Client-go's metrics, and some that its users miss, through the `metrics` facade.

use super::{Histogram, Metrics, Observer};
use metrics::{Counter, Gauge, Unit};
use std::fmt;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// An [`Observer`] that passes on what is [reported](crate::WorkQueue::report) to whatever exporter the program has installed for
/// the `metrics` facade. Install that first.
///
/// | Name | Kind | Meaning |
/// |---|---|---|
/// | `workqueue_depth` | gauge | hand-outs that are to come of the adds so far |
/// | `workqueue_adds_total` | counter | adds that led to a hand-out of their own, or will |
/// | `workqueue_queue_duration_seconds` | histogram | how long keys waited before they were handed out |
/// | `workqueue_work_duration_seconds` | histogram | how long keys were worked on |
/// | `workqueue_unfinished_work_seconds` | gauge | how long all keys in work have been there, together |
/// | `workqueue_longest_running_processor_seconds` | gauge | how long the oldest of them has |
/// | `workqueue_retries_total` | counter | adds with a delay, or with the limiter's: also those that are no sign of trouble |
/// | `workqueue_failures_total` | counter | adds with the limiter's delay alone: what has failed |
/// | `workqueue_delayed` | gauge | keys with a delay that is not over |
/// | `workqueue_in_work` | gauge | keys in work |
/// | `workqueue_failing` | gauge | keys whose failures are counted |
/// | `workqueue_oldest_in_line_seconds` | gauge | how long the first in line has waited |
/// | `workqueue_next_deadline_seconds` | gauge | in what time the earliest delay is over; 0: overdue, `+Inf`: none (graphs want `< Inf`) |
/// | `workqueue_coalesced_total` | counter | adds that changed nothing |
/// | `workqueue_rejected_total` | counter | adds after the shut-down |
/// | `workqueue_given_up_total` | counter | keys that were given up |
/// | `workqueue_panics_total` | counter | panics of who held a key |
///
/// The first seven are client-go's. Each has one label, `name`: the [queue's](crate::WorkQueueBuilder::name); of two queues with one
/// name, counters and histograms are added up, and of gauges the last that was reported counts. There is no series per key, and none
/// at all before the first report.
///
/// Nothing is passed on but by reports, so those who use the queue wait no longer than for one that only
/// [measures](crate::WorkQueueBuilder::measure).
/// Durations are passed on as many times the middle of their [bucket](Histogram), so an exporter sees them, and their sum, to 6 %.
/// An exporter takes some 100 ns for each of these, and may keep them in memory until they are read: report every few seconds, not
/// every hour. Reports of several threads at a time are one.
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
    /// Made by the first report, which knows the queue's name.
    series: Mutex<Option<Series>>,
}

/// What is passed on to, and what it was told last.
struct Series {
    told: Metrics,
    gauges: [(Gauge, Of<f64>); 8],
    counters: [(Counter, Of<u64>); 7],
    histograms: [(metrics::Histogram, OfHistogram); 2],
}

/// Where a series has its values from.
type Of<V> = fn(&Metrics) -> V;
type OfHistogram = fn(&Metrics) -> &Histogram;

impl MetricsObserver {
    /// Passes on to the exporter that is installed when the first report is made.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Observer for MetricsObserver {
    fn report(&self, queue: &str, metrics: &Metrics) {
        let mut series = match self.series.try_lock() {
            Ok(series) => series,
            // What an exporter has missed that panicked, it will not be told again.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody is just reporting; or this exporter is, which has asked for a report.
            Err(TryLockError::WouldBlock) => return,
        };
        series.get_or_insert_with(|| Series::new(queue)).tell(metrics);
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
            told: Metrics::default(),
            gauges: [
                gauge("workqueue_depth", count, "Hand-outs that are to come of the adds so far", |m| {
                    m.stats.depth() as f64
                }),
                gauge("workqueue_in_work", count, "Keys in work", |m| m.stats.processing as f64),
                gauge("workqueue_delayed", count, "Keys with a delay that is not over", |m| m.stats.delayed as f64),
                gauge("workqueue_failing", count, "Keys whose failures are counted", |m| m.stats.failing as f64),
                gauge("workqueue_unfinished_work_seconds", time, "How long all keys in work have been there", |m| {
                    seconds(m.stats.unfinished_work)
                }),
                gauge(
                    "workqueue_longest_running_processor_seconds",
                    time,
                    "How long the key has been in work that has been there longest",
                    |m| seconds(m.stats.longest_running),
                ),
                gauge("workqueue_oldest_in_line_seconds", time, "How long the first in line has waited", |m| {
                    seconds(m.stats.oldest_in_line)
                }),
                gauge(
                    "workqueue_next_deadline_seconds",
                    time,
                    "In what time the earliest delay is over; 0: overdue, infinite: none",
                    |m| {
                        m.stats
                            .next_deadline
                            .filter(|&left| left < Duration::MAX)
                            .map_or(f64::INFINITY, |left| left.as_secs_f64())
                    },
                ),
            ],
            counters: [
                counter("workqueue_adds_total", "Adds that led to a hand-out of their own, or will", |m| {
                    m.stats.adds()
                }),
                counter("workqueue_retries_total", "Adds with a delay, or with the limiter's", |m| m.stats.retries),
                counter("workqueue_failures_total", "Adds with the limiter's delay", |m| m.stats.failures),
                counter("workqueue_coalesced_total", "Adds that changed nothing", |m| m.stats.coalesced),
                counter("workqueue_rejected_total", "Adds after the shut-down", |m| m.stats.rejected),
                counter("workqueue_given_up_total", "Keys that were given up", |m| m.stats.given_up),
                counter("workqueue_panics_total", "Panics of who held a key", |m| m.stats.panics),
            ],
            histograms: [
                histogram(
                    "workqueue_queue_duration_seconds",
                    "How long keys waited before they were handed out",
                    |m| &m.queue_duration,
                ),
                histogram("workqueue_work_duration_seconds", "How long keys were worked on", |m| &m.work_duration),
            ],
        }
    }

    fn tell(&mut self, now: &Metrics) {
        // Of two threads' reports, the one that was made first may come last.
        let events = |m: &Metrics| {
            let s = m.stats;
            s.adds()
                + s.handed_out
                + m.work_duration.count()
                + s.retries
                + s.coalesced
                + s.rejected
                + s.given_up
                + s.panics
        };
        if events(now) < events(&self.told) {
            return;
        }
        let told = std::mem::replace(&mut self.told, now.clone());
        for (gauge, of) in &self.gauges {
            gauge.set(of(now));
        }
        for (counter, of) in &self.counters {
            // Not `absolute`: two queues of one name are counted together.
            counter.increment(of(now).saturating_sub(of(&told)));
        }
        for (histogram, of) in &self.histograms {
            for (duration, count) in of(now).since(of(&told)).buckets() {
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
