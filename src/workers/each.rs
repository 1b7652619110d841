//! One loop: takes a key, has it worked on, and does what the outcome says.

use super::scope::Scope;
use super::team::Counts;
use super::{GivenUp, Inner, Outcome};
use crate::panics::contained;
use crate::sync::Arc;
use crate::{AddOptions, Added, Item, OnPanic};
use std::any::Any;
use std::error::Error;
use std::future::poll_fn;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What the user wants done, and called.
pub(super) struct Hooks<K> {
    pub(super) max_retries: Option<usize>,
    pub(super) on_error: Option<Box<OnError<K>>>,
    pub(super) on_panic: Option<Box<OnPanicked<K>>>,
    pub(super) on_give_up: Option<Box<OnGiveUp<K>>>,
    /// Makes the span of a run.
    #[cfg(feature = "tracing")]
    pub(super) span: Option<fn(&Item<'_, K>) -> tracing::Span>,
}

type OnError<K> = dyn Fn(&K, &(dyn Error + Send + Sync)) + Send + Sync;
type OnPanicked<K> = dyn Fn(&K, &str) + Send + Sync;
type OnGiveUp<K> = dyn Fn(&K, &GivenUp<'_>) + Send + Sync;

impl<K> Default for Hooks<K> {
    fn default() -> Self {
        Self {
            max_retries: None,
            on_error: None,
            on_panic: None,
            on_give_up: None,
            #[cfg(feature = "tracing")]
            span: None,
        }
    }
}

/// A loop, from its start to its end.
pub(super) struct Loop<K> {
    workers: Arc<Inner<K>>,
    counts: Arc<Counts>,
}

impl<K> Loop<K> {
    pub(super) fn new(workers: Arc<Inner<K>>) -> Self {
        let counts = workers.team.enter();
        Self { workers, counts }
    }

    /// All threads are there.
    pub(super) fn may_begin(&self) -> bool {
        self.workers.team.is_open()
    }
}

impl<K> Drop for Loop<K> {
    fn drop(&mut self) {
        self.workers.team.leave(&self.counts);
    }
}

// A panic is caught around the loop, not around each key, so that keys whose handlers do not panic pay nothing. The item is
// kept outside: if it is there afterwards, its handler has panicked, and else what came after it, which has said `done` by then.
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Loop<K> {
    pub(super) fn run<R: Into<Outcome>>(&self, handler: &mut impl FnMut(&Item<'_, K>) -> R) {
        let mut current = None;
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.run_until_panic(&mut *handler, &mut current))) {
            self.panicked(current.take(), payload);
        }
    }

    fn run_until_panic<'q, R: Into<Outcome>>(
        &'q self,
        handler: &mut impl FnMut(&Item<'_, K>) -> R,
        current: &mut Option<(Item<'q, K>, Scope)>,
    ) {
        while !self.workers.team.is_stopped() {
            let Some(item) = self.workers.queue.get() else { return };
            let (item, scope) = current.insert((item, Scope::none()));
            self.enter(scope, item);
            let outcome = scope.run(|| handler(item).into());
            let (item, _scope) = current.take().expect("it is just there");
            self.finish(item, outcome);
        }
    }

    pub(super) async fn run_async<R: Into<Outcome>>(&self, handler: &mut impl AsyncFnMut(&Item<'_, K>) -> R) {
        let mut current = None;
        loop {
            let ended = {
                let mut work = pin!(self.run_async_until_panic(&mut *handler, &mut current));
                poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
                    Ok(poll) => poll.map(Ok),
                    Err(payload) => Poll::Ready(Err(payload)),
                })
                .await
            };
            match ended {
                Ok(()) => return,
                Err(payload) => self.panicked(current.take(), payload),
            }
        }
    }

    async fn run_async_until_panic<'q, R: Into<Outcome>>(
        &'q self,
        handler: &mut impl AsyncFnMut(&Item<'_, K>) -> R,
        current: &mut Option<(Item<'q, K>, Scope)>,
    ) {
        while !self.workers.team.is_stopped() {
            let Some(item) = self.workers.queue.get_async().await else { return };
            let (item, scope) = current.insert((item, Scope::none()));
            self.enter(scope, item);
            let outcome = scope.run_async(async { handler(item).await.into() }).await;
            let (item, _scope) = current.take().expect("it is just there");
            self.finish(item, outcome);
        }
    }

    /// Begins the span of a run, which is user code: the item is in its place already.
    #[cfg(feature = "tracing")]
    #[inline]
    fn enter(&self, scope: &mut Scope, item: &Item<'_, K>) {
        if let Some(span) = self.workers.hooks.span {
            scope.begin(span(item));
        }
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    fn enter(&self, _: &mut Scope, _: &Item<'_, K>) {}

    /// Does with a key what its handler wants. The key is done then, also if this panics.
    #[inline]
    fn finish(&self, item: Item<'_, K>, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                self.counts.succeeded.add();
                item.succeed();
            }
            Outcome::RequeueAfter(delay) => {
                self.counts.requeued.add();
                self.requeue(item, AddOptions::new().after(delay), true);
            }
            Outcome::RequeueWith(options) => {
                self.counts.requeued.add();
                self.requeue(item, options, false);
            }
            Outcome::Retry => self.retry(item, Duration::ZERO, GivenUp::default()),
            Outcome::Failed(error) => self.failed(item, Duration::ZERO, &*error),
            Outcome::RetryAfter { delay, error } => self.failed(item, delay, &*error),
            Outcome::GiveUp(reason) => {
                let (retries, _) = self.retries(&item);
                self.give_up(item, GivenUp { retries, reason: Some(&*reason), panic: None });
            }
        }
    }

    fn failed(&self, item: Item<'_, K>, delay: Duration, error: &(dyn Error + Send + Sync + 'static)) {
        if let Some(hook) = &self.workers.hooks.on_error {
            self.caught(|| hook(&item, error));
        }
        self.retry(item, delay, GivenUp { reason: Some(error), ..GivenUp::default() });
    }

    /// Has a key come back after this delay and that of the limiter, or gives it up, for the reason in `why`.
    fn retry(&self, item: Item<'_, K>, delay: Duration, why: GivenUp<'_>) {
        let mut options = AddOptions::new().after(delay).rate_limited();
        if let Some(max) = self.workers.hooks.max_retries {
            let (retries, panicked) = self.retries(&item);
            if retries >= max {
                return self.give_up(item, GivenUp { retries, ..why });
            }
            if panicked {
                options = options.without_limiter();
            }
        }
        self.counts.retried.add();
        self.requeue(item, options, false);
    }

    /// How often a key was retried, and whether the limiter panicked when it was asked: then only the retries that the queue itself
    /// has counted are in the number.
    fn retries(&self, item: &Item<'_, K>) -> (usize, bool) {
        if let Some(retries) = contained(|| item.num_requeues()) {
            return (retries, false);
        }
        self.counts.panicked.add();
        self.caught(|| self.workers.queue.shared.note_panic());
        (item.retries_without_limiter(), true)
    }

    /// Has a key come back, also if the limiter panics.
    #[inline]
    fn requeue(&self, item: Item<'_, K>, options: AddOptions, forgive: bool) {
        let (added, caught) = item.requeue_asked(options, forgive);
        if added == Added::Rejected {
            self.counts.refused.add();
        }
        if caught.is_some() {
            self.counts.panicked.add();
        }
    }

    fn give_up(&self, item: Item<'_, K>, why: GivenUp<'_>) {
        self.counts.given_up.add();
        if let Some(hook) = &self.workers.hooks.on_give_up {
            self.caught(|| hook(&item, &why));
        }
        item.give_up();
    }

    /// A handler has panicked, and its key is still in work; or something else that is user code has, after that.
    #[cold]
    fn panicked(&self, current: Option<(Item<'_, K>, Scope)>, payload: Box<dyn Any + Send>) {
        self.counts.panicked.add();
        if let Some((item, scope)) = current {
            self.caught(|| self.workers.queue.shared.note_panic());
            let message = message(&*payload);
            self.caught(|| scope.panicked(message));
            if let Some(hook) = &self.workers.hooks.on_panic {
                self.caught(|| hook(&item, message));
            }
            self.caught(|| match self.workers.queue.shared.on_panic {
                Some(OnPanic::Done) => item.done(),
                _ => self.retry(item, Duration::ZERO, GivenUp { panic: Some(message), ..GivenUp::default() }),
            });
            self.caught(|| scope.end());
        }
        self.caught(|| drop(payload));
    }

    /// Calls what is user code: if it panics, that is counted, and the loop goes on.
    fn caught(&self, run: impl FnOnce()) {
        if contained(run).is_none() {
            self.counts.panicked.add();
        }
    }
}

/// What a panic said.
fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(not a text)")
}
