//! The guard that a get returns. Its owner holds the key, and when the guard is dropped, the key is done.

use crate::futures::{UntilDirty, UntilLate, UntilShuttingDown};
use crate::key::{KeyHash, SlotId};
use crate::machine::{Claimed, End};
use crate::panics::{Caught, contained, contained_while_unwinding};
use crate::shared::Shared;
use crate::sync::{Arc, panicking};
use crate::{AddOptions, Added, OnPanic, Priority};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::Duration;

/// A key that was handed out. When the item is dropped, the key is done.
///
/// While the item is alive, no other getter gets the key. If the key is added meanwhile, it is queued again when the item is dropped, once,
/// however often it was added. A worker that panics drops its item as it unwinds, so the key is never stuck.
///
/// If the item is leaked (`std::mem::forget`), its key stays processing forever, and a drain waits forever.
///
/// # Memory ordering
/// The `add`s that led to this hand-out, and the previous `done` of the key, *happen-before* the return of the `get`, so the holder sees
/// what happened before them.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("a");
/// let item = queue.get().unwrap();
/// assert_eq!(*item, "a");
/// assert!(queue.try_get().is_err(), "the item holds it");
/// queue.add("a");
/// assert!(item.is_dirty());
/// drop(item);
/// assert_eq!(*queue.get().unwrap(), "a");
/// ```
/// `Display` shows the key:
/// ```
/// # let queue = keyqueue::WorkQueue::new();
/// # queue.add("pod-1");
/// assert_eq!(format!("{}", queue.get().unwrap()), "pod-1");
/// ```
/// An item borrows its queue and cannot outlive it, unless it is made an [`OwnedItem`](crate::OwnedItem) by
/// [`get_owned`](crate::WorkQueue::get_owned) or [`into_owned`](Item::into_owned).
/// ```compile_fail,E0597
/// let item = {
///     let queue = keyqueue::WorkQueue::new();
///     queue.add(1);
///     queue.get().unwrap()
/// };
/// ```
/// `done` consumes the item:
/// ```compile_fail,E0382
/// let queue = keyqueue::WorkQueue::new();
/// queue.add(1);
/// let item = queue.get().unwrap();
/// item.done();
/// item.done();
/// ```
#[must_use = "dropping an item says that its key is done"]
pub struct Item<'q, K> {
    queue: &'q Arc<Shared<K>>,
    claimed: Claimed<K>,
}

impl<'q, K> Item<'q, K> {
    #[inline]
    pub(crate) fn new(queue: &'q Arc<Shared<K>>, claimed: Claimed<K>) -> Self {
        if panicking() {
            queue.note_unwinding(&claimed);
        }
        Self { queue, claimed }
    }

    /// Notes that the thread was already unwinding when it got this item.
    #[cold]
    pub(crate) fn note_unwinding(&self) {
        self.queue.note_unwinding(&self.claimed);
    }

    /// Like [`new`](Self::new), without the check whether the thread unwinds: see [`note_unwinding`](Self::note_unwinding).
    #[inline]
    pub(crate) fn new_quietly(queue: &'q Arc<Shared<K>>, claimed: Claimed<K>) -> Self {
        Self { queue, claimed }
    }

    pub(crate) fn queue(&self) -> &'q Arc<Shared<K>> {
        self.queue
    }

    #[inline]
    pub(crate) fn hash(&self) -> KeyHash {
        self.claimed.hash()
    }

    #[inline]
    pub(crate) fn prefetch(&self) {
        self.claimed.prefetch();
    }

    /// Makes a limiter of the user's own forget the failures of the key.
    pub(crate) fn limiter_forget(&self) -> Caught {
        self.queue.limiter_forget(self)
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.claimed.slot()
    }

    /// The part of [`num_requeues`](Self::num_requeues) that the queue itself has counted. Calls no limiter.
    pub(crate) fn retries_without_limiter(&self) -> usize {
        self.queue.failures_held(&self.claimed)
    }

    /// Whether a failure after the last retry has given the key up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.queue.is_given_up(&self.claimed)
    }

    /// Takes the token out, for a caller that ends the hand-out in place of the item's drop.
    #[inline]
    pub(crate) fn into_parts(self) -> (&'q Arc<Shared<K>>, Claimed<K>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped and not used again, so the token is moved (S4).
        (this.queue, unsafe { this.claimed.duplicate() })
    }
}

impl<'q, K> Item<'q, K> {
    /// The key.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1".to_owned());
    /// let item = queue.get().unwrap();
    /// assert_eq!(item.key(), "pod-1");
    /// assert_eq!(item.len(), 5); // an item dereferences to its key
    /// ```
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.claimed.key()
    }

    /// Ends the hand-out, as dropping the item does. This decides nothing: the key's failures stay counted, and a delay that an earlier
    /// hand-out has set stays.
    ///
    /// If the key was added meanwhile, it is queued now, at the back. A thread that unwinds may call this in a `Drop`, and then the key is
    /// done, while dropping the item there would count as a [panic](crate::OnPanic) of the work. As in each other call that ends the
    /// hand-out, panics of foreign code are caught in such a thread, because a second panic would abort the process.
    ///
    /// # Panics
    /// If the key's drop or an [observer](crate::observe::Observer#panics) panics. The key is done then.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// queue.get().unwrap().done(); // as a drop does
    /// assert_eq!(queue.processing_len(), 0);
    /// ```
    #[doc(alias = "Done")]
    #[inline]
    pub fn done(self) {
        let (queue, claimed) = self.into_parts();
        if panicking() {
            return queue.done_in_panic(claimed);
        }
        queue.done(claimed);
    }

    /// Ends the hand-out after a success, and forgets the failures of the key.
    ///
    /// Like [`forget`](crate::WorkQueue::forget), and then [`done`](Self::done). With the default limiter this is one step. If an earlier
    /// hand-out of the key has set a delay, by [`retry`](Self::retry) or a requeue, the call drops it, because the work is over. A caller's
    /// delay [stays](crate::DelayConflict).
    ///
    /// # Panics
    /// If the limiter does, and like [`done`](Self::done). The key is done then too.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add("pod-1");
    /// queue.get().unwrap().retry();
    /// let item = queue.get().unwrap(); // five milliseconds later
    /// assert_eq!(item.num_requeues(), 1);
    /// item.succeed();
    /// assert_eq!(queue.num_requeues(&"pod-1"), 0);
    /// ```
    #[doc(alias = "Forget")]
    pub fn succeed(self) {
        self.succeed_and_rest(Duration::ZERO);
    }

    // `inline(always)`: as a call it would cost a loop of workers 18 instructions a key.
    #[inline(always)]
    pub(crate) fn succeed_and_rest(self, rest: Duration) {
        let forgot = self.limiter_forget();
        self.rest(rest);
        let (queue, claimed) = self.into_parts();
        contained_while_unwinding(|| queue.succeed(claimed));
        forgot.pass_on();
    }

    /// Ends the hand-out after a success that is not to be repeated for some time: like [`succeed`](Self::succeed), but for `time` after
    /// this call no hand-out of the key begins. The queue holds back adds that come meanwhile, and makes one run of them at the end of that
    /// time.
    ///
    /// Without an add there is no run, and the queue forgets the key after that time. This bounds how often a key with many events runs,
    /// and the last event is never lost. A delay, or a retry, that would expire earlier is put off.
    ///
    /// An add that is held back returns [`Added::Delayed`], and the key counts as a delayed one: drains do not wait for it, and
    /// [`take_delayed`](crate::WorkQueue::take_delayed) returns it. [`cancel`](crate::WorkQueue::cancel) leaves such an add, and
    /// [`remove`](crate::WorkQueue::remove) takes it back. Without an add, no list and no count has the key, and
    /// [`wait_idle`](crate::WorkQueue::wait_idle) does not wait for it. If the key was added while this item was held, that add is held
    /// back, too. After a shut-down there is no cool-down, so that a drain hands out what is left at once; but an add that is held back by
    /// then is a delay, which the shut-down cuts off.
    ///
    /// # Panics
    /// Like [`succeed`](Self::succeed).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Added, Clock, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// queue.add("node-1");
    /// queue.get().unwrap().cool_down(Duration::from_secs(10));
    /// assert_eq!(queue.add("node-1"), Added::Delayed);
    /// assert_eq!(queue.add("node-1"), Added::Coalesced);
    /// time.advance(Duration::from_secs(10));
    /// queue.turn();
    /// assert_eq!(*queue.get().unwrap(), "node-1"); // once, for both
    /// ```
    pub fn cool_down(self, time: Duration) {
        self.succeed_and_rest(time);
    }

    /// Makes the key cool down for this time after its run, which is about to end.
    #[inline]
    pub(crate) fn rest(&self, time: Duration) {
        if !time.is_zero() {
            contained_while_unwinding(|| Shared::rest(self.queue, &self.claimed, time));
        }
    }

    /// Ends the hand-out after a failure that will not be tried again: forgets the failures of the key, and counts the key as [given
    /// up](crate::Stats::given_up).
    ///
    /// A later add of the key starts without failures, and so does an add that came meanwhile. The delay of an earlier retry is dropped, as
    /// by [`succeed`](Self::succeed).
    ///
    /// # Panics
    /// Like [`succeed`](Self::succeed).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// queue.get().unwrap().give_up();
    /// assert_eq!(queue.stats().given_up, 1);
    /// ```
    pub fn give_up(self) {
        self.give_up_and_rest(Duration::ZERO);
    }

    pub(crate) fn give_up_and_rest(self, rest: Duration) {
        let forgot = self.limiter_forget();
        self.rest(rest);
        let (queue, claimed) = self.into_parts();
        contained_while_unwinding(|| queue.give_up(claimed));
        contained_while_unwinding(|| queue.tell(|observer| observer.given_up()));
        forgot.pass_on();
    }

    /// Ends the hand-out after a failure: counts it, and adds the key after the delay that the limiter chooses.
    ///
    /// This is one step. It takes the place of [`add_rate_limited`](crate::WorkQueue::add_rate_limited) of the key and
    /// [`done`](Self::done), with one difference: the new delay replaces the one that an earlier hand-out of the key has set, even if that
    /// would expire sooner. A caller's delay [stays](crate::DelayConflict). `retry` never gives up, so check
    /// [`num_requeues`](Self::num_requeues) first. Only a limiter to which the key is new may clone it.
    ///
    /// If the limiter does not count the failure, because the last retry was not yet due
    /// ([`served_only`](crate::rate_limiter::PerKey::served_only)), that retry stands, and the result is [`Added::Coalesced`].
    ///
    /// After a shut-down the result is [`Added::Rejected`], and the key is done. The queue does not keep the key then, so clone it before
    /// if you need it.
    ///
    /// # Panics
    /// * If the limiter does. The key is still queued again, 50 ms later, and the queue itself counts the retry for
    ///   [`num_requeues`](Self::num_requeues).
    /// * Like [`done`](Self::done). The call has taken effect then.
    /// * If the delays of a shard would take more than 17 GB. The key is done then, and not retried.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add("pod-1");
    /// # fn reconcile(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # queue.shut_down();
    /// while let Some(item) = queue.get() {
    ///     match reconcile(*item) {
    ///         Ok(()) => item.succeed(),
    ///         Err(_) if item.num_requeues() < 15 => _ = item.retry(),
    ///         Err(error) => {
    ///             eprintln!("giving up on {item}: {error}");
    ///             item.give_up();
    ///         }
    ///     }
    /// }
    /// ```
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Added {
        self.requeue_with(AddOptions::new().rate_limited())
    }

    /// How often the key was retried since its failures were last forgotten: the limiter's count, and the retries for which the limiter
    /// panicked.
    ///
    /// # Panics
    /// If the limiter does.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// queue.get().unwrap().retry();
    /// assert_eq!(queue.get().unwrap().num_requeues(), 1); // after 5 ms
    /// ```
    #[doc(alias = "NumRequeues")]
    #[must_use]
    pub fn num_requeues(&self) -> usize {
        self.queue.num_requeues_held(&self.claimed)
    }

    /// Ends the hand-out after a success that is to be repeated: forgets the failures of the key, and adds the key after this delay.
    /// [`requeue_with`](Self::requeue_with) forgets nothing.
    ///
    /// Like [`forget`](crate::WorkQueue::forget), [`add_after`](crate::WorkQueue::add_after) of the key and [`done`](Self::done), in one
    /// step, without a clone of the key. As with [`retry`](Self::retry), the delay replaces the one that an earlier hand-out has set, and
    /// the call does the same after a shut-down.
    ///
    /// # Panics
    /// If the limiter does, and like [`done`](Self::done). The key is still queued again, when the delay expires.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add("certificate");
    /// let item = queue.get().unwrap();
    /// // … it is valid for another day
    /// assert_eq!(item.requeue_after(Duration::from_secs(86_400)), Added::Delayed);
    /// assert_eq!(queue.delayed_len(), 1);
    /// ```
    #[doc(alias = "RequeueAfter")]
    pub fn requeue_after(self, delay: Duration) -> Added {
        let options = AddOptions::new().after(delay);
        self.requeue_anyhow(options, End::Succeed)
    }

    /// Ends the hand-out, and adds the key as the options say. The failures of the key stay, and if the options are
    /// [rate-limited](AddOptions::rate_limited), one more is counted. [`requeue_after`](Self::requeue_after) forgets the failures. The
    /// table at [`Outcome`](crate::Outcome) has all cases.
    ///
    /// Like [`add_with`](crate::WorkQueue::add_with) of the key and [`done`](Self::done), in one step, without a clone of the key. As with
    /// [`retry`](Self::retry), the delay replaces the one that an earlier hand-out has set, unless the options say
    /// [`KeepExisting`](crate::DelayConflict::KeepExisting), and the call does the same after a shut-down. Without a delay, the key is
    /// queued now, and that older delay is dropped.
    ///
    /// # Panics
    /// Like [`retry`](Self::retry).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, Priority, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1");
    /// // when there is nothing else to do
    /// queue.get().unwrap().requeue_with(AddOptions::new().priority(Priority::LOW));
    /// assert_eq!(queue.get().unwrap().priority(), Priority::LOW);
    /// ```
    pub fn requeue_with(self, options: AddOptions) -> Added {
        self.requeue_anyhow(options, End::Done)
    }

    /// [`requeue_with`](Self::requeue_with) or [`requeue_after`](Self::requeue_after), without a call of the limiter.
    /// [`requeue`](Self::requeue), after an external limiter was asked, if there is one.
    #[inline]
    fn requeue_anyhow(self, mut options: AddOptions, end: End) -> Added {
        if !self.queue.has_external_limiter() {
            return self.requeue(options, end);
        }
        let caught = self.ask_limiter(&mut options, end);
        let added = self.requeue(options, end);
        caught.pass_on();
        added
    }

    #[inline]
    fn requeue(self, options: AddOptions, end: End) -> Added {
        let (queue, claimed) = self.into_parts();
        if panicking() {
            return Shared::requeue_in_panic(queue, claimed, options, end);
        }
        Shared::requeue(queue, claimed, options, end)
    }

    /// Asks the limiter, whose panic is returned, and requeues. If the queue has refused the add, the item comes back, and the caller calls
    /// [`done_after_refusal`](Self::done_after_refusal).
    #[inline]
    pub(crate) fn try_requeue_asked(
        self,
        mut options: AddOptions,
        end: End,
        rest: Duration,
    ) -> (Result<Added, Self>, Caught) {
        let caught = self.ask_limiter(&mut options, end);
        self.rest(rest);
        let (queue, claimed) = self.into_parts();
        let requeued = Shared::try_requeue(queue, claimed, options, end);
        (requeued.map_err(|claimed| Self { queue, claimed }), caught)
    }

    /// The rest of a requeue that the queue has refused.
    pub(crate) fn done_after_refusal(self) {
        let (queue, claimed) = self.into_parts();
        Shared::done_after_refusal(queue, claimed);
    }

    #[inline]
    fn ask_limiter(&self, options: &mut AddOptions, end: End) -> Caught {
        match end {
            End::Succeed | End::GiveUp => self.queue.limiter_forget(self),
            End::Done => self.queue.try_limited_held(self, options),
        }
    }

    /// The [priority](crate::Priority) with which the key was handed out. [`retry`](Self::retry), [`requeue_after`](Self::requeue_after)
    /// and [`requeue_with`](Self::requeue_with) keep this priority, unless the options have another one.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, Priority, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_with("pod-1", AddOptions::new().priority(Priority::HIGH));
    /// assert_eq!(queue.get().unwrap().priority(), Priority::HIGH);
    /// ```
    #[must_use]
    #[doc(alias = "GetWithPriority")]
    pub fn priority(&self) -> Priority {
        self.queue.priority(&self.claimed)
    }

    /// How long the key waited, from the add that made it dirty until the hand-out. `None` if the queue does not
    /// [measure](crate::WorkQueueBuilder::measure). With more than a million keys a second, most keys have `None` too.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Clock, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).measure(true).build();
    /// queue.add("pod-1");
    /// time.advance(Duration::from_secs(2));
    /// assert_eq!(queue.get().unwrap().waited(), Some(Duration::from_secs(2)));
    /// ```
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.queue.waited(&self.claimed)
    }

    /// A span of the `tracing` crate for this hand-out: `workqueue`, at level `INFO`, with the fields `queue`, `key`, `waited` (if it was
    /// [measured](Self::waited)) and `attempt`, from 1.
    ///
    /// Each call makes a new span. [`Workers`](crate::Workers) enter it themselves if they are
    /// [traced](crate::WorkersBuilder::traced).
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// let _in_it = item.span().entered();
    /// // … the work, and what it logs
    /// ```
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn span(&self) -> tracing::Span
    where
        K: fmt::Debug,
    {
        self.span_of(tracing::field::debug(self.key()))
    }

    /// The span of this hand-out, with the key in this form.
    #[cfg(feature = "tracing")]
    pub(crate) fn span_of(&self, key: impl tracing::Value) -> tracing::Span {
        // The fields are evaluated only if the span is enabled.
        tracing::info_span!(
            "workqueue",
            queue = &*self.queue.settings.name,
            key = key,
            waited = self.waited().map(tracing::field::debug),
            attempt = self.num_requeues() + 1
        )
    }

    /// Resolves when the key is added again while this item is alive, at once if it was already. The holder has then read stale state, and
    /// may abandon long work. See [`is_dirty`](Self::is_dirty).
    ///
    /// Works on any executor, and any number of these futures may wait at the same time. Dropping one ends its wait.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::future::Future;
    /// # use std::task::{Context, Waker};
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// let mut stale = std::pin::pin!(item.until_dirty()); // for `select!`, together with the work
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// assert!(stale.as_mut().poll(&mut cx).is_pending());
    /// queue.add("pod-1");
    /// assert!(stale.as_mut().poll(&mut cx).is_ready());
    /// ```
    pub fn until_dirty(&self) -> UntilDirty<'_, K> {
        UntilDirty::new(self.queue, &self.claimed)
    }

    /// Whether the run has lasted longer than the [time limit](crate::WorkersBuilder::time_limit) of its workers, by the queue's clock. A
    /// handler in a thread, which nothing can stop, may ask this from time to time, and stop by itself. `false` if there is no limit, and
    /// for a key that no worker has taken.
    ///
    /// # Blocking
    /// It reads the clock and takes a lock for some tens of nanoseconds.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Outcome, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::<&str>::new();
    /// let limit = Duration::from_millis(5);
    /// let workers = queue.workers().max_retries(0).time_limit(limit).spawn(1, |table| {
    ///     for _row in 0.. {
    ///         if table.is_late() {
    ///             return Outcome::failed("it takes too long");
    ///         }
    ///         // … copy the row
    ///     }
    ///     Outcome::Success
    /// })?;
    /// queue.add("table-1");
    /// assert!(workers.drain().is_empty());
    /// assert_eq!((workers.tally().given_up, workers.tally().late), (1, 1));
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.queue.is_late(self.claimed.slot())
    }

    /// Resolves when the run has lasted longer than the [time limit](crate::WorkersBuilder::time_limit) of its workers, so that the handler
    /// can stop by itself. The queue's driver wakes the task, with [`Driver::Manual`](crate::Driver::Manual) the next
    /// [`turn`](crate::WorkQueue::turn). Without a limit it never resolves.
    ///
    /// A task's handler is polled once more at its limit, and then dropped, so a handler that waits for this can still return what is to
    /// become of the key. Works on any executor, and any number of these futures may wait at the same time. Dropping one ends its wait.
    ///
    /// # Examples
    /// A failed run that has an error of its own:
    /// ```
    /// use keyqueue::{Outcome, WorkQueue};
    /// use std::time::Duration;
    /// # async fn convert(_: &str) { std::future::pending().await }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue.workers().max_retries(0).time_limit(Duration::from_millis(5)).build();
    /// tokio::spawn(workers.run_async(async |item| {
    ///     tokio::select! {
    ///         () = convert(item) => Outcome::Success,
    ///         () = item.until_late() => Outcome::failed("the film is too long"),
    ///     }
    /// }));
    /// queue.add("film-1".to_owned());
    /// assert!(workers.drain_async().await.is_empty());
    /// assert_eq!((workers.tally().failed, workers.tally().timed_out), (1, 0));
    /// # }
    /// ```
    pub fn until_late(&self) -> UntilLate<'_, K> {
        UntilLate::new(self.queue, &self.claimed)
    }

    /// Resolves when the queue is shutting down, at once if it is already. The holder may then cut long work short, so that a drain does
    /// not wait for it. See [`shutting_down`](Self::shutting_down).
    ///
    /// Works on any executor, and any number of these futures may wait at the same time. Dropping one ends its wait.
    ///
    /// # Examples
    /// A handler that ends its work early when the service shuts down. It asks for a requeue, which the queue refuses, so that the key is
    /// in [`Leftover::refused`](crate::Leftover::refused). A failure would count as a retry, and might give the key up.
    /// ```
    /// use keyqueue::{AddOptions, Outcome, WorkQueue};
    /// # async fn convert(_: &str) { std::future::pending().await }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::<String>::new();
    /// let workers = queue.workers().build();
    /// tokio::spawn(workers.run_async(async |item| {
    ///     tokio::select! {
    ///         () = convert(item) => Outcome::Success,
    ///         () = item.until_shutting_down() => Outcome::RequeueWith(AddOptions::new()),
    ///     }
    /// }));
    /// queue.add("film-1".to_owned());
    /// # while queue.processing_len() == 0 {
    /// #     tokio::task::yield_now().await;
    /// # }
    /// let leftover = workers.drain_async().await;
    /// assert_eq!(leftover.refused, ["film-1".to_owned()]);
    /// # }
    /// ```
    pub fn until_shutting_down(&self) -> UntilShuttingDown<'_, K> {
        UntilShuttingDown::new(self.queue)
    }

    /// Whether the queue is shutting down. [`until_shutting_down`](Self::until_shutting_down) waits for that.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// queue.shut_down();
    /// assert!(item.shutting_down()); // a long run may stop here
    /// ```
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.queue.is_shutting_down()
    }

    /// Whether the key was added again while this item is held. The holder may then have read stale state, and the key will be handed out
    /// once more, which [`until_dirty`](Self::until_dirty) waits for. If [`WorkQueue::remove`](crate::WorkQueue::remove) takes the add
    /// back, this is `false` again.
    ///
    /// An add that waits for a retry ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)) counts when it takes effect.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// let item = queue.get().unwrap();
    /// assert!(!item.is_dirty());
    /// queue.add("pod-1");
    /// assert!(item.is_dirty()); // it runs once more, so this run may stop
    /// ```
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.claimed.is_dirty()
    }
}

impl<K> Deref for Item<'_, K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K> Drop for Item<'_, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is not used after its drop, so the token is moved (S4).
        let claimed = unsafe { self.claimed.duplicate() };
        if panicking() {
            return unwound(self.queue, claimed);
        }
        self.queue.done(claimed);
    }
}

/// Shows the key.
impl<K: fmt::Display> fmt::Display for Item<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl<K: fmt::Debug> fmt::Debug for Item<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("key", self.key()).field("is_dirty", &self.is_dirty()).finish()
    }
}

/// Drops the item of a thread that unwinds: see [`OnPanic`]. If the thread was already unwinding when it got the key, the work on the key
/// has not panicked, and the key is done. Does not panic itself, because that would abort the process.
#[cold]
fn unwound<K>(queue: &Arc<Shared<K>>, claimed: Claimed<K>) {
    if claimed.was_unwinding() {
        return queue.done_in_panic(claimed);
    }
    contained(|| queue.note_panic());
    if queue.settings.on_panic != Some(OnPanic::Retry) {
        return queue.done_in_panic(claimed);
    }
    let retry = AddOptions::new().rate_limited();
    let limited = contained(|| queue.limited_held(claimed.key(), retry));
    let options = limited.unwrap_or_else(|| {
        queue.note_caught(1);
        retry.without_limiter()
    });
    contained(|| Shared::requeue(queue, claimed, options, End::Done));
}
