//! A deduplicating work queue for control loops, operators, crawlers, indexers and job runners.
//!
//! Producers [`add`](WorkQueue::add) keys. Workers [`get`](WorkQueue::get) a key, do the work, and drop the guard. The queue
//! ensures that a key is **queued at most once** and **processed by at most one worker at a time**, and that no add is lost: a key
//! that is added while a worker processes it is handed out once more afterwards.
//!
//! These are the semantics of client-go's `util/workqueue`, which Kubernetes' controllers use, with its known faults fixed.
//!
//! # Quick start
//!
//! ```
//! use keyqueue::WorkQueue;
//! use std::thread;
//!
//! let queue = WorkQueue::new();
//!
//! let worker = thread::spawn({
//!     let queue = queue.clone(); // another handle of the same queue
//!     move || {
//!         let mut runs = 0;
//!         while let Some(item) = queue.get() {
//!             // No other worker gets this key until `item` is dropped.
//!             println!("looking at {}", *item);
//!             runs += 1;
//!         }
//!         runs
//!     }
//! });
//!
//! for event in ["pod-1", "pod-2", "pod-1", "pod-1", "pod-2"] {
//!     queue.add(event);
//! }
//! queue.shut_down_with_drain(); // refuses adds, returns when every key is done
//!
//! let runs = worker.join().unwrap();
//! assert!((2..=5).contains(&runs), "adds are merged, and none is lost");
//! ```
//!
//! A key says *what* to look at, never what happened. The worker reads the current state when it runs, so an event that arrives
//! twice, late or out of order does no harm, and a thousand events for one key lead to one run.
//!
//! **In short**: a key is absent, queued, or processing, beside that it may have a delay, and at most one worker has it. After an add it is
//! processed; one run stands for all adds before it. Two traps:
//!
//! * After a success call [`succeed`](Item::succeed) (or [`forget`](WorkQueue::forget)). If not, a key that was retried keeps its long
//!   backoff and its record for ever: dropping the item forgets nothing. [Workers](#workers) do it for you.
//! * An [`add`](WorkQueue::add) does not wait for a backoff or another delay of its key, unless [`DelayedAdd`] says so.
//!
//! Next: [workers](#workers), the [`cookbook`] with recipes and the names for those who know client-go, all
//! [guarantees](#what-it-guarantees), more [traps](#traps), and [`how_it_works`].
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
//! [`Added`] says what an add did. [`Item`] is the guard of a hand-out; dropping it is `done`.
//!
//! Independently of these states, a key can have one *delay*: [`add_after`](WorkQueue::add_after) sets it, and when it expires, the
//! key is added like any other. [`AddOptions`] choose what happens if the key already has a delay (the earlier deadline counts, or
//! the new delay, or the old one). [`DelayedAdd`] chooses what an add of a delayed key does.
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
//! let quiet = AddOptions::new().after(Duration::from_millis(200)).conflict(DelayConflict::Replace);
//! for _event in 0..5 {
//!     queue.add_with("Cargo.toml", quiet);
//!     time.advance(Duration::from_millis(150));
//!     assert_eq!(queue.turn(), 0);
//! }
//! time.advance(Duration::from_millis(50));
//! assert_eq!(queue.turn(), 1);
//!
//! // Look again in an hour.
//! queue.get().unwrap().requeue_after(Duration::from_secs(3600));
//! assert_eq!((queue.len(), queue.delayed_len()), (0, 1));
//! ```
//!
//! # When the work fails
//!
//! [`Item::retry`] asks the queue's limiter how long the key waits before it is handed out again: 5 ms after its first failure,
//! twice as long after each further failure, at most 1000 s. [`Item::succeed`] forgets the key's failures, so that its next failure
//! counts as the first; so does [`Item::give_up`], and counts the key as given up. The module [`rate_limiter`] has other limiters, and
//! says how to combine them and what to avoid. No limiter delays a plain [`add`](WorkQueue::add): see
//! [what they limit](rate_limiter#what-they-limit).
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
//!     Ok(()) => item.succeed(),
//!     Err(()) if item.num_requeues() < 15 => _ = item.retry(),
//!     Err(()) => item.give_up(),
//! }
//! # }
//! # assert!(queue.try_get().is_err() && queue.num_requeues(&"pod-1") == 0);
//! ```
//!
//! # Workers
//!
//! [`Workers`] run this loop in threads or in tasks of any runtime. They catch panics, count and limit retries, and return at the
//! end the keys that were left. A handler returns `()`, an [`Outcome`], or a `Result`, so that `?` means "try again later". A handler
//! that runs for long can check or await that its key was added again, which makes its work stale
//! ([`is_dirty`](Item::is_dirty), [`until_dirty`](Item::until_dirty)), and that the queue is shutting down
//! ([`shutting_down`](Item::shutting_down), [`until_shutting_down`](Item::until_shutting_down)).
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
//!     .spawn(2, |pod| reconcile(pod))?;
//! queue.add("pod-1");
//!
//! let leftover = workers.drain_timeout(Duration::from_secs(10)); // tasks: drain_until(a future).await
//! assert!(leftover.is_empty());
//! # std::io::Result::Ok(())
//! ```
//!
//! # Threads and tasks
//!
//! Threads and tasks can use one queue together, and wait in one list. The async form of a blocking call has that call's name with
//! `_async` appended ([`get_async`](WorkQueue::get_async), [`wait_idle_async`](WorkQueue::wait_idle_async)). A future that has no
//! blocking form is named `until_` and the event ([`until_dirty`](Item::until_dirty)).
//!
//! # Shards
//!
//! A queue has one lock, which a call holds for about ten nanoseconds. Where threads do little else than add and get, or there are dozens
//! of cores, they wait for each other there. [`WorkQueueBuilder::shards`] divides the queue into parts with a lock, a table, a line and a
//! timing wheel each; the hash of a key chooses its part. **Most programs need one**: a worker that spends a microsecond on a key does not
//! notice the lock. Otherwise take 16, or twice the number of threads that do little but add and get. It is not lock-free. With several
//! shards:
//!
//! * **Order** is first in, first out within a shard. Across shards a key is overtaken by at most about `(shards + 6 * getters) * 64` keys
//!   that were queued after it (twice as many if getters add keys themselves), however long the queue is. A thread that ends counts as a
//!   getter until another one takes over its shard. Delays expire in the order of their deadlines within a shard. A key waits for at most
//!   about `4 * (shards + getters)` hand-outs of lower [priorities](#priorities-and-groups), beside the turns that these have.
//! * **Snapshots** ([`stats`](WorkQueue::stats), [`metrics`](WorkQueue::metrics), [`len`](WorkQueue::len)) are consistent in each shard,
//!   not across shards: numbers of different shards are read one after the other.
//! * While [`shut_down`](WorkQueue::shut_down) runs, an add may still be accepted after an add of another thread was refused.
//!   [`try_get`](WorkQueue::try_get) says `Empty` if each shard was empty at some moment of the call.
//! * **A thread that is stopped** in the middle of a call keeps back the keys of one shard; getters pass by it. So
//!   [`get_timeout`](WorkQueue::get_timeout) may time out while a key is queued there.
//! * **Memory**: an empty shard takes 4 KiB (12 if the queue measures), and the two hundred kilobytes that a queue keeps after a burst
//!   are per shard, too.
//!
//! All else holds as with one shard: one holder per key, no lost add, no lost wake-up, drains, limits.
//!
//! # Priorities and groups
//!
//! An add may have a [`Priority`], and a queue may let groups of keys take turns, so that no tenant drowns the others:
//! ```
//! use keyqueue::{AddOptions, Priority, WorkQueue};
//!
//! let queue = WorkQueue::builder().fair_by(|&(tenant, _): &(&str, u32)| tenant.to_owned()).build();
//! queue.add_all((0..3).map(|n| ("large", n)));
//! queue.add(("small", 0));
//! queue.add_with(("large", 9), AddOptions::new().priority(Priority::HIGH)); // somebody waits for it
//! let order: Vec<_> = (0..5).map(|_| *queue.get().unwrap()).collect();
//! assert_eq!(order, [("large", 9), ("large", 0), ("small", 0), ("large", 1), ("large", 2)]);
//! ```
//! Lower priorities do not starve, unless the queue is [strict](WorkQueueBuilder::strict_priorities). Groups may have
//! [weights](WorkQueueBuilder::group_weight), and a [limit](WorkQueueBuilder::max_processing_per_group) of keys that are processing at a
//! time. A queue that uses neither pays nothing; one that does takes two to four times as long for a key (80 to 170 ns), and 50 bytes more.
//!
//! # Observing a queue
//!
//! [`stats`](WorkQueue::stats), which the queue's `Debug` shows, is a consistent snapshot of its counters (with one shard): how many keys are queued,
//! processing and delayed, and more. If the queue [measures](WorkQueueBuilder::measure), the snapshot includes the age of the
//! oldest keys, and [`metrics`](WorkQueue::metrics) has histograms of how long keys waited and were processed. The feature `metrics`
//! exports these under client-go's names, the feature `tracing` gives each hand-out a [span](Item#method.span), and an
//! [`Observer`](observe::Observer) of your own receives each event.
//!
//! # What it guarantees
//!
//! * **One holder.** Two [`Item`]s of one key are never alive at the same time.
//! * **No lost add.** An add that was not [`Rejected`](Added::Rejected) is followed by a hand-out of its key that begins after the
//!   add, even if the add races with a `get` or the `done` of the same key. What happened before the add is visible to that hand-out,
//!   even if the add was [`Coalesced`](Added::Coalesced). What happened before `done` is visible to the next hand-out of the key.
//! * **First in, first out**, by the moment at which a key became queued (with several [shards](#shards): in each; of one
//!   [priority and group](#priorities-and-groups)). A key that is added while it is processing goes to the back
//!   of the queue when it is done.
//! * **Delays are exact.** A delay expires when the clock is at or past its deadline, to the nanosecond: never early, late by what
//!   waking a thread costs, in the order of the deadlines. Any [`Duration`](std::time::Duration) is accepted.
//! * **Linearizable** (with one shard). Each call takes effect at one moment between its start and its return. Calls that consist of several steps
//!   say so (`add_all`, `get_many`, `turn`, `take_delayed`, `take_where`, the drains). A call that uses the limiter calls it before its
//!   step.
//! * **Limits hold.** Over any span of time a [`Bucket`](rate_limiter::Bucket) admits at most `burst + rate * span` (to within some
//!   nanoseconds of the span, if the time for a token is no whole number of nanoseconds). After any number of failures, no limiter
//!   returns a negative delay or one above its maximum.
//! * **Threads and tasks mixed.** [`get`](WorkQueue::get) and [`get_async`](WorkQueue::get_async) wait in one list; futures are
//!   cancel-safe and run on any executor.
//! * **A panicking worker leaves no key stuck.** When an [`Item`] is dropped by a panic, its key is done, or retried if you
//!   [choose so](OnPanic); [`Workers`] retry it. The panic is counted, and no lock is poisoned. A
//!   [limiter](rate_limiter::RateLimiter#panics) that panics costs no key its retry.
//! * **Shut-down drains.** [`shut_down`](WorkQueue::shut_down) refuses adds, which return [`Rejected`](Added::Rejected); queued keys are still handed out.
//!   [`shut_down_with_drain`](WorkQueue::shut_down_with_drain) returns when no key is queued *and* none is processing.
//! * **An idle queue runs nothing.** The thread that expires delays is started by the first delay, is parked until the next deadline,
//!   and ends with the queue. Delays that a shut-down cuts off can be [taken](WorkQueue::take_delayed).
//! * **Memory is freed.** A key is dropped when nothing needs it any more and its failures are forgotten; after a burst the storage
//!   shrinks. A cycle of add, get and done on a steady set of keys (up to about a thousand) allocates nothing, and never clones a key.
//! * **No foreign code under a lock**: no waker, limiter, observer or drop of a key. Two exceptions: the `Eq` of keys (and their
//!   `Borrow`, in [`cancel`](WorkQueue::cancel), [`forget`](WorkQueue::forget) and [`num_requeues`](WorkQueue::num_requeues)), and
//!   their `Clone` in [`take_delayed`](WorkQueue::take_delayed), [`take_where`](WorkQueue::take_where),
//!   [`processing_keys`](WorkQueue::processing_keys), [`delayed_keys`](WorkQueue::delayed_keys) and
//!   [`groups`](WorkQueue::groups). These must not use the queue; a debug build panics if they do.
//! * **The counts add up.** At every moment, each accepted add was coalesced, or its key was handed out or taken out since, is queued,
//!   or will be queued when it is done; see [`Stats`].
//!
//! [`guarantees`] has all promises and invariants by number, with what upholds and shows each, and the moment at which a call takes effect.
//!
//! # When not to use it
//!
//! * Each message matters, not only its key: two adds of one key become one run. Use a channel.
//! * Work must survive the process, or be shared by several processes: the queue is in memory. (If its keys can be listed, replicas can share
//!   them: the package `keyqueue-fleet` in the repository.)
//! * Producers must be slowed down when the queue is long: `add` never waits. The number of distinct keys is the only bound.
//!
//! # Traps
//!
//! * A worker thread that calls [`shut_down_with_drain`](WorkQueue::shut_down_with_drain) while it holds an item waits forever: the
//!   drain waits for that item.
//! * `None` from `get` means that no key is queued, not that none will be: a key that is processing and dirty comes back. A dispatcher
//!   that hands items to other threads and stops at `None` may leave such a key behind, and a drain waits for it.
//! * During a drain adds are refused, even those of workers and their retries. If processing a key adds more keys, wait until the
//!   queue [is idle](WorkQueue::wait_idle) before you drain.
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
//! * Retrying keys without ever calling [`succeed`](Item::succeed) or [`forget`](WorkQueue::forget) leaks failure records: see
//!   [`Stats::failing`]. A limiter with [bounds](rate_limiter::PerKey#memory) keeps the records itself, and drops them in time.
//!
//! # How it is built and verified
//!
//! One short critical section per call: [`how_it_works`] has the pictures, `benches/TABLES.md` the figures of the designs that were slower. The
//! real code runs under loom (`loom-tests/`), against a plain reference under a fuzzer (`fuzz/`),
//! against 928 recorded traces of client-go (`tests/`), and under a linearizability checker, AddressSanitizer and ThreadSanitizer
//! (`ci/`). These files are in the repository; the package has `src/` alone.
//!
//! # Features
//!
//! Features are additive: one that any package of a program turns on is on for all of its queues. The crate needs `std`.
//!
//! | feature | default | what it is for |
//! |---|---|---|
//! | `jitter` | yes | random delays: `jitter` of the limiters, and the module `backoff` |
//! | `quanta` | yes | limiters and measurements read the processor's counter; without it, [`Instant`](std::time::Instant) |
//! | `metrics` | | `observe::MetricsObserver`: client-go's metrics, through the facade `metrics` |
//! | `serde` | | `Serialize` and `Deserialize` for snapshots and lists of keys: [`Stats`], [`Metrics`](observe::Metrics) with its histograms, [`DelayedKey`], [`Leftover`] and the like; durations are seconds and nanoseconds, as `serde` has them |
//! | `std-lock` | | `std`'s mutex in place of the crate's own [lock](how_it_works#the-lock), for all queues of the program |
//! | `stream` | | `WorkQueue::stream`: a `Stream` of [`OwnedItem`]s |
//! | `tracing` | | `Item::span`, `WorkersBuilder::traced`: a span for each hand-out |
//!
//! **`quanta`** saves time where limiters, and queues that [measure](WorkQueueBuilder::measure), read the clock. Delays expire by `Instant`
//! in any case. In nanoseconds, with and without it, on an AMD EPYC (family 25, model 17), where `Instant::now` takes 23: a token of a
//! [`Bucket`](rate_limiter::Bucket) 12 and 32, a refused one 10 and 28,
//! [the default limiter](rate_limiter::default_controller_rate_limiter) 24 and 41; an add, get and done of a queue that does not
//! measure 17 and 17, of one that does 44 and 51 (it measures one key in eight at that rate), of one with priorities that measures each
//! key 113 and 174.
//!
//! **`std-lock`** is for those who would rather trust `std`'s lock. One thread then takes 1.5 times as long, and two threads 2.6 times or
//! more. A library should leave this choice to the program.

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
#[cfg(feature = "stream")]
mod stream;
mod sync;
mod time;
mod wait;
mod workers;

pub use builder::WorkQueueBuilder;
pub use error::{DrainTimeoutError, GetTimeoutError, InvalidArgument, TryGetError, WaitIdleTimeoutError};
pub use futures::{GetAsync, ShutDownWithDrain, UntilDirty, UntilShuttingDown, WaitIdle};
pub use item::Item;
pub use leftover::Leftover;
pub use options::{AddOptions, DelayConflict, DelayedAdd, OnPanic, Priority};
pub use owned_item::OwnedItem;
pub use queue::{Added, WorkQueue};
pub use stats::{DelayedKey, GroupStats, Level, ProcessingKey, Stats};
#[cfg(feature = "stream")]
pub use stream::ItemStream;
pub use time::clock::{Clock, MockClock};
pub use time::driver::Driver;
pub use workers::{GivenUp, Outcome, Tally, Workers, WorkersBuilder};

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
