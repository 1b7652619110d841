//! Queues that are not the default one.

use crate::observe::Observer;
use crate::rate_limiter::{RateLimiter, default_backoff};
use crate::shared::{Limiter, Settings, Shared};
use crate::sync::Arc;
use crate::time::driver;
use crate::{Clock, DelayedAdd, Driver, OnPanic, WorkQueue};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Makes a [`WorkQueue`] that differs from [`WorkQueue::new`]'s.
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
            capacity: 0,
            clock: Clock::default(),
            driver: Driver::default(),
            delayed_add: DelayedAdd::default(),
            on_panic: None,
            measure: false,
            observer: None,
        };
        Self { settings, limiter: Limiter::Counted(Box::new(default_backoff())) }
    }

    /// What the queue is called in `Debug` output, in metrics and spans, and its workers' threads with it. Empty by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into().into_boxed_str();
        self
    }

    /// How many keys the table and the line have room for from the beginning, and keep room for until
    /// [`shrink_to_fit`](WorkQueue::shrink_to_fit): a hint that saves growing, never a limit. At most 2^24 are taken into
    /// account. 0 by default.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.settings.capacity = keys.min(1 << 24);
        self
    }

    /// How long keys wait that are [rate-limited](WorkQueue::add_rate_limited).
    ///
    /// By default an [`ItemExponentialFailure`](crate::rate_limiter::ItemExponentialFailure) of 5 ms to 1000 s, and, other than
    /// with client-go, no bucket for all keys together. A limiter that reads a clock has its own: give it this queue's, if you
    /// set [one](Self::clock).
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.limiter = match limiter.schedule() {
            Some(schedule) => Limiter::Counted(schedule),
            None => Limiter::Asked(Box::new(limiter)),
        };
        self
    }

    /// The clock by which delays come due. The real one by default; [`Clock::mock`] is for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// Who delivers keys that are due: a thread of the queue's own, by default, or nobody but callers of
    /// [`turn`](WorkQueue::turn).
    pub fn driver(mut self, driver: Driver) -> Self {
        self.settings.driver = driver;
        self
    }

    /// What becomes of a key whose holder panics.
    ///
    /// If this is not called: an [`Item`](crate::Item) that unwinds is done, as one that is dropped, since a key whose work panics
    /// each time would take down one thread after the other; [`Workers`](crate::Workers), which catch panics, retry it.
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.settings.on_panic = Some(policy);
        self
    }

    /// Keeps times: how long keys wait and are worked on ([`metrics`](WorkQueue::metrics), [`Item::waited`](crate::Item::waited), and
    /// the ages in [`Stats`](crate::Stats)). Off by default, unless there is an [observer](Self::observer).
    ///
    /// Costs 32 bytes a key, and 70 ns from its add to its done, most of them for three readings of the clock. If keys become dirty
    /// faster than a million a second, one in eight is measured, and counts for the others: 15 ns.
    pub fn measure(mut self, measure: bool) -> Self {
        self.settings.measure = measure;
        self
    }

    /// Who is told what happens. There is none by default. One at most: a later call takes the place of an earlier.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observer = Some(Box::new(observer));
        self
    }

    /// What an [`add`](WorkQueue::add) does for a key that is delayed. [`DelayedAdd::Independent`] by default.
    pub fn delayed_add(mut self, policy: DelayedAdd) -> Self {
        self.settings.delayed_add = policy;
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueueBuilder<K> {
    /// Makes the queue.
    #[must_use]
    pub fn build(self) -> WorkQueue<K> {
        self.build_with(driver::start)
    }

    /// As [`build`](Self::build). `start` starts the driver thread; a test's may refuse to.
    pub(crate) fn build_with(self, start: fn(&Arc<Shared<K>>) -> std::io::Result<()>) -> WorkQueue<K> {
        WorkQueue { shared: Arc::new(Shared::new(self.settings, self.limiter, start)) }
    }
}

// A builder calls neither its limiter nor its observer.
impl<K> UnwindSafe for WorkQueueBuilder<K> {}
impl<K> RefUnwindSafe for WorkQueueBuilder<K> {}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { name, capacity, clock, driver, delayed_add, on_panic, measure, observer: _ } = &self.settings;
        f.debug_struct("WorkQueueBuilder")
            .field("name", name)
            .field("capacity", capacity)
            .field("clock", clock)
            .field("driver", driver)
            .field("delayed_add", delayed_add)
            .field("on_panic", on_panic)
            .field("measure", measure)
            .finish_non_exhaustive()
    }
}
