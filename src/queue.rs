//! The queue as its users see it.

use crate::builder::WorkQueueBuilder;
use crate::error::{DrainTimeoutError, GetTimeoutError, TryGetError, WaitIdleTimeoutError};
use crate::futures::{GetAsync, ShutDownWithDrain, UntilShuttingDown, WaitIdle};
use crate::item::Item;
use crate::observe::{Metrics, Reporter};
use crate::options::AddOptions;
use crate::shared::{End, Pop, Shared, Wait};
use crate::stats::{ProcessingKey, Stats};
use crate::sync::{Arc, panicking};
use crate::workers::{Leftover, WorkersBuilder};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// A deduplicating work queue: a key is in line at most once and in work at most once.
///
/// This is a handle; clones are cheap and refer to the same queue. When the last handle, item and future is gone, everything
/// is freed, keys in line included.
///
/// See the [crate's page](crate) for what the queue guarantees.
///
/// # Examples
/// ```
/// use keyqueue::{Added, WorkQueue};
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.add("pod-1"), Added::Queued);
/// assert_eq!(queue.add("pod-1"), Added::Coalesced, "it is in line already");
///
/// let item = queue.get().expect("not shut down");
/// assert_eq!(queue.add("pod-1"), Added::Deferred, "it is in work: once more when that is done");
/// item.done();
///
/// assert_eq!(queue.len(), 1);
/// ```
#[doc(alias = "Interface")]
#[doc(alias = "Type")]
pub struct WorkQueue<K> {
    pub(crate) shared: Arc<Shared<K>>,
}

/// What an `add` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key is now in line.
    Queued,
    /// The key was in line already, or is in work and was added before: nothing changed, and it will be handed out after
    /// this add all the same. Or it has a delay that stands: it will be handed out when that is over.
    Coalesced,
    /// The key is in work: it goes back in line when its holder is done.
    Deferred,
    /// The key will be added when its delay is over: the delay was set, or moved.
    Delayed,
    /// The queue is shutting down: the key was not taken. (If it was [rate-limited](WorkQueue::add_rate_limited), its failure is
    /// counted all the same.)
    Rejected,
}

impl Added {
    /// `false` if the key was refused; else it will be handed out, and that hand-out begins after the add. (If it waits for a
    /// delay: unless that is cancelled, taken, or cut off by a shut-down.)
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self != Self::Rejected
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueue<K> {
    /// A queue with the default settings.
    #[doc(alias = "NewTyped")]
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings other than the default.
    pub fn builder() -> WorkQueueBuilder<K> {
        WorkQueueBuilder::new()
    }

    /// Marks a key as to be worked on: puts it in line, unless it is there already.
    ///
    /// A key in work goes back in line, once, when its holder is done. The key is dropped here if the queue knows it already;
    /// an add that finds its key in line or in work allocates nothing.
    ///
    /// `K`'s `Hash` and `Eq` are called; `Eq` under a lock, so it must not use this queue: that is a panic in a debug build, and a
    /// deadlock in a release build.
    ///
    /// # Panics
    /// If `Hash` or `Eq` do; nothing has changed then. And if the queue held more than 2^24 chunks of 8 to 64 keys.
    ///
    /// # Blocking
    /// Does not wait for keys or workers. Takes one lock for some ten nanoseconds; a thread that finds it taken backs off for
    /// some five microseconds at a time, at most six times, before it parks. The add that makes the table grow takes longer,
    /// up to half a millisecond (beyond 16 000 keys, each add moves some dozen chains of keys instead);
    /// [`capacity`](WorkQueueBuilder::capacity) avoids it.
    ///
    /// # Memory ordering
    /// Also an add that changes nothing publishes: what happened before it is visible to the next hand-out of the key.
    /// Exactly: an accepted `add` *happens-before* the return of the first `get` of the key that follows it.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.add(1), Added::Queued);
    /// queue.shut_down();
    /// assert_eq!(queue.add(2), Added::Rejected);
    /// ```
    #[doc(alias = "Add")]
    #[inline]
    pub fn add(&self, key: K) -> Added {
        let added = self.shared.add(key, false);
        if self.shared.has_extras() {
            Shared::after_add(&self.shared, added);
        }
        added
    }

    /// Adds many keys and wakes workers when all are in line, not at each. Returns how many became dirty, that is, were
    /// [`Queued`](Added::Queued) or [`Deferred`](Added::Deferred).
    ///
    /// The adds are one after the other, not one step (not [linearizable](crate#what-it-guarantees) as a whole): other
    /// threads may add and take keys in between. If the iterator panics, the keys that it has yielded are in line.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// assert_eq!(queue.add_all([1, 2, 2, 3]), 3);
    /// ```
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) -> usize {
        /// Wakes in the end, also if the iterator panics.
        struct Rouse<'q, K> {
            shared: &'q Shared<K>,
            pushed: usize,
        }
        impl<K> Drop for Rouse<'_, K> {
            fn drop(&mut self) {
                self.shared.rouse(self.pushed);
            }
        }
        let mut rouse = Rouse { shared: &self.shared, pushed: 0 };
        let quietly = |key| {
            let added = self.shared.add(key, true);
            rouse.pushed += usize::from(added == Added::Queued);
            if self.shared.has_extras() {
                Shared::after_add(&self.shared, added);
            }
            added
        };
        keys.into_iter().map(quietly).filter(|added| matches!(added, Added::Queued | Added::Deferred)).count()
    }

    /// Adds a key when this delay is over; a delay of zero is [`add`](Self::add).
    ///
    /// The key is due exactly when the clock is at or past the time of this call plus the delay, to the nanosecond: never
    /// early, and late only by what waking a thread costs. (With very many delayed keys also by sorting them: see the crate's
    /// page, "Traps".) Keys that are due are delivered in the order of their deadlines, equal ones in the order of the calls.
    /// Any delay will do; one that ends past the end of the clock (some 584 years, `Duration::MAX` for one) never ends.
    ///
    /// A key has one delay at most: the earlier deadline counts, see [`add_with`](Self::add_with) for other choices. A delay
    /// and an [`add`](Self::add) of the same key do not know of each other, see [`DelayedAdd`](crate::DelayedAdd) for other
    /// choices. When the delay is over, the key is added like any other: absorbed if it is in line already, remembered if it
    /// is in work.
    ///
    /// Delays are dropped at [`shut_down`](Self::shut_down), like client-go's, but not silently: see
    /// [`take_delayed`](Self::take_delayed).
    ///
    /// # Panics
    /// As [`add`](Self::add). Not if the thread that delivers delayed keys cannot be started: see
    /// [`Driver::Thread`](crate::Driver::Thread).
    ///
    /// # Blocking
    /// As [`add`](Self::add): one lock, for some tens of nanoseconds; the thread that delivers takes it for a few
    /// microseconds at a time.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.add_after("pod-1", Duration::from_secs(60)), Added::Delayed);
    /// assert_eq!(queue.add_after("pod-1", Duration::from_millis(5)), Added::Delayed, "earlier");
    /// assert_eq!(queue.add_after("pod-1", Duration::from_secs(60)), Added::Coalesced, "the earlier one stands");
    /// assert_eq!(*queue.get().unwrap(), "pod-1");
    /// ```
    #[doc(alias = "AddAfter")]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        self.add_with(key, AddOptions::new().after(delay))
    }

    /// Adds a key as the options say: see [`AddOptions`].
    ///
    /// # Panics
    /// As [`add_after`](Self::add_after).
    ///
    /// # Blocking
    /// As [`add_after`](Self::add_after).
    #[doc(alias = "AddWithOpts")]
    pub fn add_with(&self, key: K, options: AddOptions) -> Added {
        Shared::add_with(&self.shared, key, options)
    }

    /// Adds a key when the queue's [limiter](WorkQueueBuilder::rate_limiter) says: for keys that failed. For an event, use
    /// [`add`](Self::add).
    ///
    /// As [`add_after`](Self::add_after) with what [`when`](crate::rate_limiter::RateLimiter::when) answers, which is one more
    /// failure of the key: also if an earlier delay stands, and after a shut-down. A worker that holds the key says
    /// [`retry`](Item::retry) instead.
    ///
    /// Until the delay is over, the key is not in line: it counts in [`delayed_len`](Self::delayed_len), not in
    /// [`len`](Self::len).
    ///
    /// # Panics
    /// As [`add_after`](Self::add_after), or if the limiter does. If `Eq` panics, a limiter of your own has counted the failure
    /// already.
    ///
    /// # Blocking
    /// As [`add_after`](Self::add_after), and what the limiter takes.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.add_rate_limited("pod-1"), Added::Delayed, "by 5 ms");
    /// assert_eq!(queue.add_rate_limited("pod-1"), Added::Coalesced, "10 ms: the earlier one stands");
    /// assert_eq!(queue.num_requeues(&"pod-1"), 2);
    /// queue.forget(&"pod-1");
    /// assert_eq!(queue.num_requeues(&"pod-1"), 0);
    /// assert_eq!(queue.delayed_len(), 1, "it comes all the same");
    /// ```
    #[doc(alias = "AddRateLimited")]
    pub fn add_rate_limited(&self, key: K) -> Added {
        self.add_with(key, AddOptions::new().rate_limited())
    }

    /// Drops what the queue's limiter remembers of a key: the next failure is its first. Changes nothing in the queue; a delay
    /// that was set stands, see [`cancel`](Self::cancel).
    ///
    /// A worker that holds the key says [`succeed`](Item::succeed) instead. A limiter of your own is asked with a key of the
    /// queue's type, which is made for it: a `&str` costs a `String`, say, if that is `K`. If the queue counts by itself, `K`'s
    /// `Borrow` and `Q`'s `Eq` are called under a lock, so they must not use this queue.
    #[doc(alias = "Forget")]
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.shared.forget(key);
    }

    /// How often a key was added rate-limited since it was last forgotten, says the queue's limiter.
    ///
    /// A worker that holds the key says [`num_requeues`](Item::num_requeues) of the item instead. As for
    /// [`forget`](Self::forget), a key of the queue's own type is made, or `Borrow` and `Eq` are called under a lock.
    #[doc(alias = "NumRequeues")]
    #[must_use]
    pub fn num_requeues<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.shared.num_requeues(key)
    }

    /// Drops the delay that a key has. Whether there was one.
    ///
    /// `K`'s `Borrow` and `Q`'s `Eq` are called under a lock, so they must not use this queue: that is a panic in a debug build,
    /// and a deadlock in a release build. What is in line or in work stays there. `false` may
    /// also mean that the delay has just ended, and the key is in line. With
    /// [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for the delay takes effect now.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::<String>::new();
    /// queue.add_after("pod-1".into(), Duration::from_secs(60));
    /// assert!(queue.cancel("pod-1"));
    /// assert!(!queue.cancel("pod-1"));
    /// ```
    pub fn cancel<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.shared.cancel(key)
    }

    /// Takes all delays out, and returns the keys with the time that was left, earliest first: zero if the key is due and was
    /// not delivered yet, `Duration::MAX` if its delay never ends.
    ///
    /// For who wants to keep what a shut-down cuts off; also works before. A key that is in line or in work stays there too, and
    /// one that has failed stays known. With
    /// [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for a delay is taken with it.
    ///
    /// Takes the lock for a hundred keys at a time: delays that others set meanwhile may be among the result or not.
    ///
    /// # Panics
    /// If `K`'s `Clone` does, which is called for keys that are also in line or in work, or have failed; under the lock, so it
    /// must not use this queue. All delays are set again then: nothing is taken.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Clock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).build();
    /// queue.add_after("later", Duration::from_secs(60));
    /// queue.add_after("soon", Duration::from_secs(20));
    /// time.advance(Duration::from_secs(15));
    /// queue.shut_down();
    /// assert_eq!(queue.take_delayed(), [("soon", Duration::from_secs(5)), ("later", Duration::from_secs(45))]);
    /// ```
    #[must_use = "these delays are gone from the queue"]
    pub fn take_delayed(&self) -> Vec<(K, Duration)> {
        Shared::take_delayed(&self.shared)
    }

    /// Takes all queued and delayed keys that match out of the queue, and returns them: for a replica that no longer owns part of the
    /// keys, or to drop the work of a tenant that is gone.
    ///
    /// Queued keys are returned in the order of the queue, delayed ones with the time that was left, earliest first. A key that is
    /// processing stays with its holder, and is returned in [`processing`](Leftover::processing) if it matches; if it is dirty it is
    /// queued when its holder is done, so a caller that wants it gone calls again then. Failures that are counted for a key stay
    /// counted, see [`forget`](Self::forget). With [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for a delay is
    /// taken with the delay.
    ///
    /// This is not one step: every key that is queued or delayed during the whole call is taken if it matches; one that is added, handed
    /// out or moved meanwhile may be or not. Each taken key is taken once, and is not handed out for the adds before that. (A key that is
    /// done and handed out again meanwhile may be in `processing` twice.)
    ///
    /// The predicate is called under no lock, once for each key that is queued, delayed or processing (twice for one that is
    /// queued and delayed), with a clone: it may use the queue. Keys are cloned under the lock.
    ///
    /// # Panics
    /// If the predicate or `K`'s `Clone` or `Hash` does: nothing has been taken then.
    ///
    /// # Blocking
    /// Takes the lock for some ten microseconds at a time, to go through all keys; other calls get in between.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// queue.add_all(["a/1", "b/1", "a/2"]);
    /// queue.add_after("a/3", Duration::from_secs(60));
    /// let taken = queue.take_where(|key| key.starts_with("a/"));
    /// assert_eq!(taken.queued, ["a/1", "a/2"]);
    /// assert_eq!(taken.delayed[0].0, "a/3");
    /// assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
    /// ```
    #[must_use = "these keys are gone from the queue"]
    pub fn take_where(&self, matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        self.shared.take_where(matches)
    }

    /// The keys in work, and for how long they have been: which one is it that hangs?
    ///
    /// Longest first, if the queue [measures](WorkQueueBuilder::measure); one that was not measured, as there were so many, counts as
    /// long as the next that was. If it does not measure, it does not know how long.
    ///
    /// All keys of the queue are looked at, some hundred at a time under the lock, where those in work are cloned. So this is not of one
    /// moment: a key that is done and handed out again meanwhile may be in the list twice.
    ///
    /// # Panics
    /// If `K`'s `Clone` does, which is called under the lock, so it must not use this queue.
    #[must_use]
    pub fn processing_keys(&self) -> Vec<ProcessingKey<K>> {
        let keys = self.shared.processing_keys().into_iter();
        keys.map(|(key, elapsed)| ProcessingKey { key, elapsed }).collect()
    }

    /// Calls [`report`](Self::report) every so often, from a thread of its own, until the [`Reporter`] is dropped, which keeps the
    /// queue alive. At least a millisecond lies between two.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn report_every(&self, interval: Duration) -> std::io::Result<Reporter> {
        Reporter::start(self.clone(), interval)
    }

    /// Sets up [workers](crate::Workers): the loop around `get`, `succeed` and `retry`, written once.
    pub fn workers(&self) -> WorkersBuilder<K> {
        WorkersBuilder::new(self.clone())
    }
}

impl<K> WorkQueue<K> {
    /// Takes the first key, waiting until there is one. `None`: the queue is shut down and nothing is in line.
    ///
    /// After `None`, a key that was added while in work, before the shut-down, can still come back when its holder is done;
    /// its holder, or who drains, should get once more.
    ///
    /// # Blocking
    /// Parks the thread, after a microsecond or so of spinning; while keys come fast, it yields a few times first.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add(1);
    /// # queue.shut_down();
    /// while let Some(item) = queue.get() {
    ///     println!("working on {}", *item);
    /// }
    /// ```
    #[doc(alias = "Get")]
    #[inline]
    #[must_use = "an item that is dropped is done"]
    pub fn get(&self) -> Option<Item<'_, K>> {
        match Shared::get(&self.shared, None) {
            Wait::Item(held) => Some(Item::new(&self.shared, held)),
            _ => None,
        }
    }

    /// Takes the first key if there is one.
    ///
    /// # Errors
    /// [`Empty`](TryGetError::Empty) if nothing is in line, [`ShutDown`](TryGetError::ShutDown) if moreover the queue is shut
    /// down.
    #[inline]
    pub fn try_get(&self) -> Result<Item<'_, K>, TryGetError> {
        match self.shared.pop() {
            Pop::Item(held) => Ok(Item::new(&self.shared, held)),
            Pop::Empty => {
                Shared::ensure_driver(&self.shared);
                Err(TryGetError::Empty)
            }
            Pop::ShutDown => Err(TryGetError::ShutDown),
        }
    }

    /// Takes the first key, waiting at most this long. A timeout too long for the clock, such as `Duration::MAX`, is none.
    ///
    /// # Blocking
    /// As [`get`](Self::get).
    ///
    /// # Errors
    /// [`Timeout`](GetTimeoutError::Timeout) if nothing came in line in time, [`ShutDown`](GetTimeoutError::ShutDown) if the
    /// queue is shut down and nothing is in line.
    pub fn get_timeout(&self, timeout: Duration) -> Result<Item<'_, K>, GetTimeoutError> {
        match Shared::get(&self.shared, Instant::now().checked_add(timeout)) {
            Wait::Item(held) => Ok(Item::new(&self.shared, held)),
            Wait::ShutDown => Err(GetTimeoutError::ShutDown),
            Wait::GaveUp | Wait::Sleep(_) => Err(GetTimeoutError::Timeout),
        }
    }

    /// Takes the first key, waiting for it as a task. Resolves to `None` once the queue is shut down and nothing is in line.
    ///
    /// Works on any executor, and side by side with threads in [`get`](Self::get): who waits longest is woken first.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: a wake-up that it had received goes to the next waiter. A future that was woken must
    /// be polled or dropped, however; one that is neither (a task that never runs again) keeps its wake-up, and a key may
    /// stay in line until the next add wakes somebody else.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add(1);
    /// # queue.shut_down();
    /// # let work = async {
    /// while let Some(item) = queue.get_async().await {
    ///     println!("working on {}", *item);
    /// }
    /// # };
    /// # let mut work = std::pin::pin!(work);
    /// # let waker = std::task::Waker::noop();
    /// # assert!(std::future::Future::poll(work.as_mut(), &mut std::task::Context::from_waker(waker)).is_ready());
    /// ```
    pub fn get_async(&self) -> GetAsync<'_, K> {
        GetAsync::new(self)
    }

    /// Takes up to `max` keys that are queued, waiting for the first; others may take keys in between, as the lock is released after
    /// every 256 keys.
    /// Empty: the queue is shut down and nothing is in line, or `max` is 0.
    ///
    /// # Blocking
    /// As [`get`](Self::get).
    #[must_use = "an item that is dropped is done"]
    pub fn get_many(&self, max: usize) -> Vec<Item<'_, K>> {
        let Some(first) = (max > 0).then(|| self.get()).flatten() else {
            return Vec::new();
        };
        // Room beforehand, so that nothing is allocated under the lock.
        let room = max.min(self.len().saturating_add(1));
        let mut items = Vec::with_capacity(room);
        items.push(first);
        let mut waited = Vec::with_capacity(if self.shared.is_observed() { room } else { 0 });
        self.shared.pop_many(room - 1, |held| {
            if waited.capacity() > 0 {
                waited.push(held.waited());
            }
            items.push(Item::untold(&self.shared, held));
        });
        if panicking() {
            items.iter().for_each(Item::note_unwinding);
        }
        waited.into_iter().for_each(|waited| self.shared.tell_handed_out(waited));
        items
    }

    /// How many keys are in line; those in work do not count. A snapshot, read without the lock: it publishes nothing.
    #[doc(alias = "Len")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether nothing is in line. A snapshot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are in work: handed out and not done. A snapshot.
    #[must_use]
    pub fn processing_len(&self) -> usize {
        self.shared.stats().processing
    }

    /// How many keys have a delay that is not over; they may be in line or in work besides. Also those that a shut-down has cut
    /// off, until they are taken. A snapshot.
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.shared.delayed_len()
    }

    /// Delivers the keys that are due by now, and says how many delays that were. Needed only with
    /// [`Driver::Manual`](crate::Driver::Manual).
    ///
    /// Returns 0 after a shut-down: delays that were not over are cut off.
    ///
    /// # Blocking
    /// Takes the lock for a few microseconds at a time, until all that was due when it began is delivered.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Clock, Driver, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// queue.add_after("pod-1", Duration::from_nanos(2));
    /// time.advance(Duration::from_nanos(1));
    /// assert_eq!(queue.turn(), 0);
    /// time.advance(Duration::from_nanos(1));
    /// assert_eq!(queue.turn(), 1);
    /// assert_eq!(queue.len(), 1);
    /// ```
    pub fn turn(&self) -> usize {
        self.shared.turn()
    }

    /// Refuses adds from now on. What is in line is still handed out, and getters that find the line empty are told that the
    /// queue is shut down.
    ///
    /// A key that was added while in work, before the shut-down, still comes back when its holder is done, and by then all
    /// getters may have been told. Workers that get again after each `done` work it off; see also the crate's page, "Traps".
    ///
    /// Again has no effect, except that it releases whoever waits in
    /// [`shut_down_with_drain`](Self::shut_down_with_drain) by then.
    #[doc(alias = "ShutDown")]
    pub fn shut_down(&self) {
        self.shared.shut_down(true);
    }

    /// As [`shut_down`](Self::shut_down), and returns when nothing is in line and nothing is in work.
    ///
    /// Any number of threads may drain at a time. A plain `shut_down` that comes later releases them all.
    ///
    /// # Blocking
    /// Waits for the workers; somebody must go on getting keys. A thread that holds an item of this queue waits for itself:
    /// for ever.
    #[doc(alias = "ShutDownWithDrain")]
    pub fn shut_down_with_drain(&self) {
        let _how = self.shared.drain(None);
    }

    /// As [`shut_down_with_drain`](Self::shut_down_with_drain), but waits at most this long. A timeout too long for the clock,
    /// such as `Duration::MAX`, is none.
    ///
    /// # Errors
    /// [`DrainTimeoutError`] if something was left when the time was up. `Ok` also if a plain `shut_down` released the drain.
    pub fn shut_down_with_drain_timeout(&self, timeout: Duration) -> Result<(), DrainTimeoutError> {
        match self.shared.drain(Instant::now().checked_add(timeout)) {
            End::Reached | End::Released => Ok(()),
            End::TimedOut { queued, processing } => Err(DrainTimeoutError { queued, processing }),
        }
    }

    /// As [`shut_down_with_drain`](Self::shut_down_with_drain), for a task: shuts down when first polled, and resolves when nothing
    /// is in line and nothing is in work, or when a plain [`shut_down`](Self::shut_down) comes later.
    ///
    /// With a deadline: `timeout` of your runtime around it.
    ///
    /// # Cancel safety
    /// Dropping it takes back nothing but the waiting.
    pub fn shut_down_with_drain_async(&self) -> ShutDownWithDrain<'_, K> {
        ShutDownWithDrain::new(self)
    }

    /// Waits until nothing is left to do: nothing in line, in work or delayed. (After a shut-down delays do not count, as they
    /// never end.)
    ///
    /// For work that makes more work, which a drain would refuse: add the first keys, wait here, and drain then. Of use only if
    /// nobody adds keys but who works on them: else it means no more than that the queue was idle once.
    ///
    /// # Blocking
    /// Waits for the workers, and for delays. A thread that holds an item of this queue waits for itself: for ever.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::thread;
    /// let queue = WorkQueue::new();
    /// queue.add(5_u32);
    /// thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         while let Some(item) = queue.get() {
    ///             item.checked_sub(1).map(|next| queue.add(next));
    ///         }
    ///     });
    ///     queue.wait_idle();
    ///     assert_eq!(queue.stats().handed_out, 6);
    ///     queue.shut_down();
    /// });
    /// ```
    pub fn wait_idle(&self) {
        let _idle = Shared::wait_idle(&self.shared, None);
    }

    /// Like [`wait_idle`](Self::wait_idle), but waits for at most this time. A timeout too long for the clock, such as
    /// `Duration::MAX`, is none.
    ///
    /// # Errors
    /// [`WaitIdleTimeoutError`] if the queue was not idle by then.
    pub fn wait_idle_timeout(&self, timeout: Duration) -> Result<(), WaitIdleTimeoutError> {
        Shared::wait_idle(&self.shared, Instant::now().checked_add(timeout))
    }

    /// As [`wait_idle`](Self::wait_idle), for a task.
    ///
    /// # Cancel safety
    /// Dropping it takes back nothing but the waiting.
    pub fn wait_idle_async(&self) -> WaitIdle<'_, K> {
        WaitIdle::new(self)
    }

    /// Resolves when the queue is shutting down, at once if it is already: long work may be cut short. The handler of a worker, which
    /// has an item, calls that of the [item](Item::until_shutting_down).
    ///
    /// Works on any executor; any number of these may wait at a time.
    ///
    /// # Cancel safety
    /// Dropping it takes back nothing but the waiting.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::future::Future;
    /// # use std::task::{Context, Waker};
    /// let queue = WorkQueue::<u32>::new();
    /// let mut end = std::pin::pin!(queue.until_shutting_down());
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// assert!(end.as_mut().poll(&mut cx).is_pending());
    /// queue.shut_down();
    /// assert!(end.as_mut().poll(&mut cx).is_ready());
    /// ```
    pub fn until_shutting_down(&self) -> UntilShuttingDown<'_, K> {
        UntilShuttingDown::new(&self.shared)
    }

    /// Whether adds are refused. [`until_shutting_down`](Self::until_shutting_down) waits for that.
    #[doc(alias = "ShuttingDown")]
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.shared.is_shutting_down()
    }

    /// What the queue is called, see [`WorkQueueBuilder::name`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Numbers for who looks from outside, all of one moment.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// How the queue stands, with how long keys waited and were worked on: for metrics. All of one moment.
    ///
    /// Takes the lock for less than a microsecond, whatever the number of keys.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics()
    }

    /// Has the [observer](WorkQueueBuilder::observer) told how the queue stands. To be called before metrics are read, or now and
    /// then: [`report_every`](Self::report_every).
    pub fn report(&self) {
        self.shared.tell(|observer| observer.report(self.name(), &self.metrics()));
    }

    /// Gives back memory that the keys in line and in work do not need.
    ///
    /// The queue does this by itself as it is worked off, up to some two hundred kilobytes, which it keeps so that a steady
    /// set of keys allocates nothing. This gives back the rest too, and the room that
    /// [`capacity`](WorkQueueBuilder::capacity) asked for. Keys do not move: a chunk of up to 64 keys (4 KiB; one more if
    /// delays were set, or keys failed) stays while one of them is there. A limiter that counts itself is asked to do
    /// [the same](crate::rate_limiter::RateLimiter::shrink_to_fit).
    pub fn shrink_to_fit(&self) {
        self.shared.shrink();
    }
}

// A panic leaves no step half made: what it passes on its way is a guard, which is done, and the key itself.
impl<K: RefUnwindSafe> UnwindSafe for WorkQueue<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for WorkQueue<K> {}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Extend<K> for WorkQueue<K> {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        self.add_all(keys);
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    /// The name and the [`Stats`], for who has a stuck process before them. Shows no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.name()).field("stats", &self.stats()).finish()
    }
}
