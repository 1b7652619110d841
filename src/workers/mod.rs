//! The loop around `get` and `done`, for threads and for tasks. It catches panics and counts and limits retries, and a drain returns the
//! keys that were left.
//!
//! ```text
//!          ┌───────────────────────────────────────────────────────┐
//!          ▼                                                       │
//!   get ──▶ handler ──▶ Success ───────────────▶ succeed ──────────┤
//!    │         │        RequeueAfter(d) ───────▶ requeue_after ────┤
//!    │         │        RequeueWith(options),                      │
//!    │         │        PauseGroup ────────────▶ requeue_with ─────┤
//!    │         │        Retry, Failed,                             │
//!    │         │        RetryAfter ─────┬──────▶ retry ────────────┤
//!    │         └ panic ─────────────────┘└ too often ─┐            │
//!    │                  GiveUp(reason) ───────────────┴▶ give_up ──┘
//!    └▶ shut down and empty: the loop ends
//! ```
//!
//! A loop, of which `run_loop.rs` has the steps, runs in a thread of its own ([`spawn`](WorkersBuilder::spawn)), in the caller's thread
//! ([`run`](Workers::run)), as a future ([`run_async`](Workers::run_async)), or as a task of Tokio (`spawn_tasks`). As many keys are
//! processed at the same time as there are loops. A loop whose handler works on many keys at once is in `batches.rs`.

mod batches;
mod given_up;
mod loops;
mod outcome;
mod run_loop;
mod run_span;
mod size;
#[cfg(feature = "tokio")]
mod tasks;

pub use batches::BatchItem;
pub use given_up::GivenUp;
pub use loops::Tally;
pub use outcome::{IntoOutcome, Outcome};

use crate::key::SlotId;
use crate::panics::drop_each;
use crate::queue::WorkQueue;
use crate::shared::Shared;
use crate::sync::{Arc, Mutex};
use crate::time::deadline::Deadline;
use crate::{Item, Leftover};
use loops::Loops;
use run_loop::{Hooks, Loop};
use size::{Start, Threads};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// A handle of loops that process the keys of one queue. Clones refer to the same loops. From [`WorkQueue::workers`].
///
/// A loop ends when the queue is shut down and no key is queued. Dropping the handle ends no loop. The number of loops that
/// [`spawn`](WorkersBuilder::spawn) has started can [change](Workers::set_concurrency) while they run.
///
/// # Examples
/// Threads:
/// ```
/// use keyqueue::{Outcome, WorkQueue};
/// use std::time::Duration;
///
/// # fn write(_: &str) -> Result<bool, std::io::Error> { Ok(true) }
/// let queue = WorkQueue::<&str>::new();
/// let workers = queue
///     .workers()
///     .max_retries(15) // for 164 s
///     .then_after(Duration::from_secs(3600)) // and once an hour from then on
///     .on_error(|key, error| eprintln!("{key}: {error}"))
///     .on_give_up(|key, why| eprintln!("{key}: {why}")) // "given up after 15 retries: …"
///     .spawn(4, |pod| -> Result<Outcome, std::io::Error> {
///         let settled = write(pod)?; // fails: retried, after 5 ms, 10, 20, …
///         let again = Outcome::RequeueAfter(Duration::from_secs(10));
///         Ok(if settled { Outcome::Success } else { again })
///     })?;
/// queue.add("pod-1");
///
/// let leftover = workers.drain_timeout(Duration::from_secs(5));
/// assert!(leftover.is_empty());
/// assert_eq!(workers.tally().succeeded, 1);
/// # std::io::Result::Ok(())
/// ```
/// Tasks, on any runtime. The number of tasks is the number of keys that are processed at the same time:
/// ```
/// # use keyqueue::WorkQueue;
/// # use std::sync::Arc;
/// # struct Client;
/// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let client = Arc::new(Client);
/// let queue = WorkQueue::<String>::new();
/// let workers = queue.workers().build();
/// for _ in 0..8 {
///     let client = Arc::clone(&client);
///     tokio::spawn(workers.run_async(async move |url| client.fetch(url).await));
/// }
/// queue.add("https://example.org".to_owned());
///
/// queue.wait_idle_async().await;
/// workers.drain_async().await;
/// assert_eq!(workers.tally().succeeded, 1);
/// # }
/// ```
#[doc(alias = "ParallelizeUntil")]
pub struct Workers<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    queue: WorkQueue<K>,
    hooks: Hooks<K>,
    loops: Loops,
    /// Of the counter of the runs in the queue's hub.
    counter: u64,
    /// Keys whose retries or requeues were refused, and which no drain or stop has returned yet.
    refused: Mutex<Vec<(SlotId, K)>>,
    /// What [`Workers::finish`] has taken out, until it or another stop returns it.
    taken: Mutex<Leftover<K>>,
    /// What has started the loops that [`Workers::set_concurrency`] counts, the latest last.
    starters: Mutex<Vec<std::sync::Weak<dyn Start<K>>>>,
}

impl<K> Drop for Inner<K> {
    fn drop(&mut self) {
        self.queue.shared.count_runs(|counters| counters.remove(self.counter));
    }
}

/// Settings of [`Workers`]. From [`WorkQueue::workers`].
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
///
/// let queue = WorkQueue::<&str>::new();
/// let workers = queue
///     .workers()
///     .name("pods")
///     .max_retries(15)
///     .spawn(2, |pod| println!("{pod}"))?;
/// queue.add("pod-1");
/// assert!(workers.drain().is_empty());
/// # std::io::Result::Ok(())
/// ```
#[must_use = "a builder does nothing until `spawn` or `build`"]
pub struct WorkersBuilder<K> {
    queue: WorkQueue<K>,
    name: Option<String>,
    hooks: Hooks<K>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueue<K> {
    /// Configures [workers](Workers), which run the loop around `get`, `succeed` and `retry`.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<&str>::new();
    /// let workers = queue.workers().spawn(2, |pod| println!("{pod}"))?;
    /// queue.add("pod-1");
    /// assert!(workers.drain().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn workers(&self) -> WorkersBuilder<K> {
        WorkersBuilder::new(self.clone())
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkersBuilder<K> {
    fn new(queue: WorkQueue<K>) -> Self {
        Self { queue, name: None, hooks: Hooks::default() }
    }

    /// The name of the threads of [`spawn`](Self::spawn). A number follows it: `pods-0`. By default the queue's name, or `worker` if the
    /// queue has no name.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers = queue.workers().name("reindex").spawn(1, |_| {
    ///     assert_eq!(std::thread::current().name(), Some("reindex-0"));
    /// })?;
    /// queue.add(1);
    /// assert!(workers.drain().is_empty());
    /// assert_eq!(workers.tally().panicked, 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// A failing key is given up after this number of retries. No limit by default. 0: no key is retried.
    ///
    /// The queue's limiter counts retries since the key last succeeded: [`num_requeues`](crate::Item::num_requeues). With a limiter that
    /// does not count, such as a [`Bucket`](crate::rate_limiter::Bucket) alone, no key reaches this limit.
    ///
    /// With the default limiter 15 retries take 164 s, so an outage that lasts longer gives up each key that is due meanwhile. A key that
    /// was given up runs again after its next add. If it had nothing but [`RequeueAfter`](Outcome::RequeueAfter) to come back, it has lost
    /// its next look, and does not come again. For keys that are looked at periodically say how they come back, with
    /// [`then_after`](Self::then_after), or set no limit, so that the backoff grows to 1000 s and stays there.
    ///
    /// Events make the time shorter until a key is given up, because by default each add of a failing key is a run at once, which counts as
    /// a retry if it fails. An example is a key that always fails, has an event each half second, and may be retried eight times, with
    /// backoffs of 1 s, 2 s and so on, 255 s in all:
    ///
    /// | setting | given up after |
    /// |---|---|
    /// | [`DelayedAdd::Independent`](crate::DelayedAdd::Independent), the default, and [`Promote`](crate::DelayedAdd::Promote) | 4 s |
    /// | [`DelayedAdd::Strict`](crate::DelayedAdd::Strict): events wait for the retry | 255 s |
    /// | a limiter with [`served_only`](crate::rate_limiter::PerKey::served_only): events run, and their failures do not count | 255 s |
    ///
    /// If the limiter panics, the key is retried after 50 ms, and the queue counts the retry itself, so that the limit holds even if the
    /// limiter panics each time.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers = queue.workers().max_retries(2).spawn(1, |_| Err::<(), _>("never works"))?;
    /// queue.add("pod-1");
    /// queue.wait_idle();
    /// assert_eq!((workers.tally().retried, workers.tally().given_up), (2, 1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn max_retries(mut self, retries: usize) -> Self {
        self.hooks.max_retries = Some(retries);
        self
    }

    /// After its last retry a failing key comes back after this delay, so that it is not lost to an outage that lasts longer than its
    /// [`max_retries`](Self::max_retries). By default it does not come back.
    ///
    /// The first failure after the last retry calls [`on_give_up`](Self::on_give_up), and the key counts as [given up](Tally::given_up), once.
    /// It keeps its failures, so each failure after that waits for this delay again, without quick retries and without another call. A
    /// success begins anew, and so does all that forgets the failures, such as [`RequeueAfter`](Outcome::RequeueAfter).
    /// [`Outcome::GiveUp`] ends a key as it does without this setting.
    ///
    /// The limiter is not asked for these delays. One is longer than set here if the handler asks for a longer one, by
    /// [`RetryAfter`](Outcome::RetryAfter), or if [`min_interval`](Self::min_interval) does, and 50 ms is the shortest. Like any retry, the
    /// delay does not keep events back: an add is a run at once, unless [`DelayedAdd::Strict`](crate::DelayedAdd::Strict) makes events wait
    /// for retries. A drain does not wait for it, and returns the key in [`Leftover::delayed`]. A failure that comes after the shut-down is
    /// in [`Leftover::refused`].
    ///
    /// # Panics
    /// Not here. Without `max_retries`, [`build`](Self::build) panics, and [`spawn`](Self::spawn) returns an error.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// let hour = Duration::from_secs(3600);
    /// let workers =
    ///     queue.workers().max_retries(2).then_after(hour).spawn(1, |_| Err::<(), _>("no route"))?;
    /// queue.add("pod-1");
    /// while workers.tally().given_up == 0 || queue.processing_len() > 0 {
    ///     std::thread::yield_now(); // for 15 ms
    /// }
    /// let leftover = workers.drain();
    /// assert_eq!((workers.tally().failed, leftover.delayed[0].key), (3, "pod-1")); // in an hour
    /// # std::io::Result::Ok(())
    /// ```
    pub fn then_after(mut self, delay: Duration) -> Self {
        self.hooks.then_after = Some(delay);
        self
    }

    /// The shortest time between the end of a run of a key and the start of its next run. None by default.
    ///
    /// After each run, even one that failed, panicked, or whose task was dropped, the key [cools down](crate::Item::cool_down) for this
    /// time. Adds that come meanwhile become one run at its end, and without an add there is none, so that an object that changes a hundred
    /// times a second does not take a worker each time. A retry, a requeue or a caller's delay that is shorter waits until then. If a queue
    /// has several `Workers`, the interval is that of the one whose loop has made the run. A handler can ask for a longer one by
    /// [`Outcome::Cooldown`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers =
    ///     queue.workers().min_interval(Duration::from_secs(60)).spawn(1, |pod| println!("{pod}"))?;
    /// queue.add("pod-1");
    /// while workers.tally().succeeded == 0 || queue.processing_len() > 0 {
    ///     std::thread::yield_now();
    /// }
    /// queue.add("pod-1"); // held back for a minute
    /// let leftover = workers.drain();
    /// assert_eq!((leftover.delayed[0].key, workers.tally().succeeded), ("pod-1", 1));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "cooldown")]
    #[doc(alias = "debounce")]
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.hooks.min_interval = interval;
        self
    }

    /// Keeps the text of the last error of each failing key, of at most this many keys, for
    /// [`KeyState::last_error`](crate::KeyState::last_error): what a handler returned as an error or as the reason of an
    /// [`Outcome::GiveUp`], or the message of its panic. A text is at most a kilobyte long. If there are too many, the oldest goes.
    ///
    /// A text stays until a run of its key succeeds, whichever workers run it, even if the key is given up or removed meanwhile.
    /// [`Outcome::RequeueWith`], which keeps the key's failures, leaves it, too. While the queue keeps texts, each success hashes its key once
    /// more and takes a lock. 0, the default, keeps none.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<String>::new();
    /// let workers = queue
    ///     .workers()
    ///     .max_retries(0)
    ///     .keep_errors(1000)
    ///     .spawn(1, |_| Err::<(), _>("connection refused"))?;
    /// queue.add("pod-1".to_owned());
    /// let _leftover = workers.drain();
    /// let state = queue.inspect().key("pod-1");
    /// assert_eq!(state.last_error.as_deref(), Some("connection refused"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn keep_errors(mut self, keys: usize) -> Self {
        self.hooks.kept_errors = keys;
        self
    }

    /// How long a run of a handler may last. No limit by default. The limit is measured with the queue's [clock](crate::Clock), from the
    /// call of the handler.
    ///
    /// * **A task's handler** ([`run_async`](Workers::run_async), [`run_boxed`](Workers::run_boxed), `spawn_tasks`) is dropped at the limit,
    ///   where it waits, and its key is retried as after any failure: with the limiter's delay, and given up after
    ///   [`max_retries`](Self::max_retries), with [`GivenUp::timed_out`]. The run counts as [timed out](Tally::timed_out). The handler is
    ///   polled once more before that, so if it ends just then, or waits for [`until_late`](Item::until_late), what it returns counts. One
    ///   that blocks its thread, and does not wait, goes on until it does.
    /// * **A thread's handler** cannot be stopped, and its outcome counts. It can ask [`is_late`](Item::is_late), and stop by itself.
    ///
    /// [`on_stuck`](Self::on_stuck) is called for each run past the limit, and [`Tally::late`] counts them. The driver of the queue ends the
    /// runs: its thread, or, with [`Driver::Manual`](crate::Driver::Manual), the next [`turn`](WorkQueue::turn). If the driver is late, so is
    /// the end of the run, but no run ends before its limit. A limit that is too long for the clock, such as `Duration::MAX`, is none.
    ///
    /// With a limit, each run reads the clock twice, and takes the lock of the queue's lists twice.
    ///
    /// # Panics
    /// Not here. If the limit is zero, [`build`](Self::build) panics, and [`spawn`](Self::spawn) returns an error.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # async fn fetch(_: &str) { std::future::pending().await }
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue
    ///     .workers()
    ///     .time_limit(Duration::from_millis(20))
    ///     .max_retries(0)
    ///     .on_stuck(|url, age| eprintln!("{url} takes {age:?}"))
    ///     .on_give_up(|url, why| eprintln!("{url}: {why}")) // "given up …: the handler timed out"
    ///     .build();
    /// tokio::spawn(workers.run_async(async |url| fetch(url).await)); // never answers
    /// queue.add("https://example.org".to_owned());
    ///
    /// queue.wait_idle_async().await;
    /// assert_eq!((workers.tally().timed_out, workers.tally().given_up), (1, 1));
    /// # }
    /// ```
    #[doc(alias = "ReconciliationTimeout")]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.hooks.time_limit = Some(limit);
        self
    }

    /// Sets a hook for each run that has lasted longer than its [`time_limit`](Self::time_limit), on threads and tasks. It gets the key, and
    /// how long the run has lasted, and is called once for each such run.
    ///
    /// The queue's driver calls it as soon as the run is past the limit, while a thread's handler goes on, and before a task's handler is
    /// dropped. So the hook must return soon, because delays wait for the driver. If the run ends first, its loop calls the hook. With this
    /// hook, each run clones its key. A panic of the hook is caught and [counted](Tally::panicked), and so is one of that `Clone`, after
    /// which the hook is not called for that run.
    ///
    /// # Panics
    /// Not here. Without a `time_limit`, [`build`](Self::build) panics, and [`spawn`](Self::spawn) returns an error.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::new();
    /// let (stuck, keys) = mpsc::channel();
    /// let workers = queue
    ///     .workers()
    ///     .time_limit(Duration::from_millis(5))
    ///     .on_stuck(move |key, _| stuck.send(*key).unwrap())
    ///     .spawn(1, |_| std::thread::park())?; // never returns
    /// queue.add("pod-1");
    /// assert_eq!(keys.recv().unwrap(), "pod-1");
    /// # let _ = workers;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_stuck(mut self, hook: impl Fn(&K, Duration) + Send + Sync + 'static) -> Self {
        self.hooks.on_stuck = Some(Box::new(hook));
        self
    }

    /// Sets a hook for each error of a handler ([`Outcome::Failed`], [`Outcome::RetryAfter`] and [`Outcome::PauseGroup`]). The hook runs
    /// before the key is retried, requeued or given up. (The reason of an [`Outcome::GiveUp`] goes to [`on_give_up`](Self::on_give_up).)
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<String>::new();
    /// let workers =
    ///     queue.workers().on_error(|key, error| eprintln!("{key} is retried: {error}")).build();
    /// # let _ = workers;
    /// ```
    pub fn on_error(mut self, hook: impl Fn(&K, &(dyn Error + Send + Sync)) + Send + Sync + 'static) -> Self {
        self.hooks.on_error = Some(Box::new(hook));
        self
    }

    /// Sets a hook for each panic of a handler. It gets the key and the panic message. Afterwards the key is retried, or is done if
    /// [`on_panic`](crate::WorkQueueBuilder::on_panic) of the queue says so. The hook may abort the process.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<String>::new();
    /// let workers =
    ///     queue.workers().on_panic(|key, message| eprintln!("{key}: {message}")).build();
    /// # let _ = workers;
    /// ```
    pub fn on_panic(mut self, hook: impl Fn(&K, &str) + Send + Sync + 'static) -> Self {
        self.hooks.on_panic = Some(Box::new(hook));
        self
    }

    /// Sets a hook for each key that is given up. It gets the key and the [reason](GivenUp): how often the key was retried, and the error
    /// or the panic of the last try. The key is done afterwards, unless it comes back by [`then_after`](Self::then_after).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<String>::new();
    /// let workers = queue
    ///     .workers()
    ///     .max_retries(15)
    ///     .on_give_up(|key, why| eprintln!("{key}: {why}"))
    ///     .build();
    /// # let _ = workers;
    /// ```
    #[doc(alias = "on_drop")]
    pub fn on_give_up(mut self, hook: impl Fn(&K, &GivenUp<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_give_up = Some(Box::new(hook));
        self
    }

    /// Runs each handler in its hand-out's [span](Item::span). Errors and panics are events in this span.
    #[cfg(feature = "tracing")]
    pub fn traced(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.hooks.span = Some(|item| item.span());
        self
    }

    /// The same as [`traced`](Self::traced), but the span has the key as its `Display` prints it: `key=default/web`, where `Debug` would
    /// print `key=Name { namespace: "default", name: "web" }`.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<String>::new();
    /// let workers = queue.workers().traced_display().build();
    /// # let _ = workers;
    /// ```
    #[cfg(feature = "tracing")]
    pub fn traced_display(mut self) -> Self
    where
        K: fmt::Display,
    {
        self.hooks.span = Some(|item| item.span_of(tracing::field::display(item.key())));
        self
    }

    /// Builds workers without a loop. Add loops with [`run`](Workers::run) or [`run_async`](Workers::run_async).
    ///
    /// # Panics
    /// If [`then_after`](Self::then_after) is set, and [`max_retries`](Self::max_retries) is not. If the [`time_limit`](Self::time_limit) is
    /// zero, or there is none, and [`on_stuck`](Self::on_stuck) is set.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().build();
    /// std::thread::spawn({
    ///     let workers = workers.clone();
    ///     move || workers.run(|item| println!("{item}")) // a thread of your own
    /// });
    /// queue.add(1);
    /// let _leftover = workers.drain();
    /// ```
    #[track_caller]
    pub fn build(self) -> Workers<K> {
        if let Some(wrong) = self.wrong() {
            panic!("{wrong}");
        }
        let (queue, hooks, loops) = (self.queue, self.hooks, Loops::default());
        let counter = queue.shared.count_runs(|counters| counters.insert(loops.counter()));
        let (refused, taken) = (Mutex::new(Vec::new()), Mutex::new(Leftover::nothing()));
        let starters = Mutex::new(Vec::new());
        Workers { inner: Arc::new(Inner { queue, hooks, loops, counter, refused, taken, starters }) }
    }

    /// What is wrong with the settings.
    fn wrong(&self) -> Option<&'static str> {
        let Hooks { max_retries, then_after, time_limit, on_stuck, .. } = &self.hooks;
        let wrong = [
            (
                then_after.is_some() && max_retries.is_none(),
                "then_after: there is no max_retries, so no retry would be the last",
            ),
            (
                time_limit.is_some_and(|limit| limit.is_zero()),
                "time_limit: the limit is zero, so each run would be late",
            ),
            (on_stuck.is_some() && time_limit.is_none(), "on_stuck: there is no time_limit, so no run would be late"),
        ];
        wrong.into_iter().find_map(|(is_wrong, text)| is_wrong.then_some(text))
    }

    /// Starts `threads` threads. Each thread runs a loop.
    ///
    /// [`IntoOutcome`] says what a handler may return. If a closure uses `?`, it names its return type, as in the second example. A closure
    /// that is passed directly does not name the type of its argument: see [handlers](crate::handlers), and the compiler's texts there.
    ///
    /// If dozens of threads have handlers that take a microsecond or less, they wait for each other at the queue's lock: see
    /// [`shards`](crate::WorkQueueBuilder::shards).
    ///
    /// # Errors
    /// If the system cannot start a thread: the started threads end, and no key was handed out. If `threads` is 0. If the name contains a
    /// NUL byte. If the settings are such that [`build`](Self::build) panics.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<&str>::new();
    /// let workers = queue.workers().spawn(4, |pod| println!("{pod}"))?;
    /// queue.add("pod-1");
    /// assert!(workers.drain().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    /// With `?`:
    /// ```
    /// use keyqueue::{Outcome, WorkQueue};
    ///
    /// # fn read(_: &str) -> Result<String, std::io::Error> { Ok("7".to_owned()) }
    /// # fn write(_: u32) -> Result<(), String> { Ok(()) }
    /// let queue = WorkQueue::<&str>::new();
    /// let workers = queue.workers().spawn(4, |pod| -> Result<(), Outcome> {
    ///     let text = read(pod)?; // an io::Error: retried
    ///     let number = text.parse().map_err(|_| Outcome::GiveUp("no number".into()))?;
    ///     write(number).map_err(Outcome::failed)?; // its error is a String: retried
    ///     Ok(())
    /// })?;
    /// # queue.add("pod-1");
    /// # assert!(workers.drain().is_empty());
    /// # assert_eq!(workers.tally().succeeded, 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn spawn<R: IntoOutcome>(
        self,
        threads: usize,
        handler: impl Fn(&Item<'_, K>) -> R + Send + Sync + 'static,
    ) -> io::Result<Workers<K>> {
        let name = match (&self.name, self.queue.inspect().name()) {
            (Some(name), _) => name.clone(),
            (None, "") => "worker".to_owned(),
            (None, name) => name.to_owned(),
        };
        if threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "threads is 0: no thread would process keys"));
        }
        if name.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "name contains a NUL byte"));
        }
        if let Some(wrong) = self.wrong() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
        }
        let workers = self.build();
        let handler = move |item: &Item<'_, K>| handler(item).into_outcome();
        let starter = std::sync::Arc::new(Threads::new(name, handler));
        workers.inner.start_with(&starter);
        // The threads wait at the gate until all of them are started.
        let gate = workers.inner.loops.gate();
        for _ in 0..threads {
            let own = Loop::new(Arc::clone(&workers.inner), true);
            std::sync::Arc::clone(&starter).start(own)?;
        }
        // Before a loop can end. Otherwise this thread might be the last to have the handler, and drop what it has captured.
        drop(starter);
        gate.open();
        Ok(workers)
    }
}

impl<K> Workers<K> {
    /// Adds a loop. The tuple drops the handler before the loop, which ends when it is dropped, so that everything the handler has captured
    /// is dropped before a join returns.
    fn enter<F>(&self, handler: F) -> (F, Loop<K>) {
        (handler, Loop::new(Arc::clone(&self.inner), false))
    }

    /// Counts of what the loops have done so far.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().build();
    /// assert_eq!(workers.tally().running, 0);
    /// ```
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.inner.loops.tally()
    }

    /// The queue whose keys the loops process.
    ///
    /// # Examples
    /// ```
    /// let workers = keyqueue::WorkQueue::new().workers().build();
    /// workers.queue().add("pod-1");
    /// ```
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.inner.queue
    }

    /// Waits until all loops, and the threads of [`spawn`](WorkersBuilder::spawn), have ended. A loop ends when the queue is shut down and
    /// no key is queued. Before it ends, it drops its handler with the captured values.
    ///
    /// # Blocking
    /// Until then, which may take long if a handler runs for long, or the drop of a captured value or of a thread-local takes long. A
    /// handler that calls this waits forever, because the join waits for the handler, and so may the drop of a captured value or of a
    /// thread-local. Any number of threads may join at the same time.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{item}"))?;
    /// queue.shut_down();
    /// workers.join(); // the loops have ended
    /// # std::io::Result::Ok(())
    /// ```
    pub fn join(&self) {
        self.inner.loops.join();
    }

    /// Like [`join`](Self::join), for a task. When it resolves, all loops have ended, and their threads will end soon.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait, and changes nothing else.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{item}"))?;
    /// queue.shut_down();
    /// workers.join_async().await;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn join_async(&self) -> impl Future<Output = ()> + '_ {
        self.inner.loops.ended()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Runs a loop in this thread, until the queue is shut down and no key is queued. The handler may borrow: see
    /// [handlers](crate::handlers).
    ///
    /// # Blocking
    /// Like [`get`](WorkQueue::get).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// queue.shut_down(); // for this example: `run` returns when the queue is shut down and empty
    /// let mut sum = 0; // in the caller's thread, the handler may borrow
    /// queue.workers().build().run(|n| sum += n.key());
    /// assert_eq!(sum, 6);
    /// ```
    pub fn run<R: IntoOutcome>(&self, handler: impl FnMut(&Item<'_, K>) -> R) {
        let (handler, own) = &mut self.enter(handler);
        own.run(handler);
    }

    /// A loop as a future: processes one key at a time, until the queue is shut down and no key is queued. Spawn several of these futures
    /// to process several keys at a time. The future is `Send` if the handler and its futures are. It counts as running from this call
    /// until it ends or is dropped. After 128 keys, or a panic, it lets the runtime poll other tasks, even if neither the handler nor the
    /// queue has ever waited.
    ///
    /// # Cancel safety
    /// Dropping it drops the handler's future where it waits, and keeps the key: since the run has not succeeded, the key is added again at
    /// once, as by [`Outcome::RequeueWith`], and another loop gets it. No failure is counted, and the run counts in no field of the
    /// [`Tally`]. After the shut-down the queue refuses the key, and the next drain or stop returns it in [`Leftover::refused`].
    ///
    /// # The handler
    /// An async closure that borrows the item. Each call can use the captured values, so one clone for each loop is enough:
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// # let client = Arc::new(Client);
    /// # let _ =
    /// workers.run_async({
    ///     let client = Arc::clone(&client);
    ///     async move |url| client.fetch(url).await
    /// });
    /// ```
    /// A closure that uses `?` names what it returns (see [`IntoOutcome`]):
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// use keyqueue::Outcome;
    ///
    /// # let _ =
    /// workers.run_async(async |url| -> Result<(), Outcome> {
    ///     Client.fetch(url).await?; // fails: retried
    ///     Ok(())
    /// });
    /// ```
    /// The page [Which shape does a handler have?](crate::handlers) has the other forms, and what the compiler says of those that it
    /// refuses.
    ///
    /// # A task that hangs
    /// A drain with a deadline returns the keys of handlers that hang. Their tasks go on hanging. If you have kept the handles of the
    /// tasks, your runtime can abort them. (Nothing can abort a handler in a thread.) With the feature `tokio`, `Workers::spawn_tasks`
    /// keeps the handles, and the drain aborts the tasks. With a [`time_limit`](WorkersBuilder::time_limit) such a handler is dropped at
    /// its limit.
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// # async fn fetch(_: &str) { std::future::pending().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue.workers().build();
    /// let mut tasks = tokio::task::JoinSet::new();
    /// for _ in 0..8 {
    ///     tasks.spawn(workers.run_async(async |url| fetch(url).await));
    /// }
    /// queue.add("https://example.org".to_owned());
    /// # while queue.processing_len() == 0 {
    /// #     tokio::task::yield_now().await;
    /// # }
    ///
    /// let leftover = workers.drain_until(tokio::time::sleep(Duration::from_millis(25))).await;
    /// assert_eq!(leftover.processing, ["https://example.org".to_owned()]);
    /// // aborts the task that hangs: the handler is dropped, and the queue refuses its key
    /// tasks.shutdown().await;
    /// assert_eq!((workers.tally().running, queue.processing_len()), (0, 0));
    /// # assert_eq!(workers.stop().refused, ["https://example.org".to_owned()]);
    /// # }
    /// ```
    pub fn run_async<F, R>(&self, handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&Item<'_, K>) -> R,
        R: IntoOutcome,
    {
        let mut work = self.enter(handler);
        async move {
            let (handler, own) = &mut work;
            own.run_async(handler).await;
        }
    }

    /// Like [`run_async`](Self::run_async), for a handler that returns boxed futures.
    ///
    /// Use it in code that is generic over the handler, such as a wrapper that spawns tasks: the future is `Send` if the handler is. Use it
    /// also for closures of the form `|item| { let context = context.clone(); Box::pin(async move { … }) }`. It costs an allocation per
    /// key. The compiler's texts about other forms are among the [handlers](crate::handlers).
    ///
    /// # Cancel safety
    /// Like [`run_async`](Self::run_async).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Item, Outcome, WorkQueue, Workers};
    /// use std::pin::Pin;
    ///
    /// type Work<'i> = Pin<Box<dyn Future<Output = Outcome> + Send + 'i>>;
    ///
    /// /// Runs loops as tasks.
    /// fn spawn<F>(workers: &Workers<String>, tasks: usize, handler: F)
    /// where
    ///     F: for<'i> FnMut(&'i Item<'_, String>) -> Work<'i> + Clone + Send + 'static,
    /// {
    ///     for _ in 0..tasks {
    ///         tokio::spawn(workers.run_boxed(handler.clone()));
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::new();
    /// let workers = queue.workers().build();
    /// spawn(&workers, 8, |item| {
    ///     Box::pin(async move {
    ///         println!("working on {item}");
    ///         Outcome::Success
    ///     })
    /// });
    /// queue.add("pod-1".to_owned());
    ///
    /// assert!(workers.drain_async().await.is_empty());
    /// assert_eq!(workers.tally().succeeded, 1);
    /// # }
    /// ```
    pub fn run_boxed<F, R>(&self, mut handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: for<'i> FnMut(&'i Item<'_, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>>,
        R: IntoOutcome,
    {
        self.run_async(async move |item: &Item<'_, K>| handler(item).await)
    }

    /// Shuts the queue down, and takes out the queued and the delayed keys. Each loop ends after its present key. The call returns at once,
    /// even if [groups are full](crate::GroupLimits::max_processing). It releases drains that wait for the queue.
    ///
    /// Each accepted key was handed out and its hand-out has ended, or the key is in the [`Leftover`]. A key that was added while it was
    /// processing is in [`processing`](Leftover::processing). It is queued again when its handler returns, and stays queued if no getter is
    /// left. A key that fails or is requeued after the shut-down is in [`refused`](Leftover::refused). If its handler returns after the
    /// stop, the result of the next stop or drain has it.
    ///
    /// It takes keys out as [`take_where`](WorkQueue::take_where) does: it clones them under the lock, so `Clone` must not use this queue.
    /// They count as [`taken`](crate::Stats::taken).
    ///
    /// # Panics
    /// If a key's `Clone` panics, or the drop of a clone before anything is taken. The queue is shut down then, and the call has taken
    /// nothing: each key has its place, its priority and its delay. So another `stop` finds all keys.
    /// [`get`](WorkQueue::get), which clones nothing, hands out the queued ones.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers = queue.workers().build();
    /// queue.add("pod-1");
    /// let left = workers.stop(); // at once, with what is queued and delayed
    /// assert_eq!(left.queued, ["pod-1"]);
    /// ```
    pub fn stop(&self) -> Leftover<K> {
        let Inner { queue, loops, refused, taken, .. } = &*self.inner;
        loops.stop();
        queue.shut_down();
        let mut leftover = queue.shared.take_all(|| std::mem::take(&mut *refused.lock()));
        let earlier = std::mem::replace(&mut *taken.lock(), Leftover::nothing());
        leftover.queued.splice(0..0, earlier.queued);
        leftover.delayed.splice(0..0, earlier.delayed);
        leftover
    }

    /// Stops, and gives the runs that have begun this time to end. The call shuts the queue down and takes out the queued and the delayed
    /// keys at once, so that no further run begins, however many keys wait. Then it waits until the loops have ended, or for at most this
    /// time. A timeout too long for the clock, such as `Duration::MAX`, means no timeout.
    ///
    /// The [`Leftover`] has all keys that need a run, each in one of its lists beside the delays:
    ///
    /// | list | its keys |
    /// |---|---|
    /// | [`queued`](Leftover::queued) | were queued, or were added while they were processing, and have ended since |
    /// | [`delayed`](Leftover::delayed) | had a delay when the call began |
    /// | [`refused`](Leftover::refused) | failed or were requeued after the shut-down |
    /// | [`processing`](Leftover::processing) | are still in their handlers, as the time is up |
    ///
    /// If the time is up, the call aborts the tasks of `spawn_tasks` (feature `tokio`) that have not ended. Handlers in threads go on. A loop
    /// that waits for a key ends as soon as it has seen the stop; before that it may still get a key that was added while it was processing.
    /// [`drain_timeout`](Self::drain_timeout) also runs the queued keys.
    ///
    /// # Blocking
    /// Like [`drain_timeout`](Self::drain_timeout).
    ///
    /// # Panics
    /// Like [`stop`](Self::stop). Keys that this call had taken out before the panic are in the result of the next stop.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers = queue.workers().spawn(1, |_| std::thread::sleep(Duration::from_millis(5)))?;
    /// queue.add_all(0..100_000);
    /// let left = workers.finish(Duration::from_secs(10)); // after 5 ms
    /// assert_eq!(left.queued.len() as u64, 100_000 - workers.tally().succeeded);
    /// # assert!(left.queued.len() > 90_000 && left.processing.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn finish(&self, timeout: Duration) -> Leftover<K> {
        let deadline = &Deadline::after(timeout);
        self.take_out();
        self.inner.loops.wait(deadline);
        self.end_drain()
    }

    /// Like [`finish`](Self::finish), for a task: waits until the loops have ended, or until `deadline` resolves, which may be a timer of any
    /// runtime.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait. If it was polled, the queue stays shut down, and the loops end. The next [`stop`](Self::stop) returns all
    /// keys, even those that this call has taken out.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # use std::time::Duration;
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().build();
    /// tokio::spawn(workers.run_async(async |n| println!("{n}")));
    /// queue.add_after(1, Duration::from_secs(60));
    /// let left = workers.finish_until(tokio::time::sleep(Duration::from_secs(10))).await;
    /// assert_eq!(left.delayed[0].key, 1);
    /// # }
    /// ```
    pub async fn finish_until(&self, deadline: impl Future) -> Leftover<K> {
        self.take_out();
        either(self.join_async(), deadline).await;
        self.end_drain()
    }

    /// Takes out what is queued and delayed, so that no further run begins, and keeps it for the next stop.
    fn take_out(&self) {
        let Inner { queue, loops, taken, .. } = &*self.inner;
        loops.stop();
        queue.shut_down();
        let found = queue.shared.take_all(Vec::new);
        {
            let taken = &mut *taken.lock();
            taken.queued.extend(found.queued);
            taken.delayed.extend(found.delayed);
        }
        drop_each(found.processing);
    }

    /// Shuts the queue down, waits until no key is queued or processing, and [joins](Self::join) the loops. Returns the delayed keys, and
    /// in [`refused`](Leftover::refused) the keys that fail or are requeued meanwhile. After a [`stop`](Self::stop), it waits only for the
    /// loops.
    ///
    /// # Blocking
    /// Like [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), and then like [`join`](Self::join). If keys are left but no loop is,
    /// it waits forever.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{item}"))?;
    /// queue.add_all([1, 2, 3]);
    /// assert!(workers.drain().is_empty());
    /// assert_eq!(workers.tally().succeeded, 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&self) -> Leftover<K> {
        if !self.inner.loops.is_stopped() {
            self.inner.queue.shut_down_with_drain();
        }
        self.join();
        self.stop()
    }

    /// Like [`drain`](Self::drain), but waits for at most this time, and then [stops](Self::stop) the loops. A timeout too long for the
    /// clock, such as `Duration::MAX`, means no timeout. If a key fails or is requeued before this returns, it is in
    /// [`refused`](Leftover::refused).
    ///
    /// # Blocking
    /// For at most this time, even if a handler takes longer, or the drop of a value that it has captured. Its loop counts as
    /// [running](Tally::running) until it ends, and [`join`](Self::join) waits for it. If the loop is a task of `spawn_tasks` (feature
    /// `tokio`), the call aborts it. When the call returns, threads whose loops have ended may still be about to end.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::new();
    /// let workers = queue.workers().build(); // and no loop runs
    /// queue.add("pod-1");
    /// let left = workers.drain_timeout(Duration::from_millis(1));
    /// assert_eq!(left.queued, ["pod-1"]);
    /// ```
    pub fn drain_timeout(&self, timeout: Duration) -> Leftover<K> {
        let Inner { queue, loops, .. } = &*self.inner;
        let deadline = &Deadline::after(timeout);
        if loops.is_stopped() || Shared::drain(&queue.shared, deadline).is_ok() {
            loops.wait(deadline);
        }
        self.end_drain()
    }

    /// Like [`drain`](Self::drain), for a task. For a deadline, see [`drain_until`](Self::drain_until).
    ///
    /// # Cancel safety
    /// Dropping it ends the wait. If it was polled, the queue stays shut down. Only the last poll takes the remaining keys out, and returns
    /// them. So after a dropped drain, [`stop`](Self::stop) returns all of them.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{item}"))?;
    /// queue.add(1);
    /// assert!(workers.drain_async().await.is_empty());
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub async fn drain_async(&self) -> Leftover<K> {
        self.drain_until(std::future::pending::<()>()).await
    }

    /// Like [`drain_async`](Self::drain_async), but [stops](Self::stop) the loops when `deadline` resolves. The deadline may be a timer of
    /// any runtime, or a second Ctrl-C. If a key fails or is requeued before that, it is in [`refused`](Leftover::refused).
    ///
    /// If a task hangs, its key is in [`processing`](Leftover::processing). The drain aborts a task of `spawn_tasks` (feature `tokio`).
    /// Another task goes on hanging: see [`run_async`](Self::run_async), "A task that hangs".
    ///
    /// # Cancel safety
    /// Like [`drain_async`](Self::drain_async).
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # async fn fetch(_: &str) { std::future::pending().await }
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue.workers().build();
    /// tokio::spawn(workers.run_async(async |url| fetch(url).await));
    /// queue.add_all(["a".to_owned(), "b".to_owned()]);
    /// # while queue.processing_len() == 0 {
    /// #     tokio::task::yield_now().await;
    /// # }
    ///
    /// let leftover = workers.drain_until(tokio::time::sleep(Duration::from_millis(25))).await;
    /// assert_eq!(
    ///     (leftover.processing, leftover.queued),
    ///     (vec!["a".to_owned()], vec!["b".to_owned()])
    /// );
    /// # }
    /// ```
    pub async fn drain_until(&self, deadline: impl Future) -> Leftover<K> {
        either(self.drained(), deadline).await;
        self.end_drain()
    }

    /// The end of a drain: stops the loops, and aborts the tasks of `spawn_tasks` that have not ended. Their keys are in the answer, so it
    /// is made first.
    fn end_drain(&self) -> Leftover<K> {
        let leftover = self.stop();
        #[cfg(feature = "tokio")]
        self.inner.loops.abort_tasks();
        leftover
    }

    /// Waits for a drain and a join, and takes nothing out.
    async fn drained(&self) {
        if !self.inner.loops.is_stopped() {
            self.inner.queue.shut_down_with_drain_async().await;
        }
        self.join_async().await;
    }
}

/// Resolves when one of them does.
async fn either(work: impl Future<Output = ()>, deadline: impl Future) {
    let (mut work, mut deadline) = (pin!(work), pin!(deadline));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => deadline.as_mut().poll(cx).map(drop),
    })
    .await;
}

// As for `WorkQueue`, and panics of hooks are caught.
impl<K: RefUnwindSafe> UnwindSafe for Workers<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for Workers<K> {}

impl<K> Clone for Workers<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K> fmt::Debug for Workers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("queue", &self.inner.queue).field("tally", &self.tally()).finish()
    }
}

impl<K> fmt::Debug for WorkersBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkersBuilder")
            .field("queue", &self.queue)
            .field("name", &self.name)
            .field("max_retries", &self.hooks.max_retries)
            .field("then_after", &self.hooks.then_after)
            .field("time_limit", &self.hooks.time_limit)
            .finish_non_exhaustive()
    }
}
