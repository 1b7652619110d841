//! How a key is added: at once or after a delay, and what happens to a delay that it already has.

use crate::time::{Nanos, nanos};
use std::time::Duration;

/// How [`WorkQueue::add_with`](crate::WorkQueue::add_with) adds a key. By default it does so at once, like [`add`](crate::WorkQueue::add).
///
/// # Examples
/// Debounce: look at a file when there was no event for it for 200 ms.
/// ```
/// use keyqueue::{AddOptions, DelayConflict, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// let quiet =
///     AddOptions::new().after(Duration::from_millis(200)).conflict(DelayConflict::Replace);
/// for _event in 0..3 {
///     queue.add_with("Cargo.toml", quiet);
/// }
/// assert_eq!(queue.delayed_len(), 1);
/// ```
#[doc(alias = "AddOpts")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use = "options do nothing until `add_with`"]
pub struct AddOptions {
    /// `None` means that the caller set no delay, which counts as a delay of zero, but not as a retry.
    pub(crate) delay: Option<Duration>,
    pub(crate) conflict: DelayConflict,
    pub(crate) at_most: Option<Nanos>,
    pub(crate) rate_limited: bool,
    /// `None` means NORMAL for an add, and the item's priority for a holder.
    pub(crate) priority: Option<Priority>,
    /// Whether the limiter is not to be called, because it has panicked, or because the failure came after the last retry. The queue counts
    /// the failure itself then.
    pub(crate) skips_limiter: bool,
    /// Whether this failure of a holder came after the last retry.
    pub(crate) is_past_last: bool,
    /// Whether the limiter does not count this failure of a holder.
    pub(crate) is_uncounted: bool,
    /// Whether a requeue pauses the group of its key for the delay.
    pub(crate) pauses_group: bool,
}

/// The delay of a retry if the queue's limiter panics.
pub(crate) const WITHOUT_LIMITER: Duration = Duration::from_millis(50);

/// How urgent a key is. The higher number comes first, and keys of one priority are first in, first out.
///
/// A plain [`add`](crate::WorkQueue::add) counts as [`NORMAL`](Self::NORMAL). The keys of one priority are a *level*. Of several adds of a
/// key the highest priority counts:
/// * Queued: an add with a higher priority moves the key to the end of that level, and a lower one changes nothing.
/// * Processing: when the key is done, it is queued at the highest priority of the adds meanwhile.
/// * Delayed: when the delay expires, the key takes the highest priority of the calls that set or moved the delay.
///
/// Lower priorities do not starve, because of 16 hand-outs one goes to the lower levels that wait, in turn. With any number of
/// [shards](crate::how_it_works#several-shards), the last of `n` keys of lower levels that wait comes within `16 * (n + 1) + 4 * (shards +
/// getters)` hand-outs of the whole queue, unless a [group](crate::WorkQueueBuilder::fair_by) is full. In a
/// [strict](crate::WorkQueueBuilder::strict_priorities) queue they may starve.
///
/// With several shards, a getter chooses the shard whose first key has the highest priority, and takes up to 4 keys there. A key therefore
/// waits for at most about `4 * (shards + getters)` hand-outs of lower priorities, and, unless the queue is strict, also for their turns,
/// which are one hand-out of 16.
///
/// The values are the same as in controller-runtime's priority queue.
///
/// With the feature `serde`: `Serialize` and `Deserialize`, as the number.
///
/// # Examples
/// ```
/// use keyqueue::{AddOptions, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add("resync");
/// queue.add_with("somebody waits", AddOptions::new().priority(Priority::HIGH));
/// queue.add_with("a little sooner", AddOptions::new().priority(Priority(1)));
/// let order: Vec<_> = (0..3).map(|_| *queue.get().unwrap()).collect();
/// assert_eq!(order, ["somebody waits", "a little sooner", "resync"]);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Priority(pub i8);

impl Priority {
    /// For work that can wait, such as the first listing of all objects.
    pub const LOW: Self = Self(-100);
    /// The priority of a plain add.
    pub const NORMAL: Self = Self(0);
    /// For urgent work, such as a request of a user who waits.
    pub const HIGH: Self = Self(100);
}

/// What a call that sets a delay does with an earlier delay of the key.
///
/// A key has at most two delays, each of which was set by somebody else:
///
/// * A *caller's* is that of the last call of the queue that has set or moved it, such as [`add_after`](crate::WorkQueue::add_after) or
///   [`add_rate_limited`](crate::WorkQueue::add_rate_limited), even from within a handler.
/// * A *holder's* is that of the last hand-out whose end has decided when the key comes back, by [`retry`](crate::Item::retry),
///   [`requeue_after`](crate::Item::requeue_after), [`requeue_with`](crate::Item::requeue_with) or the [`Outcome`](crate::Outcome) that
///   stands for one of them. The newest decision counts: the end of a later hand-out replaces this delay or, if the work is over
///   ([`succeed`](crate::Item::succeed), [`give_up`](crate::Item::give_up)), drops it. A bare drop of the item decides nothing, so the
///   delay stays. No holder ever touches a caller's delay.
///
/// When the earlier of the two expires, the queue adds the key, and the later one goes on, unless it is past as well, in which case one add
/// does for both. The variants say what a caller does with the two. In `requeue_with`, [`KeepExisting`](Self::KeepExisting) keeps the delay
/// that the holder of an earlier hand-out has set, and the other two replace it.
///
/// # Examples
/// ```
/// use keyqueue::{AddOptions, Clock, DelayConflict, Driver, WorkQueue};
/// use std::time::Duration;
///
/// let due = |conflict| {
///     let (clock, _time) = Clock::mock();
///     let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
///     for seconds in [2, 1, 3] {
///         queue.add_with(
///             "pod-1",
///             AddOptions::new().after(Duration::from_secs(seconds)).conflict(conflict),
///         );
///     }
///     queue.take_delayed()[0].left.as_secs()
/// };
/// assert_eq!(due(DelayConflict::EarliestWins), 1);
/// assert_eq!(due(DelayConflict::Replace), 3);
/// assert_eq!(due(DelayConflict::KeepExisting), 2);
/// ```
#[doc(alias = "insert")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelayConflict {
    /// The caller's delay with the earlier deadline counts, be it the old one or the new one, as in client-go. A holder's delay stays.
    #[default]
    EarliestWins,
    /// The new deadline counts, even if it is later, and both old delays are gone. A new delay of zero drops them, and adds the key at
    /// once.
    ///
    /// If calls move the deadline again and again before it is reached, the key is never handed out, unless
    /// [`at_most`](AddOptions::at_most) ends that.
    Replace,
    /// The old deadline counts, whoever has set it, and the call changes nothing, even with a new delay of zero. If there is only a
    /// holder's delay, it becomes a caller's as well, because a hand-out that is under way may drop the holder's, and the add must not be
    /// lost then.
    KeepExisting,
}

/// What [`add`](crate::WorkQueue::add) does with a key that waits for its retry. Set by
/// [`WorkQueueBuilder::delayed_add`](crate::WorkQueueBuilder::delayed_add).
///
/// A *retry* is a delay that was set for a failure: by [`retry`](crate::Item::retry), by an [`Outcome`](crate::Outcome) that fails, or by
/// [`add_rate_limited`](crate::WorkQueue::add_rate_limited), with which handlers in client-go's style report their failures. Any other
/// delay is a date, set by [`add_after`](crate::WorkQueue::add_after) or by a requeue. An add meets dates in the same way with each policy:
/// the key is queued now, and is added once more at the date, unless the hand-out in between decides otherwise, as its
/// [`requeue_after`](crate::Item::requeue_after) replaces the date of an earlier requeue.
///
/// # Examples
/// ```
/// use keyqueue::rate_limiter::ItemExponentialFailure;
/// use keyqueue::{DelayedAdd, WorkQueue};
/// use std::time::Duration;
///
/// let queued_and_delayed = |policy| {
///     let minute = ItemExponentialFailure::new(Duration::from_secs(60), Duration::from_secs(600));
///     let queue = WorkQueue::builder().delayed_add(policy).rate_limiter(minute).build();
///     queue.add("pod-1");
///     queue.get().unwrap().retry();
///     queue.add("pod-1");
///     (queue.len(), queue.delayed_len())
/// };
/// assert_eq!(queued_and_delayed(DelayedAdd::Independent), (1, 1));
/// assert_eq!(queued_and_delayed(DelayedAdd::Promote), (1, 0));
/// assert_eq!(queued_and_delayed(DelayedAdd::Strict), (0, 1));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DelayedAdd {
    /// Both take effect, as in client-go: the key is queued now, and added again when its delay expires, unless the hand-out in between
    /// succeeds, gives up or fails anew.
    #[default]
    Independent,
    /// The add replaces the retry, and the key is queued now, as in controller-runtime, whose adds replace dates as well.
    Promote,
    /// The add waits for the retry, so no add bypasses a backoff. [`cancel`](crate::WorkQueue::cancel) lets the add take effect, and so
    /// does the end of a hand-out that drops the retry, or that requeues the key in its place.
    Strict,
}

/// What happens to a key whose holder panics; set by [`WorkQueueBuilder::on_panic`](crate::WorkQueueBuilder::on_panic).
///
/// In both cases nobody holds the key any more, and the queue [counts](crate::Stats::panics) the panic.
///
/// The policy applies to an item that is dropped while its thread unwinds. It does not apply if the holder calls
/// [`done`](crate::Item::done) or the like, even while the thread unwinds, nor to an item that a thread gets while it already unwinds, in a
/// `Drop` that calls [`get`](crate::WorkQueue::get): dropping this item is `done`.
///
/// # Examples
/// ```
/// use keyqueue::{OnPanic, WorkQueue};
///
/// let queue = WorkQueue::<u32>::builder().on_panic(OnPanic::Retry).build();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPanic {
    /// The key is done, as without a panic, so it comes back only if it was added meanwhile.
    Done,
    /// The key has failed, so it comes back after the limiter's delay, as by [`retry`](crate::Item::retry). After a shut-down it does not
    /// come back: [`Workers`](crate::Workers) then return it in [`Leftover::refused`](crate::Leftover::refused), but the queue itself keeps
    /// no list of such keys.
    Retry,
}

impl AddOptions {
    /// Adds the key at once.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_with("pod-1", AddOptions::new()); // as `add`
    /// ```
    pub const fn new() -> Self {
        Self {
            delay: None,
            conflict: DelayConflict::EarliestWins,
            at_most: None,
            rate_limited: false,
            priority: None,
            skips_limiter: false,
            is_past_last: false,
            is_uncounted: false,
            pauses_group: false,
        }
    }

    /// Adds the key after this delay.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_with("pod-1", AddOptions::new().after(Duration::from_secs(60)));
    /// assert_eq!(queue.delayed_len(), 1);
    /// ```
    #[doc(alias = "After")]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Counts a failure, and adds the key after the delay of the queue's [limiter](crate::WorkQueueBuilder::rate_limiter). Together with
    /// [`after`](Self::after), the longer of the two delays counts.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_with("pod-1", AddOptions::new().rate_limited()); // as `add_rate_limited`
    /// assert_eq!(queue.num_requeues(&"pod-1"), 1);
    /// ```
    #[doc(alias = "RateLimited")]
    pub const fn rate_limited(mut self) -> Self {
        self.rate_limited = true;
        self
    }

    /// Adds the key with this [priority](Priority).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, Priority, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_all(["page-1", "page-2"]);
    /// queue.add_with("page-2", AddOptions::new().priority(Priority::HIGH)); // a user waits for it
    /// let item = queue.get().unwrap();
    /// assert_eq!((*item, item.priority()), ("page-2", Priority::HIGH));
    /// ```
    #[doc(alias = "Touch")]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Whether the priority is not NORMAL.
    #[inline]
    pub(crate) fn has_level(&self) -> bool {
        self.level() != Priority::NORMAL.0
    }

    #[inline]
    pub(crate) fn level(&self) -> i8 {
        match self.priority {
            Some(priority) => priority.0,
            None => Priority::NORMAL.0,
        }
    }

    /// Makes the delay at least this long.
    pub(crate) fn not_before(mut self, delay: Duration) -> Self {
        self.delay = self.delay.max(Some(delay));
        self
    }

    /// Called after a panic of the limiter: the delay is at least [`WITHOUT_LIMITER`], and the limiter is not called again.
    pub(crate) fn without_limiter(self) -> Self {
        Self { skips_limiter: true, ..self.not_before(WITHOUT_LIMITER) }
    }

    /// For a failure after the last retry: the delay is at least this one, whatever the limiter would say.
    pub(crate) fn past_last(self, delay: Duration) -> Self {
        Self { is_past_last: true, ..self.not_before(delay).without_limiter() }
    }

    /// Chooses between this call's delay and an earlier delay of the key.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, DelayConflict, WorkQueue};
    /// use std::time::Duration;
    ///
    /// // When the file was quiet for 200 ms:
    /// let quiet =
    ///     AddOptions::new().after(Duration::from_millis(200)).conflict(DelayConflict::Replace);
    /// WorkQueue::new().add_with("Cargo.toml", quiet);
    /// ```
    pub const fn conflict(mut self, conflict: DelayConflict) -> Self {
        self.conflict = conflict;
        self
    }

    /// Ends a debounce: with [`Replace`](DelayConflict::Replace), calls move the deadline of a key back, but never later than this time
    /// after the first of them.
    ///
    /// The time counts from the first call with `at_most` since the key has a delay of a caller. The count ends with that delay, so the
    /// next such call begins anew
    /// * once the delay has expired, because the run that follows serves all calls until then,
    /// * and once it was dropped: by [`cancel`](crate::WorkQueue::cancel), by [`remove`](crate::WorkQueue::remove), by a call that takes
    ///   delayed keys out, or by `Replace` without a delay.
    ///
    /// An [`add`](crate::WorkQueue::add) queues the key at once and leaves the delay as it is, like any other date, so the count goes on,
    /// and the key comes back sooner rather than later. The same is true of what a [holder](DelayConflict) decides.
    ///
    /// Each call brings a bound of its own: the deadline comes after the call's delay, or at its `at_most` after the first call if that is
    /// earlier. If this time is past, as it is with an `at_most` of zero, the key is added at once. The bound also shortens the delay of a
    /// [limiter](Self::rate_limited). But a key that [cools down](crate::Item::cool_down) is held back until it has.
    ///
    /// `at_most` has no effect with another [`conflict`](Self::conflict), which moves no deadline back, nor in
    /// [`requeue_with`](crate::Item::requeue_with), where each delay is a new decision.
    ///
    /// # Examples
    /// Look at a file when there was no event for it for 200 ms, but at the latest a second after the first event:
    /// ```
    /// use keyqueue::{AddOptions, Clock, DelayConflict, Driver, WorkQueue};
    /// use std::time::Duration;
    ///
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// let ms = Duration::from_millis;
    /// let quiet = AddOptions::new().after(ms(200)).conflict(DelayConflict::Replace).at_most(ms(1000));
    /// for _event in 0..10 {
    ///     queue.add_with("Cargo.toml", quiet);
    ///     time.advance(ms(100));
    ///     queue.turn();
    /// }
    /// assert_eq!(queue.len(), 1); // after a second, though there was an event every 100 ms
    /// ```
    #[doc(alias = "debounce")]
    pub const fn at_most(mut self, time: Duration) -> Self {
        self.at_most = Some(Nanos::new(nanos(time)));
        self
    }
}
