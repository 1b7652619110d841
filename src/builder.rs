//! Queue configuration.

use crate::observe::Observer;
use crate::rate_limiter::{RateLimiter, default_backoff};
use crate::shared::{Limiter, MAX_SHARDS, Order, Settings, Shared, start_driver_thread};
use crate::sync::Arc;
use crate::{Clock, DelayedAdd, Driver, InvalidArgument, OnPanic, WorkQueue};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Configures and builds a [`WorkQueue`].
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::<u64>::builder().name("pods").capacity(10_000).build();
/// assert_eq!(queue.inspect().name(), "pods");
/// ```
#[must_use = "a builder does nothing until `build`"]
#[doc(alias = "QueueConfig")]
#[doc(alias = "TypedQueueConfig")]
#[doc(alias = "DelayingQueueConfig")]
#[doc(alias = "TypedDelayingQueueConfig")]
#[doc(alias = "RateLimitingQueueConfig")]
#[doc(alias = "TypedRateLimitingQueueConfig")]
pub struct WorkQueueBuilder<K> {
    settings: Settings,
    limiter: Limiter<K>,
    order: Order<K>,
    /// As the user has set it.
    max_processing_per_group: Option<usize>,
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
        let limiter = Limiter::Inline(Box::new(default_backoff()));
        Self { settings, limiter, order: Order::default(), max_processing_per_group: None }
    }

    /// The queue's name, in `Debug` output, metrics, spans, and the names of its workers' threads. Empty by default.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().name("pods").build();
    /// assert_eq!(queue.inspect().name(), "pods");
    /// ```
    #[doc(alias = "NewNamed")]
    #[doc(alias = "NewNamedDelayingQueue")]
    #[doc(alias = "NewNamedRateLimitingQueue")]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into().into_boxed_str();
        self
    }

    /// The number of shards: parts of the queue with a lock, a table, a line and a timing wheel each. 1 by default. Rounded up to a power
    /// of two; at most 64, and 0 counts as 1.
    ///
    /// With one shard, all calls take turns at one lock, and the queue is strictly first in, first out. With more, threads that work on keys
    /// of different shards do not meet, and the order, also by [priority](crate::Priority), is weaker: see [several shards](crate::how_it_works#several-shards).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().shards(16).build();
    /// assert_eq!(queue.shards(), 16);
    /// ```
    pub fn shards(mut self, n: usize) -> Self {
        self.settings.shards = n.clamp(1, MAX_SHARDS).next_power_of_two();
        self
    }

    /// The number of keys for which the queue allocates room when it is built, and keeps it until
    /// [`shrink_to_fit`](WorkQueue::shrink_to_fit). A hint that avoids growing, not a limit. Values above 2^24 count as 2^24. 0 by
    /// default.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().capacity(100_000).build();
    /// queue.add_all(0..100_000); // the table does not grow meanwhile
    /// ```
    pub fn capacity(mut self, keys: usize) -> Self {
        self.settings.capacity = keys.min(1 << 24);
        self
    }

    /// The limiter, which says how long a key waits for its [retry](crate::Item::retry), or after it was added
    /// [rate-limited](WorkQueue::add_rate_limited).
    ///
    /// It does not limit plain [adds](WorkQueue::add), nor hand-outs: see
    /// [what a limiter limits](crate::rate_limiter#what-they-limit).
    ///
    /// By default an [`ItemExponentialFailure`](crate::rate_limiter::ItemExponentialFailure) of 5 ms to 1000 s, and, unlike in
    /// client-go, no bucket for all keys together. A limiter that reads a clock has a clock of its own: if you set the queue's
    /// [clock](Self::clock), give the limiter the same.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::rate_limiter::ItemExponentialFailure;
    /// use std::time::Duration;
    ///
    /// let backoff = ItemExponentialFailure::new(Duration::from_millis(100), Duration::from_secs(60));
    /// let queue = WorkQueue::<u32>::builder().rate_limiter(backoff).build();
    /// ```
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.limiter = match limiter.schedule() {
            Some(schedule) => Limiter::Inline(schedule),
            None => Limiter::External(Box::new(limiter)),
        };
        self
    }

    /// The clock by which delays expire. The system's by default; [`Clock::mock`] is for tests.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, WorkQueue};
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::<u32>::builder().clock(clock).build();
    /// ```
    #[doc(alias = "NewDelayingQueueWithCustomClock")]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// What adds keys whose delays have expired: by default a thread of the queue, otherwise only callers of
    /// [`turn`](WorkQueue::turn).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::builder().driver(Driver::Manual).build();
    /// queue.add_after("pod-1", Duration::from_nanos(1));
    /// while queue.turn() == 0 {} // an event loop of yours calls it
    /// assert_eq!(queue.len(), 1);
    /// ```
    pub fn driver(mut self, driver: Driver) -> Self {
        self.settings.driver = driver;
        self
    }

    /// What happens to a key whose holder panics.
    ///
    /// If this is not set: the key of an [`Item`](crate::Item) that is dropped by a panic is done, since retrying a key that panics each
    /// time would end one thread after the other. [`Workers`](crate::Workers), which catch panics, retry it.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{OnPanic, WorkQueue};
    /// use std::panic::{AssertUnwindSafe, catch_unwind};
    ///
    /// let queue = WorkQueue::builder().on_panic(OnPanic::Retry).build();
    /// queue.add("pod-1");
    /// let panics = || {
    ///     let _item = queue.get();
    ///     panic!("a bug");
    /// };
    /// assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    /// assert_eq!(*queue.get().unwrap(), "pod-1"); // after 5 ms
    /// ```
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.settings.on_panic = Some(policy);
        self
    }

    /// Measures how long keys wait and are processed, for [`metrics`](crate::Inspect::metrics), [`Item::waited`](crate::Item::waited) and
    /// the ages in [`Stats`](crate::Stats). Off by default, unless there is an [observer](Self::observer).
    ///
    /// Costs 32 bytes per key, and 70 ns from the key's add to its done, mostly for reading the clock three times. If keys become dirty
    /// faster than a million per second, one in eight is measured, and counts for the others: 15 ns. Keys of a queue with
    /// [priorities](crate::AddOptions::priority) are all measured, and each priority that is used takes 4 KiB in each shard.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder().measure(true).build();
    /// queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// println!("waited for {:?}", item.waited());
    /// drop(item);
    /// println!("{:?}", queue.inspect().metrics().work_duration);
    /// ```
    pub fn measure(mut self, measure: bool) -> Self {
        self.settings.measure = measure;
        self
    }

    /// Receives the queue's events. None by default. A second call replaces the first observer.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::observe::Observer;
    /// use keyqueue::{Added, WorkQueue};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// #[derive(Default)]
    /// struct Rejected(Arc<AtomicUsize>);
    ///
    /// impl Observer for Rejected {
    ///     fn added(&self, added: Added) {
    ///         self.0.fetch_add(usize::from(added == Added::Rejected), Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let rejected = Arc::<AtomicUsize>::default();
    /// let queue = WorkQueue::builder().observer(Rejected(Arc::clone(&rejected))).build();
    /// queue.shut_down();
    /// queue.add("pod-1");
    /// assert_eq!(rejected.load(Ordering::Relaxed), 1);
    /// ```
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observer = Some(Box::new(observer));
        self
    }

    /// Whether lower [priorities](crate::Priority) wait for as long as higher ones have keys. `false` by default: of any 16 hand-outs one
    /// goes to a level below the highest.
    ///
    /// With several [shards](Self::shards) lower ones may still be handed out, at most about `4 * (shards + getters)` of them, while a key of
    /// a higher priority is queued: a getter that stays with another shard does not see the key until it chooses again.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, Priority, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().strict_priorities(true).build();
    /// queue.add_with(0, AddOptions::new().priority(Priority::LOW));
    /// for key in 1..100 {
    ///     queue.add_with(key, AddOptions::new().priority(Priority::HIGH));
    /// }
    /// let order: Vec<_> = (0..100).map(|_| *queue.get().unwrap()).collect();
    /// assert_eq!(order.last(), Some(&0)); // otherwise about the 16th
    /// ```
    pub fn strict_priorities(mut self, strict: bool) -> Self {
        self.order.settings.strict = strict;
        self
    }

    /// Groups of keys (namespaces, tenants, hosts) take turns, so that none drowns the others: each group with queued keys gives
    /// [`group_weight`](Self::group_weight) keys (1 by default), and then goes to the end. Within a group keys are first in, first out; with
    /// priorities, groups take turns within a level. A group that had no queued keys joins at the end, without credit. With several
    /// [shards](Self::shards) the groups take turns in each. By default keys have no groups.
    ///
    /// A group is known by a 32-bit hash of what the function returns: two groups with the same hash count as one. The function is asked
    /// once for a key that is new to the queue (or twice, if two threads add it at a time), under no lock. If it panics, the add does,
    /// and has no effect.
    ///
    /// The turns are a deficit round robin with a cost of one (Shreedhar and Varghese, "Efficient fair queueing using deficit round robin",
    /// 1995), so a hand-out takes the same time however many groups there are.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().fair_by(|&(tenant, _): &(u8, u32)| tenant).build();
    /// queue.add_all((0..1000).map(|n| (1, n)));
    /// queue.add((2, 0));
    /// let tenants: Vec<u8> = (0..4).map(|_| queue.get().unwrap().0).collect();
    /// assert_eq!(tenants, [1, 2, 1, 1]);
    /// ```
    pub fn fair_by<G: Hash>(mut self, group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        self.order.settings.fair = true;
        self.order.group_of = Some(Box::new(move |key, hasher| hasher.hash_one(group(key)) as u32));
        self
    }

    /// How many keys a group gives in a turn, asked with each new key; that of the key with which the group begins to have keys counts. From 1 to
    /// 1000: other values are clamped. Needs [`fair_by`](Self::fair_by). 1 by default.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder()
    ///     .fair_by(|&(tenant, _): &(&str, u32)| tenant.to_owned())
    ///     .group_weight(|&(tenant, _)| if tenant == "paid" { 2 } else { 1 })
    ///     .build();
    /// queue.add_all((0..3).flat_map(|n| [("free", n), ("paid", n)]));
    /// let order: Vec<_> = (0..6).map(|_| queue.get().unwrap().0).collect();
    /// assert_eq!(order, ["free", "paid", "paid", "free", "paid", "free"]);
    /// ```
    pub fn group_weight(mut self, weight: impl Fn(&K) -> u32 + Send + Sync + 'static) -> Self {
        self.order.weight_of = Some(Box::new(weight));
        self
    }

    /// The number of keys of a group that may be processing at a time. Needs [`fair_by`](Self::fair_by), and a queue with one shard. No limit
    /// by default.
    ///
    /// A queued key of a group that is full is not handed out until one of the group's keys is done; it counts in
    /// [`len`](WorkQueue::len), and drains wait for it. A group that was full joins at the end of the turns. After a shut-down a getter waits while such keys are queued.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder().fair_by(|&(host, _): &(&str, u32)| host.to_owned()).max_processing_per_group(1).build();
    /// queue.add_all([("a.example", 1), ("a.example", 2), ("b.example", 1)]);
    /// let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    /// assert_eq!((*first, *second), (("a.example", 1), ("b.example", 1)));
    /// assert!(queue.try_get().is_err()); // one key is queued, and its host has one in work
    /// first.done();
    /// assert_eq!(*queue.get().unwrap(), ("a.example", 2));
    /// ```
    pub fn max_processing_per_group(mut self, n: usize) -> Self {
        self.max_processing_per_group = Some(n);
        self
    }

    /// What an [`add`](WorkQueue::add) of a delayed key does. [`DelayedAdd::Independent`] by default.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{DelayedAdd, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::builder().delayed_add(DelayedAdd::Promote).build();
    /// queue.add_after("pod-1", Duration::from_secs(60));
    /// queue.add("pod-1"); // instead of the delay
    /// assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
    /// ```
    pub fn delayed_add(mut self, policy: DelayedAdd) -> Self {
        self.settings.delayed_add = policy;
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueueBuilder<K> {
    /// Builds the queue.
    ///
    /// # Panics
    /// If [`try_build`](Self::try_build) returns an error.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().name("pods").measure(true).build();
    /// queue.add("pod-1");
    /// ```
    #[must_use]
    pub fn build(self) -> WorkQueue<K> {
        self.build_with(start_driver_thread)
    }

    /// Builds the queue.
    ///
    /// # Errors
    /// If there is a [weight](Self::group_weight) or a [limit](Self::max_processing_per_group) without [`fair_by`](Self::fair_by), or a
    /// limit of 0, or a limit in a queue with several shards, where it could not be exact.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let error = WorkQueue::<u32>::builder().max_processing_per_group(1).try_build().unwrap_err();
    /// assert_eq!(error.argument(), "max_processing_per_group"); // a limit needs `fair_by`
    /// ```
    pub fn try_build(mut self) -> Result<WorkQueue<K>, InvalidArgument> {
        self.check()?;
        Ok(self.build_with(start_driver_thread))
    }

    /// Checks the arguments that depend on each other.
    fn check(&mut self) -> Result<(), InvalidArgument> {
        if self.order.weight_of.is_some() && self.order.group_of.is_none() {
            return Err(InvalidArgument::new("group_weight", "a function", "it needs `fair_by`"));
        }
        let Some(limit) = self.max_processing_per_group else { return Ok(()) };
        let why = if self.order.group_of.is_none() {
            "it needs `fair_by`"
        } else if limit == 0 {
            "no key would be handed out"
        } else if self.settings.shards > 1 {
            "with several shards it would not be exact"
        } else {
            // A limit above 2^32 keys is none: a queue has fewer.
            self.order.settings.limit = u32::try_from(limit).ok().filter(|limit| *limit < u32::MAX);
            return Ok(());
        };
        Err(InvalidArgument::new("max_processing_per_group", limit, why))
    }

    /// Like [`build`](Self::build). `start` starts the driver thread; in a test it may return an error.
    pub(crate) fn build_with(mut self, start: fn(&Arc<Shared<K>>) -> std::io::Result<()>) -> WorkQueue<K> {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        WorkQueue { shared: Arc::new(Shared::new(self.settings, self.limiter, self.order, start)) }
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
            .field("strict_priorities", &self.order.settings.strict)
            .field("fair_by", &self.order.settings.fair)
            .field("max_processing_per_group", &self.max_processing_per_group)
            .finish_non_exhaustive()
    }
}
