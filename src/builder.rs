//! Queues that are not the default one.

use crate::WorkQueue;
use crate::shared::Shared;
use crate::sync::Arc;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

/// Makes a [`WorkQueue`] that differs from [`WorkQueue::new`]'s.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::<u64>::builder().name("pods").capacity(10_000).build();
/// assert_eq!(queue.name(), "pods");
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct WorkQueueBuilder<K> {
    name: Box<str>,
    capacity: usize,
    keys: PhantomData<fn(K)>,
}

impl<K> WorkQueueBuilder<K> {
    pub(crate) fn new() -> Self {
        Self { name: Box::default(), capacity: 0, keys: PhantomData }
    }

    /// What the queue is called in `Debug` output (and, once there are, in metrics). Empty by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().into_boxed_str();
        self
    }

    /// How many keys the table and the line have room for from the beginning, and keep room for until
    /// [`shrink_to_fit`](WorkQueue::shrink_to_fit): a hint that saves growing, never a limit. At most 2^24 are taken into account.
    /// 0 by default.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.capacity = keys.min(1 << 24);
        self
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkQueueBuilder<K> {
    /// Makes the queue.
    #[must_use]
    pub fn build(self) -> WorkQueue<K> {
        WorkQueue { shared: Arc::new(Shared::new(self.name, self.capacity)) }
    }
}

impl<K> fmt::Debug for WorkQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueueBuilder").field("name", &self.name).field("capacity", &self.capacity).finish()
    }
}
