//! Queue configuration.

use crate::observe::Observer;
use crate::rate_limiter::{RateLimiter, default_backoff};
use crate::shared::{Limiter, MAX_SHARDS, Settings, Shared, start_driver_thread};
use crate::sync::Arc;
use crate::{Clock, DelayedAdd, Driver, OnPanic, WorkQueue};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Configures and builds a [`WorkQueue`].
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::<u64>::builder().name("pods").capacity(10_000).build();
/// assert_eq!(queue.name(), "pods");
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct WorkQueueBuilder<K> {
    settings: Settings,
    limiter: Limiter<K>,
}

impl<K> WorkQueueBuilder<K> {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            name: Box::default(),
            shards: 1,
            capacity: 0,
            clock: Clock::default(),
            driver: Driver::default(),
            delayed_add: DelayedAdd::default(),
            on_panic: None,
            measure: false,
            observer: None,
        };
        Self { settings, limiter: Limiter::Inline(Box::new(default_backoff())) }
    }

    /// The queue's name, in `Debug` output, metrics, spans, and the names of its workers' threads. Empty by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into().into_boxed_str();
        self
    }

    /// The number of shards: parts of the queue with a lock, a table, a line and a timing wheel each. 1 by default. Rounded up to a power
    /// of two; at most 64, and 0 counts as 1.
    ///
    /// With one shard, all calls take turns at one lock, and the queue is strictly first in, first out. With more, threads that work on keys
    /// of different shards do not meet, and the order is weaker: see the crate's page, "Shards".
    pub fn shards(mut self, n: usize) -> Self {
        self.settings.shards = n.clamp(1, MAX_SHARDS).next_power_of_two();
        self
    }

    /// The number of keys for which the queue allocates room when it is built, and keeps it until
    /// [`shrink_to_fit`](WorkQueue::shrink_to_fit). A hint that avoids growing, not a limit. Values above 2^24 count as 2^24. 0 by
    /// default.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.settings.capacity = keys.min(1 << 24);
        self
    }

    /// The limiter, which says how long [rate-limited](WorkQueue::add_rate_limited) keys wait.
    ///
    /// By default an [`ItemExponentialFailure`](crate::rate_limiter::ItemExponentialFailure) of 5 ms to 1000 s, and, unlike in
    /// client-go, no bucket for all keys together. A limiter that reads a clock has a clock of its own: if you set the queue's
    /// [clock](Self::clock), give the limiter the same.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.limiter = match limiter.schedule() {
            Some(schedule) => Limiter::Inline(schedule),
            None => Limiter::External(Box::new(limiter)),
        };
        self
    }

    /// The clock by which delays expire. The system's by default; [`Clock::mock`] is for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// What adds keys whose delays have expired: by default a thread of the queue, otherwise only callers of
    /// [`turn`](WorkQueue::turn).
    pub fn driver(mut self, driver: Driver) -> Self {
        self.settings.driver = driver;
        self
    }

    /// What happens to a key whose holder panics.
    ///
    /// If this is not set: the key of an [`Item`](crate::Item) that is dropped by a panic is done, since retrying a key that panics each
    /// time would end one thread after the other. [`Workers`](crate::Workers), which catch panics, retry it.
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.settings.on_panic = Some(policy);
        self
    }

    /// Measures how long keys wait and are processed, for [`metrics`](WorkQueue::metrics), [`Item::waited`](crate::Item::waited) and
    /// the ages in [`Stats`](crate::Stats). Off by default, unless there is an [observer](Self::observer).
    ///
    /// Costs 32 bytes per key, and 70 ns from the key's add to its done, mostly for reading the clock three times. If keys become dirty
    /// faster than a million per second, one in eight is measured, and counts for the others: 15 ns.
    pub fn measure(mut self, measure: bool) -> Self {
        self.settings.measure = measure;
        self
    }

    /// Receives the queue's events. None by default. A second call replaces the first observer.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observer = Some(Box::new(observer));
        self
    }

    /// What an [`add`](WorkQueue::add) of a delayed key does. [`DelayedAdd::Independent`] by default.
    pub fn delayed_add(mut self, policy: DelayedAdd) -> Self {
        self.settings.delayed_add = policy;
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueueBuilder<K> {
    /// Builds the queue.
    #[must_use]
    pub fn build(self) -> WorkQueue<K> {
        self.build_with(start_driver_thread)
    }

    /// Like [`build`](Self::build). `start` starts the driver thread; in a test it may return an error.
    pub(crate) fn build_with(self, start: fn(&Arc<Shared<K>>) -> std::io::Result<()>) -> WorkQueue<K> {
        WorkQueue { shared: Arc::new(Shared::new(self.settings, self.limiter, start)) }
    }
}

// A builder calls neither its limiter nor its observer.
impl<K> UnwindSafe for WorkQueueBuilder<K> {}
impl<K> RefUnwindSafe for WorkQueueBuilder<K> {}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { name, shards, capacity, clock, driver, delayed_add, on_panic, measure, observer: _ } =
            &self.settings;
        f.debug_struct("WorkQueueBuilder")
            .field("name", name)
            .field("shards", shards)
            .field("capacity", capacity)
            .field("clock", clock)
            .field("driver", driver)
            .field("delayed_add", delayed_add)
            .field("on_panic", on_panic)
            .field("measure", measure)
            .finish_non_exhaustive()
    }
}
