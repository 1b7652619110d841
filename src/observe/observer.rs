//! Receives queue events.

use super::Metrics;
use crate::Added;
use std::time::Duration;

/// Receives the events of a queue as they happen; set by [`WorkQueueBuilder::observer`](crate::WorkQueueBuilder::observer).
///
/// By default every method does nothing. The thread that calls the queue calls the observer. (For delays that expire, this is the queue's
/// own thread.) The step is complete then, and the thread holds no lock, so an observer may use the queue. Events of several threads may
/// arrive in another order than their steps.
///
/// An observer lives as long as its queue. If it holds a handle of the queue, both are never freed.
///
/// Events name no keys, because a time series for each key overloads a metrics server. For single keys, see the hooks of
/// [`Workers`](crate::Workers), and spans.
///
/// For metrics, [`report`](Self::report) with an [`interval`](Self::interval) is enough. The queue counts each event in any case. An add
/// also looks whether a report is scheduled.
///
/// # Panics
/// A panic of an observer passes through the call that caused the event. That call has taken effect. The observer is not told of the
/// events of this call that come later; the same holds if a key's drop panics. If both panic in one call, the second panic comes while
/// the thread unwinds, and aborts the process, as always in Rust. The queue catches and [counts](crate::Stats::caught_panics) only
/// panics in `handed_out` and `driver_failed`: the key goes to its holder. The queue's own thread goes on after a panic, and reports
/// again an interval later.
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
    /// A key was added or refused, or a delay was set; or a delay has expired, which adds its key.
    fn added(&self, added: Added) {
        let _ = added;
    }

    /// A key was handed out, `waited` after it became dirty. `None`: the queue did not measure the key. (With more than a million keys a
    /// second, it measures one in eight.)
    fn handed_out(&self, waited: Option<Duration>) {
        let _ = waited;
    }

    /// A key is done, after it was processing for `worked`. `None`: not measured, as in `handed_out`.
    fn done(&self, worked: Option<Duration>) {
        let _ = worked;
    }

    /// A key was given up.
    fn given_up(&self) {}

    /// A holder of a key has panicked, or the limiter has when a holder called it.
    fn panicked(&self) {}

    /// The system could not start the driver thread. Delays are still set, and a later call tries again: see
    /// [`Driver::Thread`](crate::Driver::Thread).
    fn driver_failed(&self, error: &std::io::Error) {
        let _ = error;
    }

    /// The metrics of the queue of this name: at the [`interval`](Self::interval), or from
    /// [`Inspect::report`](crate::Inspect::report).
    fn report(&self, queue: &str, metrics: &Metrics) {
        let _ = (queue, metrics);
    }

    /// How often the queue calls [`report`](Self::report) by itself. `None`, the default: never. Read once, when the queue is built.
    ///
    /// With an interval, the queue reports while it has keys: queued, processing or delayed ones. The first report comes one interval after
    /// the first add. When the last key is gone, the queue reports once more. The next add starts the reports again. After a shut-down,
    /// delayed keys do not count. Nothing has to be started. Reports do not keep the queue alive: if you drop the queue, they end. To get
    /// the last numbers, call [`Inspect::report`](crate::Inspect::report) before. An interval below a millisecond counts as one
    /// millisecond.
    ///
    /// The driver thread calls `report`. The first add starts this thread. With [`Driver::Manual`](crate::Driver::Manual),
    /// [`turn`](crate::WorkQueue::turn) calls `report` when one is due. If a delay expires during a report, the queue adds its key when the
    /// report ends.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::observe::{Metrics, Observer};
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use std::time::Duration;
    ///
    /// #[derive(Clone, Default)]
    /// struct Depth(Arc<AtomicUsize>);
    ///
    /// impl Observer for Depth {
    ///     fn report(&self, _queue: &str, metrics: &Metrics) {
    ///         self.0.store(metrics.stats.len, Ordering::Relaxed);
    ///     }
    ///
    ///     fn interval(&self) -> Option<Duration> {
    ///         Some(Duration::from_secs(5))
    ///     }
    /// }
    ///
    /// let (depth, (clock, time)) = (Depth::default(), Clock::mock());
    /// let queue = WorkQueue::builder().observer(depth.clone()).clock(clock).driver(Driver::Manual).build();
    /// queue.add_all(["pod-1", "pod-2"]);
    /// time.advance(Duration::from_secs(5));
    /// queue.turn(); // without `Driver::Manual` the queue's thread does this
    /// assert_eq!(depth.0.load(Ordering::Relaxed), 2);
    /// ```
    #[doc(alias = "unfinishedWorkUpdatePeriod")]
    #[doc(alias = "updateUnfinishedWorkLoop")]
    fn interval(&self) -> Option<Duration> {
        None
    }
}
