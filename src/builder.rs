//! Queue configuration.

use crate::observe::Observer;
use crate::rate_limiter::{RateLimiter, Schedule, default_backoff};
use crate::shared::{Limiter, MAX_SHARDS, Order, Settings, Shared, start_driver_thread};
use crate::sync::Arc;
use crate::{Clock, DelayedAdd, Driver, FairShare, GroupLimits, InvalidArgument, OnPanic, WorkQueue};
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueue<K> {
    /// Creates a queue with the default settings.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// ```
    #[doc(alias = "TypedNewDelayingQueue")]
    #[doc(alias = "NewQueue")]
    #[doc(alias = "NewDelayingQueue")]
    #[doc(alias = "NewTypedDelayingQueue")]
    #[doc(alias = "NewRateLimitingQueue")]
    #[doc(alias = "NewTypedRateLimitingQueue")]
    #[doc(alias = "priorityqueue.New")]
    #[doc(alias = "NewTyped")]
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a queue.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().name("pods").build();
    /// queue.add("pod-1");
    /// ```
    #[doc(alias = "NewWithConfig")]
    #[doc(alias = "NewTypedWithConfig")]
    #[doc(alias = "NewDelayingQueueWithConfig")]
    #[doc(alias = "NewTypedDelayingQueueWithConfig")]
    #[doc(alias = "NewRateLimitingQueueWithConfig")]
    #[doc(alias = "NewTypedRateLimitingQueueWithConfig")]
    pub fn builder() -> WorkQueueBuilder<K> {
        WorkQueueBuilder::new()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

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
    settings: Settings<K>,
}

impl<K> WorkQueueBuilder<K> {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            name: Box::default(),
            seed: None,
            shards: 1,
            lock_free: false,
            capacity: 0,
            clock: Clock::default(),
            driver: Driver::default(),
            delayed_add: DelayedAdd::default(),
            on_panic: None,
            measure: false,
            observer: None,
            limiter: Limiter::Inline(default_backoff().to_function()),
            order: Order::default(),
            max_keys: None,
            pace: None,
        };
        Self { settings }
    }

    /// The queue's name, which appears in `Debug` output, metrics, spans, and the names of its workers' threads. Empty by default.
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

    /// The number of shards, which are parts of the queue with a lock each: 1 by default, rounded up to a power of two, and at most 64. Zero
    /// counts as 1.
    ///
    /// With one shard all calls take turns at one lock, and the queue is strictly first in, first out. With more, calls for keys of
    /// different shards do not wait for each other, but the order becomes weaker, also that of [priorities](crate::Priority): see [several
    /// shards](crate::how_it_works#several-shards). In a lock-free queue (`lock_free`) the shards have no locks, and each thread uses one
    /// of them.
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

    /// Builds the queue on the lock-free engine, in which `add`, `get` and `done` take no lock while no getter waits and the queue does not
    /// [measure](Self::measure), nor does `succeed` of a key that has neither a delay nor failures. Off by default.
    ///
    /// The keys are in a concurrent map (`papaya`), and their order is a segment queue (`crossbeam-queue`). All calls work as they do on
    /// other queues. What needs all queued keys to stand still is refused by [`try_build`](Self::try_build): [groups](Self::fair_by),
    /// [strict priorities](Self::strict_priorities). So is a [pace](Self::pace), because a key and a token cannot be taken in one step, and
    /// a [policy](Self::delayed_add) other than `Independent`, because an add without a delay does not look at delays here. An add or a
    /// requeue with a [priority](crate::AddOptions::priority) other than `NORMAL` panics; the requeue has ended the hand-out before.
    ///
    /// # When to take it
    ///
    /// Take it if a thread that the system stops in the middle of a call must not hold up the others. For speed alone, take
    /// [shards](Self::shards) of the default engine. A thread that works alone takes two to three times as long as with the default engine,
    /// and a key more memory. The engine is not for queues whose keys seldom come back, because a key that the map does not know costs half a
    /// microsecond, which is ten times what the default engine takes.
    ///
    /// **With one shard**, the default, the order is one segment queue, which is strictly first in, first out, and all threads take turns
    /// at its two ends. **With several [shards](Self::shards)** there are as many segment queues: a thread pushes the keys that it queues
    /// into one of them, and takes keys from there, so that threads seldom meet. (A task does so by the thread that polls it.) The keys
    /// that one thread queues stay in order. A key of another thread may be overtaken by about `(9 + adders) * 64 + shards * getters` later ones at most,
    /// whatever the length of the queue, because a getter leaves its segment queue for another whose keys are older. If `try_get` finds
    /// nothing, each segment queue was empty at some moment of the call, though not all at the same one.
    ///
    /// # A stopped thread
    ///
    /// The engine is not lock-free in the strict sense, because there are moments at which a stopped thread holds up others. Calls on the
    /// key that it has in its hands may always wait. Beside these, the table says who does; in bold, where it is everybody.
    ///
    /// | a thread is stopped | who waits for it |
    /// |---|---|
    /// | anywhere in `add`, `get` or `done`, but for the rows below | nobody. But the map frees no removed key while the thread stands in an `add`, or in a `done` that removes one |
    /// | in an add, from its beginning to its end | drains, idle waits and `stop`. Getters get keys as before, but are not told of a shut-down |
    /// | in an add that has met the shut-down | other such adds |
    /// | in an add of a queue with a [bound](Self::max_keys) | nobody, but there may be room for one key less |
    /// | in a segment queue, as it stores a key | the one getter to which this place falls |
    /// | in a segment queue, as it links the next block (one push or get in 31) | **all who push or pop a key**; with several shards, at first those whose segment queue it is, and after some hundred keys all getters, because they come there |
    /// | in the map, as it replaces its table by a larger one, or by one without the marks of removed keys | **all who add a key that is new to the map**, and calls that look at all keys, as drains, idle waits and `take_where` do |
    /// | in a call that sets, drops or expires a delay, counts failures, or cools down | other such calls, `succeed` of a key with a delay or failures, lists of delayed keys, and the shut-down |
    /// | as it wakes or becomes a getter that waits | others that wake one, or begin to wait |
    /// | in a `remove`, `take_where` or `stop` that clears removed keys out of the order | getters |
    /// | in a `get` after that, as it takes a key that was moved to the list of those, which has a lock | getters |
    /// | in a `get` or a `done` of a queue that [measures](Self::measure), as it notes a time | calls that read the times, and threads beyond the 63rd, which share a histogram |
    /// | in the first call that a thread makes on any lock-free queue, as it takes a number | others that make their first one |
    ///
    /// # What else differs
    ///
    /// * **Keys are dropped later.** Up to 1024 keys that are done stay for each thread, so that a key that comes back costs no
    ///   allocation; and the map frees removed keys in batches, in any call. [`shrink_to_fit`](WorkQueue::shrink_to_fit) gives the former
    ///   back. A panic of a key's drop is caught. If a key comes back that is equal to one that stayed, the older one is handed out.
    /// * **An answer may come before the key is in the order.** An add that finds the key queued by another thread returns
    ///   [`Coalesced`](crate::Added::Coalesced) at once, though that thread may still be about to put the key there. Until that thread goes on,
    ///   a `get` may find the queue empty, or other keys first. What a thread adds itself is in the order when the call returns.
    /// * **Lists of queued keys** ([`take_where`](WorkQueue::take_where), [`stop`](crate::Workers::stop)) are in the order of hand-outs if
    ///   one thread has queued the keys. Of keys of several threads, up to 64 of each other thread may come before an older key.
    /// * **Numbers** ([`stats`](WorkQueue::stats), [`len`](WorkQueue::len)) are read one after the other while other threads go on.
    /// * **A key that is added and removed again and again**, with no getter, leaves marks in the order. The call that removes keys clears
    ///   them out when there are more than 1024, and more than half of all entries are marks. A getter that comes at this moment may take
    ///   one key early.
    /// * **Threads** beyond the 63rd share their counters, their cache and their segment queue, which makes them slower.
    /// * **Memory**: a queue takes 32 KB, and 8 KB more for each thread that is done with keys. A queued `u64` takes two allocations and some 140
    ///   bytes, where the default engine takes none of its own and 60. After a burst the map keeps its table, 19 bytes for each key of the
    ///   largest number, until other keys make it replace the table.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder().lock_free().build();
    /// queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// queue.add("pod-1"); // by any thread: it takes no lock
    /// item.succeed();
    /// assert_eq!(*queue.get().unwrap(), "pod-1");
    ///
    /// let error = WorkQueue::<u32>::builder().lock_free().strict_priorities(true).try_build().unwrap_err();
    /// assert_eq!(error.argument(), "strict_priorities");
    /// ```
    #[cfg(feature = "lock-free")]
    pub fn lock_free(mut self) -> Self {
        self.settings.lock_free = true;
        self
    }

    /// The number of keys for which the queue allocates room when it is built, and keeps it until
    /// [`shrink_to_fit`](WorkQueue::shrink_to_fit). This is a hint that avoids growing, and not a limit. Values above 2^24 count as 2^24. 0
    /// by default.
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

    /// The limiter, which says how long a key waits for its [retry](crate::Item::retry), and after a [rate-limited
    /// add](WorkQueue::add_rate_limited).
    ///
    /// It does not limit plain [adds](WorkQueue::add) or hand-outs: see [what a limiter limits](crate::rate_limiter#what-they-limit).
    ///
    /// By default an [`ItemExponentialFailure`](crate::rate_limiter::ItemExponentialFailure) of 5 ms to 1000 s, which, unlike client-go's
    /// default, has no bucket for all keys together. A limiter that reads a clock has a clock of its own, so if you set the queue's
    /// [clock](Self::clock), give the limiter the same one.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::rate_limiter::ItemExponentialFailure;
    /// use std::time::Duration;
    ///
    /// let backoff =
    ///     ItemExponentialFailure::new(Duration::from_millis(100), Duration::from_secs(60));
    /// let queue = WorkQueue::<u32>::builder().rate_limiter(backoff).build();
    /// ```
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.settings.limiter = match limiter.schedule() {
            Some(schedule) => Limiter::Inline(schedule),
            None => Limiter::External(Box::new(limiter)),
        };
        self
    }

    /// Limits the hand-outs of the whole queue: over any span of time, all getters together get at most `burst + rate_per_second * span`
    /// keys. No limit by default.
    ///
    /// This is for what all keys use together, such as an API that allows 200 requests a second. A [limiter](Self::rate_limiter), in
    /// contrast, is asked by retries only. A queue starts with `burst` tokens. Each hand-out spends one, and `rate_per_second` of them come
    /// in a second, until there are `burst` again. It does not matter how long the keys are then processed.
    ///
    /// The limit is as exact as a [`Bucket`](crate::rate_limiter::Bucket), also with several [shards](Self::shards), by the times at which
    /// getters read the [clock](Self::clock). As there, a rate above 10^9 is no limit.
    ///
    /// # While there is no token
    ///
    /// * [`get`](WorkQueue::get), in all its forms, waits, and so do workers. [`try_get`](WorkQueue::try_get) returns
    ///   [`Empty`](crate::TryGetError::Empty). [`get_many`](WorkQueue::get_many) and [`get_batch`](WorkQueue::get_batch) wait for one token,
    ///   and return at most as many keys as there are tokens. A getter that gives up has spent none.
    /// * Keys stay queued: [`len`](WorkQueue::len) and drains count them, [`wait_idle`](WorkQueue::wait_idle) waits for them, and they keep
    ///   their order. A key of a higher priority that comes meanwhile gets the next token.
    /// * Calls that take keys out, such as [`remove`](WorkQueue::remove) and [`take_where`](WorkQueue::take_where), need no token.
    /// * A shut-down and drains keep the pace, so that getters wait for tokens until no key is queued.
    ///   [`Workers::stop`](crate::Workers::stop), and a drain of workers at its deadline, do not wait: they return the queued keys.
    /// * [`Stats::paced_for`](crate::Stats::paced_for) says when the next token comes.
    ///
    /// # Who wakes getters
    ///
    /// With [`Driver::Thread`] the driver thread wakes a getter for each token, and starts with the first getter that waits for one. A
    /// wake-up takes some 50 µs, so that above some thousand hand-outs a second a burst of about a millisecond's tokens is needed to reach the
    /// rate.
    ///
    /// With [`Driver::Manual`] threads that wait for a token park until it comes, as long in real time as the clock has to go. Tasks are
    /// woken by [`turn`](WorkQueue::turn), and so are threads if tasks wait beside them. With a mock clock all of them are woken by `turn`,
    /// or by the driver thread, after the clock was moved.
    ///
    /// # Errors
    /// [`try_build`](Self::try_build) refuses a rate that is not a finite number or less than one in a year, which is 3.17e-8, and a burst
    /// of 0. It also refuses a pace in a lock-free queue.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    /// let queue = builder.pace(10.0, 2).build(); // 10 a second, and 2 at once
    /// queue.add_all(0..100);
    /// assert_eq!(queue.get_many(100).len(), 2);
    /// assert!(queue.try_get().is_err());
    /// assert_eq!(queue.stats().paced_for, Some(Duration::from_millis(100)));
    /// time.advance(Duration::from_millis(100));
    /// assert_eq!(*queue.try_get().unwrap(), 2);
    /// assert_eq!(queue.len(), 97);
    /// ```
    #[doc(alias = "rate_limit")]
    #[doc(alias = "throttle")]
    #[doc(alias = "limiter")]
    pub fn pace(mut self, rate_per_second: f64, burst: u32) -> Self {
        self.settings.pace = Some((rate_per_second, burst));
        self
    }

    /// The most keys that the queue knows at a time. An add of a key that is new beyond that is refused with
    /// [`Added::Full`](crate::Added::Full). No bound by default.
    ///
    /// This bounds the memory of a queue whose producers are faster than its workers. [`add_wait`](WorkQueue::add_wait) waits for room
    /// instead. A queue that a controller feeds rarely needs a bound, because it never has more keys than there are objects.
    ///
    /// **Which keys count.** A key is known while it is queued, processing or delayed, and counts once. So does a key that
    /// [cools down](crate::Item::cool_down) if an add waits for the end of that. A key of which the queue has nothing but counted
    /// failures, or that cools down and was not added since, does not count, and an add of it is one of a new key.
    ///
    /// **What is never refused**: an add of a key that is known; what a holder does with its key, such as [`retry`](crate::Item::retry) and
    /// [`requeue_after`](crate::Item::requeue_after); a delay that expires; and
    /// [`add_rate_limited`](WorkQueue::add_rate_limited), which stands for a retry. By rate-limited adds of new keys there may be more
    /// keys than the bound, and then others are refused until there are fewer. After a shut-down all adds are
    /// [`Rejected`](crate::Added::Rejected), whatever the bound.
    ///
    /// The bound is exact, also with several [shards](Self::shards), where all calls that make a key known, or end that, then write one
    /// word. In a lock-free queue (`lock_free`) each add that is under way may take a place for a moment, so that another one is refused,
    /// and an add that finds its key known while that ends may come beyond the bound, by one key for each such add.
    ///
    /// A bounded queue takes the slower path of [groups](Self::fair_by) in each add, and [`add_all`](WorkQueue::add_all) adds its keys
    /// one by one.
    ///
    /// # Errors
    /// [`try_build`](Self::try_build) refuses a bound of 0.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().max_keys(2).build();
    /// assert_eq!(queue.add_all(["pod-1", "pod-2", "pod-3"]), 2);
    /// assert_eq!(queue.add("pod-3"), Added::Full);
    /// assert_eq!(queue.add("pod-1"), Added::Coalesced); // it is known
    /// queue.get().unwrap().done();
    /// assert_eq!(queue.add("pod-3"), Added::Queued);
    /// ```
    #[doc(alias = "bounded")]
    #[doc(alias = "backpressure")]
    pub fn max_keys(mut self, keys: usize) -> Self {
        self.settings.max_keys = Some(keys);
        self
    }

    /// The clock by which delays expire: the system's by default, and [`Clock::mock`] for tests. [`Clock::from_fn`] needs
    /// [`Driver::Manual`](Self::driver).
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

    /// Makes the queue draw its numbers from this seed: the hashes, which choose the shard of a key and tell groups apart, and the jitter
    /// of the [limiter](Self::rate_limiter), unless that has a [seed](crate::rate_limiter::PerKey::seed) of its own. By default the system
    /// gives each queue another seed.
    ///
    /// With a seed, a [clock](Self::clock) that is [mocked](Clock::mock) or a [function](Clock::from_fn), and [`Driver::Manual`], what the
    /// queue does depends only on the calls, so a program that uses it with one thread does the same each time. "The same" holds for one
    /// build on one machine, because keys hash differently on other processors. What a key's `Hash`, the limiter, and other functions of
    /// yours return must be the same too.
    ///
    /// **Someone who knows the seed can choose keys with equal hashes**, and make the queue slow, so set it for tests and simulations.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    ///
    /// let order = || {
    ///     let builder = WorkQueue::builder().shards(16).seed(7);
    ///     let queue = builder.clock(Clock::mock().0).driver(Driver::Manual).build();
    ///     queue.add_all(0..1000);
    ///     std::iter::from_fn(|| queue.try_get().ok().map(|key| *key)).collect::<Vec<_>>()
    /// };
    /// assert_eq!(order(), order());
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Who adds keys when their delays expire: a thread of the queue (the default), or only callers of [`turn`](WorkQueue::turn).
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
    /// By default, [`Workers`](crate::Workers), which catch panics, retry the key. If a panic drops an [`Item`](crate::Item) without
    /// workers, the key is done, because a key that panics each time would otherwise end one thread after the other.
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

    /// Measures how long keys wait and how long they are processing, for [`metrics`](crate::Inspect::metrics),
    /// [`Item::waited`](crate::Item::waited), and the ages in [`Stats`](crate::Stats) and [`KeyState`](crate::KeyState). Off by default,
    /// unless there is an [observer](Self::observer).
    ///
    /// This costs 32 bytes per key, and 70 ns from the key's add to its done, mostly for reading the clock three times. With more than a
    /// million keys a second, the queue measures one key in eight, which counts for the others, and the cost is 15 ns. A queue with
    /// [priorities](crate::AddOptions::priority) measures all keys, and takes 4 KiB in each shard for each priority in use.
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

    /// The observer that receives the queue's events. None by default. A second call replaces the first observer.
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
    #[doc(alias = "SetProvider")]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.settings.observer = Some(Box::new(observer));
        self
    }

    /// Whether keys of lower [priorities](crate::Priority) wait while higher ones are queued. By default they do not: of 16 hand-outs one
    /// goes to lower priorities that wait, in turn.
    ///
    /// With several [shards](Self::shards), at most about `4 * (shards + getters)` keys of lower priorities may still be handed out while a
    /// key of a higher one is queued, because a getter takes up to 4 keys from another shard before it sees this key.
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
        self.settings.order.strict = strict;
        self
    }

    /// Makes groups of keys (namespaces, tenants, hosts) take turns, so that none drowns the others. By default keys have no groups.
    ///
    /// In its turn a group with queued keys gives as many keys as its [weight](GroupLimits::weight), and then goes to the end. Within a
    /// group keys are first in, first out, and with priorities, groups take turns within a priority. A group that had no queued keys comes
    /// before those that have had turns, unless its own next turn would not have come yet, in which case it joins at the end. With several
    /// [shards](Self::shards), the group of a key chooses its shard instead of the key, so that a group is in one of them. A few large
    /// groups therefore do not use all shards.
    ///
    /// [`group_limits`](Self::group_limits) says what a group may have beside its turns, and [`fair_share`](Self::fair_share) what a turn
    /// costs.
    ///
    /// The queue knows a group by a 64-bit hash of the function's result, so two groups with the same hash count as one. The queue calls
    /// the function under no lock, once for a key that is new to the queue, or twice if two threads add the key at the same time. If the
    /// function panics, the add panics and has no effect.
    ///
    /// **Equal keys must have equal groups**, as [`Hash`] demands equal hashes of them: `k1 == k2` implies `group(k1) == group(k2)`. It is
    /// a logic error if they have not, or if the function answers differently from call to call. Then the first answer counts for as long
    /// as the queue knows the key, which still has one holder (P1).
    ///
    /// The turns are those of FQ-CoDel (RFC 8290), with a cost of one, so a hand-out takes the same time with any number of groups.
    ///
    /// # Examples
    /// ```
    /// let queue =
    ///     keyqueue::WorkQueue::builder().fair_by(|&(tenant, _): &(u8, u32)| tenant).build();
    /// queue.add_all((0..1000).map(|n| (1, n)));
    /// queue.add((2, 0));
    /// let tenants: Vec<u8> = (0..4).map(|_| queue.get().unwrap().0).collect();
    /// assert_eq!(tenants, [1, 2, 1, 1]);
    /// ```
    pub fn fair_by<G: Hash>(mut self, group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        self.settings.order.group_of = Some(Box::new(move |key, hasher| hasher.hash_one(group(key))));
        self
    }

    /// The [weight](GroupLimits::weight) of the group of a key. The queue asks for it as [`group_limits`](Self::group_limits) says, beside
    /// which it is refused. Needs [`fair_by`](Self::fair_by). 1 by default.
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
        self.settings.order.weight_of = Some(Box::new(weight));
        self
    }

    /// The [number of keys](GroupLimits::max_processing) of a group that may be processing at a time, the same for all groups. Needs
    /// [`fair_by`](Self::fair_by), and is refused beside [`group_limits`](Self::group_limits). No limit by default.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder()
    ///     .fair_by(|&(host, _): &(&str, u32)| host.to_owned())
    ///     .max_processing_per_group(1)
    ///     .build();
    /// queue.add_all([("a.example", 1), ("a.example", 2), ("b.example", 1)]);
    /// let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    /// assert_eq!((*first, *second), (("a.example", 1), ("b.example", 1)));
    /// assert!(queue.try_get().is_err()); // one key is queued, and its host has one in work
    /// first.done();
    /// assert_eq!(*queue.get().unwrap(), ("a.example", 2));
    /// ```
    pub fn max_processing_per_group(mut self, n: usize) -> Self {
        self.settings.order.limit = Some(n);
        self
    }

    /// The weight, the limit and the rate of the group of a key. Needs [`fair_by`](Self::fair_by), and takes the place of
    /// [`group_weight`](Self::group_weight) and [`max_processing_per_group`](Self::max_processing_per_group).
    ///
    /// The queue asks with each new key, under no lock, but the answer counts only if the group has no queued, processing or delayed key
    /// then, and none with counted failures. [`Group::set`](crate::Group::set) changes the limits of a group that is known. If the function
    /// panics, the add panics and has no effect. It also panics, with the text of the error, if the limits are some that `Group::set`
    /// refuses.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, GroupLimits, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder()
    ///     .clock(clock)
    ///     .driver(Driver::Manual)
    ///     .fair_by(|&(host, _): &(&str, u32)| host.to_owned())
    ///     .group_limits(|_| GroupLimits::new().max_processing(4).rate(5.0, 2))
    ///     .build();
    /// queue.add_all((0..10).map(|page| ("a.example", page)));
    /// assert_eq!(queue.get_many(10).len(), 2); // the burst
    /// time.advance(Duration::from_millis(200));
    /// queue.turn(); // otherwise the driver thread does it
    /// assert_eq!(queue.get_many(10).len(), 1);
    /// assert_eq!(queue.len(), 7);
    /// ```
    #[doc(alias = "tenant")]
    #[doc(alias = "quota")]
    #[doc(alias = "throttle")]
    pub fn group_limits(mut self, limits: impl Fn(&K) -> GroupLimits + Send + Sync + 'static) -> Self {
        let checked = move |key: &K| limits(key).check().unwrap_or_else(|error| panic!("{error}"));
        self.settings.order.limits_of = Some(Box::new(checked));
        self
    }

    /// How groups pay for their turns: by hand-outs (the default), or by the time that their keys are processing. Needs
    /// [`fair_by`](Self::fair_by).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, FairShare, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    /// let builder = builder.fair_by(|&(tenant, _): &(&str, u32)| tenant.to_owned());
    /// let queue = builder.fair_share(FairShare::WorkTime).build();
    /// queue.add_all((0..1000).flat_map(|n| [("slow", n), ("fast", n)]));
    /// let mut hand_outs = [0, 0];
    /// for _ in 0..550 {
    ///     let item = queue.get().unwrap();
    ///     let is_slow = item.0 == "slow";
    ///     time.advance(Duration::from_millis(if is_slow { 10 } else { 1 }));
    ///     hand_outs[usize::from(is_slow)] += 1;
    /// }
    /// assert!((8..=12).contains(&(hand_outs[0] / hand_outs[1])), "{hand_outs:?}");
    /// ```
    pub fn fair_share(mut self, share: FairShare) -> Self {
        self.settings.order.shares = share;
        self
    }

    /// What an [`add`](WorkQueue::add) does with a key that waits for its retry. [`DelayedAdd::Independent`] by default.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{DelayedAdd, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().delayed_add(DelayedAdd::Promote).build();
    /// queue.add("pod-1");
    /// queue.get().unwrap().retry();
    /// queue.add("pod-1"); // instead of the retry
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
    /// * If a [weight](Self::group_weight), a [limit](Self::max_processing_per_group), [`group_limits`](Self::group_limits) or
    ///   [`FairShare::WorkTime`] is set without [`fair_by`](Self::fair_by).
    /// * If a weight or a limit is set beside [`group_limits`](Self::group_limits).
    /// * If the limit is 0, or the [most keys](Self::max_keys) are 0.
    /// * If the clock is a [function](Clock::from_fn), and the driver is not [`Driver::Manual`].
    /// * If the rate or the burst of a [pace](Self::pace) is one that it refuses.
    /// * With the feature `lock-free`, if a setting is one that the lock-free engine does not have.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let error =
    ///     WorkQueue::<u32>::builder().max_processing_per_group(1).try_build().unwrap_err();
    /// assert_eq!(error.argument(), "max_processing_per_group"); // a limit needs `fair_by`
    /// ```
    pub fn try_build(self) -> Result<WorkQueue<K>, InvalidArgument> {
        self.check()?;
        Ok(self.build_with(start_driver_thread))
    }

    /// Checks the arguments that depend on each other.
    fn check(&self) -> Result<(), InvalidArgument> {
        let Settings { lock_free, clock, driver, max_keys, delayed_add, order, pace, .. } = &self.settings;
        let function = |is_set: bool| is_set.then(|| "a function".to_owned());
        let functions = [order.group_of.is_some(), order.weight_of.is_some(), order.limits_of.is_some()];
        let [group, weight, limits] = functions.map(function);
        let limit = order.limit.map(|limit| limit.to_string());
        let by_work = (order.shares == FairShare::WorkTime).then(|| "WorkTime".to_owned());
        let (no_groups, has_limits) = (group.is_none(), limits.is_some());
        let needs_turns = clock.is_function() && *driver != Driver::Manual;
        let line = "the order of a lock-free queue is first in, first out";
        let step = "a lock-free queue cannot take a key and a token in one step";
        let at_once = "in a lock-free queue an add without a delay does not look at the delay of its key";
        let policy = Some(*delayed_add).filter(|policy| *policy != DelayedAdd::Independent);
        let refused = [
            ("pace", pace.map(|pace| format!("{pace:?}")), *lock_free, step),
            ("fair_by", group, *lock_free, line),
            ("strict_priorities", Some("true".to_owned()), *lock_free && order.strict, line),
            ("delayed_add", policy.map(|policy| format!("{policy:?}")), *lock_free, at_once),
            (
                "driver",
                Some("Driver::Thread".to_owned()),
                needs_turns,
                "a clock of `Clock::from_fn` needs `Driver::Manual`",
            ),
            ("max_keys", Some("0".to_owned()), *max_keys == Some(0), "no key would be accepted"),
            ("group_limits", limits, no_groups, "it needs `fair_by`"),
            ("fair_share", by_work, no_groups, "it needs `fair_by`"),
            ("group_weight", weight.clone(), no_groups, "it needs `fair_by`"),
            ("group_weight", weight, has_limits, "`group_limits` has the weight"),
            ("max_processing_per_group", limit.clone(), no_groups, "it needs `fair_by`"),
            ("max_processing_per_group", limit.clone(), has_limits, "`group_limits` has the limit"),
            ("max_processing_per_group", limit, order.limit == Some(0), "no key would be handed out"),
        ];
        for (argument, value, is_refused, why) in refused {
            if let (Some(value), true) = (value, is_refused) {
                return Err(InvalidArgument::new(argument, value, why));
            }
        }
        pace.map_or(Ok(()), |(rate, burst)| InvalidArgument::check_rate("pace", rate, burst))
    }

    /// Like [`build`](Self::build). `start` starts the driver thread; in a test it may return an error.
    #[cfg_attr(not(keyqueue_lock_free), expect(unused_mut, reason = "for the block below"))]
    pub(crate) fn build_with(mut self, start: fn(&Arc<Shared<K>>) -> std::io::Result<()>) -> WorkQueue<K> {
        if let Err(error) = self.check() {
            panic!("{error}");
        }
        // Runs the tests of the locked engine on the other one: see ci/lock-free.sh.
        #[cfg(all(feature = "lock-free", keyqueue_lock_free))]
        {
            self.settings.lock_free = true;
            self.settings.lock_free = self.check().is_ok();
        }
        WorkQueue { shared: Arc::new(Shared::new(self.settings, start)) }
    }
}

// A builder calls neither its limiter nor its observer.
impl<K> UnwindSafe for WorkQueueBuilder<K> {}
impl<K> RefUnwindSafe for WorkQueueBuilder<K> {}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (settings, order) = (&self.settings, &self.settings.order);
        f.debug_struct("WorkQueueBuilder")
            .field("name", &settings.name)
            .field("seed", &settings.seed)
            .field("shards", &settings.shards)
            .field("capacity", &settings.capacity)
            .field("clock", &settings.clock)
            .field("driver", &settings.driver)
            .field("delayed_add", &settings.delayed_add)
            .field("on_panic", &settings.on_panic)
            .field("measure", &settings.measure)
            .field("max_keys", &settings.max_keys)
            .field("pace", &settings.pace)
            .field("strict_priorities", &order.strict)
            .field("fair_by", &order.group_of.is_some())
            .field("max_processing_per_group", &order.limit)
            .field("group_limits", &order.limits_of.is_some())
            .field("fair_share", &order.shares)
            .finish_non_exhaustive()
    }
}
