//! Metrics and events of a queue: [`Metrics`] with their [`Histogram`]s, the trait [`Observer`] for events, and the [`Reporter`], a
//! thread that reports metrics from time to time.
//!
//! None of these names keys, as a time series per key overloads a metrics server. For single keys there are
//! [`WorkQueue::processing_keys`](crate::WorkQueue::processing_keys), the hooks of [`Workers`](crate::Workers), and spans.

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

use crate::Stats;

/// A consistent snapshot of a queue's counters and histograms, from [`WorkQueue::metrics`](crate::WorkQueue::metrics).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Counts, and ages of keys.
    pub stats: Stats,
    /// How long keys waited before they were handed out, from the add that made them dirty: for a key that was added while it was
    /// processing, this includes some of that processing. Client-go's `workqueue_queue_duration_seconds`.
    pub queue_duration: Histogram,
    /// How long keys that are done were processing. Client-go's `workqueue_work_duration_seconds`.
    pub work_duration: Histogram,
}
