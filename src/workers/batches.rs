//! Loops whose handlers work on many keys at once.
//!
//! ```text
//!   get ──▶ the first key, and what else is queued ──▶ linger: more keys, until the batch is full or the time is over ──▶ handler
//!    ▲                                                                                                                     │
//!    └── each key ends as a run of its own: by its outcome, by that of the handler, or as a run that has panicked ◀────────┘
//! ```

use super::run_loop::{Loop, caught, give_way_once, message};
use super::run_span::RunSpan;
use super::{IntoOutcome, Outcome, Workers};
use crate::Item;
use crate::coop::KEYS_AT_ONCE;
use crate::shared::{Linger, Shared};
use crate::time::nanos;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A key of a batch, for the handler of [`Workers::run_batch`] and [`Workers::run_batch_async`]. It dereferences to its [`Item`].
///
/// # Examples
/// ```
/// use keyqueue::{BatchItem, Outcome};
///
/// fn handle(batch: &mut [BatchItem<'_, u32>]) {
///     for item in batch {
///         if *item.key() > 100 {
///             item.set_outcome(Outcome::GiveUp("too large".into()));
///         }
///     }
/// }
/// # let queue = keyqueue::WorkQueue::new();
/// # queue.add_all([1, 101]);
/// # queue.shut_down();
/// # let workers = queue.workers().build();
/// # workers.run_batch(10, std::time::Duration::ZERO, handle);
/// # assert_eq!((workers.tally().succeeded, workers.tally().given_up), (1, 1));
/// ```
pub struct BatchItem<'q, K> {
    item: Item<'q, K>,
    span: RunSpan,
    outcome: Option<Outcome>,
}

impl<K> BatchItem<'_, K> {
    /// Decides what happens to this key when the handler has ended, even if it panics. It takes all that a handler may [return](IntoOutcome).
    /// A later call replaces the outcome.
    ///
    /// # Examples
    /// ```
    /// # fn check(_: &u32) -> Result<(), std::io::Error> { Err(std::io::ErrorKind::TimedOut.into()) }
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add(1);
    /// # queue.shut_down();
    /// # let workers = queue.workers().build();
    /// workers.run_batch(10, std::time::Duration::ZERO, |batch| {
    ///     for item in batch {
    ///         let checked = check(item.key()); // an error: this key is retried
    ///         item.set_outcome(checked);
    ///     }
    /// });
    /// # assert_eq!(workers.tally().refused, 1);
    /// ```
    pub fn set_outcome(&mut self, outcome: impl IntoOutcome) {
        self.outcome = Some(outcome.into_outcome());
    }
}

impl<'q, K> Deref for BatchItem<'q, K> {
    type Target = Item<'q, K>;

    fn deref(&self) -> &Self::Target {
        &self.item
    }
}

impl<K: fmt::Debug> fmt::Debug for BatchItem<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchItem").field("key", self.key()).field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

const NO_KEY: &str = "max is 0, so no batch would have a key";

/// The batch of a loop.
struct Current<'q, K: Hash + Eq + Clone + Send + Sync + 'static> {
    items: Vec<BatchItem<'q, K>>,
    max: usize,
    linger: Duration,
    /// Whether the handler was called.
    has_begun: bool,
    own: &'q Loop<K>,
}

impl<'q, K: Hash + Eq + Clone + Send + Sync + 'static> Current<'q, K> {
    fn new(own: &'q Loop<K>, max: usize, linger: Duration) -> Self {
        Self { items: Vec::new(), max, linger, has_begun: false, own }
    }

    /// Adds a key, and what else is queued.
    fn push(&mut self, first: Item<'q, K>) {
        let more = self.own.queue().batch_from(first, self.max - self.items.len());
        self.items.extend(more.into_iter().map(|item| BatchItem { item, span: RunSpan::none(), outcome: None }));
    }

    /// Until when the batch waits for more keys. `None`: it does not.
    fn lingers(&self) -> Option<u64> {
        let now = || self.own.queue().shared.settings.clock.now();
        (!self.linger.is_zero() && self.items.len() < self.max).then(|| now().saturating_add(nanos(self.linger)))
    }

    /// Waits for a key, and fills the batch. If the queue is shut down and no key is queued, or the loop is to end, it stays empty.
    fn fill(&mut self) {
        let Ok(first) = self.own.next() else { return };
        self.push(first);
        let Some(until) = self.lingers() else { return };
        while self.items.len() < self.max {
            let Some(next) = Shared::get_until(&self.own.queue().shared, until) else { return };
            self.push(next);
        }
    }

    async fn fill_async(&mut self) {
        let Ok(first) = self.own.next_async().await else { return };
        self.push(first);
        let Some(until) = self.lingers() else { return };
        while self.items.len() < self.max {
            let Some(next) = Linger::new(&self.own.queue().shared, until).await else { return };
            self.push(next);
        }
    }

    /// Whether there is a key, for which the handler is to be called now. This calls user code, which may panic.
    fn begin(&mut self) -> bool {
        self.has_begun = true;
        self.items.iter_mut().for_each(|BatchItem { item, span, .. }| self.own.enter(span, item));
        !self.items.is_empty()
    }

    /// Ends each key after the handler. Returns whether user code has panicked.
    fn end(&mut self, ended: Result<Outcome, Box<dyn Any + Send>>) -> bool {
        match ended {
            Ok(outcome) => self.end_each(Some(Ok(&outcome))) | self.own.catch_user_panic(|| drop(outcome)),
            Err(payload) => {
                self.own.count_panic();
                let has_begun = self.has_begun;
                self.end_each(has_begun.then(|| Err(message(&*payload))));
                self.own.catch_user_panic(|| drop(payload));
                true
            }
        }
    }

    /// Ends each key by the outcome that it has, or else by that of the handler or its panic. `None`: the handler was not called, or was
    /// dropped, so the key is added again. Returns whether user code has panicked.
    fn end_each(&mut self, ended: Option<Result<&Outcome, &str>>) -> bool {
        let (own, mut panics) = (self.own, false);
        for BatchItem { item, span, outcome } in self.items.drain(..) {
            panics |= own.catch_user_panic(|| match (&outcome, ended) {
                (Some(outcome), _) | (None, Some(Ok(outcome))) => {
                    span.note(outcome);
                    own.finish(item, outcome);
                }
                (None, Some(Err(message))) => own.run_panicked(item, span, message),
                (None, None) => own.add_again(item),
            });
            panics |= own.catch_user_panic(|| drop(outcome));
        }
        self.has_begun = false;
        panics
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Drop for Current<'_, K> {
    fn drop(&mut self) {
        self.end_each(None);
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Loop<K> {
    fn run_batches<R: IntoOutcome>(
        &self,
        (max, linger): (usize, Duration),
        handler: &mut impl FnMut(&mut [BatchItem<'_, K>]) -> R,
    ) {
        let mut current = Current::new(self, max, linger);
        while !self.ends() {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                current.fill();
                current.begin().then(|| handler(&mut current.items).into_outcome())
            }));
            let Some(ended) = ended.transpose() else { return };
            current.end(ended);
        }
    }

    async fn run_batches_async<R: IntoOutcome>(
        &self,
        (max, linger): (usize, Duration),
        handler: &mut impl AsyncFnMut(&mut [BatchItem<'_, K>]) -> R,
    ) {
        let (mut current, mut keys) = (Current::new(self, max, linger), 0);
        while !self.ends() {
            if keys >= KEYS_AT_ONCE as usize {
                keys = 0;
                give_way_once().await;
            }
            let ended = caught(async {
                current.fill_async().await;
                if !current.begin() {
                    return None;
                }
                Some(handler(&mut current.items).await.into_outcome())
            });
            let Some(ended) = ended.await.transpose() else { return };
            keys += current.items.len();
            if current.end(ended) {
                keys = 0;
                give_way_once().await;
            }
        }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Runs a loop in this thread whose handler works on many keys at once, as one statement of a database can. The loop waits for a key,
    /// takes what else is queued, up to `max` keys, and if these are fewer, waits for more, for at most `linger`. Then it calls the handler
    /// with all of them.
    ///
    /// Each key has an outcome of its own:
    ///
    /// | the key | its outcome |
    /// |---|---|
    /// | was decided by [`set_outcome`](BatchItem::set_outcome) | that one, whatever the handler does afterwards |
    /// | was not, and the handler returns | what the handler returns, so after `()` it is done, and after an error it is retried |
    /// | was not, and the handler panics | that of a run that has panicked: the key is retried, and the hook [`on_panic`] called |
    ///
    /// [`on_panic`]: super::WorkersBuilder::on_panic
    ///
    /// Retries, [`max_retries`](super::WorkersBuilder::max_retries), the hooks, [`min_interval`](super::WorkersBuilder::min_interval),
    /// metrics and the [`Tally`](super::Tally) take each key as a run by itself, but one panic counts once in
    /// [`Tally::panicked`](super::Tally::panicked). With `WorkersBuilder::traced`, errors are events in the span of their key, and the
    /// handler runs in none of these spans. A batch has no [time limit](super::WorkersBuilder::time_limit).
    ///
    /// **The linger** is measured with the queue's [clock](crate::Clock), from the batch's first key on. Zero does not wait. A batch that is
    /// full, or whose queue shuts down, does not wait any longer. Meanwhile its keys count as processing: for limits of their
    /// [groups](crate::GroupLimits::max_processing), for drains, and for adds, each of which brings about a further run. A linger that is
    /// too long for the clock, such as `Duration::MAX`, waits until the batch is full. If the limit of a group is smaller than `max`, that
    /// may never come about.
    ///
    /// What the compiler says of handlers of other forms is on the page of [handlers](crate::handlers).
    ///
    /// A batch that has a key is run, even after a [`stop`](Self::stop) or a [`finish`](Self::finish). Several loops, each in a thread of its
    /// own, may run at the same time, and loops of other handlers beside them.
    ///
    /// # Blocking
    /// Like [`get`](crate::WorkQueue::get).
    ///
    /// # Panics
    /// If `max` is 0.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// # type Row = Result<(), String>;
    /// # struct Database;
    /// # impl Database {
    /// #     /// One statement for all rows. The outer error: the statement failed.
    /// #     fn upsert(&self, rows: &[&u32]) -> Result<Vec<Row>, std::io::Error> {
    /// #         Ok(rows.iter().map(|row| if **row == 7 { Err("no such row".to_owned()) } else { Ok(()) }).collect())
    /// #     }
    /// # }
    /// # let database = Database;
    /// let queue = WorkQueue::<u32>::new();
    /// let workers = queue.workers().max_retries(0).build();
    /// let thread = thread::spawn({
    ///     let workers = workers.clone();
    ///     move || {
    ///         workers.run_batch(100, Duration::from_millis(5), |batch| -> Result<(), std::io::Error> {
    ///             let rows: Vec<&u32> = batch.iter().map(|item| item.key()).collect();
    ///             let results = database.upsert(&rows)?; // fails: all keys are retried
    ///             for (item, result) in batch.iter_mut().zip(results) {
    ///                 item.set_outcome(result); // an error: this key is retried
    ///             }
    ///             Ok(())
    ///         });
    ///     }
    /// });
    /// queue.add_all(0..100);
    ///
    /// assert!(workers.drain().is_empty());
    /// assert_eq!((workers.tally().succeeded, workers.tally().given_up), (99, 1));
    /// # thread.join().unwrap();
    /// ```
    #[track_caller]
    pub fn run_batch<R: IntoOutcome>(
        &self,
        max: usize,
        linger: Duration,
        handler: impl FnMut(&mut [BatchItem<'_, K>]) -> R,
    ) {
        assert!(max > 0, "{NO_KEY}");
        let (handler, own) = &mut self.enter(handler);
        own.run_batches((max, linger), handler);
    }

    /// Like [`run_batch`](Self::run_batch), as a future, of which you may spawn several. The handler is an async closure, as in
    /// [`run_async`](Self::run_async).
    ///
    /// The linger needs no timer of your runtime: the queue's driver thread ends it, or [`turn`](crate::WorkQueue::turn) if there is none.
    ///
    /// # Cancel safety
    /// Dropping it drops the handler's future where it waits. A key that was decided before keeps its outcome, and each other key of the
    /// batch is added again, as after the drop of [`run_async`](Self::run_async).
    ///
    /// # Panics
    /// If `max` is 0.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # struct Search;
    /// # impl Search {
    /// #     async fn index(&self, pages: &[&String]) -> Result<(), std::io::Error> { assert_eq!(pages.len(), 3); Ok(()) }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let search = Arc::new(Search);
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue.workers().build();
    /// tokio::spawn(workers.run_batch_async(50, Duration::from_millis(20), async move |batch| {
    ///     let pages: Vec<&String> = batch.iter().map(|item| item.key()).collect();
    ///     search.index(&pages).await // an error: all pages are retried
    /// }));
    /// queue.add_all((0..3).map(|n| format!("page-{n}")));
    ///
    /// assert!(workers.drain_async().await.is_empty());
    /// assert_eq!(workers.tally().succeeded, 3);
    /// # }
    /// ```
    #[track_caller]
    pub fn run_batch_async<F, R>(
        &self,
        max: usize,
        linger: Duration,
        handler: F,
    ) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&mut [BatchItem<'_, K>]) -> R,
        R: IntoOutcome,
    {
        assert!(max > 0, "{NO_KEY}");
        let mut work = self.enter(handler);
        async move {
            let (handler, own) = &mut work;
            own.run_batches_async((max, linger), handler).await;
        }
    }
}
