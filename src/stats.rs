//! A consistent snapshot of a queue's counters.

use crate::machine::Delay;
use crate::order::GroupView;
use crate::time::time_left;
use crate::{GroupLimits, Priority};
use std::time::Duration;

/// A snapshot of a queue, from [`WorkQueue::stats`](crate::WorkQueue::stats).
///
/// All counters are of one moment. In a queue with several [shards](crate::WorkQueue::shards) each shard has its own moment, and `waiters`
/// and `drainers` are read last. The counters add up: `pushed + deferred == handed_out + taken + len +` the number of keys that are
/// processing and dirty. A delay counts as an add when it expires.
///
/// To debug a stuck process:
/// * `longest_running` grows: a worker hangs. [`processing_keys`](crate::Inspect::processing_keys) lists its key.
/// * `oldest_queued` grows while `waiters` is 0: there are too few workers. If it grows while workers are idle, groups are
///   [full](crate::GroupLimits::max_processing), and [`groups`](crate::Inspect::groups) says which, or hand-outs wait for the
///   pace: [`paced_for`](Self::paced_for).
/// * `delayed` and `failing` are high: keys wait for their backoff. [`delayed_keys`](crate::Inspect::delayed_keys) lists them.
/// * One key does not run: [`key`](crate::Inspect::key) says what it waits for.
/// * `next_deadline` stays zero: delays expire, but no thread adds their keys.
///
/// # Now
/// [`len`](Self::len), [`processing`](Self::processing), [`delayed`](Self::delayed), [`failing`](Self::failing),
/// [`waiters`](Self::waiters), [`drainers`](Self::drainers), [`shutting_down`](Self::shutting_down) are the keys and callers at this
/// moment, and rise and fall.
///
/// # Since the start
/// These numbers only rise. Adds: [`pushed`](Self::pushed), [`coalesced`](Self::coalesced), [`deferred`](Self::deferred),
/// [`rejected`](Self::rejected), [`full`](Self::full). Keys: [`handed_out`](Self::handed_out), [`given_up`](Self::given_up),
/// [`taken`](Self::taken). Delays and failures: [`delays`](Self::delays), [`expired`](Self::expired), [`retries`](Self::retries),
/// [`failures`](Self::failures). Faults: [`panics`](Self::panics), [`caught_panics`](Self::caught_panics),
/// [`driver_failures`](Self::driver_failures).
///
/// # Ages
/// [`oldest_queued`](Self::oldest_queued), [`longest_running`](Self::longest_running), [`unfinished_work`](Self::unfinished_work), in a
/// queue that [measures](crate::WorkQueueBuilder::measure); and [`next_deadline`](Self::next_deadline) and
/// [`paced_for`](Self::paced_for).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("pod-1");
/// let item = queue.get();
/// queue.add("pod-1");
/// let stats = queue.stats();
/// assert_eq!((stats.pushed, stats.deferred, stats.processing), (1, 1, 1));
/// # drop(item);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are queued.
    pub len: usize,
    /// Keys that are processing.
    pub processing: usize,
    /// Keys that have a delay, or two, or an add that is held back while the key [cools down](crate::Item::cool_down). They may also be
    /// queued or processing.
    pub delayed: usize,
    /// Keys that have failed since they last succeeded or were forgotten otherwise. They may also be queued, processing or delayed. A
    /// limiter of this crate with settings, as with [jitter](crate::rate_limiter::PerKey::jitter), counts failures itself, and this is the
    /// number of keys that it remembers; a shared one remembers those of all its users. With a limiter of your own the number is not known,
    /// and only keys count for which the limiter panicked.
    pub failing: usize,
    /// Idle workers, which are threads and tasks that wait for a key, in [`get`](crate::WorkQueue::get) or another call that gets keys. One
    /// that was woken no longer counts.
    pub waiters: usize,
    /// Threads and tasks that wait for the work to end, in [`shut_down_with_drain`](crate::WorkQueue::shut_down_with_drain),
    /// [`wait_idle`](crate::WorkQueue::wait_idle) or a call like these.
    pub drainers: usize,
    /// Whether the queue is shutting down, and so refuses adds.
    pub shutting_down: bool,
    /// Adds that queued their key at once. An add of a processing key counts in [`deferred`](Self::deferred) instead, even when its holder
    /// is done.
    pub pushed: u64,
    /// Adds that cause no further run, because the key was dirty already, or an earlier delay stands. Such an add may raise the priority.
    pub coalesced: u64,
    /// Adds of a processing key. The key is queued when its holder is done.
    pub deferred: u64,
    /// Adds after the shut-down.
    pub rejected: u64,
    /// Adds that were refused because the queue was [full](crate::Added::Full). An [`add_wait`](crate::WorkQueue::add_wait) is none.
    pub full: u64,
    /// Hand-outs.
    pub handed_out: u64,
    /// Delays that were set or moved.
    pub delays: u64,
    /// Delays that expired, and added their keys.
    pub expired: u64,
    /// Calls with a delay or with the limiter's delay, before the shut-down. A call counts even if it changed nothing. This is client-go's
    /// `workqueue_retries_total`, which counts the same under this name; [`failures`](Self::failures) counts failures alone.
    #[doc(alias = "retryMetrics")]
    pub retries: u64,
    /// Failures: calls with the limiter's delay, even after the shut-down.
    pub failures: u64,
    /// Keys that were [given up](crate::Item::give_up), even those that [come back](crate::WorkersBuilder::then_after) later.
    pub given_up: u64,
    /// Panics of holders while they processed a key, and of the limiter when a holder called it.
    pub panics: u64,
    /// Panics of your code that the queue has caught, after which the call in which they happened went on. They are panics of wakers, of
    /// observers in [`handed_out`](crate::observe::Observer::handed_out) and `driver_failed`, of a key's drop in
    /// [`take_where`](crate::WorkQueue::take_where) and [`stop`](crate::Workers::stop) and at the end of a
    /// [cool-down](crate::Item::cool_down), and of the limiter when a panic drops an item.
    pub caught_panics: u64,
    /// Failed attempts to start the driver thread, because the process was out of threads or memory. Delays are still set: see
    /// [`Driver::Thread`](crate::Driver::Thread).
    pub driver_failures: u64,
    /// Adds that were taken back: that of a queued key which [`take_where`](crate::WorkQueue::take_where),
    /// [`remove`](crate::WorkQueue::remove), or a stop or drain of [`Workers`](crate::Workers) has taken out, and that of a processing key
    /// which `remove` has taken back, or which has become a delay because the key [cools down](crate::Item::cool_down) after its run.
    pub taken: u64,
    /// How long the first queued key has waited. With more than a million keys a second, it may be one of the first 16 keys. Keys of
    /// [full](crate::GroupLimits::max_processing) groups count like others, so this grows if a tenant waits for its own
    /// keys. With more than 64 groups in one level, it is the oldest of those whose turns come first and of those that have been full for
    /// longest. `None` if no key is queued, none was measured, or the queue does not [measure](crate::WorkQueueBuilder::measure).
    pub oldest_queued: Option<Duration>,
    /// How long the oldest processing key has been processing, and never more. If the key was not measured, its time counts from the next
    /// measured key, or from the next call that reads ages. `None` if no key is processing, or the queue does not
    /// [measure](crate::WorkQueueBuilder::measure). This is client-go's `workqueue_longest_running_processor_seconds`.
    pub longest_running: Option<Duration>,
    /// The times of all processing keys, added up, which is zero if no key is processing. `None` if the queue does not
    /// [measure](crate::WorkQueueBuilder::measure). This is client-go's `workqueue_unfinished_work_seconds`.
    pub unfinished_work: Option<Duration>,
    /// The time until the earliest delay expires. It is zero if the delay has expired and its key is not added yet, `Duration::MAX` if it
    /// never expires, and `None` if there is no delay. After a caller moves or cancels a delay, this may show its old deadline for a while.
    /// The end of a [cool-down](crate::Item::cool_down) counts as a deadline while another key has a delay.
    pub next_deadline: Option<Duration>,
    /// The time until the [pace](crate::WorkQueueBuilder::pace) allows the next hand-out, whether a key is queued or not. `Duration::MAX` if
    /// it never does. `None` if it allows one now, or the queue has no pace.
    pub paced_for: Option<Duration>,
    /// [Groups](crate::WorkQueueBuilder::fair_by) that the queue knows: those with keys, and for a while those that had some. With this and
    /// the next fields, [`Inspect::groups`](crate::Inspect::groups) and [`Group::stats`](crate::Group::stats) say more.
    #[doc(alias = "tenants")]
    pub groups: usize,
    /// Groups that are [full](crate::GroupLimits::max_processing): as many of their keys are processing as may be.
    pub groups_full: usize,
    /// Groups that have no token of their [rate](crate::GroupLimits::rate).
    pub groups_throttled: usize,
    /// Groups that are [paused](crate::Group::pause).
    pub groups_paused: usize,
    /// Groups whose limits were [set](crate::Group::set) by a call, and which the queue keeps although they may have no key.
    pub groups_set: usize,
}

impl Stats {
    /// The keys that wait, which are queued keys and processing keys that will be queued again. This is client-go's `workqueue_depth`.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-2"]);
    /// let item = queue.get();
    /// queue.add("pod-1"); // once more, afterwards
    /// assert_eq!((queue.len(), queue.stats().depth()), (1, 2));
    /// # drop(item);
    /// ```
    #[must_use]
    pub fn depth(&self) -> u64 {
        // In a lock-free queue a hand-out may be counted whose add is not.
        self.adds().saturating_sub(self.handed_out + self.taken)
    }

    /// Adds that queued their key, or will queue it again: `pushed + deferred`. This is client-go's `workqueue_adds_total`.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-1"]);
    /// assert_eq!(queue.stats().adds(), 1);
    /// ```
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.pushed + self.deferred
    }
}

/// A key that is processing, from [`Inspect::processing_keys`](crate::Inspect::processing_keys).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::builder().measure(true).build();
/// queue.add("pod-1");
/// let _item = queue.get();
/// let stuck = &queue.inspect().processing_keys()[0];
/// println!("{} for {:?}", stuck.key, stuck.elapsed);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ProcessingKey<K> {
    /// A copy of the key.
    pub key: K,
    /// How long it has been processing. `None` unless the queue [measures](crate::WorkQueueBuilder::measure).
    pub elapsed: Option<Duration>,
}

/// A key with a delay, from [`Inspect::delayed_keys`](crate::Inspect::delayed_keys), or, if a call has taken the delay out, from
/// [`WorkQueue::take_delayed`](crate::WorkQueue::take_delayed) and in [`Leftover::delayed`](crate::Leftover::delayed).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let queue = keyqueue::WorkQueue::new();
/// queue.add_after("pod-1", Duration::from_secs(60));
/// let delayed = &queue.inspect().delayed_keys()[0];
/// println!("{} in {:?}", delayed.key, delayed.left);
/// ```
#[doc(alias = "waitFor")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DelayedKey<K> {
    /// The key, or a copy of it.
    pub key: K,
    /// The time until the delay expires, or the earlier one of [two](crate::DelayConflict). It is zero if the delay has expired and its key
    /// was not added yet, and `Duration::MAX` if it never expires.
    pub left: Duration,
    /// The priority with which the key is added when this delay expires, which is the highest of the calls that have set or moved the
    /// delay. If the key is dirty with a higher priority by then, the higher one counts. [`NORMAL`](Priority::NORMAL) in a queue without
    /// priorities.
    pub priority: Priority,
}

impl<K> DelayedKey<K> {
    pub(crate) fn new(key: K, delay: Delay, now: u64) -> Self {
        Self { key, left: time_left(delay.deadline, now), priority: Priority(delay.priority) }
    }
}

/// A number of queued keys of one priority: from [`Inspect::levels`](crate::Inspect::levels).
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::{AddOptions, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add_with("pod-1", AddOptions::new().priority(Priority::HIGH));
/// let level = queue.inspect().levels()[0];
/// assert_eq!((level.priority, level.len), (Priority::HIGH, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Level {
    /// The priority.
    pub priority: Priority,
    /// Queued keys of this priority.
    pub len: usize,
}

/// The numbers of one group: from [`Inspect::groups`](crate::Inspect::groups), and from [`Group::stats`](crate::Group::stats), which has no
/// key of it.
///
/// With the feature `serde`: `Serialize` and `Deserialize`.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
///
/// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
/// queue.add_all([1, 3, 5]);
/// let groups = queue.inspect().groups();
/// assert_eq!((groups.len(), groups[0].queued), (1, 3));
/// ```
#[doc(alias = "tenant")]
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupStats<K = ()> {
    /// A key of the group.
    pub key: K,
    /// Keys that are queued.
    pub queued: usize,
    /// Keys that are processing.
    pub processing: usize,
    /// Hand-outs since the group last had no key. A key belongs to it while it is queued, processing or delayed, or the queue counts its
    /// failures.
    pub handed_out: u64,
    /// How long the oldest queued key has waited. `None` if the queue does not [measure](crate::WorkQueueBuilder::measure), or measured no
    /// queued key of the group.
    pub oldest: Option<Duration>,
    /// The time that its keys were processing, over as long as [`handed_out`](Self::handed_out) counts. Zero unless groups
    /// [pay with it](crate::FairShare::WorkTime).
    pub work: Duration,
    /// Its part of the hand-outs, or of the [work](Self::work) if groups pay with it, of all groups that the queue knows. From 0 to 1.
    pub share: f64,
    /// Its limits.
    pub limits: GroupLimits,
    /// Whether a call of [`Group::set`](crate::Group::set) has set the limits.
    pub is_set: bool,
    /// What holds the group back now. If several things do, this is a pause if there is one, and else the rate.
    pub held_back: Option<HeldBack>,
}

/// What holds a group back, so that none of its queued keys is handed out: from [`GroupStats::held_back`].
///
/// # Examples
/// ```
/// use keyqueue::{HeldBack, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
/// queue.group(&1).pause(Duration::MAX)?;
/// let stats = queue.group(&1).stats().unwrap();
/// assert_eq!(stats.held_back, Some(HeldBack::Paused { left: Duration::MAX }));
/// # Ok::<(), keyqueue::InvalidArgument>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum HeldBack {
    /// As many of its keys are processing as [may be](crate::GroupLimits::max_processing).
    Full,
    /// It has no token of its [rate](crate::GroupLimits::rate).
    Throttled {
        /// The time until the next token. It is zero if the token is there, and the driver has not made the keys ready yet, and
        /// `Duration::MAX` if none ever comes.
        left: Duration,
    },
    /// It is [paused](crate::Group::pause).
    Paused {
        /// The time until the pause ends. It is zero if the pause is over, and the driver has not made the keys ready yet, and
        /// `Duration::MAX` if only [`resume`](crate::Group::resume) ends it.
        left: Duration,
    },
}

impl HeldBack {
    /// What holds a group back. Of several things a pause comes first, and then the rate.
    pub(crate) fn of(group: &GroupView, now: u64) -> Option<Self> {
        let throttled = group
            .throttled_for
            .map(|(rate, spent_until)| Self::Throttled { left: time_left(rate.wait(spent_until, now), 0) });
        let paused = group.paused_until.map(|until| Self::Paused { left: time_left(until, now) });
        paused.or(throttled).or(group.is_full.then_some(Self::Full))
    }
}

impl<K> GroupStats<K> {
    /// Without what the caller counts by keys. The share is what the group has paid, until [`share_in`](Self::share_in).
    pub(crate) fn new(key: K, of: &GroupView, now: u64) -> Self {
        Self {
            key,
            queued: 0,
            processing: of.processing as usize,
            handed_out: of.handed_out,
            oldest: None,
            work: Duration::from_nanos(of.work),
            share: of.paid(),
            limits: GroupLimits::of(&of.limits),
            is_set: of.is_kept,
            held_back: HeldBack::of(of, now),
        }
    }

    /// Makes the share a part of what all groups have paid.
    pub(crate) fn share_in(&mut self, all: f64) {
        self.share = if all > 0.0 { (self.share / all).min(1.0) } else { 0.0 };
    }
}
