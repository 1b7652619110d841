//! The answer of an add.

/// What an `add` did.
///
/// # Examples
/// ```
/// use keyqueue::{Added, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::new();
/// assert_eq!(queue.add("pod-1"), Added::Queued);
/// assert_eq!(queue.add("pod-1"), Added::Coalesced);
/// let item = queue.get();
/// assert_eq!(queue.add("pod-1"), Added::Deferred); // queued again when `item` is dropped
/// assert_eq!(queue.add_after("pod-2", Duration::from_secs(60)), Added::Delayed);
/// queue.shut_down();
/// assert_eq!(queue.add("pod-3"), Added::Rejected);
/// # drop(item);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key is now queued.
    Queued,
    /// The add causes no further run, because the key will be handed out after this add anyway: it is queued already, or is processing and
    /// was added again before, or has a delay that stays. The add may still raise the key's [priority](crate::Priority).
    Coalesced,
    /// The key is processing, and is queued when its holder is done.
    Deferred,
    /// The key's delay was set or moved, and the key will be added when the delay expires.
    Delayed,
    /// The queue is shutting down, and refused the key. A [rate-limited](crate::WorkQueue::add_rate_limited) add still counts its failure.
    Rejected,
    /// The key is new, and the queue has as many keys as it [may have](crate::WorkQueueBuilder::max_keys). It has dropped the key.
    Full,
}

impl Added {
    /// Whether the queue will hand the key out after the add, instead of having refused it. If the key waits for a delay, there is no
    /// hand-out when a caller cancels the delay or takes it out, or a shut-down cuts it off.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// assert!(queue.add("pod-1").is_accepted());
    /// queue.shut_down();
    /// assert!(!queue.add("pod-2").is_accepted());
    /// ```
    #[must_use]
    pub fn is_accepted(self) -> bool {
        !matches!(self, Self::Rejected | Self::Full)
    }
}
