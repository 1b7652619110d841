//! The view of a queue: its keys, levels, groups and metrics.

use crate::WorkQueue;
use crate::observe::Metrics;
use crate::shared::Shared;
use crate::stats::{DelayedKey, GroupStats, Level, ProcessingKey};
use std::fmt;
use std::hash::Hash;

impl<K> WorkQueue<K> {
    /// A view of the queue: the keys that are processing or delayed, groups, levels, metrics and reports.
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
/// A view is as cheap as a reference, and no snapshot: each call looks at the queue as it is then. [`WorkQueue::stats`] has the counters.
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
    /// [shard](WorkQueue::shards), but for the histograms of priorities other than [`NORMAL`](crate::Priority::NORMAL): each is read a
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

    /// Passes the queue's [`metrics`](Self::metrics) to its [observer](crate::WorkQueueBuilder::observer). Call it before metrics are read
    /// that must be those of this moment. A queue whose observer has an [interval](crate::observe::Observer::interval) also reports by
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

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Inspect<'_, K> {
    /// The keys that are processing, and since when. Use it to find a key whose handler hangs.
    ///
    /// If the queue [measures](crate::WorkQueueBuilder::measure), the longest time comes first. With more than a million keys a second,
    /// most keys are not measured; such a key has the time of the next measured key. If the queue does not measure, `elapsed` is `None`.
    ///
    /// Visits all keys of the queue, some hundred at a time under the lock, and clones the processing ones. So the list is not of one
    /// moment: if a key is done and handed out again meanwhile, it may be listed twice.
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
    /// see [`take_delayed`](WorkQueue::take_delayed).
    ///
    /// The list has also keys that are queued or processing, and delays that a shut-down has cut off. If a delay has expired and its key
    /// was not added yet, zero is left. If a delay never expires, `Duration::MAX` is left. Equal deadlines are in no order. The time that
    /// is left counts from the end of the call.
    ///
    /// Visits all keys of the queue, some hundred at a time under the lock, and clones the delayed ones. So the list is not of one moment.
    /// A key that has a delay during the whole call is listed once. If a call moves the delay meanwhile, the list has one of the deadlines.
    /// If a delay begins or ends meanwhile, its key may be missing. If a delay ends and is set again meanwhile, its key may be listed
    /// twice.
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
    /// Visits all keys of the queue, some hundred at a time under the lock, and clones one of each group. So the numbers are not of one
    /// moment.
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
