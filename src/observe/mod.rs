//! Metrics and events of a queue: [`Metrics`] with their [`Histogram`]s and [`Runs`], and the trait [`Observer`] for events and reports.
//!
//! An observer with an [interval](Observer::interval) is given the metrics while there are keys, and nothing has to be started; that of the
//! feature `metrics` has one of 500 ms. A program that also wants reports of an idle queue calls
//! [`Inspect::report`](crate::Inspect::report) by itself.
//!
//! Metrics and events name no keys, because a time series for each key overloads a metrics server. For single keys, see
//! [`Inspect::processing_keys`](crate::Inspect::processing_keys) and [`Inspect::delayed_keys`](crate::Inspect::delayed_keys), the hooks of
//! [`Workers`](crate::Workers), and spans.

#[cfg(feature = "metrics")]
mod metrics_observer;
mod observer;
mod run_counters;

pub use crate::histogram::Histogram;
#[cfg(feature = "metrics")]
pub use metrics_observer::MetricsObserver;
pub use observer::Observer;
pub(crate) use run_counters::RunCounters;

use crate::{Priority, Stats};
use std::time::Duration;

/// A consistent snapshot of a queue's counters and histograms, with the counts of its workers.
/// [`Inspect::metrics`](crate::Inspect::metrics) returns it.
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::builder().measure(true).build();
/// queue.add("pod-1");
/// queue.get().unwrap().done();
/// let metrics = queue.inspect().metrics();
/// println!(
///     "{} keys, p99 of the work {:?}",
///     metrics.stats.handed_out,
///     metrics.work_duration.quantile(0.99)
/// );
/// ```
#[doc(alias = "queueMetrics")]
#[doc(alias = "defaultQueueMetrics")]
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Metrics {
    /// Counts, and ages of keys.
    pub stats: Stats,
    /// How long keys waited, from the add that made them dirty until the hand-out. If a key was added while it was processing, the rest of
    /// that processing counts too. This is client-go's `workqueue_queue_duration_seconds`.
    pub queue_duration: Histogram,
    /// How long keys were processing, from the hand-out until `done`. This is client-go's `workqueue_work_duration_seconds`.
    pub work_duration: Histogram,
    /// The priorities, highest first: NORMAL, each that has queued keys, and, if the queue measures, each that had hand-outs. Empty in a
    /// queue without [priorities](crate::AddOptions::priority) and [groups](crate::WorkQueueBuilder::fair_by).
    pub levels: Vec<LevelMetrics>,
    /// Runs of the handlers of the queue's [`Workers`](crate::Workers), by their result. Read after the other numbers, so they may
    /// include runs that ended meanwhile.
    pub runs: Runs,
    /// The [groups](crate::WorkQueueBuilder::fair_by) together. `None` in a queue without groups.
    pub groups: Option<GroupMetrics>,
}

/// What [`Metrics::groups`] says of all groups together. [`Stats`] has the numbers of those that are full, throttled and paused.
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
///
/// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
/// queue.add_all(0..100);
/// let _items = queue.get_many(10);
/// let groups = queue.inspect().metrics().groups.unwrap();
/// assert_eq!((groups.active, groups.fairness, groups.largest_share), (2, 1.0, 0.5));
/// ```
#[doc(alias = "tenants")]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct GroupMetrics {
    /// Groups that have queued or processing keys.
    pub active: usize,
    /// Groups that have a [limit or a rate](crate::GroupLimits).
    pub limited: usize,
    /// How equal the [shares](crate::GroupStats::share) of the active groups are, each divided by its weight: *Jain's index*, which is 1 if
    /// they are equal, and 1/n if one of n groups has all. It is low, too, if groups have few keys.
    #[doc(alias = "jain")]
    pub fairness: f64,
    /// The largest share of a group.
    pub largest_share: f64,
    /// The longest time that the first queued key of a group has waited. `None` if no group has a queued key, or the queue does not
    /// [measure](crate::WorkQueueBuilder::measure).
    pub longest_wait: Option<Duration>,
}

/// How often handlers of [`Workers`](crate::Workers) have run, by their result; from [`Metrics::runs`].
///
/// This is the sum over all `Workers` of a queue, including dropped ones, so no number ever falls. When a run ends, it counts in exactly
/// one field, before its key is done. If a task is dropped while its handler waits, the run counts in none. Nor does a key that the program
/// takes with [`get`](crate::WorkQueue::get).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::{Outcome, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::<&str>::new();
/// let workers = queue.workers().spawn(2, |pod| match *pod.key() {
///     "pod-1" => Outcome::Success,
///     "pod-2" => Outcome::RequeueAfter(Duration::from_secs(60)),
///     _ => Outcome::GiveUp("it is gone".into()),
/// })?;
/// queue.add_all(["pod-1", "pod-2", "pod-3"]);
/// let _leftover = workers.drain();
/// let runs = queue.inspect().metrics().runs;
/// assert_eq!((runs.success, runs.requeue, runs.give_up), (1, 1, 1));
/// # std::io::Result::Ok(())
/// ```
#[doc(alias = "reconcile_total")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Runs {
    /// Runs that ended with [`Outcome::Success`](crate::Outcome::Success).
    pub success: u64,
    /// Runs that ended with [`Outcome::RequeueAfter`](crate::Outcome::RequeueAfter) or
    /// [`RequeueWith`](crate::Outcome::RequeueWith).
    pub requeue: u64,
    /// Runs that ended with [`Outcome::PauseGroup`](crate::Outcome::PauseGroup). In a queue without
    /// [groups](crate::WorkQueueBuilder::fair_by) these are failed runs.
    pub pause: u64,
    /// Failed runs whose key is retried, or would be, if the queue were not shut down.
    pub error: u64,
    /// Failed runs without a panic or a timeout whose key was given up: by [`Outcome::GiveUp`](crate::Outcome::GiveUp), or after
    /// [`max_retries`](crate::WorkersBuilder::max_retries), also if it comes back [later](crate::WorkersBuilder::then_after).
    pub give_up: u64,
    /// Runs in which the handler panicked.
    pub panic: u64,
    /// Runs of tasks whose handler was dropped at its [time limit](crate::WorkersBuilder::time_limit).
    pub timeout: u64,
    /// Runs that have lasted longer than their time limit, on threads and tasks. This is no result: each of them counts in another field,
    /// too, when it has ended.
    pub late: u64,
}

impl Runs {
    pub(crate) fn add(&mut self, other: Self) {
        let Self { success, requeue, pause, error, give_up, panic, timeout, late } = other;
        self.success += success;
        self.requeue += requeue;
        self.pause += pause;
        self.error += error;
        self.give_up += give_up;
        self.panic += panic;
        self.timeout += timeout;
        self.late += late;
    }
}

/// The keys of one priority, from [`Metrics::levels`].
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::{AddOptions, Priority, WorkQueue};
///
/// let queue = WorkQueue::builder().measure(true).build();
/// queue.add_with("pod-1", AddOptions::new().priority(Priority::HIGH));
/// queue.add("pod-2");
/// for level in queue.inspect().metrics().levels {
///     println!(
///         "priority {}: {} queued, p99 of the wait {:?}",
///         level.priority.0,
///         level.len,
///         level.queue_duration.quantile(0.99)
///     );
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct LevelMetrics {
    /// The priority.
    pub priority: Priority,
    /// Queued keys of this priority.
    pub len: usize,
    /// How long keys waited that were handed out with this priority. The durations of all priorities add up to [`Metrics::queue_duration`].
    /// If an add raised a key, the key counts with its highest priority and its whole wait.
    pub queue_duration: Histogram,
}

impl Metrics {
    pub(crate) fn level(&mut self, priority: Priority) -> &mut LevelMetrics {
        let place = self.levels.binary_search_by(|level| priority.cmp(&level.priority));
        let place = place.unwrap_or_else(|place| {
            self.levels.insert(place, LevelMetrics { priority, ..LevelMetrics::default() });
            place
        });
        &mut self.levels[place]
    }
}
