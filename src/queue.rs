//! The public handle of a queue.

use crate::add_wait::AddWait;
use crate::added::Added;
use crate::batch::Batch;
use crate::error::{DrainTimeoutError, GetTimeoutError, TryGetError, WaitIdleTimeoutError};
use crate::futures::{ShutDownWithDrain, UntilShuttingDown, WaitIdle};
use crate::get_async::GetAsync;
use crate::item::Item;
use crate::leftover::Leftover;
use crate::options::AddOptions;
use crate::owned_item::OwnedItem;
use crate::shared::{Shared, Wait, Wakeups};
use crate::stats::{DelayedKey, Stats};
use crate::sync::{Arc, panicking};
use crate::time::deadline::Deadline;
use equivalent::Equivalent;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

/// A deduplicating work queue: a key is queued at most once, and processed by at most one holder at a time.
///
/// This is a handle. Clones are cheap and refer to the same queue. The queue and its keys are freed with the last handle, item or future.
/// If the queue's thread is at work on [delays](crate::Driver) at that moment, it frees them when its step ends, and catches a panic of a
/// key's drop.
///
/// See the [crate's page](crate) for what the queue guarantees.
///
/// # Keys with equal hashes
/// Such keys are compared one by one, as in a `HashSet`, so adding n of them takes a time that grows with n², and draining them two to four
/// times as long. Hashing is seeded, so they come only from a `Hash` that ignores a part of the key.
///
/// # Examples
/// ```
/// use keyqueue::{Added, WorkQueue};
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.add("pod-1"), Added::Queued);
/// assert_eq!(queue.add("pod-1"), Added::Coalesced, "it is queued already");
///
/// let item = queue.get().expect("not shut down");
/// assert_eq!(
///     queue.add("pod-1"),
///     Added::Deferred,
///     "it is processing: queued again when it is done"
/// );
/// item.done();
///
/// assert_eq!(queue.len(), 1);
/// ```
#[doc(alias = "Stingy")]
#[doc(alias = "delayingType")]
#[doc(alias = "rateLimitingType")]
#[doc(alias = "TypedInterface")]
#[doc(alias = "Interface")]
#[doc(alias = "DelayingInterface")]
#[doc(alias = "TypedDelayingInterface")]
#[doc(alias = "RateLimitingInterface")]
#[doc(alias = "TypedRateLimitingInterface")]
#[doc(alias = "Typed")]
#[doc(alias = "Type")]
pub struct WorkQueue<K> {
    pub(crate) shared: Arc<Shared<K>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueue<K> {
    /// Queues a key, unless it is queued already.
    ///
    /// A key that is processing is queued again, once, when its holder is done. If the queue already has an equal key, `add` drops `key`.
    /// An add that finds its key queued or processing allocates nothing.
    ///
    /// Calls `K`'s `Hash` and `Eq`. `Eq` runs under a lock, so it must not use this queue. If it does, a debug build panics, and a release
    /// build deadlocks.
    ///
    /// # Panics
    /// * If `Hash` or `Eq`, or the function of [`fair_by`](crate::WorkQueueBuilder::fair_by) or
    ///   [`group_weight`](crate::WorkQueueBuilder::group_weight), panics. Nothing has changed then.
    /// * If an [observer](crate::observe::Observer#panics) panics, or the drop of a key that the queue has already. The call has taken
    ///   effect then.
    /// * If a shard would hold more than about a billion keys (134 million of large ones).
    ///
    /// # Blocking
    /// Does not wait for keys or workers, but takes one lock for some ten nanoseconds. (A lock-free queue takes none, or another one: see
    /// the page of `WorkQueueBuilder::lock_free`.) A thread that finds the lock taken backs off for
    /// about five microseconds at a time, at most six times, and then parks. An add that makes the table of keys grow takes up to half a
    /// millisecond, unless there are more than 16 000 keys, in which case many adds share this work.
    /// [`capacity`](crate::WorkQueueBuilder::capacity) avoids it.
    ///
    /// # Memory ordering
    /// An accepted `add` *happens-before* the return of the next `get` of its key, even if the add changes nothing: the next hand-out of
    /// the key sees what happened before the add.
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
        Shared::add(&self.shared, key, Wakeups::Now)
    }

    /// Like [`add`](Self::add), but if the key is new and the queue [full](crate::WorkQueueBuilder::max_keys), waits until there is room.
    /// Never returns [`Added::Full`]. Without a bound this is an `add`.
    ///
    /// The adds that wait have no right to the room: a plain add that comes first takes it.
    ///
    /// # Panics
    /// Like [`add`](Self::add).
    ///
    /// # Blocking
    /// Waits until a key is done, or leaves the queue in another way, such as by [`remove`](Self::remove). A handler must not call this for
    /// another key if all handlers may do so at the same time, because they would wait for each other. A shut-down, drain or stop ends the
    /// wait, with [`Added::Rejected`].
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    /// use std::thread;
    ///
    /// let queue = WorkQueue::builder().max_keys(2).build();
    /// thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         for key in 0..100 {
    ///             assert_eq!(queue.add_wait(key), Added::Queued);
    ///         }
    ///         queue.shut_down();
    ///     });
    ///     while let Some(item) = queue.get() {
    ///         assert!(queue.len() < 2);
    ///         item.done();
    ///     }
    /// });
    /// ```
    #[doc(alias = "backpressure")]
    pub fn add_wait(&self, key: K) -> Added {
        AddWait::new(&self.shared, key).block()
    }

    /// Like [`add_wait`](Self::add_wait), for a task.
    ///
    /// # Cancel safety
    /// Dropping it before it is ready drops the key, which was not added.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().max_keys(2).build();
    /// assert_eq!(queue.add_wait_async("pod-1").await, Added::Queued);
    /// # });
    /// ```
    pub fn add_wait_async(&self, key: K) -> AddWait<'_, K> {
        AddWait::new(&self.shared, key)
    }

    /// Adds many keys, and wakes workers when all are added, so feed a slow iterator in batches. Returns how many keys were
    /// [`Queued`](Added::Queued) or [`Deferred`](Added::Deferred). New keys for which there is no [room](crate::WorkQueueBuilder::max_keys)
    /// are dropped.
    ///
    /// Other threads may add and take keys in between, so the call as a whole is not [linearizable](crate#what-it-guarantees).
    ///
    /// With tens of thousands of queued keys this is faster than a loop of adds, by up to a half, because the call takes 32 keys from an
    /// iterator that knows how many it has, and adds them together, so that they wait for memory at the same time.
    ///
    /// # Panics
    /// Like [`add`](Self::add), and if the iterator panics. The keys before the panic stay added, and the call wakes workers for them. If
    /// `Eq` or the drop of a key panics, up to 31 keys that the iterator has yielded after that one may be dropped and not added.
    ///
    /// # Blocking
    /// Like [`add`](Self::add). With many keys it holds the lock for as long as 32 adds take, a few microseconds.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// assert_eq!(queue.add_all([1, 2, 2, 3]), 3);
    /// ```
    pub fn add_all(&self, keys: impl IntoIterator<Item = K>) -> usize {
        Shared::add_all(&self.shared, keys)
    }

    /// Adds a key when this delay expires. A delay of zero is an [`add`](Self::add).
    ///
    /// The delay expires when the clock is at or past the time of this call plus the delay, to the nanosecond. It is never early, but may
    /// be late by the time that it takes to wake a thread, or longer if the driver has many keys to add or to sort: as deadlines approach,
    /// at most once in 69 seconds, it sorts the delayed keys anew, which takes some milliseconds if there are a million. Delays expire in
    /// the order of their deadlines, and equal deadlines in the order of the calls. Any delay is accepted. A delay past the end of the
    /// clock (about 584 years), such as `Duration::MAX`, never expires.
    ///
    /// When the delay expires, the queue does an [`add`](Self::add) of the key. A key has at most one delay that callers have set, and the
    /// earlier deadline counts, unless [`add_with`](Self::add_with) chooses otherwise. Its holder may set another one, by a retry or a
    /// requeue. A delay and a plain [`add`](Self::add) of the same key are independent, unless [`DelayedAdd`](crate::DelayedAdd) says
    /// otherwise.
    ///
    /// [`shut_down`](Self::shut_down) cuts delays off, as in client-go, but the queue keeps them for [`take_delayed`](Self::take_delayed).
    ///
    /// # Panics
    /// Like [`add`](Self::add), and if the delays of a shard would take more than 17 GB. The call does not panic if the system cannot start
    /// the driver thread: see [`Driver::Thread`](crate::Driver::Thread).
    ///
    /// # Blocking
    /// Like [`add`](Self::add), one lock for some tens of nanoseconds. The driver thread holds the lock for a few microseconds at a time.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue};
    /// # use std::time::Duration;
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.add_after("pod-1", Duration::from_secs(60)), Added::Delayed);
    /// assert_eq!(queue.add_after("pod-1", Duration::from_millis(100)), Added::Delayed, "earlier");
    /// assert_eq!(
    ///     queue.add_after("pod-1", Duration::from_secs(60)),
    ///     Added::Coalesced,
    ///     "the earlier one stands"
    /// );
    /// assert_eq!(*queue.get().unwrap(), "pod-1");
    /// ```
    #[doc(alias = "waitingForAddCh")]
    #[doc(alias = "AddAfter")]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        self.add_with(key, AddOptions::new().after(delay))
    }

    /// Adds a key with options: see [`AddOptions`].
    ///
    /// # Panics
    /// Like [`add_after`](Self::add_after).
    ///
    /// # Blocking
    /// Like [`add_after`](Self::add_after). The first call with a [priority](AddOptions::priority) other than NORMAL also allocates some 20
    /// KB in the key's shard, but visits no other key.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, DelayConflict, Priority, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_with("pod-1", AddOptions::new().priority(Priority::HIGH));
    /// // When it was quiet for 200 ms:
    /// let quiet =
    ///     AddOptions::new().after(Duration::from_millis(200)).conflict(DelayConflict::Replace);
    /// queue.add_with("Cargo.toml", quiet);
    /// assert_eq!((queue.len(), queue.delayed_len()), (1, 1));
    /// ```
    #[doc(alias = "AddWithOpts")]
    pub fn add_with(&self, key: K, options: AddOptions) -> Added {
        Shared::add_with(&self.shared, key, options)
    }

    /// Counts a failure of a key, and adds it after the delay that the queue's [limiter](crate::WorkQueueBuilder::rate_limiter) chooses.
    /// For an event, use [`add`](Self::add).
    ///
    /// This is an [`add_after`](Self::add_after) with the delay that [`when`](crate::rate_limiter::RateLimiter::when) returns. The failure
    /// counts even if an earlier delay stands, and even after a shut-down. A worker that holds the key calls [`retry`](Item::retry)
    /// instead.
    ///
    /// Until the delay expires, the key is not queued, so it counts in [`delayed_len`](Self::delayed_len) and not in [`len`](Self::len).
    ///
    /// # Panics
    /// Like [`add_after`](Self::add_after), and if the limiter panics, in which case nothing has changed. When `Hash`, `Eq` or a function
    /// of the groups panics, a limiter of your own has already counted the failure.
    ///
    /// # Blocking
    /// Like [`add_after`](Self::add_after), plus the time that the limiter takes.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, Driver, WorkQueue};
    /// // so that no delay expires here
    /// let queue = WorkQueue::builder().driver(Driver::Manual).build();
    /// assert_eq!(queue.add_rate_limited("pod-1"), Added::Delayed, "by 5 ms");
    /// assert_eq!(
    ///     queue.add_rate_limited("pod-1"),
    ///     Added::Coalesced,
    ///     "10 ms: the earlier one stands"
    /// );
    /// assert_eq!(queue.num_requeues(&"pod-1"), 2);
    /// queue.forget(&"pod-1");
    /// assert_eq!(queue.num_requeues(&"pod-1"), 0);
    /// assert_eq!(queue.delayed_len(), 1, "the delay stands");
    /// ```
    #[doc(alias = "AddRateLimited")]
    pub fn add_rate_limited(&self, key: K) -> Added {
        self.add_with(key, AddOptions::new().rate_limited())
    }

    /// Forgets the failures of a key, so that its next failure counts as the first. The key's delay stands: see [`cancel`](Self::cancel).
    ///
    /// A worker that holds the key calls [`succeed`](Item::succeed) instead. The key may be of any type that is [`Equivalent`] to `K`, see
    /// [`cancel`](Self::cancel). By default the queue counts failures itself: `Equivalent` then runs under a lock, so it must not use this
    /// queue. A limiter of your own needs a key of type `K`, which this call creates: if `K` is `String`, a `&str` costs a `String`. A type
    /// of your own must therefore be `Clone`, and convert into `K`.
    ///
    /// # Panics
    /// If `Hash`, `Eq`, the drop of the key or a limiter of your own panics. When `Hash` or `Eq` panics, nothing has changed, and when the
    /// drop panics, the key is forgotten.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_rate_limited("pod-1"); // counts a failure
    /// queue.forget(&"pod-1");
    /// assert_eq!(queue.num_requeues(&"pod-1"), 0);
    /// ```
    #[doc(alias = "Forget")]
    pub fn forget<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.shared.forget(key);
    }

    /// The number of a key's failures since they were last forgotten, as the queue's limiter counts them: its rate-limited adds and its
    /// retries.
    ///
    /// A worker that holds the key calls [`Item::num_requeues`] instead. The same holds for the key's type as in [`forget`](Self::forget).
    ///
    /// # Panics
    /// Like [`forget`](Self::forget).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_rate_limited("pod-1");
    /// queue.add_rate_limited("pod-1");
    /// assert_eq!(queue.num_requeues(&"pod-1"), 2);
    /// ```
    #[doc(alias = "NumRequeues")]
    #[must_use]
    pub fn num_requeues<Q>(&self, key: &Q) -> usize
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.shared.num_requeues(key)
    }

    /// Drops a key's delays: the [caller's and the holder's](crate::DelayConflict). Returns whether the key had one.
    ///
    /// The key may be of any type that is [`Equivalent`] to `K`: `K` itself, or a type that `K` borrows as, so that a `&str` finds a
    /// `String`. A type of your own may be, too, for example so that a pair of `&str` finds a pair of `String`. It must have the same
    /// `Hash` as the key in the queue, or the call may not find the key. `Equivalent` runs under a lock, so it must not use this queue. If
    /// it does, a debug build panics, and a release build deadlocks.
    ///
    /// A key that is queued or processing stays so. `false` may also mean that the delay has just expired, and the key is queued. With
    /// [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for a retry takes effect now.
    ///
    /// # Panics
    /// If `Hash` or `Equivalent` (as a rule `Eq` and `Borrow`) panics, in which case nothing has changed, or if the drop of the key or an
    /// [observer](crate::observe::Observer#panics) panics, in which case the delay is dropped.
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
    /// With a type of your own:
    /// ```
    /// use keyqueue::{Equivalent, WorkQueue};
    /// use std::time::Duration;
    ///
    /// #[derive(Hash, PartialEq, Eq, Clone)]
    /// struct Pod(String, String); // namespace, name
    ///
    /// #[derive(Hash)] // as `Pod`: a `String` and its `str` have the same hash
    /// struct PodRef<'a>(&'a str, &'a str);
    ///
    /// impl Equivalent<Pod> for PodRef<'_> {
    ///     fn equivalent(&self, pod: &Pod) -> bool {
    ///         (self.0, self.1) == (&pod.0, &pod.1)
    ///     }
    /// }
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_after(Pod("kube-system".into(), "dns".into()), Duration::from_secs(60));
    /// assert!(queue.cancel(&PodRef("kube-system", "dns")));
    /// ```
    pub fn cancel<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.shared.cancel(key)
    }

    /// Takes a key back: a queued key leaves the queue, and a key that is processing and was added again does not come back when its holder
    /// is done. The key's delays are dropped. Returns whether the call found any of these.
    ///
    /// A holder keeps its key, and its hand-out goes on. The call only takes the later add back, so [`Item::is_dirty`] is false again. That
    /// add may have woken a task that waits in [`Item::until_dirty`]; if this call comes before the task's next poll, the task waits again.
    /// Failures stay counted (see [`forget`](Self::forget)). With [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waits for
    /// the delay is taken back with it. An add that comes after this call is a new one.
    ///
    /// This is one step, even with shards, priorities and groups. `false` may also mean that a getter has just taken the key, or that its
    /// holder is done. The call frees no place in a full group, because the [limit](crate::GroupLimits::max_processing) of a
    /// group counts keys that are processing. The call works after a shut-down too, and if it takes the last key back, a drain or a wait
    /// for an idle queue ends. [`Stats::taken`] counts the queued keys and later adds that calls took back.
    ///
    /// The key's `Hash` and [`Equivalent`] must agree with `K`'s `Hash` and `Eq`, see [`cancel`](Self::cancel).
    ///
    /// # Panics
    /// Like [`cancel`](Self::cancel).
    ///
    /// # Blocking
    /// One lock for some tens of nanoseconds, however many keys are queued.
    ///
    /// # Memory ordering
    /// The adds that this call takes back *happen-before* its return. The next hand-out of the key sees what happened before this call.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::<String>::new();
    /// queue.add("pod-1".into());
    /// let item = queue.get().unwrap();
    /// queue.add_all(["pod-1", "pod-2"].map(String::from));
    /// assert!(queue.remove("pod-2"), "it was queued");
    /// assert!(queue.remove("pod-1"), "it was to be queued again");
    /// assert!(!queue.remove("pod-1"), "nothing is left to take back");
    /// item.done();
    /// assert_eq!((queue.len(), queue.processing_len()), (0, 0));
    /// ```
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.shared.remove(key)
    }

    /// Takes all delays out, and returns their keys, earliest first, each with the time that was left and its priority. If a key has a
    /// [caller's and a holder's delay](crate::DelayConflict), both are taken, and the earlier one is returned.
    ///
    /// Call this after a shut-down, to keep the delays that it has cut off. The call works before a shut-down too. A key that is queued or
    /// processing stays so, and failures stay counted. With [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for a
    /// delay is taken with it.
    ///
    /// The result may or may not include delays that other threads set meanwhile.
    ///
    /// # Panics
    /// If `K`'s `Clone` panics, in which case the call takes nothing. The call clones the delayed keys under the lock, so `Clone` must not
    /// use this queue. It catches panics of the keys' drops, and [counts](crate::Stats::caught_panics) them.
    ///
    /// # Blocking
    /// Visits all keys, and holds the lock for some ten microseconds at a time, in between which other calls can take it.
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
    /// let left: Vec<_> =
    ///     queue.take_delayed().iter().map(|taken| (taken.key, taken.left.as_secs())).collect();
    /// assert_eq!(left, [("soon", 5), ("later", 45)]);
    /// ```
    #[must_use = "these delays are gone from the queue"]
    pub fn take_delayed(&self) -> Vec<DelayedKey<K>> {
        self.shared.take_delayed()
    }

    /// Takes all queued and delayed keys that match out of the queue, and returns them. Use it when a replica no longer owns a part of the
    /// keys, or to drop the work of a tenant that is gone.
    ///
    /// Queued keys are returned in the order of the queue: with priorities or groups, by priority and then by age, and with several shards
    /// as [`Leftover::queued`] says. Delayed keys are returned earliest first, each with the time that was left. A key that is processing
    /// stays with its holder, and is listed in [`processing`](Leftover::processing) if it matches. If it was added again, it is queued when
    /// its holder is done, and a later call can take it out. Failures stay counted (see [`forget`](Self::forget)). With
    /// [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that waited for a delay is taken with it.
    ///
    /// This is not one step. The call takes every matching key that is queued or delayed during the whole call, and may or may not take a
    /// key that is added, handed out or moved meanwhile. It takes a key once, and the queue does not hand the key out for the adds before
    /// that. A key whose run ends meanwhile may be in `processing`, and once more there or in `queued` if it has been added again.
    ///
    /// The predicate runs under no lock, so it may use the queue. It gets a clone of each key that is queued, delayed or processing, once
    /// even if the key is queued and delayed. `Clone` runs under the lock.
    ///
    /// # Panics
    /// If the predicate or `K`'s `Clone` panics, or the drop of a clone for which the predicate is false. The call has taken nothing then.
    /// Later panics, of the keys' drops, are caught and [counted](crate::Stats::caught_panics).
    ///
    /// # Blocking
    /// Visits all keys, and holds the lock for some ten microseconds at a time, in between which other calls can take it.
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
    /// assert_eq!(taken.delayed[0].key, "a/3");
    /// assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
    /// ```
    #[must_use = "these keys are gone from the queue"]
    pub fn take_where(&self, matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        self.shared.take_where(matches)
    }
}

impl<K> WorkQueue<K> {
    /// Waits until a key is queued, and takes the first. Returns `None` if the queue is shut down and no key is queued.
    ///
    /// After `None`, a key may still come back: if it was added again while processing, before the shut-down, it is queued when its holder
    /// is done. The holder, or the thread that drains, should therefore call `get` again.
    ///
    /// The item borrows the queue. To move it to another thread or a task (`tokio::spawn`), see [`get_owned`](Self::get_owned).
    ///
    /// # Blocking
    /// Parks the thread. While keys come fast, in less than two microseconds each, it first spins for about a microsecond, and then yields
    /// a few times.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add(1);
    /// # queue.shut_down();
    /// while let Some(item) = queue.get() {
    ///     println!("working on {item}");
    /// }
    /// ```
    #[doc(alias = "Get")]
    #[inline]
    #[must_use = "an item that is dropped is done"]
    pub fn get(&self) -> Option<Item<'_, K>> {
        match Shared::try_take(&self.shared) {
            Some(claimed) => Some(Item::new(&self.shared, claimed)),
            None => self.wait_unless(&|| false).ok(),
        }
    }

    /// Takes the first queued key, without waiting.
    ///
    /// # Errors
    /// If no key is queued: [`ShutDown`](TryGetError::ShutDown) if the queue is shut down, [`Empty`](TryGetError::Empty) otherwise. `Empty`
    /// also if the queue holds its keys back: while it is [paused](Self::pause), has no token of its
    /// [pace](crate::WorkQueueBuilder::pace), or all their [groups](crate::GroupLimits) are held back.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{TryGetError, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    /// queue.add("pod-1");
    /// assert_eq!(*queue.try_get().unwrap(), "pod-1");
    /// queue.shut_down();
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    /// ```
    #[inline]
    pub fn try_get(&self) -> Result<Item<'_, K>, TryGetError> {
        match Shared::try_take(&self.shared) {
            Some(claimed) => Ok(Item::new(&self.shared, claimed)),
            None => Shared::try_get_slow(&self.shared).map(|claimed| Item::new(&self.shared, claimed)),
        }
    }

    /// Like [`get`](Self::get), but waits for at most this time. A timeout too long for the clock, such as `Duration::MAX`, means no
    /// timeout.
    ///
    /// # Blocking
    /// Like [`get`](Self::get).
    ///
    /// # Errors
    /// [`Timeout`](GetTimeoutError::Timeout) if no key was queued in time, [`ShutDown`](GetTimeoutError::ShutDown) if the queue is shut
    /// down and no key is queued.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{GetTimeoutError, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::<u32>::new();
    /// assert_eq!(
    ///     queue.get_timeout(Duration::from_millis(1)).unwrap_err(),
    ///     GetTimeoutError::Timeout
    /// );
    /// ```
    pub fn get_timeout(&self, timeout: Duration) -> Result<Item<'_, K>, GetTimeoutError> {
        match Shared::try_take(&self.shared) {
            Some(claimed) => Ok(Item::new(&self.shared, claimed)),
            None => self.get_parked(&Deadline::after(timeout), &|| false),
        }
    }

    /// The first queued key, if there is one, for a loop that then [waits](Self::wait_unless).
    #[inline]
    pub(crate) fn get_at_once(&self) -> Option<Item<'_, K>> {
        Shared::try_take(&self.shared).map(|claimed| Item::new(&self.shared, claimed))
    }

    /// Like [`get`](Self::get), for a loop that may have to end instead: if `leaves` says so before it parks or after it was woken, the
    /// error is `Timeout`.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_unless(&self, leaves: &dyn Fn() -> bool) -> Result<Item<'_, K>, GetTimeoutError> {
        self.get_parked(&Deadline::never(), leaves)
    }

    /// `get`, after it found no queued key.
    #[cold]
    fn get_parked(&self, deadline: &Deadline, leaves: &dyn Fn() -> bool) -> Result<Item<'_, K>, GetTimeoutError> {
        match Shared::get_parked(&self.shared, deadline, leaves) {
            Wait::Item(taken) => Ok(Item::new(&self.shared, Shared::hand_out(&self.shared, taken))),
            Wait::ShutDown => Err(GetTimeoutError::ShutDown),
            Wait::GaveUp | Wait::Park(_) | Wait::ParkBriefly(_) => Err(GetTimeoutError::Timeout),
        }
    }

    /// Like [`get`](Self::get), for a task. Resolves to `None` when the queue is shut down and no key is queued.
    ///
    /// Works on any executor, together with threads in [`get`](Self::get): the getter that has waited longest is woken first.
    ///
    /// If there is a queued key to take, the future is ready at its first poll. But after 128 such keys on one thread the next future gives
    /// way to other tasks, so that a loop whose work never waits does not keep its runtime from them: it wakes its task, and is pending
    /// once. It has taken no key then, and other getters may take what is queued. To find out whether a key is queued, therefore, call
    /// [`try_get`](Self::try_get) instead of polling a future once.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing, because its wake-up goes to the next getter. A woken future must be polled or dropped. A future
    /// that is neither, because its task never runs again or `std::mem::forget` leaked it, keeps the wake-up. A key may then stay queued
    /// until the next add wakes another getter, or until another getter's time is up.
    ///
    /// # Examples
    /// ```
    /// # let queue = keyqueue::WorkQueue::new();
    /// # queue.add(1);
    /// # queue.shut_down();
    /// # let work = async {
    /// while let Some(item) = queue.get_async().await {
    ///     println!("working on {item}");
    /// }
    /// # };
    /// # let mut work = std::pin::pin!(work);
    /// # let waker = std::task::Waker::noop();
    /// # assert!(std::future::Future::poll(work.as_mut(), &mut std::task::Context::from_waker(waker)).is_ready());
    /// ```
    pub fn get_async(&self) -> GetAsync<'_, K> {
        GetAsync::new(&self.shared)
    }

    /// Like [`get`](Self::get), with an item that owns a handle of the queue, and so is `'static` and may go to another thread or task.
    ///
    /// # Blocking
    /// Like [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::thread;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1");
    /// if let Some(item) = queue.get_owned() {
    ///     thread::spawn(move || println!("working on {item}")).join().unwrap();
    /// }
    /// assert_eq!(queue.processing_len(), 0);
    /// ```
    #[must_use = "an item that is dropped is done"]
    pub fn get_owned(&self) -> Option<OwnedItem<K>> {
        self.get().map(Item::into_owned)
    }

    /// Like [`try_get`](Self::try_get), with an item that owns a handle of the queue: see [`get_owned`](Self::get_owned).
    ///
    /// # Errors
    /// Like [`try_get`](Self::try_get).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// let item = queue.try_get_owned()?;
    /// std::thread::spawn(move || item.succeed()).join().unwrap();
    /// # Ok::<(), keyqueue::TryGetError>(())
    /// ```
    pub fn try_get_owned(&self) -> Result<OwnedItem<K>, TryGetError> {
        self.try_get().map(Item::into_owned)
    }

    /// Like [`get_async`](Self::get_async), with an item that owns a handle of the queue, so it may move into a task. A loop that starts a
    /// task for each key must bound the number of tasks itself, while [`Workers`](crate::Workers) bound it, and catch panics.
    ///
    /// # Cancel safety
    /// Like [`get_async`](Self::get_async).
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # async fn fetch(_: &str) {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let queue = WorkQueue::new();
    /// queue.add("https://example.org".to_owned());
    /// # queue.shut_down();
    /// let mut tasks = tokio::task::JoinSet::new();
    /// while let Some(url) = queue.get_owned_async().await {
    ///     tasks.spawn(async move {
    ///         fetch(&url).await; // no other task gets this key meanwhile
    ///         url.succeed();
    ///     });
    ///     if tasks.len() == 8 {
    ///         tasks.join_next().await;
    ///     }
    /// }
    /// tasks.join_all().await;
    /// assert!(queue.is_empty() && queue.processing_len() == 0);
    /// # }
    /// ```
    pub fn get_owned_async(&self) -> impl Future<Output = Option<OwnedItem<K>>> + Unpin + use<'_, K> {
        let mut get = self.get_async();
        poll_fn(move |cx| Pin::new(&mut get).poll(cx).map(|item| item.map(Item::into_owned)))
    }

    /// Waits until a key is queued, and takes up to `max` keys, which then end together: see [`Batch`]. The batch is empty if the queue is
    /// shut down and no key is queued, or if `max` is 0.
    ///
    /// The call releases the lock after every 256 keys (16 with a limit for groups, and each one with several shards), so other getters may
    /// take keys in between.
    ///
    /// # Blocking
    /// Like [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(0..10);
    /// let batch = queue.get_batch(4); // waits for the first, and takes what else is there
    /// assert_eq!(batch.iter().map(|item| *item.key()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    /// batch.succeed();
    /// ```
    pub fn get_batch(&self, max: usize) -> Batch<'_, K> {
        match (max > 0).then(|| self.get()).flatten() {
            Some(first) => self.batch_from(first, max),
            None => Batch::new(Vec::new()),
        }
    }

    /// Like [`get_batch`](Self::get_batch), for a task.
    ///
    /// # Cancel safety
    /// Like [`get_async`](Self::get_async).
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(0..10);
    /// let batch = queue.get_batch_async(4).await;
    /// assert_eq!(batch.len(), 4);
    /// # });
    /// ```
    pub fn get_batch_async(&self, max: usize) -> impl Future<Output = Batch<'_, K>> + Unpin + use<'_, K> {
        let mut get = self.get_async();
        poll_fn(move |cx| {
            if max == 0 {
                return Poll::Ready(Batch::new(Vec::new()));
            }
            let first = ready!(Pin::new(&mut get).poll(cx));
            Poll::Ready(first.map_or_else(|| Batch::new(Vec::new()), |first| self.batch_from(first, max)))
        })
    }

    /// The batch of an item, and of what else is queued.
    pub(crate) fn batch_from<'q>(&'q self, first: Item<'q, K>, max: usize) -> Batch<'q, K> {
        // The room is allocated here, so that the critical section allocates nothing.
        let room = max.min(self.len().saturating_add(1));
        let mut items = Vec::with_capacity(room);
        items.push(first);
        let mut waited = Vec::with_capacity(if self.shared.is_observed() { room } else { 0 });
        self.shared.take_many(room - 1, |taken| {
            if waited.capacity() > 0 {
                waited.push(taken.waited());
            }
            items.push(Item::new_quietly(&self.shared, taken.claimed));
        });
        if panicking() {
            items.iter().for_each(Item::note_unwinding);
        }
        waited.into_iter().for_each(|waited| self.shared.tell_handed_out(waited));
        Batch::new(items)
    }

    /// Like [`get_batch`](Self::get_batch), with items that end one by one.
    ///
    /// # Blocking
    /// Like [`get`](Self::get).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(0..10);
    /// let items = queue.get_many(4); // waits for the first, and takes what else is there
    /// assert_eq!(items.iter().map(|item| *item.key()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    /// ```
    #[must_use = "an item that is dropped is done"]
    pub fn get_many(&self, max: usize) -> Vec<Item<'_, K>> {
        self.get_batch(max).into_items()
    }

    /// The number of queued keys, without those that are processing. A snapshot, read without the lock, so it orders no memory accesses.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-2", "pod-1"]);
    /// let _item = queue.get();
    /// assert_eq!(queue.len(), 1);
    /// ```
    #[doc(alias = "Len")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether no key is queued. A snapshot.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// let _item = queue.get();
    /// assert!(queue.is_empty()); // the key is processing
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of keys that are processing: handed out, and not done. A snapshot.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add("pod-1");
    /// let _item = queue.get();
    /// assert_eq!(queue.processing_len(), 1);
    /// ```
    #[must_use]
    pub fn processing_len(&self) -> usize {
        self.shared.processing_len()
    }

    /// The number of keys that have a delay. Such a key may also be queued or processing. Delays that a shut-down has cut off count until
    /// they are [taken](Self::take_delayed). A snapshot. [`delayed_keys`](crate::Inspect::delayed_keys) lists the keys.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_after("pod-1", Duration::from_secs(60));
    /// assert_eq!(queue.delayed_len(), 1);
    /// ```
    #[must_use]
    pub fn delayed_len(&self) -> usize {
        self.shared.delayed_len()
    }

    /// Adds the keys whose delays have expired by now, and returns the number of these delays. Needed only with
    /// [`Driver::Manual`](crate::Driver::Manual).
    ///
    /// Returns 0 after a shut-down, which cuts off all delays. At its end the call reports, if the observer has an
    /// [interval](crate::observe::Observer::interval) and that has passed.
    ///
    /// # Panics
    /// If an [observer](crate::observe::Observer#panics) panics. The keys of its events are added, and a later call adds the other keys
    /// that are due. If the drop of a key that has cooled down panics, that is caught and [counted](crate::Stats::caught_panics).
    ///
    /// # Blocking
    /// Takes the lock for a few microseconds at a time, until it has added each key whose delay had expired when the call began.
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
        Shared::turn(&self.shared)
    }

    /// Refuses adds from now on. The queue still hands out queued keys, and a get that finds none returns that the queue is shut down.
    ///
    /// If a key was added again while processing, before the shut-down, it still comes back when its holder is done. By then all other
    /// getters may have ended, but a worker that calls `get` again after each `done` processes the key. See also the crate's page, "Traps".
    ///
    /// A [`retry`](Item::retry) or requeue of an item is an add, so the queue refuses it too, with [`Added::Rejected`]. The queue keeps no
    /// list of such keys, because their holders have them; [`Workers`](crate::Workers) return them in [`Leftover::refused`].
    ///
    /// A second call only releases the callers that wait in [`shut_down_with_drain`](Self::shut_down_with_drain).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{Added, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1");
    /// queue.shut_down();
    /// assert_eq!(queue.add("pod-2"), Added::Rejected);
    /// assert_eq!(*queue.get().unwrap(), "pod-1"); // what is queued is handed out
    /// assert!(queue.get().is_none());
    /// ```
    #[doc(alias = "stopCh")]
    #[doc(alias = "ShutDown")]
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }

    /// Like [`shut_down`](Self::shut_down), and returns when no key is queued or processing.
    ///
    /// Any number of threads may drain at the same time, and a later plain `shut_down` releases them all. Meanwhile the queue refuses
    /// retries and requeues, as [`shut_down`](Self::shut_down) says.
    ///
    /// # Blocking
    /// Waits until workers have processed all keys, so some worker must keep calling `get`. A thread that holds an item of this queue waits
    /// forever, because the drain waits for that item.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::thread;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_all(0..10);
    /// thread::scope(|scope| {
    ///     scope.spawn(|| while queue.get().is_some() {});
    ///     queue.shut_down_with_drain();
    ///     assert_eq!((queue.len(), queue.processing_len()), (0, 0));
    /// });
    /// ```
    #[doc(alias = "ShutDownWithDrain")]
    pub fn shut_down_with_drain(&self) {
        let _how = Shared::drain(&self.shared, &Deadline::never());
    }

    /// Like [`shut_down_with_drain`](Self::shut_down_with_drain), but waits for at most this time. A timeout too long for the clock, such
    /// as `Duration::MAX`, means no timeout.
    ///
    /// # Errors
    /// [`DrainTimeoutError`] if a key was queued or processing at the time-out. If a plain `shut_down` released the drain, this is `Ok`.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1"); // and no worker
    /// assert!(queue.shut_down_with_drain_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn shut_down_with_drain_timeout(&self, timeout: Duration) -> Result<(), DrainTimeoutError> {
        let drained = Shared::drain(&self.shared, &Deadline::after(timeout));
        drained.map_err(|left| DrainTimeoutError { queued: left.queued, processing: left.processing })
    }

    /// Like [`shut_down_with_drain`](Self::shut_down_with_drain), for a task. The first poll shuts the queue down. The future resolves when
    /// no key is queued or processing, or when a later plain [`shut_down`](Self::shut_down) releases it.
    ///
    /// For a deadline, wrap it in your runtime's `timeout`.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait. If it was polled, the queue stays shut down.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.shut_down_with_drain_async().await; // no key is queued or processing
    /// # });
    /// ```
    pub fn shut_down_with_drain_async(&self) -> ShutDownWithDrain<'_, K> {
        ShutDownWithDrain::new(&self.shared)
    }

    /// Hands nothing out until [`resume`](Self::resume), for example while what the handlers need is down. Adds and delays go on.
    ///
    /// * Keys stay queued, keep their order, and count as before; calls that take keys out, such as [`take_where`](Self::take_where), find
    ///   them. Getters wait, and so do workers, at no cost. [`try_get`](Self::try_get) returns [`Empty`](TryGetError::Empty), and
    ///   [`get_many`](Self::get_many) and [`get_batch`](Self::get_batch) return with what they have taken before.
    /// * What was handed out goes on, and the call does not wait for it: see [`processing_len`](Self::processing_len). A handler may pause
    ///   its queue.
    /// * Pauses are not counted: after two, one `resume` is enough.
    /// * A shut-down ends the pause, and a later call changes nothing. So do drains and stops, which otherwise might wait forever. (A
    ///   [pause of a group](crate::Group::pause) stays.) [`wait_idle`](Self::wait_idle), in contrast, waits for the `resume`.
    ///
    /// Between the return of this call and the `resume` no key is taken, but a get that has taken its key before may return it later. In a
    /// lock-free queue, each get that began before this call has returned may still take one key.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{TryGetError, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.pause();
    /// queue.add("pod-1");
    /// assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    /// assert_eq!(queue.len(), 1);
    /// queue.resume();
    /// assert_eq!(*queue.try_get().unwrap(), "pod-1");
    /// ```
    pub fn pause(&self) {
        self.shared.pause();
    }

    /// Ends a [pause](Self::pause), and wakes getters for the keys that may be handed out. Does nothing if the queue is not paused.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::WorkQueue;
    /// # use std::thread;
    /// let queue = WorkQueue::new();
    /// queue.pause();
    /// queue.add("pod-1");
    /// thread::scope(|scope| {
    ///     let worker = scope.spawn(|| queue.get().map(|item| *item.key())); // waits
    ///     queue.resume();
    ///     assert_eq!(worker.join().unwrap(), Some("pod-1"));
    /// });
    /// ```
    pub fn resume(&self) {
        self.shared.end_pause();
    }

    /// Whether the queue is [paused](Self::pause). A snapshot.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.pause();
    /// assert!(queue.is_paused());
    /// queue.shut_down(); // which ends the pause
    /// assert!(!queue.is_paused());
    /// ```
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.is_paused()
    }

    /// Waits until the queue is idle, which means that no key is queued, processing or delayed. After a shut-down delays do not count, as
    /// they never expire.
    ///
    /// Use this when processing a key adds more keys, which a drain would refuse: add the first keys, wait here, then drain. If other
    /// threads add keys too, the return only means that the queue was idle once.
    ///
    /// # Blocking
    /// Waits for the workers, and for delays. A thread that holds an item of this queue waits forever, because the queue is not idle while
    /// it holds the item.
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
        let _idle = Shared::wait_idle(&self.shared, &Deadline::never());
    }

    /// Like [`wait_idle`](Self::wait_idle), but waits for at most this time. A timeout too long for the clock, such as
    /// `Duration::MAX`, means no timeout.
    ///
    /// # Errors
    /// [`WaitIdleTimeoutError`] if the queue was not idle by then.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// assert!(queue.wait_idle_timeout(Duration::from_millis(1)).is_ok());
    /// queue.add("pod-1");
    /// assert!(queue.wait_idle_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn wait_idle_timeout(&self, timeout: Duration) -> Result<(), WaitIdleTimeoutError> {
        Shared::wait_idle(&self.shared, &Deadline::after(timeout))
    }

    /// Like [`wait_idle`](Self::wait_idle), for a task.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait, and changes nothing in the queue.
    ///
    /// # Examples
    /// ```
    /// # futures_executor::block_on(async {
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.wait_idle_async().await; // no key is queued, processing or delayed
    /// # });
    /// ```
    pub fn wait_idle_async(&self) -> WaitIdle<'_, K> {
        WaitIdle::new(&self.shared)
    }

    /// Resolves when the queue is shutting down, at once if it already is, so that a long task may stop early. A handler, which has an
    /// item, calls [`Item::until_shutting_down`] instead.
    ///
    /// Works on any executor, and any number of these futures may wait at the same time.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait, and changes nothing in the queue.
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

    /// Whether the queue is shutting down, and so refuses adds. [`until_shutting_down`](Self::until_shutting_down) waits for this.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// queue.shut_down();
    /// assert!(queue.shutting_down());
    /// ```
    #[doc(alias = "ShuttingDown")]
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.shared.is_shutting_down()
    }

    /// The number of shards: see [`WorkQueueBuilder::shards`](crate::WorkQueueBuilder::shards).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u64>::builder().shards(5).build();
    /// assert_eq!(queue.shards(), 8);
    /// ```
    #[must_use]
    pub fn shards(&self) -> usize {
        self.shared.settings.shards
    }

    /// A snapshot of the queue's counters, consistent in each [shard](Self::shards).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-2", "pod-1"]);
    /// let stats = queue.stats();
    /// assert_eq!((stats.len, stats.pushed, stats.coalesced), (2, 2, 1));
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Frees the memory that the queue's keys do not need.
    ///
    /// As keys are processed, each [shard](Self::shards) frees memory by itself, but keeps some, so that a steady set of keys allocates
    /// nothing: about two hundred kilobytes, or four hundred if keys had delays or failures. [Priorities](crate::Priority) add up to six
    /// hundred, and [groups](crate::WorkQueueBuilder::fair_by) about half a byte for each key of the largest burst. This call frees that
    /// memory too, and the room for [`capacity`](crate::WorkQueueBuilder::capacity). It also
    /// [shrinks](crate::rate_limiter::RateLimiter::shrink_to_fit) a limiter that counts failures itself. A lock-free queue frees the keys
    /// that it keeps for each thread, but its map keeps its table.
    ///
    /// Keys do not move. The queue stores up to 63 keys in a chunk (2 KiB of `u64`, 4 KiB of larger keys, and 4 more if keys have had
    /// delays or failures), and keeps a chunk while it contains a key.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(0..10_000);
    /// while queue.try_get().is_ok() {}
    /// queue.shrink_to_fit(); // a queue keeps some memory for the next burst
    /// ```
    pub fn shrink_to_fit(&self) {
        self.shared.shrink();
    }
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Extend<K> for WorkQueue<K> {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        self.add_all(keys);
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    /// Shows the name and the [`Stats`], for debugging a stuck process, but no keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.shared.settings.name).field("stats", &self.stats()).finish()
    }
}
