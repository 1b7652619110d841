//! Keys that were taken out of a queue.

use crate::DelayedKey;

/// Keys that a call has taken out of the queue, and those that it found processing, which stay with their holders. From
/// [`Workers::stop`](crate::Workers::stop), the drains of [`Workers`](crate::Workers), and
/// [`WorkQueue::take_where`](crate::WorkQueue::take_where).
///
/// A key is in one of `queued`, `processing` and `refused`, once. It may be in `delayed` too: a delay is an add to come, whatever else the
/// key is doing.
///
/// With the feature `serde`: `Serialize` and `Deserialize`, if the key has them. So what a program has not processed can be added at its
/// next start.
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
    /// Keys that were queued, higher priorities first, and then in the order in which they would have been handed out: groups in turn,
    /// even if they are full. ([`take_where`](crate::WorkQueue::take_where): by priority and then by age.) With several shards the order
    /// is approximate.
    pub queued: Vec<K>,
    /// Keys that were processing. They still are, unless their handlers have returned meanwhile.
    pub processing: Vec<K>,
    /// Keys that were delayed, earliest first.
    pub delayed: Vec<DelayedKey<K>>,
    /// Keys whose last run came to its end after the shut-down, and was to be repeated: the handler has failed or panicked, and the key was
    /// to be retried, or it has returned [`RequeueAfter`](crate::Outcome::RequeueAfter) or
    /// [`RequeueWith`](crate::Outcome::RequeueWith). The queue has refused that, so these keys are not in it any more.
    ///
    /// Each is returned once, by the next drain or stop of these [`Workers`](crate::Workers) that returns after the refusal. So a key that a
    /// stop has returned in `processing`, and whose handler fails later, is in `refused` of a later call. Until then the workers keep these
    /// keys, each at most once. A key that was added while it was processing is not in this list: it is queued again when
    /// its run ends. A key whose `Clone` panics is not in the list either. Empty in the result of
    /// [`take_where`](crate::WorkQueue::take_where).
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

    /// Whether no key was left: each key that the queue had accepted was handed out and needs no further run, or it was given up.
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
