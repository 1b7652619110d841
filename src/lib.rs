//! A deduplicating work queue for control loops, operators, crawlers, indexers and job runners.
//!
//! Producers [`add`](WorkQueue::add) keys, and [workers](Workers) process them. A key is **queued at most once** and **processed by at
//! most one worker at a time**. No add is lost: a key that is added while a worker processes it runs once more afterwards. These are the
//! semantics of client-go's `util/workqueue`, which Kubernetes' controllers use, with its known faults fixed.
//!
//! ```
//! use keyqueue::WorkQueue;
//! use std::time::Duration;
//!
//! # fn reconcile(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//! let queue = WorkQueue::<&str>::new();
//! let workers = queue
//!     .workers()
//!     .max_retries(15)
//!     .on_give_up(|pod, why| eprintln!("{pod}: {why}")) // "given up after 15 retries: …"
//!     .spawn(2, |pod| reconcile(pod))?; // an `Err` is retried, after 5 ms, 10, 20, …
//!
//! for event in ["pod-1", "pod-2", "pod-1", "pod-1", "pod-2"] {
//!     queue.add(event); // two to five runs: adds are merged, and none is lost
//! }
//!
//! let left = workers.drain_timeout(Duration::from_secs(10));
//! assert!(left.is_empty());
//! # std::io::Result::Ok(())
//! ```
//!
//! A key says *what* to look at, never what happened. The worker reads the current state when it runs. So an event that arrives twice,
//! late or out of order does no harm, and a thousand events for one key lead to one run.
//!
//! Next: the [`cookbook`] has recipes, and the names for those who know client-go. Read the [traps](#traps) before you ship.
//! [`how_it_works`] has the pictures of the inside.
//!
//! # Ten words
//!
//! | | |
//! |---|---|
//! | *queued* | the key waits for a worker |
//! | *hand-out* | a worker gets the key, as an [`Item`] |
//! | *processing* | an `Item` of the key exists |
//! | *done* | the `Item` is dropped: the hand-out ends |
//! | *dirty* | the key must run: it is queued, or was added while it was processing |
//! | *coalesced* | an add that changed nothing: the key was dirty already |
//! | *deferred* | an add of a key that is processing: it is queued when it is done |
//! | *delayed* | the key is added at a time to come |
//! | *failing* | the queue or its limiter counts failures of the key |
//! | *driver* | the thread that adds delayed keys when their time has come, and reports metrics |
//!
//! # The life of a key
//!
//! ```text
//!            add                 get                      add
//!  absent ────────▶ queued ──────────────▶ processing ──────────▶ processing, dirty
//!    ▲                ▲                       │                        │
//!    │                └───────────────────────┼──────── done ──────────┘
//!    └──────────────────── done ──────────────┘
//! ```
//!
//! [`Added`] says what an add did. Independently of these states, a key can have one *delay*: [`add_after`](WorkQueue::add_after) sets
//! it, and when it expires, the key is added like any other. [`AddOptions`] choose what happens if the key has a delay already, and
//! [`DelayedAdd`] what an add of a delayed key does.
//!
//! ```
//! use keyqueue::{AddOptions, Clock, DelayConflict, Driver, WorkQueue};
//! use std::time::Duration;
//!
//! // For a test. The default is the system's clock, and a thread that expires delays.
//! let (clock, time) = Clock::mock();
//! let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
//!
//! // Debounce: look at the file when there was no event for 200 ms. (A file that is never
//! // quiet would wait without end; the cookbook has a debounce with a bound.)
//! let quiet = AddOptions::new().after(Duration::from_millis(200));
//! let quiet = quiet.conflict(DelayConflict::Replace);
//! for _event in 0..5 {
//!     queue.add_with("Cargo.toml", quiet);
//!     time.advance(Duration::from_millis(150));
//!     assert_eq!(queue.turn(), 0);
//! }
//! time.advance(Duration::from_millis(50));
//! assert_eq!(queue.turn(), 1);
//! ```
//!
//! # Workers
//!
//! [`Workers`] run in threads ([`spawn`](WorkersBuilder::spawn)) or in tasks of any runtime ([`run_async`](Workers::run_async)). They
//! catch panics, and count and limit retries. A handler [returns](IntoOutcome) `()`, an [`Outcome`], or a `Result`, so that `?` means
//! "try again later" ([or what you choose](Outcome#the-question-mark)). A handler that runs for long can see that its work is stale
//! ([`is_dirty`](Item::is_dirty), [`until_dirty`](Item::until_dirty)), and that the queue is shutting down
//! ([`shutting_down`](Item::shutting_down), [`until_shutting_down`](Item::until_shutting_down)).
//!
//! A loop of your own calls [`get`](WorkQueue::get) or [`get_async`](WorkQueue::get_async); threads and tasks wait in one list. It also
//! says what became of the key. [`Item::retry`] asks the queue's [limiter](rate_limiter) how long the key waits: 5 ms after its first
//! failure, twice as long after each further one, at most 1000 s. No limiter delays a plain `add`.
//!
//! ```
//! # use keyqueue::{Clock, Driver, WorkQueue};
//! # use std::time::Duration;
//! # let (clock, time) = Clock::mock();
//! # let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
//! # let mut answers = [Err(()), Err(()), Ok(())].into_iter();
//! # let mut reconcile = |_: &str| answers.next().unwrap();
//! queue.add("pod-1");
//! # for _ in 0..3 {
//! # time.advance(Duration::from_secs(1));
//! # queue.turn();
//! let item = queue.get().unwrap();
//! match reconcile(*item) {
//!     Ok(()) => item.succeed(), // forgets its failures
//!     Err(()) if item.num_requeues() < 15 => _ = item.retry(),
//!     Err(()) => item.give_up(),
//! }
//! # }
//! # assert!(queue.try_get().is_err() && queue.num_requeues(&"pod-1") == 0);
//! ```
//!
//! # How do I stop?
//!
//! Each call below refuses adds from then on, and does so once for all. For SIGTERM, take a drain with a deadline.
//!
//! | call | waits for | returns |
//! |---|---|---|
//! | [`Workers::drain_timeout`], [`drain_until`](Workers::drain_until) | queued and processing keys, until a deadline | every key that was not finished |
//! | [`Workers::drain`], [`drain_async`](Workers::drain_async) | the same, without a deadline | the same |
//! | [`Workers::stop`] | nothing | the same |
//! | [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), [`_timeout`](WorkQueue::shut_down_with_drain_timeout), [`_async`](WorkQueue::shut_down_with_drain_async) | queued and processing keys, of loops of your own | nothing |
//! | [`shut_down`](WorkQueue::shut_down) | nothing; queued keys are still handed out | nothing |
//!
//! [`wait_idle`](WorkQueue::wait_idle) waits until no key is queued, processing or delayed, and refuses nothing.
//! [`join`](Workers::join) waits for the loops alone.
//!
//! # Backoff without a queue
//!
//! To retry until stopped, with backoff, there is the module `backoff` (of the default feature `jitter`): client-go's `wait.Backoff`,
//! `wait.NewExponentialBackoffManager` and `wait.BackoffUntil`, for threads and tasks.
//!
//! # Priorities and groups
//!
//! An add may have a [`Priority`], and a queue may let groups of keys take turns, so that no tenant drowns the others:
//! ```
//! use keyqueue::{AddOptions, Priority, WorkQueue};
//!
//! let tenant = |key: &(&str, u32)| key.0.to_owned();
//! let queue = WorkQueue::builder().fair_by(tenant).build();
//! queue.add_all((0..3).map(|n| ("large", n)));
//! queue.add(("small", 0));
//! queue.add_with(("large", 9), AddOptions::new().priority(Priority::HIGH));
//! let order: Vec<_> = (0..4).map(|_| *queue.get().unwrap()).collect();
//! assert_eq!(order, [("large", 9), ("large", 0), ("small", 0), ("large", 1)]);
//! ```
//! Lower priorities do not starve, unless the queue is [strict](WorkQueueBuilder::strict_priorities). Groups may have
//! [weights](WorkQueueBuilder::group_weight), and a [limit](WorkQueueBuilder::max_processing_per_group) of keys that are processing at a
//! time. A queue that uses neither pays nothing. One that does takes two to four times as long for a key, and 50 bytes more.
//!
//! # Observing a queue
//!
//! [`stats`](WorkQueue::stats) is a snapshot of the counters; `Debug` shows it. [`inspect`](WorkQueue::inspect) has lists of keys,
//! levels and groups, and histograms if the queue [measures](WorkQueueBuilder::measure). The feature `metrics` exports client-go's
//! metrics every 500 ms while there are keys, and nothing has to be started. The feature `tracing` gives each hand-out a [span](Item#method.span), and an [`Observer`](observe::Observer) of your own
//! receives each event.
//!
//! # What it guarantees
//!
//! * **One holder.** Two [`Item`]s of one key are never alive at the same time.
//! * **No lost add.** An add that was not [`Rejected`](Added::Rejected) is followed by a hand-out that begins after it, even if it races
//!   with a `get` or the `done` of the same key. What happened before the add is visible to that hand-out. What happened before `done`
//!   is visible to the next one.
//! * **First in, first out**, by the moment at which a key became queued. With several
//!   [shards](how_it_works#several-shards) this holds in each, and a key is overtaken by a bounded number of later ones.
//! * **Delays are exact**: never early, to the nanosecond; late by what waking a thread costs.
//! * **Linearizable** (with one shard): a call takes effect at one moment. Calls of several steps say so.
//! * **A panic leaves no key stuck**, and poisons no lock. [`OnPanic`] chooses what happens to the key.
//! * **Nothing vanishes**: a drain returns each key that was not finished, as [`Leftover`].
//! * **An idle queue runs nothing.** The driver starts with the first delay, or with the first add if
//!   [metrics](observe::Observer::interval) are exported; it parks, and ends with the queue.
//! * **Memory is freed** after a burst. A steady set of keys allocates nothing, and the hot path clones no key.
//! * **No foreign code under a lock**, but a key's `Eq` (or [`Equivalent`]), and its `Clone` in calls that list or take keys. These must
//!   not use the queue; a debug build panics if they do.
//!
//! [`guarantees`] has all of them by number, with what upholds and what shows each.
//!
//! # When not to use it
//!
//! * Each message matters, not only its key: two adds of one key become one run. Use a channel.
//! * Work must survive the process: the queue is in memory. (If its keys can be listed, replicas can share them: the package
//!   `keyqueue-fleet` in the repository.)
//! * Producers must be slowed down when the queue is long: `add` never waits. The number of distinct keys is the only bound.
//!
//! # Traps
//!
//! * **After a success call [`succeed`](Item::succeed)** (or [`forget`](WorkQueue::forget)); [`Workers`] do. If not, a key that was
//!   retried keeps its long backoff and its record: dropping the item forgets nothing. See [`Stats::failing`].
//! * **An [`add`](WorkQueue::add) does not wait** for a backoff or another delay of its key, unless [`DelayedAdd`] says so.
//! * A worker thread that calls [`shut_down_with_drain`](WorkQueue::shut_down_with_drain) while it holds an item waits forever: the
//!   drain waits for that item.
//! * `None` from `get` means that no key is queued, not that none will be: a key that is processing and dirty comes back. A dispatcher
//!   that hands items to other threads and stops at `None` may leave such a key behind, and a drain waits for it.
//! * During a drain adds are refused, even those of workers and their retries. A key that fails or is requeued meanwhile is in
//!   [`Leftover::refused`]. If processing a key adds more keys, wait until the queue [is idle](WorkQueue::wait_idle) before you drain.
//! * An add of a key that is processing leads to a second hand-out as soon as the key is done, even if its holder calls `retry` or
//!   `requeue_after`; the delay stays set as well. [`DelayedAdd::Strict`] affects only adds that come after the delay was set. To
//!   preserve the delay, do not `add` a key that is processing.
//! * Delayed keys are sorted into finer and finer steps as their deadlines approach. With a million delayed keys, the largest steps
//!   take some milliseconds, every minute or hour, and delays that expire at that moment are late by this time.
//! * The add that makes the table grow takes up to half a millisecond, at 16 000 keys; a larger table grows a little with each call.
//! * [`add_all`](WorkQueue::add_all) wakes workers when its iterator has ended. Feed a slow iterator in batches.
//! * `add` drops a key that is equal to a key that the queue already has, and keeps the old one: data that `Eq` does not compare, such
//!   as the time of the event, does not reach the worker. The queue also keeps a key whose failures it counts, until they are
//!   forgotten.
//! * Keys with equal hashes are compared one by one, as in a `HashSet`: n of them take a time that grows with n², and to drain
//!   them takes two to four times as long as to add them. Hashing is seeded, so this happens only if `Hash` leaves out what
//!   distinguishes the keys.
//! * The child of a `fork` has a copy of the queue, but only the thread that forked: no thread expires its delays or runs its workers,
//!   and a lock that another thread held stays locked. Create the queue after the fork, or `exec` in the child; see [`Driver`].
//!
//! # How it is built and verified
//!
//! One short critical section per call: [`how_it_works`] has the pictures, `benches/TABLES.md` the figures of the designs that were slower. The
//! real code runs under loom (`loom-tests/`), against a plain reference under a fuzzer (`fuzz/`),
//! against 928 recorded traces of client-go (`tests/`), and under a linearizability checker, AddressSanitizer and ThreadSanitizer
//! (`ci/`). These files are in the repository; the package has `src/` alone.
//!
//! The crate needs `std`.

// On docs.rs, marks items that need a feature. Unstable, so it is off elsewhere; `ci/docs.sh` checks the marks.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "jitter")]
pub mod backoff;
mod builder;
pub mod cookbook;
mod error;
mod futures;
pub mod guarantees;
pub mod how_it_works;
mod inspect;
mod item;
mod key;
mod leftover;
mod line;
mod numbers;
pub mod observe;
mod options;
mod owned_item;
mod panics;
mod prefetch;
mod queue;
#[cfg(feature = "jitter")]
mod random;
pub mod rate_limiter;
mod shard;
mod shared;
mod stats;
mod sync;
mod time;
mod wait;
mod workers;

pub use builder::WorkQueueBuilder;
pub use equivalent::Equivalent;
pub use error::{DrainTimeoutError, GetTimeoutError, InvalidArgument, TryGetError, WaitIdleTimeoutError};
pub use futures::{GetAsync, ShutDownWithDrain, UntilDirty, UntilShuttingDown, WaitIdle};
pub use inspect::Inspect;
pub use item::Item;
pub use leftover::Leftover;
pub use options::{AddOptions, DelayConflict, DelayedAdd, OnPanic, Priority};
pub use owned_item::OwnedItem;
pub use queue::{Added, WorkQueue};
pub use stats::{DelayedKey, GroupStats, Level, ProcessingKey, Stats};
pub use time::clock::{Clock, MockClock};
pub use time::driver::Driver;
pub use workers::{GivenUp, IntoOutcome, Outcome, Tally, Workers, WorkersBuilder};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// For `loom-tests/`: a new execution of a model begins.
#[cfg(loom)]
#[doc(hidden)]
pub fn restart_clock() {
    sync::restart_clock();
}

/// For `loom-tests/`: whether the crate fails to start threads from now on.
#[cfg(loom)]
#[doc(hidden)]
pub fn refuse_threads(refuse: bool) {
    sync::refuse_threads(refuse);
}

/// For `loom-tests/`: the next calls that would pass by a shard that is busy do so, as many as this.
#[cfg(loom)]
#[doc(hidden)]
pub fn find_busy(looks: usize) {
    sync::find_busy(looks);
}

/// For `loom-tests/`: whether each woken thread is overdue from now on; see `src/sync/loom.rs`.
#[cfg(loom)]
#[doc(hidden)]
pub fn let_time_pass(passes: bool) {
    sync::let_time_pass(passes);
}

#[cfg(loom)]
impl<K: std::hash::Hash + Eq> WorkQueue<K> {
    /// For `loom-tests/`: the index of a key's shard.
    #[doc(hidden)]
    pub fn shard_index(&self, key: &K) -> usize {
        self.shared.shard_index(key)
    }
}

/// For `loom-tests/`: the queue's lock. The other models use loom's mutex instead.
#[cfg(loom)]
#[doc(hidden)]
#[derive(Debug)]
pub struct Lock<T>(sync::lock::Mutex<T>);

#[cfg(loom)]
#[doc(hidden)]
impl<T> Lock<T> {
    /// Whether time passes; see `src/sync/loom.rs`.
    pub fn new(value: T, time_passes: bool) -> Self {
        sync::let_time_pass(time_passes);
        Self(sync::lock::Mutex::new(value))
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock())
    }
}
