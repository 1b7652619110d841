//! Metrics and events of a queue: [`Metrics`] with their [`Histogram`]s, the trait [`Observer`] for events, and the [`Reporter`], a
//! thread that reports metrics from time to time.
//!
//! None of these names keys, as a time series per key overloads a metrics server. For single keys there are
//! [`WorkQueue::processing_keys`](crate::WorkQueue::processing_keys) and
//! [`WorkQueue::delayed_keys`](crate::WorkQueue::delayed_keys), the hooks of [`Workers`](crate::Workers), and spans.

mod histogram;
#[cfg(feature = "metrics")]
mod metrics_observer;
mod observer;
mod reporter;

pub use histogram::Histogram;
#[cfg(feature = "metrics")]
pub use metrics_observer::MetricsObserver;
pub use observer::Observer;
pub use reporter::Reporter;

use crate::{Priority, Stats};

/// A consistent snapshot of a queue's counters and histograms, from [`WorkQueue::metrics`](crate::WorkQueue::metrics).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::builder().measure(true).build();
/// queue.add("pod-1");
/// queue.get().unwrap().done();
/// let metrics = queue.metrics();
/// println!("{} keys, p99 of the work {:?}", metrics.stats.handed_out, metrics.work_duration.quantile(0.99));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Metrics {
    /// Counts, and ages of keys.
    pub stats: Stats,
    /// How long keys waited before they were handed out, from the add that made them dirty: for a key that was added while it was
    /// processing, this includes some of that processing. Client-go's `workqueue_queue_duration_seconds`.
    pub queue_duration: Histogram,
    /// How long keys that are done were processing. Client-go's `workqueue_work_duration_seconds`.
    pub work_duration: Histogram,
    /// The level NORMAL, and those in which keys are queued or, if the queue measures, were handed out; highest first. Empty in a queue without
    /// [priorities](crate::AddOptions::priority) and [groups](crate::WorkQueueBuilder::fair_by).
    pub levels: Vec<LevelMetrics>,
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
/// for level in queue.metrics().levels {
///     println!("priority {}: {} queued, p99 of the wait {:?}", level.priority.0, level.len, level.queue_duration.quantile(0.99));
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct LevelMetrics {
    /// The priority.
    pub priority: Priority,
    /// Keys of it that are queued.
    pub len: usize,
    /// How long the keys that were handed out with it have waited. The levels' durations add up to [`Metrics::queue_duration`]. A key that
    /// was raised counts with its highest priority, and with all its wait.
    pub queue_duration: Histogram,
}

impl Metrics {
    /// The level of this priority.
    pub(crate) fn level(&mut self, priority: Priority) -> &mut LevelMetrics {
        let place = self.levels.binary_search_by(|level| priority.cmp(&level.priority));
        let place = place.unwrap_or_else(|place| {
            self.levels.insert(place, LevelMetrics { priority, ..LevelMetrics::default() });
            place
        });
        &mut self.levels[place]
    }
}
