//! Keys that were taken out of a queue.

use crate::DelayedKey;
use std::collections::HashSet;
use std::hash::Hash;

/// The keys that a call has taken out of the queue, and a list of the processing keys, which stay with their holders.
/// [`Workers::stop`](crate::Workers::stop), [`finish`](crate::Workers::finish) and the drains of [`Workers`](crate::Workers), and
/// [`WorkQueue::take_where`](crate::WorkQueue::take_where) return it.
///
/// A key is in one of `queued`, `processing` and `refused`, once, except that [`take_where`](crate::WorkQueue::take_where) may list a key in
/// `processing` whose run has just ended. It may be in `delayed` too, because a key in any state may have a delay.
///
/// With the feature `serde`: `Serialize` and `Deserialize`, if the key has them, so that a program can store the keys that it has not
/// processed, and add them at its next start.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add_all(["a/1", "b/1", "a/2"]);
/// let taken = queue.take_where(|key| key.starts_with("a/"));
/// assert_eq!(taken.queued, ["a/1", "a/2"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default = "Leftover::nothing"))]
#[non_exhaustive]
#[must_use = "these keys were not processed"]
pub struct Leftover<K> {
    /// Keys that were queued, in the order of hand-outs: higher priorities first, and groups in turn, including full groups.
    /// [`take_where`](crate::WorkQueue::take_where) sorts them by priority and then by age. With several
    /// [shards](crate::WorkQueueBuilder::shards) the priorities are exact, but the ages are not: fewer than 64 keys of each other shard
    /// that became ready later may come before a key of the same priority.
    pub queued: Vec<K>,
    /// Keys that were processing, and still are until their handlers return.
    pub processing: Vec<K>,
    /// Keys that were delayed, earliest first.
    pub delayed: Vec<DelayedKey<K>>,
    /// Keys whose retry or requeue the queue has refused, because it came after the shut-down. The handler failed, panicked, or returned
    /// [`RequeueAfter`](crate::Outcome::RequeueAfter) or [`RequeueWith`](crate::Outcome::RequeueWith), or its
    /// [task was dropped](crate::Workers::run_async). These keys are no longer in the queue.
    ///
    /// The next drain or stop of these [`Workers`](crate::Workers) that returns after the refusal has the key in its list. Until then the
    /// workers keep the key, once. If a stop returns a key in `processing`, and its handler fails later, `refused` of a later call
    /// therefore has the key. The list has no key that was added while it was processing, because the queue queues it again when its run
    /// ends, and no key whose `Clone` panics. It is empty in the result of [`take_where`](crate::WorkQueue::take_where).
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<&str>::new();
    /// queue.add("pod-1");
    /// queue.shut_down();
    /// let workers = queue.workers().spawn(1, |_| Err::<(), _>("disk full"))?;
    /// assert_eq!(workers.drain().refused, ["pod-1"]); // for the next start
    /// # std::io::Result::Ok(())
    /// ```
    pub refused: Vec<K>,
}

impl<K> Leftover<K> {
    pub(crate) fn nothing() -> Self {
        Self { queued: Vec::new(), processing: Vec::new(), delayed: Vec::new(), refused: Vec::new() }
    }

    /// The keys of all lists. A key may be in several.
    fn all(&self) -> impl Iterator<Item = &K> {
        let Self { queued, processing, delayed, refused } = self;
        queued.iter().chain(processing).chain(refused).chain(delayed.iter().map(|delayed| &delayed.key))
    }

    /// Whether no key was left, because each accepted key was handed out and needs no further run, or was given up.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{item}"))?;
    /// queue.add(1);
    /// assert!(workers.drain().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { queued, processing, delayed, refused } = self;
        queued.is_empty() && processing.is_empty() && delayed.is_empty() && refused.is_empty()
    }
}

impl<K: Hash + Eq> Leftover<K> {
    /// The keys that need a run, each once: those that were queued, processing, refused and delayed, in this order.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_after("pod-1", Duration::from_secs(60));
    /// queue.add_all(["pod-1", "pod-2"]);
    /// let left = queue.workers().build().stop();
    /// assert_eq!(left.keys().copied().collect::<Vec<_>>(), ["pod-1", "pod-2"]);
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        let mut listed = HashSet::new();
        self.all().filter(move |key| listed.insert(*key))
    }

    /// The same keys without the lists, for instance to be stored, or to be added to another queue. What a delay had left is lost.
    ///
    /// # Examples
    /// ```
    /// let [queue, next] = [(); 2].map(|()| keyqueue::WorkQueue::new());
    /// queue.add_all([1, 2, 3]);
    /// next.add_all(queue.workers().build().stop().into_keys());
    /// assert_eq!(next.len(), 3);
    /// ```
    pub fn into_keys(self) -> impl Iterator<Item = K> {
        let is_first: Vec<bool> = {
            let mut listed = HashSet::new();
            self.all().map(|key| listed.insert(key)).collect()
        };
        let Self { queued, processing, delayed, refused } = self;
        let delayed = delayed.into_iter().map(|delayed| delayed.key);
        let all = queued.into_iter().chain(processing).chain(refused).chain(delayed);
        all.zip(is_first).filter_map(|(key, is_first)| is_first.then_some(key))
    }

    /// Adds the keys of a leftover that a later call has returned. A key that both have is where the later one has it, so that each key
    /// stays in one list beside its delay: a key that was processing, and is refused in the later one, is refused.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::new();
    /// let workers = queue.workers().build();
    /// queue.add_all([1, 2]);
    /// let item = queue.get().unwrap();
    /// queue.add(1);
    /// let mut left = workers.stop(); // 1 is processing
    /// item.done();
    /// left.extend(workers.stop()); // and then queued
    /// assert_eq!((left.queued, left.processing), (vec![2, 1], vec![]));
    /// ```
    pub fn extend(&mut self, later: Self) {
        let listed: HashSet<&K> = later.queued.iter().chain(&later.processing).chain(&later.refused).collect();
        for list in [&mut self.queued, &mut self.processing, &mut self.refused] {
            list.retain(|key| !listed.contains(key));
        }
        let delayed: HashSet<&K> = later.delayed.iter().map(|delayed| &delayed.key).collect();
        self.delayed.retain(|old| !delayed.contains(&old.key));
        drop((listed, delayed));
        let Self { queued, processing, delayed, refused } = later;
        self.queued.extend(queued);
        self.processing.extend(processing);
        self.refused.extend(refused);
        self.delayed.extend(delayed);
        self.delayed.sort_by_key(|delayed| delayed.left);
    }
}
