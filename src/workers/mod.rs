//! The loop around `get` and `done`, written once: for threads and for tasks, with panics caught, retries counted and limited,
//! and an end that says what was left.
//!
//! ```text
//!          ┌───────────────────────────────────────────────────────┐
//!          ▼                                                       │
//!   get ──▶ handler ──▶ Done ──────────────────▶ succeed ──────────┤
//!    │         │        RequeueAfter(d) ───────▶ requeue_after ────┤
//!    │         │        RequeueWith(options) ──▶ requeue_with ─────┤
//!    │         │        Retry, Failed,                             │
//!    │         │        RetryAfter ─────┬──────▶ retry ────────────┤
//!    │         └ panic ─────────────────┘└ too often ─┐            │
//!    │                  GiveUp(reason) ───────────────┴▶ give_up ──┘
//!    └▶ shut down and empty: the end
//! ```
//!
//! A loop is run by a thread of its own ([`spawn`](WorkersBuilder::spawn)), by the caller ([`run`](Workers::run)) or as a future
//! ([`run_async`](Workers::run_async)); how many of them there are is how many keys are worked on at a time. All of them do the
//! same steps, which are in `each.rs`.

mod each;
mod given_up;
mod leftover;
mod outcome;
mod scope;
mod team;

pub use given_up::GivenUp;
pub use leftover::Leftover;
pub use outcome::Outcome;

use crate::Item;
use crate::queue::WorkQueue;
use crate::shared::End;
use crate::sync::{Arc, spawn};
use each::{Hooks, Loop};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::io;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};
use team::Team;

/// Loops that work on the keys of one queue, and the handle of them: clones are the same workers. From
/// [`WorkQueue::workers`].
///
/// A loop ends when the queue is shut down and nothing is in line. Dropping the handle ends nothing.
///
/// # Examples
/// Threads:
/// ```
/// use keyqueue::{Item, Outcome, WorkQueue};
/// use std::time::Duration;
///
/// # fn write(_: &str) -> Result<bool, std::io::Error> { Ok(true) }
/// let queue = WorkQueue::new();
/// let workers = queue
///     .workers()
///     .max_retries(15)
///     .on_error(|key, error| eprintln!("{key}: {error}"))
///     .on_give_up(|key, why| eprintln!("{key}: {why}")) // "given up after 15 retries: …"
///     .spawn(4, |item: &Item<'_, &str>| -> Result<Outcome, std::io::Error> {
///         let settled = write(item)?; // fails: retried, after 5 ms, 10, 20, …
///         Ok(if settled { Outcome::Done } else { Outcome::RequeueAfter(Duration::from_secs(10)) })
///     })?;
/// queue.add("pod-1");
///
/// let leftover = workers.drain_timeout(Duration::from_secs(5));
/// assert!(leftover.is_empty());
/// assert_eq!(workers.tally().succeeded, 1);
/// # std::io::Result::Ok(())
/// ```
/// Tasks, on any runtime. How many are spawned is how many keys are worked on at a time:
/// ```
/// # use keyqueue::{Item, WorkQueue};
/// # use std::sync::Arc;
/// # struct Client;
/// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let client = Arc::new(Client);
/// let queue = WorkQueue::new();
/// let workers = queue.workers().build();
/// for _ in 0..8 {
///     let client = Arc::clone(&client);
///     tokio::spawn(workers.run_async(async move |url: &Item<'_, String>| client.fetch(url).await));
/// }
/// queue.add("https://example.org".to_owned());
///
/// queue.wait_idle_async().await;
/// workers.drain_async().await;
/// assert_eq!(workers.tally().succeeded, 1);
/// # }
/// ```
pub struct Workers<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    queue: WorkQueue<K>,
    hooks: Hooks<K>,
    team: Team,
}

/// Settings of [`Workers`]. From [`WorkQueue::workers`].
#[must_use = "a builder does nothing until `spawn` or `build`"]
pub struct WorkersBuilder<K> {
    queue: WorkQueue<K>,
    name: Option<String>,
    hooks: Hooks<K>,
}

/// What workers have done so far; from [`Workers::tally`]. Of keys that are worked on just now, nothing is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Loops that have not ended.
    pub running: usize,
    /// Runs that ended with [`Outcome::Done`].
    pub succeeded: u64,
    /// Runs that ended with [`Outcome::RequeueAfter`] or [`Outcome::RequeueWith`].
    pub requeued: u64,
    /// Runs that failed, and whose keys are to be tried again.
    pub retried: u64,
    /// Keys that were given up: they failed too often, or [`Outcome::GiveUp`].
    pub given_up: u64,
    /// Runs that panicked, hooks that did, and what else is user code.
    pub panicked: u64,
    /// Of those retried and requeued: keys that the queue refused, since it was shut down. They will not come back.
    pub refused: u64,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkersBuilder<K> {
    pub(crate) fn new(queue: WorkQueue<K>) -> Self {
        Self { queue, name: None, hooks: Hooks::default() }
    }

    /// What the threads of [`spawn`](Self::spawn) are called, with a number behind: `pods-0`. By default as the queue, or
    /// `worker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How often a key that fails is retried before it is given up. Without limit by default; 0: never.
    ///
    /// Counted by the queue's limiter, so since the key last succeeded, [`num_requeues`](crate::Item::num_requeues). One that does
    /// not count, such as a [`Bucket`](crate::rate_limiter::Bucket) alone, never reaches this.
    ///
    /// If the limiter panics, the key is retried after 50 ms. The queue counts such retries in the limiter's place, so a key is given
    /// up after this number of retries also if the limiter panics each time.
    pub fn max_retries(mut self, retries: usize) -> Self {
        self.hooks.max_retries = Some(retries);
        self
    }

    /// Is called with each error of a handler ([`Outcome::Failed`] and [`Outcome::RetryAfter`]), before the key is retried or given up.
    /// (The reason of an [`Outcome::GiveUp`] is for [`on_give_up`](Self::on_give_up).)
    pub fn on_error(mut self, hook: impl Fn(&K, &(dyn Error + Send + Sync)) + Send + Sync + 'static) -> Self {
        self.hooks.on_error = Some(Box::new(hook));
        self
    }

    /// Is called when a handler has panicked, with what it said, before the key is treated as
    /// [the queue was told](crate::WorkQueueBuilder::on_panic): retried by default. Where a panic must not go unseen, the hook may end
    /// the process.
    pub fn on_panic(mut self, hook: impl Fn(&K, &str) + Send + Sync + 'static) -> Self {
        self.hooks.on_panic = Some(Box::new(hook));
        self
    }

    /// Is called with each key that is given up, and with [why](GivenUp): how often it was retried, and the error or the panic of the
    /// last try. The key is done after that, so to have it looked at again in an hour, say, the hook may add it with a delay.
    #[doc(alias = "on_drop")]
    pub fn on_give_up(mut self, hook: impl Fn(&K, &GivenUp<'_>) + Send + Sync + 'static) -> Self {
        self.hooks.on_give_up = Some(Box::new(hook));
        self
    }

    /// Each run of a handler is in its hand-out's [span](Item::span). Errors and panics are events in it.
    #[cfg(feature = "tracing")]
    pub fn traced(mut self) -> Self
    where
        K: fmt::Debug,
    {
        self.hooks.span = Some(|item| item.span());
        self
    }

    /// Workers without a loop, to [`run`](Workers::run) some.
    pub fn build(self) -> Workers<K> {
        Workers { inner: Arc::new(Inner { queue: self.queue, hooks: self.hooks, team: Team::default() }) }
    }

    /// Starts so many threads, each of which runs the loop.
    ///
    /// # Errors
    /// If a thread cannot be started: none is left running then, and no key was touched. If `threads` is 0, or the name has a NUL
    /// byte.
    pub fn spawn<R: Into<Outcome>>(
        self,
        threads: usize,
        handler: impl Fn(&Item<'_, K>) -> R + Send + Sync + 'static,
    ) -> io::Result<Workers<K>> {
        let name = match (&self.name, self.queue.name()) {
            (Some(name), _) => name.clone(),
            (None, "") => "worker".to_owned(),
            (None, name) => name.to_owned(),
        };
        if threads == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "threads is 0: nobody would work"));
        }
        if name.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "name has a NUL byte: no thread can be called so"));
        }
        let workers = self.build();
        let handler = std::sync::Arc::new(handler);
        // They wait until all are there.
        let gate = workers.inner.team.gate();
        for number in 0..threads {
            let work = workers.enter(std::sync::Arc::clone(&handler));
            let run = move || {
                let (handler, own) = &work;
                if own.may_begin() {
                    own.run(&mut |item: &Item<'_, K>| handler(item));
                }
            };
            workers.inner.team.join_later(spawn(&format!("{name}-{number}"), run)?);
        }
        gate.open();
        Ok(workers)
    }
}

impl<K> Workers<K> {
    /// One more loop. It is dropped after its handler, and has not ended before: what the handler has captured is gone when a join
    /// returns.
    fn enter<F>(&self, handler: F) -> (F, Loop<K>) {
        (handler, Loop::new(Arc::clone(&self.inner)))
    }

    /// What was done so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.inner.team.tally()
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.inner.queue
    }

    /// Waits until all loops have ended, as they do when the queue is shut down and nothing is in line; and until the threads of
    /// [`spawn`](WorkersBuilder::spawn) have ended. A loop drops its handler, and so what the handler has captured, before it ends.
    ///
    /// # Blocking
    /// Until then, however long a handler, a captured value or a thread-local takes to be dropped. A handler that calls this waits
    /// for itself: forever.
    pub fn join(&self) {
        self.inner.team.join();
    }

    /// As [`join`](Self::join), for a task. When it resolves, all loops have ended, and their threads are about to.
    ///
    /// # Cancel safety
    /// Dropping it takes back nothing but the waiting.
    pub fn join_async(&self) -> impl Future<Output = ()> + '_ {
        self.inner.team.ended()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Runs a loop here, until the queue is shut down and nothing is in line.
    ///
    /// # Blocking
    /// As [`get`](WorkQueue::get).
    pub fn run<R: Into<Outcome>>(&self, handler: impl FnMut(&Item<'_, K>) -> R) {
        let (handler, own) = &mut self.enter(handler);
        own.run(handler);
    }

    /// A loop, as a future: works on one key at a time, until the queue is shut down and nothing is in line. For more, spawn
    /// several. It is `Send` if the handler and its futures are. It is counted as running from this call until it has ended or is
    /// dropped.
    ///
    /// # Cancel safety
    /// Dropping it drops the handler's future at the point where it waits; its key is done then, as by
    /// [`done`](Item::done).
    ///
    /// # The handler
    /// An async closure, which borrows the item. The item's type has to be named. What the closure has captured is there in each
    /// call, so it is cloned once for each loop:
    /// ```
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::sync::Arc;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// # let client = Arc::new(Client);
    /// # let _ =
    /// workers.run_async({
    ///     let client = Arc::clone(&client);
    ///     async move |url: &Item<'_, String>| client.fetch(url).await
    /// });
    /// ```
    /// A closure that returns an `async` block does not compile if the block uses the item, as such a closure cannot return what
    /// borrows its argument:
    /// ```compile_fail
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::sync::Arc;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// # let client = Arc::new(Client);
    /// # let _ =
    /// workers.run_async(|url: &Item<'_, String>| {
    ///     let client = Arc::clone(&client);
    ///     async move { client.fetch(url).await } // error: lifetime may not live long enough
    /// });
    /// ```
    /// It compiles with a clone of the key, or boxed, by [`run_boxed`](Self::run_boxed):
    /// ```
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::sync::Arc;
    /// # struct Client;
    /// # impl Client { async fn fetch(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// # let workers = WorkQueue::<String>::new().workers().build();
    /// # let client = Arc::new(Client);
    /// # let _ =
    /// workers.run_async(|url: &Item<'_, String>| {
    ///     let (client, url) = (Arc::clone(&client), url.key().clone());
    ///     async move { client.fetch(&url).await }
    /// });
    /// # let _ =
    /// workers.run_boxed(|url| {
    ///     let client = Arc::clone(&client);
    ///     Box::pin(async move { client.fetch(url).await })
    /// });
    /// ```
    ///
    /// # A task that hangs
    /// A drain with a deadline names the keys of hanging handlers and ends, and the tasks go on to hang. Your runtime can abort them,
    /// if you have kept their handles. (Handlers in threads cannot be aborted.)
    /// ```
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::time::Duration;
    /// # async fn fetch(_: &str) { std::future::pending().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::new();
    /// let workers = queue.workers().build();
    /// let mut tasks = tokio::task::JoinSet::new();
    /// for _ in 0..8 {
    ///     tasks.spawn(workers.run_async(async |url: &Item<'_, String>| fetch(url).await));
    /// }
    /// queue.add("https://example.org".to_owned());
    /// # while queue.processing_len() == 0 {
    /// #     tokio::task::yield_now().await;
    /// # }
    ///
    /// let leftover = workers.drain_until(tokio::time::sleep(Duration::from_millis(25))).await;
    /// assert_eq!(leftover.processing, ["https://example.org".to_owned()]);
    /// tasks.shutdown().await; // aborts what hangs: the handler is dropped, and its key done
    /// assert_eq!((workers.tally().running, queue.processing_len()), (0, 0));
    /// # }
    /// ```
    pub fn run_async<F, R>(&self, handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&Item<'_, K>) -> R,
        R: Into<Outcome>,
    {
        let mut work = self.enter(handler);
        async move {
            let (handler, own) = &mut work;
            own.run_async(handler).await;
        }
    }

    /// As [`run_async`](Self::run_async), of a handler that returns boxed futures.
    ///
    /// For code that is generic over the handler, such as a wrapper that spawns tasks: the future is `Send` if the handler is, which
    /// the compiler knows here without knowing the handler's type. And for closures of the form
    /// `|item| { let context = context.clone(); Box::pin(async move { … }) }`. It costs an allocation for each key.
    ///
    /// # Cancel safety
    /// As [`run_async`](Self::run_async).
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
    ///         println!("working on {}", item.key());
    ///         Outcome::Done
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
        R: Into<Outcome>,
    {
        self.run_async(async move |item: &Item<'_, K>| handler(item).await)
    }

    /// Shuts the queue down and has all loops end after the key that they are working on, or are just being handed; takes out what
    /// is in line and what is delayed. Returns at once. Drains that wait for the queue are released.
    ///
    /// A key that was added while in work goes in line again when its handler returns, and stays there: it is among
    /// [`processing`](Leftover::processing).
    ///
    /// # Panics
    /// If a key's `Clone` does, or other foreign code: a key's drop, the observer. The queue is shut down then, and what was taken
    /// goes back: keys to the end of the line, delays to their deadlines. So another `stop` finds all of it, and
    /// [`get`](WorkQueue::get), which clones nothing, hands out what is in line. (Only a key whose `Hash` or `Eq` panics on its way
    /// back is lost.)
    pub fn stop(&self) -> Leftover<K> {
        let Inner { queue, team, .. } = &*self.inner;
        team.stop();
        queue.shut_down();
        Leftover::take(queue)
    }

    /// Shuts the queue down, waits until nothing is in line and in work, and [joins](Self::join) the loops. Returns what was delayed.
    /// After a [`stop`](Self::stop), waits for the loops alone.
    ///
    /// # Blocking
    /// As [`shut_down_with_drain`](WorkQueue::shut_down_with_drain), which waits forever if no loop is left, and as
    /// [`join`](Self::join).
    pub fn drain(&self) -> Leftover<K> {
        if !self.inner.team.is_stopped() {
            self.inner.queue.shut_down_with_drain();
        }
        self.join();
        self.stop()
    }

    /// As [`drain`](Self::drain), but waits at most this long; then has the loops [`stop`](Self::stop). A timeout too long for the
    /// clock, such as `Duration::MAX`, is none.
    ///
    /// # Blocking
    /// No longer than this: also if a handler, or the drop of a value that a handler has captured, takes longer. Such a loop counts as
    /// [running](Tally::running) until then, and [`join`](Self::join) waits for it. Threads whose loops have ended may be about to
    /// end.
    pub fn drain_timeout(&self, timeout: Duration) -> Leftover<K> {
        let Inner { queue, team, .. } = &*self.inner;
        let deadline = Instant::now().checked_add(timeout);
        if team.is_stopped() || matches!(queue.shared.drain(deadline), End::Reached | End::Released) {
            team.wait(deadline);
        }
        self.stop()
    }

    /// As [`drain`](Self::drain), for a task. With a deadline: [`drain_until`](Self::drain_until).
    ///
    /// # Cancel safety
    /// Dropping it takes back nothing but the waiting: the queue is shut down from the first poll on. What is left is taken out in
    /// the poll that returns it, so after a drain that was dropped, [`stop`](Self::stop) finds all of it.
    pub async fn drain_async(&self) -> Leftover<K> {
        self.drain_until(std::future::pending::<()>()).await
    }

    /// As [`drain_async`](Self::drain_async), but waits until this future resolves, at most; then has the loops
    /// [`stop`](Self::stop). The future may be a timer of any runtime, or a second Ctrl-C.
    ///
    /// A task that hangs is among [`processing`](Leftover::processing), and goes on to hang: see
    /// [`run_async`](Self::run_async), "A task that hangs".
    ///
    /// # Cancel safety
    /// As [`drain_async`](Self::drain_async).
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Item, WorkQueue};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # async fn fetch(_: &str) { std::future::pending().await }
    /// let queue = WorkQueue::new();
    /// let workers = queue.workers().build();
    /// tokio::spawn(workers.run_async(async |url: &Item<'_, String>| fetch(url).await));
    /// queue.add_all(["a".to_owned(), "b".to_owned()]);
    /// # while queue.processing_len() == 0 {
    /// #     tokio::task::yield_now().await;
    /// # }
    ///
    /// let leftover = workers.drain_until(tokio::time::sleep(Duration::from_millis(25))).await;
    /// assert_eq!((leftover.processing, leftover.queued), (vec!["a".to_owned()], vec!["b".to_owned()]));
    /// # }
    /// ```
    pub async fn drain_until(&self, deadline: impl Future) -> Leftover<K> {
        {
            let mut drained = pin!(self.drained());
            let mut deadline = pin!(deadline);
            poll_fn(|cx| match drained.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => deadline.as_mut().poll(cx).map(drop),
            })
            .await;
        }
        self.stop()
    }

    /// Takes nothing out.
    async fn drained(&self) {
        if !self.inner.team.is_stopped() {
            self.inner.queue.shut_down_with_drain_async().await;
        }
        self.join_async().await;
    }
}

// As for the queue; and what hooks do that panic, is caught.
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
            .finish_non_exhaustive()
    }
}
