//! What a queue tells the outside: [`Metrics`] and their [`Histogram`]s, an [`Observer`] of its events, and a [`Reporter`] that
//! reports metrics from time to time.
//!
//! Nothing here says anything of single keys: a time series per key is what makes a metrics server fall over. For keys there are
//! [`WorkQueue::processing_keys`], the hooks of [`Workers`](crate::Workers), and spans.

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
#[cfg(doc)]
use crate::WorkQueue;

/// How a queue stands, from [`WorkQueue::metrics`](crate::WorkQueue::metrics): all of one moment.
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
