//! The view of a queue: one key, lists of keys, levels, groups and metrics.

use crate::observe::Metrics;
use crate::shared::Shared;
use crate::stats::{DelayedKey, GroupStats, Level, ProcessingKey};
use crate::{Equivalent, KeyState, WorkQueue};
use std::fmt;
use std::hash::Hash;

impl<K> WorkQueue<K> {
    /// A view of the queue: what a key is doing, the keys that are processing or delayed, groups, levels, metrics and reports.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().measure(true).build();
    /// queue.add("pod-1");
    /// queue.get().unwrap().done();
    /// let metrics = queue.inspect().metrics();
    /// println!(
    ///     "half of the keys waited for less than {:?}",
    ///     metrics.queue_duration.quantile(0.5)
    /// );
    /// ```
    #[must_use]
    pub fn inspect(&self) -> Inspect<'_, K> {
        Inspect { queue: self }
    }
}

/// A view of a queue, from [`WorkQueue::inspect`]: its keys, groups, levels and metrics. It changes nothing in the queue.
///
/// A view is as cheap as a reference and no snapshot, because each call looks at the queue as it is then. [`WorkQueue::stats`] has the
/// counters.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// queue.add_all(["pod-1", "pod-2"]);
/// queue.add_after("pod-3", Duration::from_secs(60));
/// let item = queue.get();
/// let view = queue.inspect();
/// assert_eq!(view.processing_keys()[0].key, "pod-1");
/// assert_eq!(view.delayed_keys()[0].key, "pod-3");
/// assert_eq!(view.levels()[0].len, 1);
/// # drop(item);
/// ```
pub struct Inspect<'q, K> {
    queue: &'q WorkQueue<K>,
}

impl<'q, K> Inspect<'q, K> {
    /// The queue's name, see [`crate::WorkQueueBuilder::name`].
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::builder().name("pods").build();
    /// assert_eq!(queue.inspect().name(), "pods");
    /// ```
    #[must_use]
    pub fn name(self) -> &'q str {
        &self.queue.shared.settings.name
    }

    /// A snapshot of the counters, and of two histograms: how long keys waited, and how long they were processing. It is consistent in each
    /// [shard](WorkQueue::shards), except that the histograms of priorities other than [`NORMAL`](crate::Priority::NORMAL) are each read a
    /// little later.
    ///
    /// Takes the lock of each shard for a few microseconds, with any number of keys. In a queue with groups or with many priorities, the
    /// search for the [oldest key](crate::Stats::oldest_queued) may make that some tens of microseconds.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::builder().measure(true).build();
    /// queue.add("pod-1");
    /// queue.get().unwrap().done();
    /// let metrics = queue.inspect().metrics();
    /// println!(
    ///     "half of the keys waited for less than {:?}",
    ///     metrics.queue_duration.quantile(0.5)
    /// );
    /// assert_eq!((metrics.stats.handed_out, metrics.work_duration.count()), (1, 1));
    /// ```
    #[must_use]
    pub fn metrics(self) -> Metrics {
        self.queue.shared.metrics()
    }

    /// The number of queued keys of each [priority](crate::Priority), the highest first. It is consistent in each
    /// [shard](WorkQueue::shards).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{AddOptions, Priority, WorkQueue};
    ///
    /// let queue = WorkQueue::new();
    /// queue.add_all(0..10);
    /// queue.add_with(100, AddOptions::new().priority(Priority::HIGH));
    /// let levels: Vec<_> =
    ///     queue.inspect().levels().iter().map(|level| (level.priority, level.len)).collect();
    /// assert_eq!(levels, [(Priority::HIGH, 1), (Priority::NORMAL, 10)]);
    /// ```
    #[must_use]
    pub fn levels(self) -> Vec<Level> {
        self.queue.shared.levels()
    }

    /// Passes the queue's [`metrics`](Self::metrics) to its [observer](crate::WorkQueueBuilder::observer). Call this before metrics are
    /// read that must be those of this moment. A queue whose observer has an [interval](crate::observe::Observer::interval) also reports by
    /// itself.
    ///
    /// # Panics
    /// If the [observer](crate::observe::Observer#panics) panics.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::observe::{Metrics, Observer};
    ///
    /// struct Log;
    ///
    /// impl Observer for Log {
    ///     fn report(&self, queue: &str, metrics: &Metrics) {
    ///         println!("{queue}: {} keys are queued", metrics.stats.len);
    ///     }
    /// }
    ///
    /// let queue = WorkQueue::<u32>::builder().observer(Log).build();
    /// queue.inspect().report(); // when the metrics are read, for instance
    /// ```
    pub fn report(self) {
        self.queue.shared.tell(|observer| observer.report(self.name(), &self.metrics()));
    }
}

impl<K: Hash + Eq> Inspect<'_, K> {
    /// What a key is doing, and what it waits for: see [`KeyState`]. Use it for a key that should have run, and has not.
    ///
    /// The call looks the key up under the lock of its shard, so the answer is that of one moment. With a million keys it takes about a
    /// microsecond, mostly for memory that is in no cache. As in [`num_requeues`](WorkQueue::num_requeues), a limiter of your own is asked
    /// before that for the key's failures, with an owned key.
    ///
    /// # Panics
    /// Like [`num_requeues`](WorkQueue::num_requeues).
    ///
    /// # Examples
    /// ```
    /// use keyqueue::{DelayedBy, KeyActivity, WorkQueue};
    ///
    /// let queue = WorkQueue::builder().fair_by(|key: &u32| key / 100).max_processing_per_group(1).build();
    /// queue.add_all([101, 102]);
    /// let item = queue.get().unwrap();
    /// let state = queue.inspect().key(&102);
    /// assert_eq!(state.to_string(), "queued at priority 0, behind its group's limit of 1");
    ///
    /// item.requeue_after(std::time::Duration::from_secs(60));
    /// let state = queue.inspect().key(&101);
    /// assert_eq!((state.activity, state.delay.unwrap().by), (KeyActivity::Delayed, DelayedBy::Requeue));
    /// assert_eq!(queue.inspect().key(&103).activity, KeyActivity::Absent);
    /// ```
    #[must_use]
    pub fn key<Q>(self, key: &Q) -> KeyState
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.queue.shared.key_state(key)
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Inspect<'_, K> {
    /// The keys that are processing, and since when. Use it to find a key whose handler hangs.
    ///
    /// If the queue [measures](crate::WorkQueueBuilder::measure), the longest time comes first; otherwise `elapsed` is `None`. With more
    /// than a million keys a second, most keys are not measured, and such a key has the time of the next measured key.
    ///
    /// The call visits all keys of the queue, some hundred at a time under the lock, and clones the processing ones. The list is therefore
    /// not of one moment: a key that is done and handed out again meanwhile may be listed twice.
    ///
    /// # Panics
    /// If `K`'s `Clone` panics. It is called under the lock, so it must not use this queue.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::builder().measure(true).build();
    /// queue.add("pod-1");
    /// let _item = queue.get().unwrap();
    /// for stuck in queue.inspect().processing_keys() {
    ///     println!("{} has been processing for {:?}", stuck.key, stuck.elapsed);
    /// }
    /// ```
    #[must_use]
    pub fn processing_keys(self) -> Vec<ProcessingKey<K>> {
        let keys = self.queue.shared.processing_keys().into_iter();
        keys.map(|(key, elapsed)| ProcessingKey { key, elapsed }).collect()
    }

    /// The keys that have a delay, earliest first, each with the time that is left and the priority that it will have. Takes nothing out,
    /// unlike [`take_delayed`](WorkQueue::take_delayed).
    ///
    /// The list also has keys that are queued or processing, and delays that a shut-down has cut off. The time that is left counts from the
    /// end of the call. It is zero if a delay has expired and its key was not added yet, and `Duration::MAX` if the delay never expires.
    /// Equal deadlines are in no order.
    ///
    /// The call visits all keys of the queue, some hundred at a time under the lock, and clones the delayed ones, so the list is not of one
    /// moment. A key that has a delay during the whole call is listed once, and if a call moves the delay meanwhile, with one of the
    /// deadlines. A key whose delay begins or ends meanwhile may be missing, and one whose delay ends and is set again may be listed twice.
    ///
    /// # Panics
    /// If `K`'s `Clone` panics. It is called under the lock, so it must not use this queue.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{AddOptions, Clock, Driver, Priority, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, time) = Clock::mock();
    /// let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    /// queue.add_after("later", Duration::from_secs(60));
    /// queue.add_with(
    ///     "soon",
    ///     AddOptions::new().after(Duration::from_secs(20)).priority(Priority::HIGH),
    /// );
    /// time.advance(Duration::from_secs(15));
    /// let listed: Vec<_> = queue
    ///     .inspect()
    ///     .delayed_keys()
    ///     .iter()
    ///     .map(|to_come| (to_come.key, to_come.left.as_secs()))
    ///     .collect();
    /// assert_eq!(listed, [("soon", 5), ("later", 45)]);
    /// assert_eq!(queue.inspect().delayed_keys()[0].priority, Priority::HIGH);
    /// assert_eq!(queue.delayed_len(), 2, "nothing is taken");
    /// ```
    #[doc(alias = "waitingEntryByData")]
    #[must_use]
    pub fn delayed_keys(self) -> Vec<DelayedKey<K>> {
        self.queue.shared.delayed_keys()
    }

    /// The [groups](crate::WorkQueueBuilder::fair_by) that have queued or processing keys, in no order. Empty in a queue without groups.
    ///
    /// The call visits all keys of the queue, some hundred at a time under the lock, and clones one of each group, so the numbers are not
    /// of one moment.
    ///
    /// # Panics
    /// If `K`'s `Clone` panics. It is called under the lock, so it must not use this queue.
    ///
    /// # Examples
    /// ```
    /// let queue =
    ///     keyqueue::WorkQueue::builder().fair_by(|&(tenant, _): &(u8, u32)| tenant).build();
    /// queue.add_all((0..1000).map(|n| (1, n)));
    /// queue.add((2, 0));
    /// let item = queue.get().unwrap();
    /// for group in queue.inspect().groups() {
    ///     let (tenant, _) = group.key;
    ///     let expected = if tenant == 1 { (999, 1, 1) } else { (1, 0, 0) };
    ///     assert_eq!((group.queued, group.processing, group.handed_out), expected);
    /// }
    /// ```
    #[must_use]
    pub fn groups(self) -> Vec<GroupStats<K>> {
        Shared::groups(&self.queue.shared)
    }
}

impl<K> Clone for Inspect<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Inspect<'_, K> {}

impl<K> fmt::Debug for Inspect<'_, K> {
    /// As the queue.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.queue, f)
    }
}
