//! A deduplicating work queue for control loops, operators, crawlers, indexers and job runners.
//!
//! Producers [`add`](WorkQueue::add) keys, and [workers](Workers) process them. A key is **queued at most once** and **processed by at most
//! one worker at a time**, and no add is lost: a key that is added while a worker processes it runs once more afterwards. The queue behaves
//! as client-go's `util/workqueue`, which Kubernetes' controllers use.
//!
//! ```
//! use keyqueue::WorkQueue;
//! use std::time::Duration;
//!
//! # fn reconcile(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//! let queue = WorkQueue::<&str>::new();
//! let workers = queue
//!     .workers()
//!     .max_retries(15) // a key that fails is retried for 164 s
//!     .then_after(Duration::from_secs(3600)) // and once an hour from then on
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
//! A key names an object, and never says what happened to it, because the worker reads the object's present state when it runs. An event
//! that arrives twice, late or out of order therefore does no harm, and if a thousand events for one key come before its run begins, they
//! lead to one run.
//!
//! The [`cookbook`] has recipes, and a table of client-go's names with what differs. [`how_it_works`] has pictures of the inside. Read the
//! [traps](#traps) before you ship. To retry a function until it is stopped, with backoff and without a queue, see the module `backoff`.
//!
//! # Words
//!
//! | | |
//! |---|---|
//! | *queued* | the key waits for a worker |
//! | *hand-out* | a worker gets the key, as an [`Item`] |
//! | *processing* | a worker has the key: its `Item` exists |
//! | *holder*, *getter* | who has the `Item`; a thread or task that is in a call which gets a key |
//! | *done* | the hand-out ends: the worker drops the `Item`, or calls a method that ends it |
//! | *dirty* | the key will run: it is queued, or was added while it is processing |
//! | *coalesced* | an add that causes no further run: the key is dirty already, or has a delay that stays |
//! | *deferred* | an add of a key that is processing: the queue adds the key when the hand-out ends |
//! | *delayed* | the key has a delay: the queue adds the key when the delay expires |
//! | *retry*, *date* | a delay that the holder has set after a failure; any other delay |
//! | *limiter* | says how long a key waits for its next retry |
//! | *cooling down* | the key has run, and is not to run again for some time: adds are held back until then |
//! | *failing* | the queue or its limiter counts failures of the key |
//! | *driver* | the thread that adds keys when their delays expire, and reports metrics |
//!
//! # The life of a key
//!
//! An add queues the key, a get hands it out, and when its holder is done, the key is gone, unless it was added in the meantime: then it is
//! queued again, at the back. [`Added`] says what an add did, and [`how_it_works`] has a picture.
//!
//! Besides this, a key may have a *delay*, and when the delay expires, the queue adds the key. A caller sets one by
//! [`add_after`](WorkQueue::add_after), and the last holder of the key by [`retry`](Item::retry) or a requeue; a key may have one of each.
//! A later decision of a holder takes the place of an earlier one. If a caller meets a caller's delay, [`AddOptions::conflict`] decides
//! which one stays, by default the one that expires first. [`DelayedAdd`] decides what a plain add does with a key that waits for its
//! retry: by default the queue adds the key at once, and the delay stays.
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
//! [`Workers`] run in threads ([`spawn`](WorkersBuilder::spawn)) or in tasks of any runtime ([`run_async`](Workers::run_async)). They catch
//! panics, and count and limit retries. A handler [returns](IntoOutcome) `()`, an [`Outcome`] or a `Result`, whose error, which it may pass
//! on with `?`, means "try again later" ([or what you choose](Outcome#the-question-mark)). Look at the page of [`handlers`] if the compiler
//! refuses yours. A long handler may stop early when its key is added again ([`is_dirty`](Item::is_dirty),
//! [`until_dirty`](Item::until_dirty)), or when the queue shuts down ([`shutting_down`](Item::shutting_down),
//! [`until_shutting_down`](Item::until_shutting_down)). A handler may also work on [many keys at once](Workers::run_batch).
//!
//! A loop of your own calls [`get`](WorkQueue::get) or [`get_async`](WorkQueue::get_async), and ends each hand-out with a method of the
//! item, as below. Threads and tasks wait in one list, and the queue wakes the one that has waited longest. [`Item::retry`] asks the
//! queue's [limiter](rate_limiter) how long the key waits: by default 5 ms after its first failure, and twice as long after each further
//! one, at most 1000 s. No limiter delays a plain `add`.
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
//! Each of these calls shuts the queue down, which means that it refuses adds from then on, for good. [`Workers`] have three ways to stop.
//! Each returns every key that was not finished, as one [`Leftover`], whose [`into_keys`](Leftover::into_keys) the next start may add:
//!
//! * **The queue may be long**, or the next start lists all objects anyway: [`finish`](Workers::finish). It lets the runs that have begun
//!   end, and begins no other. A drain would spend the time until SIGKILL on handing out what waits.
//! * **The queue is short**, and its keys are to run before the end: a drain with a deadline, [`drain_timeout`](Workers::drain_timeout).
//! * **No handler is worth waiting for**: [`stop`](Workers::stop), which returns at once. What its handlers do afterwards, a second `stop`
//!   returns, and [`extend`](Leftover::extend) makes one of the two.
//!
//! | call | waits for | returns |
//! |---|---|---|
//! | [`Workers::finish`], [`finish_until`](Workers::finish_until) | processing keys, until a deadline | every key that was not finished |
//! | [`Workers::drain_timeout`], [`drain_until`](Workers::drain_until) | queued and processing keys, until a deadline | the same |
//! | [`Workers::drain`], [`drain_async`](Workers::drain_async) | the same, without a deadline | the same |
//! | [`Workers::stop`] | nothing | the same |
//! | for loops of your own: [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), [`_async`](WorkQueue::shut_down_with_drain_async) | queued and processing keys | nothing |
//! | the same until a deadline: [`_timeout`](WorkQueue::shut_down_with_drain_timeout) | the same | the numbers of such keys, if the time is up |
//! | [`shut_down`](WorkQueue::shut_down) | nothing; queued keys are still handed out | nothing |
//!
//! [`wait_idle`](WorkQueue::wait_idle) waits until no key is queued, processing or delayed, and refuses no add. [`join`](Workers::join)
//! waits for the loops alone.
//!
//! # Priorities and groups
//!
//! An add may give a [`Priority`]. Groups of keys may take turns, so that no tenant drowns the others:
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
//! Lower priorities do not starve, unless the queue is [strict](WorkQueueBuilder::strict_priorities). Each group may have
//! [limits](WorkQueueBuilder::group_limits): a weight, a number of keys that are processing at a time, and a rate.
//! [Calls](WorkQueue::group) and [handlers](Outcome::PauseGroup) pause it. A queue without priorities and groups pays nothing for them.
//! Otherwise a key takes more time and memory:
//!
//! | | time | memory |
//! |---|---|---|
//! | with priorities | up to 1.6 times | up to 30 bytes a key |
//! | with groups | two to four times | up to 30 bytes a key, and 70 a group |
//!
//! # Observing a queue
//!
//! [`stats`](WorkQueue::stats) is a snapshot of the counters, which `Debug` shows, too. [`inspect`](WorkQueue::inspect) says
//! [what a key waits for](Inspect::key), and has lists of keys, levels and groups, and histograms if the queue
//! [measures](WorkQueueBuilder::measure). The feature `metrics` exports client-go's metrics every 500 ms while there are keys, and nothing
//! has to be started for that. The feature `tracing` gives each hand-out a [span](Item#method.span). An [`Observer`](observe::Observer) of your own receives each event.
//!
//! # What it guarantees
//!
//! * **One holder.** Two [`Item`]s of one key are never alive at the same time.
//! * **No lost add.** After each add that is not [`Rejected`](Added::Rejected), a hand-out of its key begins, which sees what happened
//!   before the add, unless a call takes the key or its delay out, or a shut-down cuts the delay off.
//! * **First in, first out**, within a priority and a group. With several [shards](how_it_works#several-shards) a bounded number of later
//!   keys may overtake a key.
//! * **No delay expires early**, not by a nanosecond.
//! * **Linearizable** (with one shard): a call takes effect at one moment, unless its docs say otherwise.
//! * **A panic leaves no key stuck**, and poisons no lock. [`OnPanic`] chooses what happens to the key.
//! * **Nothing vanishes**: a drain returns each key that was not finished, as [`Leftover`]. A key whose worker's future is dropped in the
//!   middle of a run is queued again.
//! * **An idle queue takes no processor time.** The driver thread sleeps, and ends with the queue.
//! * **Memory is freed** after a burst, and a steady set of keys allocates nothing.
//! * **No lock is held while your code runs**, except for a key's `Eq` (or [`Equivalent`]), its `Clone` in calls that list or take keys,
//!   and the function of [`Clock::from_fn`]. If one of these uses the queue, a debug build panics.
//! * **The same twice.** With a [seed](WorkQueueBuilder::seed), a clock of your own and [`Driver::Manual`], a program that uses the queue
//!   with one thread does the same each time.
//!
//! [`guarantees`] has these promises in full, with a number for each.
//!
//! # When not to use it
//!
//! * **Each message counts.** Here two adds of one key may become one run, so use a channel.
//! * **Work must survive the process.** The queue is in memory. If a program can list the keys, though, its replicas can share them: see
//!   the package `keyqueue-fleet` in the repository.
//!
//! # Traps
//!
//! * **After a success call [`succeed`](Item::succeed)** (or [`forget`](WorkQueue::forget)), as [`Workers`] do by themselves. Dropping the
//!   item forgets nothing, so a key that was retried keeps its long backoff, and the queue keeps its record. See [`Stats::failing`].
//! * **An [`add`](WorkQueue::add) does not wait** for the backoff of its key, so a key that always fails and has many events runs all the
//!   time. If it is added while it is processing, it is queued as soon as it is done, even if the holder calls `retry` or `requeue_after`,
//!   and the end of that early run sets the next delay. With [`DelayedAdd::Strict`] adds wait for a retry once it is set, so there is at
//!   most one early run for each.
//! * **An equal key that is there already stays**, and `add` drops the new one, so data that `Eq` does not compare, such as the time of the
//!   event, does not reach the worker. A [`ValueQueue`](values::ValueQueue) keeps such data beside the key.
//! * **Equal keys must have equal [groups](WorkQueueBuilder::fair_by)**, as they must have equal hashes.
//! * **`get` returns `None`** when the queue is shut down and no key is queued, but a key that is processing and dirty comes back later. A
//!   dispatcher that hands items to other threads therefore stops only when `get` returns `None` and none of its items is left; otherwise
//!   it may leave such a key behind, for which a drain waits.
//! * **A drain refuses adds**, including those of its workers, and retries. A key that fails or is requeued meanwhile goes to
//!   [`Leftover::refused`]. If processing a key adds more keys, wait until the queue [is idle](WorkQueue::wait_idle) before you drain.
//! * **The child of a `fork`** has no threads. Create the queue after the fork, or `exec` in the child: see [`Driver`].
//!
//! # On wasm32
//!
//! On `wasm32-unknown-unknown`, as in a browser, there are no threads and no clock, so the queue is told the time, and the program's event
//! loop expires the delays:
//! ```
//! use keyqueue::{Clock, Driver, WorkQueue};
//! use std::time::Duration;
//!
//! # fn performance_now() -> f64 { 0.0 }
//! let clock = Clock::from_fn(|| Duration::from_secs_f64(performance_now() / 1000.0));
//! let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
//! # queue.add("pod-1");
//! // In a callback of the event loop, at the latest after `queue.stats().next_deadline`:
//! queue.turn();
//! ```
//!
//! | on `wasm32-unknown-unknown` | |
//! |---|---|
//! | works | adds, delays, retries, groups, shards; [`run_async`](Workers::run_async) on a local executor; [`stop`](Workers::stop), and drains that are futures |
//! | panics | a queue or a [`Bucket`](rate_limiter::Bucket) with the default clock, such as `WorkQueue::new()`; calls with a timeout, such as [`get_timeout`](WorkQueue::get_timeout) |
//! | returns an error | [`spawn`](WorkersBuilder::spawn), as no thread can be started |
//!
//! Make no call that blocks, as there is no other thread that could end the wait. Set `default-features = false`, because `quanta` reads
//! JavaScript's clock there, through `web-sys`. There are no random numbers either, so give the builder a secret
//! [seed](WorkQueueBuilder::seed) if strangers choose the keys. With WASI the crate compiles with all features.
//!
//! # How it is built and verified
//!
//! A call holds one lock for a short time: [`how_it_works`] has the pictures and the reasons. Models under loom, fuzzers, recorded traces
//! of client-go, a check that histories are linearizable, and sanitizers verify it. They are in the repository, as the package has `src/`
//! alone.
//!
//! # Features
//!
//! If one package of a program turns a feature on, it is on for all queues of the program. The crate needs `std`.
//!
//! | feature | default | what it is for |
//! |---|---|---|
//! | `quanta` | yes | limiters and measurements read the processor's counter; without it, [`Instant`](std::time::Instant) |
//! | `metrics` | | `observe::MetricsObserver`: client-go's metrics, through the facade `metrics` |
//! | `serde` | | `Serialize` and `Deserialize` for snapshots and lists of keys: [`Stats`], [`Metrics`](observe::Metrics) with its histograms, [`DelayedKey`], [`Leftover`] and the like; durations are seconds and nanoseconds, as `serde` has them |
//! | `lock-free` | | an engine (`WorkQueueBuilder::lock_free`) without a lock on the way of adds, gets and ends of hand-outs |
//! | `std-lock` | | `std`'s mutex in place of the crate's own [lock](how_it_works#the-lock), for all queues of the program |
//! | `stream` | | `WorkQueue::stream`: a `Stream` of [`OwnedItem`]s |
//! | `tokio` | | `Workers::spawn_tasks`: loops as tasks of the current Tokio runtime |
//! | `tracing` | | `Item::span`, `WorkersBuilder::traced` and `traced_display`: a span for each hand-out |
//!
//! **`quanta`** saves time where limiters, and queues that [measure](WorkQueueBuilder::measure), read the clock, while delays expire by
//! `Instant` in any case. On an AMD EPYC (family 25, model 17), where `Instant::now` takes 23 ns, these calls take (24 November 2026; both
//! builds in one program, in turn; medians of 201 rounds of 100 000 calls):
//!
//! | nanoseconds | with `quanta` | without |
//! |---|---:|---:|
//! | a token of a [`Bucket`](rate_limiter::Bucket) | 12 | 32 |
//! | [the default limiter](rate_limiter::default_controller_rate_limiter) | 24 | 41 |
//! | add, get and done, measured (one key in eight, at this rate) | 44 | 51 |
//! | the same with priorities, measured (each key) | 113 | 174 |
//!
//! **`lock-free`** brings two packages, `crossbeam-queue` and `papaya`, and changes nothing but queues that are built with
//! `WorkQueueBuilder::lock_free`, whose page says when to take it.
//!
//! **`std-lock`** uses `std::sync::Mutex`, with which add, get and done took 1.5 times as long with one thread, and several times as long
//! with two. A library should leave this choice to the program.

// On docs.rs, marks items that need a feature. It is unstable, so it is off elsewhere, and `ci/docs.sh` checks the marks.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("keyqueue needs 64-bit atomics, which this target does not have");

// For tests in here, which include files of `tests/` that name the crate.
#[cfg(test)]
extern crate self as keyqueue;

mod add_wait;
mod added;
pub mod backoff;
mod batch;
mod bound;
mod builder;
pub mod cookbook;
mod coop;
mod error;
#[cfg(feature = "lock-free")]
mod free;
mod futures;
mod get_async;
mod groups;
pub mod guarantees;
pub mod handlers;
mod histogram;
pub mod how_it_works;
mod inspect;
mod item;
mod key;
mod key_state;
mod leftover;
mod machine;
mod numbers;
pub mod observe;
mod options;
mod order;
mod owned_item;
mod panics;
mod prefetch;
mod queue;
mod random;
pub mod rate_limiter;
#[cfg(all(test, not(loom)))]
#[path = "../tests/reference/mod.rs"]
mod reference;
mod shared;
mod slab;
mod stats;
#[cfg(keyqueue_steps)]
#[doc(hidden)]
pub mod steps;
#[cfg(feature = "stream")]
mod stream;
mod sync;
mod time;
pub mod values;
mod wait;
mod workers;

pub use add_wait::AddWait;
pub use added::Added;
pub use batch::Batch;
pub use builder::WorkQueueBuilder;
pub use equivalent::Equivalent;
pub use error::{DrainTimeoutError, GetTimeoutError, InvalidArgument, TryGetError, WaitIdleTimeoutError};
pub use futures::{ShutDownWithDrain, UntilDirty, UntilLate, UntilShuttingDown, WaitIdle};
pub use get_async::GetAsync;
pub use groups::{FairShare, Group, GroupLimits};
pub use inspect::Inspect;
pub use item::Item;
pub use key_state::{DelayedBy, KeyActivity, KeyDelay, KeyState};
pub use leftover::Leftover;
pub use options::{AddOptions, DelayConflict, DelayedAdd, OnPanic, Priority};
pub use owned_item::OwnedItem;
pub use queue::WorkQueue;
pub use shared::Driver;
pub use stats::{DelayedKey, GroupStats, HeldBack, Level, ProcessingKey, Stats};
#[cfg(feature = "stream")]
pub use stream::ItemStream;
pub use time::clock::{Clock, MockClock};
pub use workers::{BatchItem, GivenUp, IntoOutcome, Outcome, Tally, Workers, WorkersBuilder};

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

/// For `loom-tests/`: this number of calls that might pass by a busy shard do so.
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

impl<K: std::hash::Hash + Eq> WorkQueue<K> {
    /// For tests: the index of a key's shard.
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

    /// Calls `f` in a thread that is about to park for the lock.
    pub fn about_to_park(&self, f: impl FnOnce()) {
        self.0.about_to_park(f);
    }
}
