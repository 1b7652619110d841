//! A queue as a stream of items.

use crate::get_async::GetState;
use crate::item::Item;
use crate::{OwnedItem, WorkQueue};
use futures_core::stream::{FusedStream, Stream};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The stream that [`WorkQueue::stream`] returns.
///
/// # Examples
/// ```
/// use futures_util::StreamExt;
///
/// # futures_executor::block_on(async {
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("pod-1");
/// assert_eq!(*queue.stream().next().await.unwrap(), "pod-1");
/// # });
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct ItemStream<K> {
    queue: WorkQueue<K>,
    state: GetState,
}

impl<K> WorkQueue<K> {
    /// The queue as a stream of items, each of which owns a handle of the queue. Streams, tasks and threads may share a queue, and each key
    /// goes to one of them.
    ///
    /// The stream ends when the queue is shut down and no key is queued, and stays ended. **It may end while the consumer still holds
    /// items.** If the key of such an item was added again, it is queued when the item is done. After a shut-down, therefore, repeat: read
    /// a stream to its end, finish all its items, and stop if the queue [is empty](Self::is_empty). See the example.
    ///
    /// A stream whose keys and consumer are always ready gives way to other tasks after 128 keys, like [`get_async`](Self::get_async): it
    /// wakes its task, and is pending once. The combinators that read it do the same.
    ///
    /// # Cancel safety
    /// Dropping the stream loses no key, and passes its wake-up on to the next getter. A stream that has returned `Pending` keeps its place
    /// among the getters, even if `select!` drops the future of its `next`. A stream that was woken must be polled or dropped, because
    /// until then it keeps the wake-up, and a key may stay queued unless the next add wakes another getter. If other branches of a
    /// `select!` take long, use [`get_async`](Self::get_async) instead. The combinators of `futures`, such as `for_each_concurrent` and
    /// `buffer_unordered`, go on polling.
    ///
    /// # Examples
    /// ```
    /// use futures_util::StreamExt;
    /// use keyqueue::{OwnedItem, WorkQueue};
    ///
    /// async fn process(item: OwnedItem<u32>) {
    ///     item.succeed();
    /// }
    ///
    /// # futures_executor::block_on(async {
    /// let queue = WorkQueue::new();
    /// queue.add_all([1, 2, 3]);
    /// queue.shut_down(); // for this example
    /// loop {
    ///     queue.stream().for_each_concurrent(8, process).await;
    ///     if queue.is_empty() {
    ///         break; // nor is an item of this stream processing
    ///     }
    /// }
    /// assert_eq!(queue.stats().handed_out, 3);
    /// # });
    /// ```
    pub fn stream(&self) -> ItemStream<K> {
        ItemStream { queue: self.clone(), state: GetState::New }
    }
}

impl<K> Stream for ItemStream<K> {
    type Item = OwnedItem<K>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<OwnedItem<K>>> {
        let this = self.get_mut();
        if this.is_terminated() {
            return Poll::Ready(None);
        }
        let shared = &this.queue.shared;
        let polled = this.state.poll(shared, cx.waker(), |claimed| Item::new(shared, claimed).into_owned());
        if let Poll::Ready(Some(_)) = polled {
            this.state = GetState::New;
        }
        polled
    }
}

impl<K> FusedStream for ItemStream<K> {
    fn is_terminated(&self) -> bool {
        matches!(self.state, GetState::Finished)
    }
}

impl<K> Drop for ItemStream<K> {
    fn drop(&mut self) {
        self.state.leave(&self.queue.shared);
    }
}

impl<K> fmt::Debug for ItemStream<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemStream").field("state", &self.state).finish_non_exhaustive()
    }
}
