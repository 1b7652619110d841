//! One loop, which takes a key, calls the handler and applies the outcome.

use super::loops::{Count, Counts};
use super::run_span::RunSpan;
use super::{GivenUp, Inner, IntoOutcome, Outcome};
use crate::coop::KEYS_AT_ONCE;
use crate::key::SlotId;
use crate::machine::End;
use crate::panics::contained;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::{AddOptions, Added, GetTimeoutError, Item, OnPanic, WorkQueue};
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// The user's settings and hooks.
pub(super) struct Hooks<K> {
    pub(super) max_retries: Option<usize>,
    /// How long a failing key waits after its last retry. `None`: it does not come back.
    pub(super) then_after: Option<Duration>,
    /// How long a key cools down after a run.
    pub(super) min_interval: Duration,
    /// Of how many keys the text of the last error is kept.
    pub(super) kept_errors: usize,
    /// How long a run may last.
    pub(super) time_limit: Option<Duration>,
    pub(super) on_error: Option<Box<OnError<K>>>,
    pub(super) on_panic: Option<Box<OnPanicked<K>>>,
    pub(super) on_give_up: Option<Box<OnGiveUp<K>>>,
    pub(super) on_stuck: Option<Box<OnStuck<K>>>,
    /// Creates the span of a run.
    #[cfg(feature = "tracing")]
    pub(super) span: Option<fn(&Item<'_, K>) -> tracing::Span>,
}

type OnError<K> = dyn Fn(&K, &(dyn Error + Send + Sync)) + Send + Sync;
type OnPanicked<K> = dyn Fn(&K, &str) + Send + Sync;
type OnGiveUp<K> = dyn Fn(&K, &GivenUp<'_>) + Send + Sync;
type OnStuck<K> = dyn Fn(&K, Duration) + Send + Sync;

impl<K> Default for Hooks<K> {
    fn default() -> Self {
        Self {
            max_retries: None,
            then_after: None,
            min_interval: Duration::ZERO,
            kept_errors: 0,
            time_limit: None,
            on_error: None,
            on_panic: None,
            on_give_up: None,
            on_stuck: None,
            #[cfg(feature = "tracing")]
            span: None,
        }
    }
}

/// Resolves at its second poll, for which it wakes the task, or at its first if the waker panics.
pub(super) async fn give_way_once() {
    let mut given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut given, true) || contained(|| cx.waker().wake_by_ref()).is_none() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// The result of a future, or the payload of its panic.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut work = pin!(work);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(payload) => Poll::Ready(Err(payload)),
    })
    .await
}

/// The run that a loop is in. If its task is dropped meanwhile, the run has not succeeded, and its key is added again.
struct Current<'q, K: Hash + Eq + Clone + Send + Sync + 'static> {
    run: Option<(Item<'q, K>, RunSpan)>,
    own: &'q Loop<K>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Drop for Current<'_, K> {
    fn drop(&mut self) {
        if let Some((item, _span)) = self.run.take() {
            // The task may be dropped while its thread unwinds.
            self.own.catch_user_panic(|| self.own.add_again(item));
        }
    }
}

/// A run that has a time limit. It ends, for the limit, before its key is done.
struct LimitedRun<'l, K>(&'l Shared<K>, SlotId);

impl<K> Drop for LimitedRun<'_, K> {
    fn drop(&mut self) {
        self.0.end_limited_run(self.1);
    }
}

impl<K> Inner<K> {
    /// A run has lasted longer than its limit. The key is there if the hook wants it.
    fn is_late(&self, key: Option<&K>, age: Duration) {
        self.loops.note_late();
        if let (Some(hook), Some(key)) = (&self.hooks.on_stuck, key) {
            self.loops.note_panics(usize::from(contained(|| hook(key, age)).is_none()));
        }
    }
}

/// A loop, from its start to its end.
pub(super) struct Loop<K> {
    workers: Arc<Inner<K>>,
    counts: Arc<Counts>,
}

impl<K> Loop<K> {
    pub(super) fn new(workers: Arc<Inner<K>>, is_spawned: bool) -> Self {
        let counts = workers.loops.begin(is_spawned);
        Self { workers, counts }
    }

    /// With counts that have begun.
    pub(super) fn with(workers: Arc<Inner<K>>, counts: Arc<Counts>) -> Self {
        Self { workers, counts }
    }

    pub(super) fn workers(&self) -> &Arc<Inner<K>> {
        &self.workers
    }

    #[cfg(feature = "tokio")]
    pub(super) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub(super) fn queue(&self) -> &WorkQueue<K> {
        &self.workers.queue
    }

    /// Whether the loop is to end instead of taking a key.
    #[inline]
    pub(super) fn ends(&self) -> bool {
        self.workers.loops.ends(&self.counts)
    }

    /// Whether it may have to end while it waits for a key.
    fn may_end(&self) -> bool {
        self.workers.loops.may_end(&self.counts)
    }

    /// Counts a panic of user code.
    pub(super) fn count_panic(&self) {
        self.counts.panicked.add();
    }

    /// Waits until all threads are started, and returns whether they were.
    pub(super) fn may_begin(&self) -> bool {
        self.workers.loops.is_open()
    }
}

impl<K> Drop for Loop<K> {
    fn drop(&mut self) {
        self.workers.loops.end(&self.counts);
    }
}

// Panics are caught around the loop and not around each key, so that keys whose handlers do not panic pay nothing. The item is kept
// outside: if it is still there after a panic, the handler has panicked, and otherwise the code after the handler, whose key is done.
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Loop<K> {
    pub(super) fn run<R: IntoOutcome>(&self, handler: &mut impl FnMut(&Item<'_, K>) -> R) {
        let mut current = Current { run: None, own: self };
        while let Err(payload) =
            catch_unwind(AssertUnwindSafe(|| self.run_until_panic(&mut *handler, &mut current.run)))
        {
            self.panicked(current.run.take(), payload);
        }
    }

    fn run_until_panic<'q, R: IntoOutcome>(
        &'q self,
        handler: &mut impl FnMut(&Item<'_, K>) -> R,
        current: &mut Option<(Item<'q, K>, RunSpan)>,
    ) {
        while !self.ends() {
            let item = match self.next() {
                Ok(item) => item,
                Err(GetTimeoutError::Timeout) => continue,
                Err(GetTimeoutError::ShutDown) => return,
            };
            let (item, span) = current.insert((item, RunSpan::none()));
            self.enter(span, item);
            let limited = self.begin_limited(item);
            let outcome = span.run(|| handler(item).into_outcome());
            drop(limited);
            let (item, _span) = current.take().expect("inserted above");
            self.finish(item, &outcome);
            outcome.discard();
        }
    }

    pub(super) async fn run_async<R: IntoOutcome>(&self, handler: &mut impl AsyncFnMut(&Item<'_, K>) -> R) {
        let mut current = Current { run: None, own: self };
        loop {
            match caught(self.run_async_until_panic(&mut *handler, &mut current.run)).await {
                Ok(()) => return,
                Err(payload) => self.panicked(current.run.take(), payload),
            }
            give_way_once().await;
        }
    }

    async fn run_async_until_panic<'q, R: IntoOutcome>(
        &'q self,
        handler: &mut impl AsyncFnMut(&Item<'_, K>) -> R,
        current: &mut Option<(Item<'q, K>, RunSpan)>,
    ) {
        let mut keys = 0_u32;
        while !self.ends() {
            if keys == KEYS_AT_ONCE {
                keys = 0;
                give_way_once().await;
            }
            keys += 1;
            let item = match self.next_async().await {
                Ok(item) => item,
                Err(GetTimeoutError::Timeout) => continue,
                Err(GetTimeoutError::ShutDown) => return,
            };
            let (item, span) = current.insert((item, RunSpan::none()));
            self.enter(span, item);
            let limited = self.begin_limited(item);
            let outcome = {
                let mut until_late = limited.as_ref().map(|_| item.until_late());
                let mut run = pin!(span.run_async(async { handler(item).await.into_outcome() }));
                // The handler is polled once more when it is late, so that it may end by itself.
                poll_fn(|cx| {
                    let is_late = until_late.as_mut().is_some_and(|late| Pin::new(late).poll(cx).is_ready());
                    match run.as_mut().poll(cx) {
                        Poll::Pending if is_late => Poll::Ready(None),
                        poll => poll.map(Some),
                    }
                })
                .await
            };
            drop(limited);
            let (item, span) = current.take().expect("inserted above");
            match outcome {
                Some(outcome) => {
                    self.finish(item, &outcome);
                    outcome.discard();
                }
                None => self.timed_out(item, &span),
            }
        }
    }

    /// Waits for a key. If the loop may have to [end](Self::ends) instead, the error is `Timeout`.
    #[inline]
    pub(super) fn next(&self) -> Result<Item<'_, K>, GetTimeoutError> {
        match self.queue().get_at_once() {
            Some(item) => Ok(item),
            None => self.queue().wait_unless(&|| self.may_end()),
        }
    }

    /// The same, for a task.
    pub(super) fn next_async(&self) -> impl Future<Output = Result<Item<'_, K>, GetTimeoutError>> {
        self.queue().get_async().in_loop().unless(|| self.may_end())
    }

    /// Begins the span of a run. This calls user code, which may panic, so the caller has stored the item before.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(super) fn enter(&self, span: &mut RunSpan, item: &Item<'_, K>) {
        if let Some(create) = self.workers.hooks.span {
            span.begin(create(item));
        }
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    pub(super) fn enter(&self, _: &mut RunSpan, _: &Item<'_, K>) {}

    /// Begins to measure a run, if the workers have a time limit.
    #[inline]
    fn begin_limited(&self, item: &Item<'_, K>) -> Option<LimitedRun<'_, K>> {
        let limit = self.workers.hooks.time_limit?;
        Some(self.limit(item, limit))
    }

    #[cold]
    fn limit(&self, item: &Item<'_, K>, limit: Duration) -> LimitedRun<'_, K> {
        let mut key = None;
        if self.workers.hooks.on_stuck.is_some() {
            self.catch_user_panic(|| key = Some(item.key().clone()));
        }
        let (workers, shared) = (Arc::clone(&self.workers), &self.workers.queue.shared);
        let limited = LimitedRun(shared, item.slot());
        Shared::begin_limited_run(shared, item.slot(), limit, Box::new(move |age| workers.is_late(key.as_ref(), age)));
        limited
    }

    /// The handler was dropped at the time limit.
    #[cold]
    fn timed_out(&self, item: Item<'_, K>, span: &RunSpan) {
        self.counts.run_timed_out.add();
        self.catch_user_panic(|| span.timed_out());
        self.keep_error(&item, &"the handler timed out");
        self.retry(item, Duration::ZERO, GivenUp { timed_out: true, ..GivenUp::default() });
    }

    /// Applies the outcome to a key, which is then done, even if this panics.
    #[inline]
    pub(super) fn finish(&self, item: Item<'_, K>, outcome: &Outcome) {
        match outcome {
            Outcome::Success => self.succeeded(item, self.workers.hooks.min_interval),
            other => self.finish_otherwise(item, other),
        }
    }

    // `inline(always)`, because it has several callers: see `succeed_and_rest`.
    #[inline(always)]
    fn succeeded(&self, item: Item<'_, K>, rest: Duration) {
        self.counts.done.add();
        self.workers.queue.shared.clear_error(item.key());
        item.succeed_and_rest(rest);
    }

    /// [`finish`](Self::finish) of a run that may not be a success. It is a function of its own so that the loop stays small.
    #[inline(never)]
    fn finish_otherwise(&self, item: Item<'_, K>, outcome: &Outcome) {
        match *outcome {
            Outcome::Success => self.succeeded(item, self.workers.hooks.min_interval),
            Outcome::Cooldown(time) => self.succeeded(item, time.max(self.workers.hooks.min_interval)),
            Outcome::RequeueAfter(delay) => {
                self.counts.requeued.add();
                self.workers.queue.shared.clear_error(item.key());
                let options = AddOptions::new().after(delay);
                self.requeue(item, options, End::Succeed, &self.counts.refused_requeues);
            }
            Outcome::RequeueWith(options) => {
                self.counts.requeued.add();
                self.requeue(item, options, End::Done, &self.counts.refused_requeues);
            }
            Outcome::Retry => self.retry(item, Duration::ZERO, GivenUp::default()),
            Outcome::Failed(ref error) => self.failed(item, Duration::ZERO, &**error),
            Outcome::RetryAfter { delay, ref error } => self.failed(item, delay, &**error),
            Outcome::PauseGroup { delay, ref error } => self.pause_group(item, delay, &**error),
            Outcome::GiveUp(ref reason) => {
                self.keep_error(&item, reason);
                let (retries, _) = self.retries(&item);
                self.give_up(item, GivenUp { retries, reason: Some(&**reason), ..GivenUp::default() });
            }
        }
    }

    #[cold]
    fn pause_group(&self, item: Item<'_, K>, delay: Duration, error: &(dyn Error + Send + Sync + 'static)) {
        if !self.workers.queue.shared.settings.order.has_groups() {
            return self.failed(item, delay, error);
        }
        self.tell_error(&item, error);
        self.counts.paused.add();
        let options = AddOptions { pauses_group: !delay.is_zero(), ..AddOptions::new().after(delay) };
        self.requeue(item, options, End::Done, &self.counts.refused_pauses);
    }

    fn tell_error(&self, item: &Item<'_, K>, error: &(dyn Error + Send + Sync + 'static)) {
        self.keep_error(item, &error);
        if let Some(hook) = &self.workers.hooks.on_error {
            self.catch_user_panic(|| hook(item, error));
        }
    }

    fn keep_error(&self, item: &Item<'_, K>, error: &dyn fmt::Display) {
        let most = self.workers.hooks.kept_errors;
        if most > 0 && self.workers.queue.shared.note_error(item.key(), error, most) {
            self.counts.panicked.add();
        }
    }

    fn failed(&self, item: Item<'_, K>, delay: Duration, error: &(dyn Error + Send + Sync + 'static)) {
        self.tell_error(&item, error);
        self.retry(item, delay, GivenUp { reason: Some(error), ..GivenUp::default() });
    }

    /// Adds a key after this delay or the limiter's, whichever is longer, or gives it up for the reason in `why`. A key that comes back
    /// after it was given up keeps its failures, and waits for `then_after` at least.
    fn retry(&self, item: Item<'_, K>, delay: Duration, why: GivenUp<'_>) {
        let mut options = AddOptions::new().after(delay).rate_limited();
        let Hooks { max_retries, then_after, .. } = self.workers.hooks;
        let mut gives_up = false;
        if let Some(late) = then_after.filter(|_| item.is_given_up()) {
            options = options.past_last(late);
        } else if let Some(max) = max_retries {
            let (retries, panicked) = self.retries(&item);
            if panicked {
                options = options.without_limiter();
            }
            gives_up = retries >= max && (panicked || !self.is_uncounted(&item));
            if gives_up {
                let why = GivenUp { retries, ..why };
                let Some(late) = then_after else { return self.give_up(item, why) };
                self.tell_given_up(&item, &why);
                options = options.past_last(late);
            }
        }
        if !why.is_counted() && !gives_up {
            self.counts.run_failed.add();
        }
        self.counts.retried.add();
        self.requeue(item, options, End::Done, &self.counts.refused_retries);
        if gives_up {
            self.workers.queue.shared.tell(|observer| observer.given_up());
        }
    }

    /// Whether the limiter does not count this failure, because the run came before the key's retry.
    fn is_uncounted(&self, item: &Item<'_, K>) -> bool {
        let is_uncounted = contained(|| self.workers.queue.shared.has_delay_left(item.key()));
        if is_uncounted.is_none() {
            self.counts.panicked.add();
        }
        is_uncounted.unwrap_or_default()
    }

    /// The number of retries of a key, and whether the limiter panicked when it was asked. If so, the number has only the retries that the
    /// queue itself has counted.
    fn retries(&self, item: &Item<'_, K>) -> (usize, bool) {
        if let Some(retries) = contained(|| item.num_requeues()) {
            return (retries, false);
        }
        self.counts.panicked.add();
        self.catch_user_panic(|| self.workers.queue.shared.note_panic());
        (item.retries_without_limiter(), true)
    }

    /// Adds a key again and finishes its hand-out, even if the limiter panics. The caller has counted that. If the queue refuses, the key
    /// counts in `refused` too.
    #[inline]
    fn requeue(&self, item: Item<'_, K>, options: AddOptions, end: End, refused: &Count) {
        if let Err(item) = self.try_requeue(item, options, end) {
            refused.add();
            self.refuse(item);
        }
    }

    /// The same, but returns the item if the queue refuses.
    #[inline]
    fn try_requeue<'q>(&self, item: Item<'q, K>, options: AddOptions, end: End) -> Result<Added, Item<'q, K>> {
        let (requeued, caught) = item.try_requeue_asked(options, end, self.workers.hooks.min_interval);
        if caught.is_some() {
            self.counts.panicked.add();
        }
        requeued
    }

    /// Adds the key of a run that was dropped, at once and without counting a failure. The run counts in no number.
    #[cold]
    pub(super) fn add_again(&self, item: Item<'_, K>) {
        if let Err(item) = self.try_requeue(item, AddOptions::new(), End::Done) {
            self.refuse(item);
        }
    }

    /// The queue has refused to add a key again. Lists the key, unless it is queued again already (P23).
    #[cold]
    fn refuse(&self, item: Item<'_, K>) {
        // Before the hand-out ends, so that a drain that waits for this end finds the key in the list.
        if !item.is_dirty() {
            self.catch_user_panic(|| {
                let key = item.key().clone();
                self.workers.refused.lock().push((item.slot(), key));
            });
        }
        item.done_after_refusal();
    }

    fn give_up(&self, item: Item<'_, K>, why: GivenUp<'_>) {
        self.tell_given_up(&item, &why);
        item.give_up_and_rest(self.workers.hooks.min_interval);
    }

    /// Counts a key that is given up, and calls the hook.
    fn tell_given_up(&self, item: &Item<'_, K>, why: &GivenUp<'_>) {
        if !why.is_counted() {
            self.counts.run_gave_up.add();
        }
        self.counts.given_up.add();
        if let Some(hook) = &self.workers.hooks.on_give_up {
            self.catch_user_panic(|| hook(item, why));
        }
    }

    /// Handles a panic of a handler, whose item is in `current`, or of user code that ran after one, when `current` is `None`.
    #[cold]
    fn panicked(&self, current: Option<(Item<'_, K>, RunSpan)>, payload: Box<dyn Any + Send>) {
        self.counts.panicked.add();
        if let Some((item, span)) = current {
            self.run_panicked(item, span, message(&*payload));
        }
        self.catch_user_panic(|| drop(payload));
    }

    /// Ends the run of a handler that has panicked.
    pub(super) fn run_panicked(&self, item: Item<'_, K>, span: RunSpan, message: &str) {
        self.counts.run_panicked.add();
        self.catch_user_panic(|| self.workers.queue.shared.note_panic());
        self.keep_error(&item, &format_args!("the handler panicked: {message}"));
        self.catch_user_panic(|| span.panicked(message));
        if let Some(hook) = &self.workers.hooks.on_panic {
            self.catch_user_panic(|| hook(&item, message));
        }
        self.catch_user_panic(|| match self.workers.queue.shared.settings.on_panic {
            Some(OnPanic::Done) => {
                item.rest(self.workers.hooks.min_interval);
                item.done();
            }
            _ => self.retry(item, Duration::ZERO, GivenUp { panic: Some(message), ..GivenUp::default() }),
        });
        self.catch_user_panic(|| span.end());
    }

    /// Calls user code, and catches and counts a panic, so that the loop goes on. Returns whether there was one.
    pub(super) fn catch_user_panic(&self, run: impl FnOnce()) -> bool {
        let has_panicked = contained(run).is_none();
        if has_panicked {
            self.counts.panicked.add();
        }
        has_panicked
    }
}

/// The message of a panic.
pub(super) fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}
