//! Keys that were taken out of a queue.

use std::time::Duration;

/// Keys that a call has taken out of the queue, and those that it found processing, which stay with their holders. From
/// [`Workers::stop`](crate::Workers::stop), the drains of [`Workers`](crate::Workers), and
/// [`WorkQueue::take_where`](crate::WorkQueue::take_where).
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
    /// Keys that were queued.
    pub queued: Vec<K>,
    /// Keys that were processing. They still are, unless their handlers have returned meanwhile.
    pub processing: Vec<K>,
    /// Keys that were delayed, with the time until their delays expire, earliest first.
    pub delayed: Vec<(K, Duration)>,
}

impl<K> Leftover<K> {
    pub(crate) fn nothing() -> Self {
        Self { queued: Vec::new(), processing: Vec::new(), delayed: Vec::new() }
    }

    /// Whether no key was left.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(1, |item| println!("{}", item.key()))?;
    /// queue.add(1);
    /// assert!(workers.drain().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.processing.is_empty() && self.delayed.is_empty()
    }
}
