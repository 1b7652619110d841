//! A consistent snapshot of a queue's counters.

use crate::Priority;
use crate::time::time_left;
use std::time::Duration;

/// A snapshot of a queue, from [`WorkQueue::stats`](crate::WorkQueue::stats).
///
/// All counters are of one moment (in a queue with several [shards](crate::WorkQueue::shards), one for each shard; `waiters` and `drainers`
/// are read after them), and they add up: `pushed + deferred == handed_out + taken + len +` the number of keys that are
/// processing and dirty. A delay counts as an add when it expires.
///
/// To debug a stuck process: if `longest_running` grows, a worker hangs ([`processing_keys`](crate::Inspect::processing_keys) lists
/// its key). If `oldest_queued` grows while `waiters` is 0, there are too few workers. If `delayed` and `failing` are high, keys wait
/// for their backoff ([`delayed_keys`](crate::Inspect::delayed_keys) lists them). If `next_deadline` stays zero, delays
/// expire but no thread adds their keys.
///
/// # Now
/// [`len`](Self::len), [`processing`](Self::processing), [`delayed`](Self::delayed), [`failing`](Self::failing),
/// [`waiters`](Self::waiters), [`drainers`](Self::drainers), [`shutting_down`](Self::shutting_down): how many keys and callers there are at
/// this moment. They rise and fall.
///
/// # Since the start
/// These only rise. What adds did: [`pushed`](Self::pushed), [`coalesced`](Self::coalesced), [`deferred`](Self::deferred),
/// [`rejected`](Self::rejected). What became of keys: [`handed_out`](Self::handed_out), [`given_up`](Self::given_up),
/// [`taken`](Self::taken). Delays and failures: [`delays`](Self::delays), [`expired`](Self::expired), [`retries`](Self::retries),
/// [`failures`](Self::failures). Faults: [`panics`](Self::panics), [`caught_panics`](Self::caught_panics),
/// [`driver_failures`](Self::driver_failures).
///
/// # Ages
/// [`oldest_queued`](Self::oldest_queued), [`longest_running`](Self::longest_running), [`unfinished_work`](Self::unfinished_work), in a
/// queue that [measures](crate::WorkQueueBuilder::measure); and [`next_deadline`](Self::next_deadline).
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
    /// Keys with a delay that has not expired. They may also be queued or processing.
    pub delayed: usize,
    /// Keys whose failures the queue counts, and that were not forgotten since. They may also be queued, processing or delayed. With a
    /// limiter that counts failures itself, as one of your own does: only keys for which the limiter panicked.
    pub failing: usize,
    /// Idle workers: threads and tasks that wait in [`get`](crate::WorkQueue::get), or in another call that gets keys, since none is
    /// ready. One that was woken no longer counts.
    pub waiters: usize,
    /// Callers that wait for the work to end: threads and tasks in [`shut_down_with_drain`](crate::WorkQueue::shut_down_with_drain) or
    /// [`wait_idle`](crate::WorkQueue::wait_idle), or in a call that is like one of these.
    pub drainers: usize,
    /// The queue is shutting down: it refuses adds.
    pub shutting_down: bool,
    /// Adds that queued their key at once: it was neither queued nor processing. An add of a processing key counts in
    /// [`deferred`](Self::deferred) instead, also when its holder is done.
    pub pushed: u64,
    /// Adds that changed nothing: their key was dirty already, or has a delay that stands.
    pub coalesced: u64,
    /// Adds of a key that was processing, which is queued when its holder is done.
    pub deferred: u64,
    /// Adds after the shut-down.
    pub rejected: u64,
    /// Hand-outs.
    pub handed_out: u64,
    /// Delays that were set or moved.
    pub delays: u64,
    /// Delays that expired, and whose keys were added.
    pub expired: u64,
    /// Delayed adds: calls before the shut-down with a delay or with the limiter's delay, whatever their effect. Not only failures:
    /// those are [`failures`](Self::failures). The name is that of client-go's `workqueue_retries_total`, which counts the same.
    pub retries: u64,
    /// Calls with the limiter's delay, even after the shut-down: the number of failures.
    pub failures: u64,
    /// Keys that were [given up](crate::Item::give_up).
    pub given_up: u64,
    /// Panics of holders of a key: while they processed it, or of the limiter when they called it.
    pub panics: u64,
    /// Panics of foreign code that the queue has caught, so that the call in which they happened went on: of wakers, of observers in
    /// [`handed_out`](crate::observe::Observer::handed_out) and `driver_failed`, of the drops of keys in
    /// [`take_where`](crate::WorkQueue::take_where) and [`stop`](crate::Workers::stop), and of the limiter for an item that is dropped by a panic.
    pub caught_panics: u64,
    /// Failed attempts to start the thread that expires delays, because the process was out of threads or memory. Delays are set all
    /// the same: see [`Driver::Thread`](crate::Driver::Thread).
    pub driver_failures: u64,
    /// Adds that no hand-out follows: of queued keys that [`take_where`](crate::WorkQueue::take_where),
    /// [`remove`](crate::WorkQueue::remove), or a stop or drain of [`Workers`](crate::Workers) has taken out, and of processing keys for
    /// which `remove` has taken the add back.
    pub taken: u64,
    /// How long the first queued key has waited. If keys become dirty faster than a million per second, it may be one of the first 16.
    /// Keys of groups that are [full](crate::WorkQueueBuilder::max_processing_per_group) do not count. `None`: there is no such key, or
    /// none of them was measured; and always in a queue that does not [measure](crate::WorkQueueBuilder::measure).
    pub oldest_queued: Option<Duration>,
    /// For how long the oldest processing key has been processing. `None`: no key is processing, or the queue does not
    /// [measure](crate::WorkQueueBuilder::measure). Client-go's `workqueue_longest_running_processor_seconds`. Never too high. If
    /// the key was not measured, too low by the time until the next key was measured, or until the next call that reads ages.
    pub longest_running: Option<Duration>,
    /// The sum of the times for which all processing keys have been processing; zero if there is none. `None`: the queue does not
    /// [measure](crate::WorkQueueBuilder::measure). Client-go's `workqueue_unfinished_work_seconds`.
    pub unfinished_work: Option<Duration>,
    /// The time until the earliest delay expires. Zero: it has expired, and its key is not added yet. `Duration::MAX`: never. `None`:
    /// there is no delay. After a delay was moved or cancelled, this may be its old deadline for a while, and so too early.
    pub next_deadline: Option<Duration>,
}

impl Stats {
    /// The number of hand-outs to come for the adds so far: keys that are queued, and keys that are processing and dirty. Client-go's
    /// `workqueue_depth`.
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
        self.adds() - self.handed_out - self.taken
    }

    /// Adds the numbers of one shard.
    pub(crate) fn add_shard(&mut self, shard: &Self) {
        let Self {
            len,
            processing,
            delayed,
            failing,
            waiters: _,
            drainers: _,
            shutting_down: _,
            pushed,
            coalesced,
            deferred,
            rejected,
            handed_out,
            delays,
            expired,
            retries,
            failures,
            given_up,
            panics: _,
            caught_panics: _,
            driver_failures: _,
            taken,
            oldest_queued,
            longest_running,
            unfinished_work,
            next_deadline,
        } = *shard;
        self.len += len;
        self.processing += processing;
        self.delayed += delayed;
        self.failing += failing;
        self.pushed += pushed;
        self.coalesced += coalesced;
        self.deferred += deferred;
        self.rejected += rejected;
        self.handed_out += handed_out;
        self.delays += delays;
        self.expired += expired;
        self.retries += retries;
        self.failures += failures;
        self.given_up += given_up;
        self.taken += taken;
        self.oldest_queued = self.oldest_queued.max(oldest_queued);
        self.longest_running = self.longest_running.max(longest_running);
        self.unfinished_work =
            [self.unfinished_work, unfinished_work].into_iter().flatten().reduce(Duration::saturating_add);
        self.next_deadline = [self.next_deadline, next_deadline].into_iter().flatten().min();
    }

    /// Adds that have led, or will lead, to a hand-out of their own. Client-go's `workqueue_adds_total`.
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
    /// For how long it has been processing. `None` unless the queue [measures](crate::WorkQueueBuilder::measure).
    pub elapsed: Option<Duration>,
}

/// A key with a delay: from [`Inspect::delayed_keys`](crate::Inspect::delayed_keys), and, when the delay was taken out, from
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DelayedKey<K> {
    /// The key, or a copy of it.
    pub key: K,
    /// The time until the delay expires. Zero: it has expired, and its key was not added yet when the call saw it. `Duration::MAX`:
    /// never.
    pub left: Duration,
    /// The priority with which the key is added when the delay expires: the highest of the calls that have set or moved the delay. If the
    /// key is dirty with a higher one by then, that one counts. [`NORMAL`](Priority::NORMAL) in a queue without priorities.
    pub priority: Priority,
}

impl<K> DelayedKey<K> {
    pub(crate) fn new(key: K, deadline: u64, priority: i8, now: u64) -> Self {
        Self { key, left: time_left(deadline, now), priority: Priority(priority) }
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
    /// Keys of it that are queued.
    pub len: usize,
}

/// The numbers of one group: from [`Inspect::groups`](crate::Inspect::groups).
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupStats<K> {
    /// A key of the group.
    pub key: K,
    /// Keys that are queued.
    pub queued: usize,
    /// Keys that are processing.
    pub processing: usize,
    /// Hand-outs, since the group has last begun to have queued keys (or processing ones, with a limit). 0 if it has none.
    pub handed_out: u64,
    /// How long the oldest queued key has waited. `None` unless the queue [measures](crate::WorkQueueBuilder::measure), and if no queued
    /// key of the group was measured.
    pub oldest: Option<Duration>,
}
