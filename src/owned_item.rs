//! An item that owns a handle of its queue. Its calls are those of [`Item`].

use crate::machine::Claimed;
use crate::shared::Shared;
use crate::sync::Arc;
use crate::{AddOptions, Added, Item, UntilDirty, UntilLate, UntilShuttingDown};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::time::Duration;

impl<K> Item<'_, K> {
    /// Turns the item into one that owns a handle of the queue.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use std::thread;
    ///
    /// let queue = WorkQueue::new();
    /// queue.add("pod-1");
    /// // keeps the queue alive, and may go to another thread
    /// let item = queue.get().unwrap().into_owned();
    /// thread::spawn(move || item.done()).join().unwrap();
    /// ```
    pub fn into_owned(self) -> OwnedItem<K> {
        let (queue, claimed) = self.into_parts();
        OwnedItem { queue: Arc::clone(queue), claimed }
    }
}

/// An [`Item`] that owns a handle of the queue. It is `'static`, so it may go to another thread or task.
///
/// # Examples
/// ```
/// let queue = keyqueue::WorkQueue::new();
/// queue.add(7);
/// let item = queue.get().unwrap().into_owned();
/// std::thread::spawn(move || assert_eq!(*item, 7)).join().unwrap();
/// assert_eq!(queue.processing_len(), 0);
/// ```
#[must_use = "dropping an item says that its key is done"]
pub struct OwnedItem<K> {
    queue: Arc<Shared<K>>,
    claimed: Claimed<K>,
}

impl<K> OwnedItem<K> {
    /// The same item, borrowed.
    #[inline]
    fn item(&self) -> ManuallyDrop<Item<'_, K>> {
        // SAFETY: the item is not dropped, and its token is not moved out of it, so no step consumes it (S4).
        ManuallyDrop::new(Item::new_quietly(&self.queue, unsafe { self.claimed.duplicate() }))
    }

    /// Calls `finish` with the item, in place of the drop of `self`.
    #[inline]
    fn finish<R>(self, finish: impl FnOnce(Item<'_, K>) -> R) -> R {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the handle is moved, and it keeps the queue alive for the token (S4).
        let queue = unsafe { std::ptr::read(&this.queue) };
        // SAFETY: `this` is not dropped and not used again, so the token is moved (S4).
        finish(Item::new_quietly(&queue, unsafe { this.claimed.duplicate() }))
    }

    pub(crate) fn queue(&self) -> &Arc<Shared<K>> {
        &self.queue
    }

    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.claimed.key()
    }

    /// Like [`Item::done`].
    #[doc(alias = "Done")]
    pub fn done(self) {
        self.finish(|item| item.done());
    }

    /// Like [`Item::succeed`].
    ///
    /// # Panics
    /// If the limiter does.
    #[doc(alias = "Forget")]
    pub fn succeed(self) {
        self.finish(|item| item.succeed());
    }

    /// Like [`Item::cool_down`].
    ///
    /// # Panics
    /// If the limiter does.
    pub fn cool_down(self, time: Duration) {
        self.finish(|item| item.cool_down(time));
    }

    /// Like [`Item::give_up`].
    ///
    /// # Panics
    /// If the limiter does.
    pub fn give_up(self) {
        self.finish(|item| item.give_up());
    }

    /// Like [`Item::retry`].
    ///
    /// # Panics
    /// If the limiter does.
    #[doc(alias = "AddRateLimited")]
    pub fn retry(self) -> Added {
        self.finish(|item| item.retry())
    }

    /// Like [`Item::requeue_after`].
    ///
    /// # Panics
    /// If the limiter does.
    #[doc(alias = "RequeueAfter")]
    pub fn requeue_after(self, delay: Duration) -> Added {
        self.finish(|item| item.requeue_after(delay))
    }

    /// Like [`Item::requeue_with`].
    ///
    /// # Panics
    /// If the limiter does.
    pub fn requeue_with(self, options: AddOptions) -> Added {
        self.finish(|item| item.requeue_with(options))
    }

    /// Like [`Item::num_requeues`].
    ///
    /// # Panics
    /// If the limiter does.
    #[doc(alias = "NumRequeues")]
    #[must_use]
    pub fn num_requeues(&self) -> usize {
        self.item().num_requeues()
    }

    /// Like [`Item::priority`].
    #[must_use]
    pub fn priority(&self) -> crate::Priority {
        self.item().priority()
    }

    /// Like [`Item::waited`].
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.item().waited()
    }

    /// Like [`Item::is_dirty`].
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.item().is_dirty()
    }

    /// Like [`Item::until_dirty`].
    pub fn until_dirty(&self) -> UntilDirty<'_, K> {
        UntilDirty::new(&self.queue, &self.claimed)
    }

    /// Like [`Item::is_late`].
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.item().is_late()
    }

    /// Like [`Item::until_late`].
    pub fn until_late(&self) -> UntilLate<'_, K> {
        UntilLate::new(&self.queue, &self.claimed)
    }

    /// Like [`Item::until_shutting_down`].
    pub fn until_shutting_down(&self) -> UntilShuttingDown<'_, K> {
        UntilShuttingDown::new(&self.queue)
    }

    /// Like [`Item::shutting_down`].
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.item().shutting_down()
    }

    /// Like [`Item::span`].
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn span(&self) -> tracing::Span
    where
        K: fmt::Debug,
    {
        self.item().span()
    }
}

impl<K> Deref for OwnedItem<K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.key()
    }
}

impl<K> Drop for OwnedItem<K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` is not used after its drop, so the token is moved (S4).
        drop(Item::new_quietly(&self.queue, unsafe { self.claimed.duplicate() }));
    }
}

/// Shows the key.
impl<K: fmt::Display> fmt::Display for OwnedItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl<K: fmt::Debug> fmt::Debug for OwnedItem<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedItem").field("key", self.key()).field("is_dirty", &self.is_dirty()).finish()
    }
}
