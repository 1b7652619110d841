//! The guard that a get returns: who has it has the key, and when it is dropped, the key is done.

use crate::key::slab::SlotRef;
use crate::panics::{Caught, contained};
use crate::shared::Shared;
use crate::sync::{Arc, panicking};
use crate::{AddOptions, Added, OnPanic, UntilDirty, UntilShuttingDown};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

/// A key that is yours alone until you drop this: dropping it is `done`.
///
/// Nobody else is handed this key meanwhile; if it is added meanwhile, it goes back in line when you are done, once, however
/// often it was added. A worker that panics drops its item as it unwinds, so the key is never stuck.
///
/// An item that is leaked (`std::mem::forget`) keeps its key in work for ever; a drain then waits for ever too.
///
/// # Memory ordering
/// What happened before the `add`s that led to this hand-out, and before the previous `done` of the key, is visible to who
/// holds the item. Exactly: each of them *happens-before* the return of the `get`.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("a");
/// let item = queue.get().unwrap();
/// assert_eq!(*item, "a");
/// assert!(queue.try_get().is_err(), "it is mine");
/// queue.add("a");
/// assert!(item.is_dirty());
/// drop(item);
/// assert_eq!(*queue.get().unwrap(), "a");
/// ```
/// An item borrows its queue and cannot outlive it; see [`into_owned`](Item::into_owned).
/// ```compile_fail,E0597
/// let item = {
///     let queue = keyqueue::WorkQueue::new();
///     queue.add(1);
///     queue.get().unwrap()
/// };
/// ```
/// Done is done: the item is gone with it.
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
    slot: SlotRef<K>,
}

/// An [`Item`] that owns its share of the queue: `'static`, for tasks and threads that outlive the borrow.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add(7);
/// let item = queue.get().unwrap().into_owned();
/// std::thread::spawn(move || assert_eq!(*item, 7)).join().unwrap();
/// assert_eq!(queue.processing_len(), 0);
/// ```
#[must_use = "dropping an item says that its key is done"]
pub struct OwnedItem<K> {
    queue: Arc<Shared<K>>,
    slot: SlotRef<K>,
}

impl<'q, K> Item<'q, K> {
    /// The caller has just taken the key in this slot out of the line.
    #[inline]
    pub(crate) fn new(queue: &'q Arc<Shared<K>>, slot: SlotRef<K>) -> Self {
        if panicking() {
            // By value, so that the item stays in registers.
            // SAFETY: the caller holds the key.
            unsafe { queue.note_unwinding(slot) };
        }
        Self { queue, slot }
    }

    /// The thread that this item is for was already unwinding when it got the item.
    #[cold]
    pub(crate) fn note_unwinding(&self) {
        // SAFETY: we hold the key.
        unsafe { self.queue.note_unwinding(self.slot) }
    }

    /// As [`new`](Self::new), under the lock: [`note_unwinding`](Self::note_unwinding) is still to be called.
    #[inline]
    pub(crate) fn new_under_lock(queue: &'q Arc<Shared<K>>, slot: SlotRef<K>) -> Self {
        Self { queue, slot }
    }

    /// Turns the item into one that owns its share of the queue.
    pub fn into_owned(self) -> OwnedItem<K> {
        let (queue, slot) = self.into_parts();
        OwnedItem { queue: Arc::clone(queue), slot }
    }

    /// Instead of `done`: the key goes back to the end of the line, also after the shut-down. Does not panic.
    pub(crate) fn put_back(self) {
        let (queue, slot) = self.into_parts();
        // SAFETY: we held the key, and `slot` is not used after this.
        contained(|| unsafe { queue.put_back_held(slot) });
    }

    /// The part of [`num_requeues`](Self::num_requeues) that the queue itself has counted. Asks no limiter.
    pub(crate) fn retries_without_limiter(&self) -> usize {
        // SAFETY: we hold the key.
        unsafe { self.queue.failures_held(self.slot) }
    }

    /// The caller says `done` in our place.
    #[inline]
    fn into_parts(self) -> (&'q Arc<Shared<K>>, SlotRef<K>) {
        let this = ManuallyDrop::new(self);
        (this.queue, this.slot)
    }
}

impl<K> OwnedItem<K> {
    /// The caller says `done` in our place.
    fn into_parts(self) -> (Arc<Shared<K>>, SlotRef<K>) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so this is a move.
        (unsafe { std::ptr::read(&this.queue) }, this.slot)
    }
}

/// What becomes of a key whose holder panics: as the queue was told. A thread that was already unwinding when it got the key has not
/// panicked in the work on it: the key is done. Does not panic itself, as that would end the process.
///
/// # Safety
/// The caller holds the key in this slot, and forgets the slot.
#[cold]
unsafe fn unwound<K>(queue: &Arc<Shared<K>>, slot: SlotRef<K>) {
    // SAFETY: the caller holds the key (S2).
    if unsafe { slot.get() }.state.was_unwinding() {
        // SAFETY: the caller held the key, and `slot` is not used after this.
        return unsafe { queue.done_in_panic(slot) };
    }
    contained(|| queue.note_panic());
    if queue.on_panic != Some(OnPanic::Retry) {
        // SAFETY: as above.
        return unsafe { queue.done_in_panic(slot) };
    }
    let retry = AddOptions::new().rate_limited();
    // SAFETY: the caller holds the key.
    let inside = unsafe { slot.get() };
    let limited = contained(|| {
        // SAFETY: as above.
        let key = unsafe { inside.key() };
        queue.limited(key, retry)
    });
    let options = limited.unwrap_or_else(|| {
        queue.note_caught(1);
        retry.without_limiter()
    });
    // SAFETY: as above.
    contained(|| unsafe { Shared::requeue(queue, slot, options, false) });
}

macro_rules! holder {
    ($item:ident $(<$lifetime:lifetime>)?) => {
        impl<K> $item<$($lifetime,)? K> {
            /// The key.
            #[inline]
            #[must_use]
            pub fn key(&self) -> &K {
                // SAFETY: we hold the key, so the slot is there (S2), ...
                let slot = unsafe { self.slot.get() };
                // SAFETY: ... and taken, for as long as `self` lives.
                unsafe { slot.key() }
            }

            /// Says that the work on this key is finished, as dropping the item does.
            ///
            /// If the key was added meanwhile, it goes to the end of the line now. A thread that unwinds may call this as well, in a
            /// `Drop`: then the key is done, where dropping the item would count as a [panic](crate::OnPanic) of the work on it.
            #[doc(alias = "Done")]
            #[inline]
            pub fn done(self) {
                let (queue, slot) = self.into_parts();
                if panicking() {
                    // SAFETY: we held the key, and `slot` is not used after this.
                    return unsafe { queue.done_in_panic(slot) };
                }
                // SAFETY: as above.
                unsafe { queue.done(slot) }
            }

            /// The work succeeded: drops what the limiter remembers of the key, and says that the work is finished.
            ///
            /// As [`forget`](crate::WorkQueue::forget), then [`done`](Self::done); with the default limiter in one step.
            ///
            /// # Panics
            /// If the limiter does. The key is done all the same.
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
                let forgot = self.queue.tell_forget(&self);
                let (queue, slot) = self.into_parts();
                // SAFETY: we held the key, and `slot` is not used after this.
                unsafe { queue.succeed(slot, false) };
                forgot.pass_on();
            }

            /// The work failed, and will not be tried again: has the limiter forget the key, says that the work is finished, and
            /// counts a key that was [given up](crate::Stats::given_up).
            ///
            /// A later add of the key, also one that came meanwhile, begins anew.
            ///
            /// # Panics
            /// As [`succeed`](Self::succeed).
            pub fn give_up(self) {
                let forgot = self.queue.tell_forget(&self);
                let (queue, slot) = self.into_parts();
                // SAFETY: we held the key, and `slot` is not used after this.
                unsafe { queue.succeed(slot, true) };
                queue.tell(|observer| observer.given_up());
                forgot.pass_on();
            }

            /// The work failed: puts the key in line again when the limiter says, and says that the work is finished.
            ///
            /// As [`add_rate_limited`](crate::WorkQueue::add_rate_limited) of the key and [`done`](Self::done), in one step.
            /// Without end: who wants to give up asks [`num_requeues`](Self::num_requeues) before. The key is not cloned, unless
            /// it is new to the limiter.
            ///
            /// # Panics
            /// If the limiter does. The key comes back all the same, 50 ms later, and the queue counts the retry in the limiter's
            /// place, for [`num_requeues`](Self::num_requeues).
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
            ///             eprintln!("giving up on {}: {error}", *item);
            ///             item.succeed();
            ///         }
            ///     }
            /// }
            /// ```
            #[doc(alias = "AddRateLimited")]
            pub fn retry(self) -> Added {
                self.requeue_with(AddOptions::new().rate_limited())
            }

            /// How often the key was retried since it was last forgotten: what the limiter says, and those retries for which the
            /// limiter panicked.
            ///
            /// # Panics
            /// If the limiter does.
            #[doc(alias = "NumRequeues")]
            #[must_use]
            pub fn num_requeues(&self) -> usize {
                // SAFETY: we hold the key.
                unsafe { self.queue.num_requeues_held(self.slot) }
            }

            /// The work succeeded, and there will be more: puts the key in line again after this delay, and says that the work
            /// is finished.
            ///
            /// As [`forget`](crate::WorkQueue::forget), then [`add_after`](crate::WorkQueue::add_after) of the key and
            /// [`done`](Self::done) in one step. The key is not cloned.
            ///
            /// # Panics
            /// If the limiter does. The key comes back all the same, when the delay is over.
            ///
            /// # Examples
            /// ```
            /// # use keyqueue::{Added, WorkQueue};
            /// # use std::time::Duration;
            /// let queue = WorkQueue::new();
            /// queue.add("certificate");
            /// let item = queue.get().unwrap();
            /// // … it is good for another day
            /// assert_eq!(item.requeue_after(Duration::from_secs(86_400)), Added::Delayed);
            /// assert_eq!(queue.delayed_len(), 1);
            /// ```
            #[doc(alias = "RequeueAfter")]
            pub fn requeue_after(self, delay: Duration) -> Added {
                let options = AddOptions::new().after(delay);
                if self.queue.asks() {
                    let (added, caught) = self.requeue_asked(options, true);
                    caught.pass_on();
                    return added;
                }
                self.requeue(options, true)
            }

            /// Adds the key as the options say, and says that the work on it is finished.
            ///
            /// As [`add_with`](crate::WorkQueue::add_with) of the key and [`done`](Self::done), in one step. The key is not
            /// cloned.
            ///
            /// # Panics
            /// As [`retry`](Self::retry).
            pub fn requeue_with(self, options: AddOptions) -> Added {
                if self.queue.asks() {
                    let (added, caught) = self.requeue_asked(options, false);
                    caught.pass_on();
                    return added;
                }
                self.requeue(options, false)
            }

            /// [`requeue_with`](Self::requeue_with), or [`requeue_after`](Self::requeue_after) if it is to `forgive`. Asks no limiter.
            #[inline]
            fn requeue(self, options: AddOptions, forgive: bool) -> Added {
                let (queue, slot) = self.into_parts();
                // SAFETY: we held the key, and `slot` is not used after this.
                unsafe { Shared::requeue(&queue, slot, options, forgive) }
            }

            /// As [`requeue`](Self::requeue), but asks the limiter before, and does not pass its panic on.
            pub(crate) fn requeue_asked(self, mut options: AddOptions, forgive: bool) -> (Added, Caught) {
                let caught = match forgive {
                    true => self.queue.tell_forget(&self),
                    false => self.queue.limited_held(&self, &mut options),
                };
                (self.requeue(options, forgive), caught)
            }

            /// How long the key had waited when it was handed out, since the add that made it dirty. `None`: the queue does not
            /// [measure](crate::WorkQueueBuilder::measure), or not each key, as there are more than a million a second, or were just
            /// now.
            #[must_use]
            pub fn waited(&self) -> Option<Duration> {
                self.queue.waited(self.slot)
            }

            /// A span of the `tracing` crate for this hand-out: `workqueue`, at level `INFO`, with the `queue`, the `key`, how long it
            /// `waited` (if that was [measured](Self::waited)) and the number of the `attempt`, from 1.
            ///
            /// Each call makes another one. [`Workers`](crate::Workers) enter it by themselves, if they are
            /// [told to](crate::WorkersBuilder::traced).
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
                // What is asked here is asked only if somebody wants the span.
                tracing::info_span!(
                    "workqueue",
                    queue = &*self.queue.name,
                    key = ?self.key(),
                    waited = self.waited().map(tracing::field::debug),
                    attempt = self.num_requeues() + 1
                )
            }

            /// Resolves when the key is added again while I hold it, at once if it was already: what I have read is stale, and
            /// work that takes long may be abandoned. See [`is_dirty`](Self::is_dirty).
            ///
            /// Works on any executor; any number of these may wait at a time. Dropping one is all it takes to stop waiting.
            ///
            /// # Examples
            /// ```
            /// # use keyqueue::WorkQueue;
            /// # use std::future::Future;
            /// # use std::task::{Context, Waker};
            /// let queue = WorkQueue::new();
            /// queue.add("pod-1");
            /// let item = queue.get().unwrap();
            /// let mut stale = std::pin::pin!(item.until_dirty()); // for `select!`, beside the work
            /// # let mut cx = Context::from_waker(Waker::noop());
            /// assert!(stale.as_mut().poll(&mut cx).is_pending());
            /// queue.add("pod-1");
            /// assert!(stale.as_mut().poll(&mut cx).is_ready());
            /// ```
            pub fn until_dirty(&self) -> UntilDirty<'_, K> {
                // SAFETY: we hold the key as long as `self` is borrowed.
                unsafe { UntilDirty::new(&self.queue, self.slot) }
            }

            /// Resolves when the queue is shutting down, at once if it is already: work that takes long may be cut short, so that a
            /// drain does not wait for it. See [`shutting_down`](Self::shutting_down).
            ///
            /// Works on any executor; any number of these may wait at a time. Dropping one is all it takes to stop waiting.
            ///
            /// # Examples
            /// A handler that gives its work up when the service ends:
            /// ```
            /// use keyqueue::{Item, Outcome, WorkQueue};
            /// # async fn convert(_: &str) { std::future::pending().await }
            ///
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() {
            /// let queue = WorkQueue::new();
            /// let workers = queue.workers().build();
            /// tokio::spawn(workers.run_async(async |item: &Item<'_, String>| {
            ///     tokio::select! {
            ///         () = convert(item) => Outcome::Done,
            ///         () = item.until_shutting_down() => Outcome::Failed("shut down before it was done".into()),
            ///     }
            /// }));
            /// queue.add("film-1".to_owned());
            /// # while queue.processing_len() == 0 {
            /// #     tokio::task::yield_now().await;
            /// # }
            /// let leftover = workers.drain_async().await;
            /// assert_eq!((workers.tally().refused, leftover.is_empty()), (1, true));
            /// # }
            /// ```
            pub fn until_shutting_down(&self) -> UntilShuttingDown<'_, K> {
                UntilShuttingDown::new(&self.queue)
            }

            /// Whether the queue is shutting down. [`until_shutting_down`](Self::until_shutting_down) waits for that.
            #[must_use]
            pub fn shutting_down(&self) -> bool {
                self.queue.is_shutting_down()
            }

            /// Whether the key was added again since I hold it: what I have read may be stale, and the key will be handed
            /// out once more. [`until_dirty`](Self::until_dirty) waits for that.
            ///
            /// An add that waits for a delay ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)) counts when that is over.
            #[must_use]
            pub fn is_dirty(&self) -> bool {
                // SAFETY: we hold the key (S2).
                unsafe { self.slot.get() }.state.is_dirty()
            }
        }

        impl<K> Deref for $item<$($lifetime,)? K> {
            type Target = K;

            #[inline]
            fn deref(&self) -> &K {
                self.key()
            }
        }

        impl<K> Drop for $item<$($lifetime,)? K> {
            #[inline]
            fn drop(&mut self) {
                if panicking() {
                    // SAFETY: we hold the key, and `slot` is not used after this.
                    return unsafe { unwound(&self.queue, self.slot) };
                }
                // SAFETY: as above.
                unsafe { self.queue.done(self.slot) }
            }
        }

        // As for the queue.
        impl<K: RefUnwindSafe> UnwindSafe for $item<$($lifetime,)? K> {}
        impl<K: RefUnwindSafe> RefUnwindSafe for $item<$($lifetime,)? K> {}

        impl<K: fmt::Debug> fmt::Debug for $item<$($lifetime,)? K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($item)).field("key", self.key()).field("is_dirty", &self.is_dirty()).finish()
            }
        }
    };
}

holder!(Item<'_>);
holder!(OwnedItem);
