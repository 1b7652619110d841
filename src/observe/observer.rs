//! Who is told what happens in a queue.

use super::Metrics;
use crate::Added;
use std::time::Duration;

/// Is told what happens in a queue, as it happens; set by [`WorkQueueBuilder::observer`](crate::WorkQueueBuilder::observer).
///
/// Every method does nothing unless you write it. They are called by the thread that makes the call in question (by the queue's
/// own, for delays that are over), when its step is complete and no lock is held, so they may use the queue. Events of several
/// threads may therefore be told in another order than that in which they took effect.
///
/// An observer lives as long as its queue. One that holds a handle of the queue keeps both alive for ever.
///
/// What is told here says nothing of keys: a time series per key is what makes a metrics server fall over. For keys there are the
/// hooks of [`Workers`](crate::Workers), and spans.
///
/// For metrics, [`report`](Self::report) is enough, and costs those who use the queue nothing: it has counted each event already.
///
/// # Panics
/// An observer that panics does so in its caller's call, which has taken effect. But in `handed_out` and `driver_failed` the panic is
/// caught and [counted](crate::Stats::caught_panics): the key goes to its holder all the same.
///
/// # Examples
/// ```
/// use keyqueue::observe::Observer;
/// use keyqueue::{Added, WorkQueue};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// #[derive(Clone, Default)]
/// struct Refused(Arc<AtomicU64>);
///
/// impl Observer for Refused {
///     fn added(&self, added: Added) {
///         if added == Added::Rejected {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let refused = Refused::default();
/// let queue = WorkQueue::builder().observer(refused.clone()).build();
/// queue.shut_down();
/// queue.add("pod-1");
/// assert_eq!(refused.0.load(Ordering::Relaxed), 1);
/// ```
#[doc(alias = "MetricsProvider")]
pub trait Observer: Send + Sync {
    /// A key was added, or refused, or a delay set; or a delay is over, which adds its key.
    fn added(&self, added: Added) {
        let _ = added;
    }

    /// A key was handed out, so long after it became dirty. `None`: not measured, as keys become dirty faster than a million a
    /// second, or did just now (one in eight is measured then).
    fn handed_out(&self, waited: Option<Duration>) {
        let _ = waited;
    }

    /// The work on a key is finished, and took so long. `None`: as for `handed_out`.
    fn done(&self, worked: Option<Duration>) {
        let _ = worked;
    }

    /// A key was given up.
    fn given_up(&self) {}

    /// A holder of a key has panicked, or the limiter when a holder asked it.
    fn panicked(&self) {}

    /// The thread that delivers delayed keys could not be started. Delays are set all the same, and a later call tries again: see
    /// [`Driver::Thread`](crate::Driver::Thread).
    fn driver_failed(&self, error: &std::io::Error) {
        let _ = error;
    }

    /// How the queue of this name stands, because [`WorkQueue::report`](crate::WorkQueue::report) was called, or
    /// [`report_every`](crate::WorkQueue::report_every).
    fn report(&self, queue: &str, metrics: &Metrics) {
        let _ = (queue, metrics);
    }
}
