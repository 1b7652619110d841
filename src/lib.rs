//! A deduplicating work queue for control loops, operators, crawlers, indexers and job runners.
//!
//! Producers [`add`](WorkQueue::add) keys. Workers [`get`](WorkQueue::get) a key, do the work, and drop the guard. Between the
//! two, the queue sees to it that a key is **in line once at most** and **in work once at most**, and that no add is lost:
//! a key that is added while somebody works on it is handed out once more afterwards.
//!
//! These are the semantics of client-go's `util/workqueue`, on which Kubernetes' controllers stand, mended where that is known to
//! be broken.
//!
//! # In five minutes
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
//!             // This key is mine alone until `item` is dropped.
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
//! queue.shut_down_with_drain(); // refuses adds, returns when all is done
//!
//! let runs = worker.join().unwrap();
//! assert!((2..=5).contains(&runs), "adds collapse, and none is lost");
//! ```
//!
//! A key says *what* to look at, never what happened. The worker reads the state of the world when it runs, so an event that
//! comes twice, late or out of order does no harm, and a thousand events for one key are one run.
//!
//! # The life of a key
//!
//! ```text
//!            add                  get                     add
//!  absent ────────▶ in line ──────────────▶ in work ──────────────▶ in work, dirty
//!    ▲                ▲                       │                        │
//!    │                └───────────────────────┼──────── done ──────────┘
//!    └──────────────────── done ──────────────┘
//! ```
//!
//! [`Added`] tells which way an add went; [`Item`] is the hand-out, and dropping it is `done`.
//!
//! Beside this life, and independent of it, a key can have one *delay*: [`add_after`](WorkQueue::add_after) sets it, and when
//! it is over the key is added like any other. [`AddOptions`] say what becomes of a delay that is there already (the earlier
//! deadline counts, or the later call, or the one that was there), [`DelayedAdd`] what an add does that meets one.
//!
//! ```
//! use keyqueue::{AddOptions, Clock, DelayConflict, Driver, WorkQueue};
//! use std::time::Duration;
//!
//! let (clock, time) = Clock::mock(); // in a test; else the system's clock, and a thread that delivers
//! let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
//!
//! // Debounce: not before nothing has happened for 200 ms.
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
//! [`Item::retry`] has the queue's limiter say how long the key waits before it is handed out again: 5 ms after its first
//! failure, twice as long after each further one, at most 1000 s. [`Item::succeed`] has the limiter forget the key, and so the
//! next failure is the first again. [`rate_limiter`] has other limiters, how to combine them, and the traps.
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
//!     Err(()) => item.succeed(), // gives up
//! }
//! # }
//! # assert!(queue.try_get().is_err() && queue.num_requeues(&"pod-1") == 0);
//! ```
//!
//! # Workers
//!
//! The loop above is written once: [`Workers`] run it in threads or in tasks of any runtime, catch panics, count and limit
//! retries, and say at the end what was left. A handler returns `()`, an [`Outcome`], or a `Result`, so that `?` means "try again
//! later". A handler that runs for long can ask, or be told, whether its key was added again and its work is stale:
//! [`is_dirty`](Item::is_dirty), [`until_dirty`](Item::until_dirty); and whether the queue is shutting down:
//! [`shutting_down`](Item::shutting_down), [`until_shutting_down`](Item::until_shutting_down).
//!
//! ```
//! use keyqueue::{Item, WorkQueue};
//! use std::time::Duration;
//!
//! # fn reconcile(_: &str) -> Result<(), std::io::Error> { Ok(()) }
//! let queue = WorkQueue::new();
//! let workers = queue
//!     .workers()
//!     .max_retries(15)
//!     .on_give_up(|pod, why| eprintln!("{pod}: {why}")) // "given up after 15 retries: …"
//!     .spawn(2, |pod: &Item<'_, &str>| reconcile(pod))?;
//! queue.add("pod-1");
//!
//! let leftover = workers.drain_timeout(Duration::from_secs(10)); // tasks: drain_until(a future).await
//! assert!(leftover.is_empty());
//! # std::io::Result::Ok(())
//! ```
//!
//! # When you look at it from outside
//!
//! [`stats`](WorkQueue::stats), which the queue's `Debug` shows, has counts of one moment: how long the line is, how many keys are in
//! work, how many wait. A queue that [measures](WorkQueueBuilder::measure) also knows how old the oldest of them are, and has
//! histograms of how long keys waited and were worked on: [`metrics`](WorkQueue::metrics). The feature `metrics` passes these on
//! under client-go's names, the feature `tracing` gives each hand-out a [span](Item#method.span), and an [`Observer`] of your
//! own is told of each event.
//!
//! # What it guarantees
//!
//! * **One holder.** Never are two [`Item`]s of one key alive at a time.
//! * **No lost add.** An add that was not [`Rejected`](Added::Rejected) is followed by a hand-out that begins after it, whichever
//!   way it meets the `get` or the `done` of the same key. What happened before the add is visible to that hand-out, also if
//!   the add was [`Coalesced`](Added::Coalesced); what happened before `done` is visible to the next hand-out of the key.
//! * **First in, first out**, by the moment in which a key became ready. Added while in work means: at the back when done.
//! * **Delays are exact.** A key is due when the clock is at or past its deadline, to the nanosecond: never early, late by what
//!   waking a thread costs, in the order of the deadlines. Any [`Duration`](std::time::Duration) will do.
//! * **Linearizable.** Each call takes effect at one moment between its begin and its end; those that are several steps say so
//!   (`add_all`, `get_many`, `turn`, `take_delayed`, the drains; and what asks the limiter, that before).
//! * **Limits hold.** Over any span of time a [`Bucket`](rate_limiter::Bucket) admits `burst + rate * span` at most (to within some
//!   nanoseconds of the span, if a token takes no whole number of them); no delay of a limiter is negative or past its maximum,
//!   after any number of failures.
//! * **Threads and tasks mixed.** [`get`](WorkQueue::get) and [`get_async`](WorkQueue::get_async) wait in one list; futures are
//!   cancel-safe and run on any executor.
//! * **A worker's panic leaves nothing stuck.** An [`Item`] that unwinds is done, or retried if you [wish](OnPanic), which is what
//!   [`Workers`] do; it is counted, and no lock is poisoned. A [limiter](rate_limiter::RateLimiter#panics) that panics costs no key
//!   its retry.
//! * **Shut-down drains.** [`shut_down`](WorkQueue::shut_down) refuses adds, and says so, while what is in line is still handed
//!   out; [`shut_down_with_drain`](WorkQueue::shut_down_with_drain) returns when nothing is in line *and* nothing in work.
//! * **Nothing due, nothing runs.** The thread that delivers is started by the first delay, sleeps until the next deadline,
//!   and ends with the queue; what a shut-down cuts off can be [taken](WorkQueue::take_delayed).
//! * **Memory comes back.** A key is dropped when nothing needs it any more, and its failures are forgotten; after a burst the
//!   storage shrinks. A cycle on a steady set of keys (up to a thousand or so) allocates nothing, and none clones a key.
//! * **No foreign code under a lock**, be it a waker, a limiter, an observer or a key's drop, with two exceptions: the `Eq` of keys
//!   (and their `Borrow`, in [`cancel`](WorkQueue::cancel), [`forget`](WorkQueue::forget) and
//!   [`num_requeues`](WorkQueue::num_requeues)), and in [`take_delayed`](WorkQueue::take_delayed) and
//!   [`in_work`](WorkQueue::in_work) their `Clone`. These must not use the queue; a debug build panics if they do.
//! * **What is counted adds up.** At every moment, accepted adds are those that were coalesced, and those whose key was handed out
//!   since, is in line, or will be when it is done; see [`Stats`].
//!
//! [`guarantees`] has all promises and invariants by number, with what upholds and shows each, and the moment at which a call takes effect.
//!
//! # When not to use it
//!
//! * The *messages* matter, not the keys: two adds of one key become one run. Use a channel.
//! * Work must survive the process, or be shared by several: this lives in memory.
//! * You need a bound on the length with back-pressure: `add` never waits. The number of distinct keys is the bound.
//! * Dozens of cores do nothing but add: calls share one lock, of ten nanoseconds or so. A worker that works for a microsecond
//!   does not notice; a benchmark that does nothing does.
//!
//! # Traps
//!
//! * A worker thread that calls [`shut_down_with_drain`](WorkQueue::shut_down_with_drain) while it holds an item waits for
//!   itself.
//! * `None` from `get` means "nothing in line", not "nothing left": a key that is in work and dirty comes back. A dispatcher that
//!   hands items to others and leaves at `None` may leave such a key behind, and a drain waits for it.
//! * During a drain adds are refused, those of workers included, and so are retries. If work fans out into more work, wait until
//!   the queue [is idle](WorkQueue::wait_idle) before you drain.
//! * An add that meets its key in work has it handed out once more at once, also if its holder says `retry` or `requeue_after`: the
//!   delay stands besides. [`DelayedAdd::Strict`] is for adds that come later. Who must not be hurried adds no key that is in work.
//! * Delayed keys are sorted as their time comes near, in ever finer steps. With a million of them, the largest steps take some
//!   milliseconds, every minute or hour, by which keys that are due just then are late. The table of a quarter of a million keys
//!   takes as long to double, once; a larger one doubles a little with each call.
//! * [`add_all`](WorkQueue::add_all) wakes workers when its iterator has ended. Feed a slow iterator in batches.
//! * `add` drops a key that is equal to one the queue has already, and keeps the old one: what `Eq` does not compare, such as
//!   the time of the event, does not travel. The queue also has a key whose failures it counts, until that is forgotten.
//! * Keys with equal hashes are compared one by one, as in a `HashSet`: n of them take a time that grows with n², and to drain
//!   them takes two to four times as long as to add them. Hashing is seeded, so this happens only if `Hash` leaves out what tells
//!   keys apart.
//! * The child of a `fork` has a copy of the queue, but only the thread that forked: no thread delivers its delayed keys or runs
//!   its workers, and a lock that another thread held stays locked. Make the queue after the fork, or `exec` in the child; see
//!   [`Driver`].
//! * Who retries keys and drops items without [`succeed`](Item::succeed) or [`forget`](WorkQueue::forget) fills the memory with keys
//!   that are known to fail: see [`Stats::failing`]. A limiter with [bounds](rate_limiter::PerKey#memory) keeps them itself, and
//!   forgets them in time.
//!
//! # How it is made and proved
//!
//! One short critical section per call; the reasons, with the figures of what lost, are in `BENCHMARKS.md` and at the head of
//! `src/shared.rs`. The real code runs under loom (`loom-tests/`), against a plain reference under a fuzzer (`fuzz/`), against
//! 928 recorded traces of the original (`tests/`), and under a linearizability checker, AddressSanitizer and
//! ThreadSanitizer (`ci/`). These files are in the repository; the package has `src/` alone.
//!
//! The crate needs `std`.

// Marks on docs.rs what needs a feature. Unstable, so nowhere else; `ci/docs.sh` checks the marks.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "jitter")]
pub mod backoff;
mod builder;
mod error;
mod get_async;
pub mod guarantees;
mod histogram;
mod item;
mod key;
mod line;
#[cfg(feature = "metrics")]
mod metrics;
mod numbers;
mod observer;
mod options;
mod panics;
mod queue;
mod quiet;
#[cfg(feature = "jitter")]
mod random;
pub mod rate_limiter;
mod report;
mod shared;
mod stats;
mod sync;
mod time;
mod until_dirty;
mod until_shutting_down;
mod wait;
mod workers;

pub use builder::WorkQueueBuilder;
pub use error::{DrainTimeoutError, GetTimeoutError, InvalidArgument, TryGetError};
pub use get_async::GetAsync;
pub use histogram::Histogram;
pub use item::{Item, OwnedItem};
#[cfg(feature = "metrics")]
pub use metrics::MetricsObserver;
pub use observer::Observer;
pub use options::{AddOptions, DelayConflict, DelayedAdd, OnPanic};
pub use queue::{Added, WorkQueue};
pub use quiet::Quiet;
pub use report::Reporter;
pub use stats::{Metrics, Stats};
pub use time::clock::{Clock, MockClock};
pub use time::driver::Driver;
pub use until_dirty::UntilDirty;
pub use until_shutting_down::UntilShuttingDown;
pub use workers::{GivenUp, Leftover, Outcome, Tally, Workers, WorkersBuilder};

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// For `loom-tests/`: a new order of a model begins.
#[cfg(loom)]
#[doc(hidden)]
pub fn restart_clock() {
    sync::restart_clock();
}

/// For `loom-tests/`: from now on no thread can be started by the crate, or they can be again.
#[cfg(loom)]
#[doc(hidden)]
pub fn refuse_threads(refuse: bool) {
    sync::refuse_threads(refuse);
}

/// For `loom-tests/`: from now on each thread that was woken is overdue, or none is; see `src/sync/loom.rs`.
#[cfg(loom)]
#[doc(hidden)]
pub fn let_time_pass(passes: bool) {
    sync::let_time_pass(passes);
}

/// For `loom-tests/`: the queue's lock, in whose place the other models have loom's.
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
