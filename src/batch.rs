//! Keys that were handed out together, and end together.

use crate::item::Item;
use crate::machine::End;
use crate::panics::Caught;
use crate::sync::panicking;
use std::fmt;
use std::ops::Deref;

/// The items that [`WorkQueue::get_batch`](crate::WorkQueue::get_batch) returns. When the batch is dropped, all its keys are done.
///
/// A batch is for work that is cheaper for many keys at once, such as one request to a database. It dereferences to a slice of [`Item`]s,
/// so a worker can look at each key. In a queue with one shard, one critical section ends up to 32 of its keys, where as many items take 32
/// sections; with several shards, or without locks, each key ends by itself. If some keys of a batch have failed, take their items out with
/// [`swap_remove`](Self::swap_remove), and [retry](Item::retry) them.
///
/// What an [`Item`] says about adds, panics and leaks holds for each item of a batch.
///
/// # Examples
/// ```
/// # use keyqueue::WorkQueue;
/// # fn write_all<'a>(keys: impl Iterator<Item = &'a u32>) {}
/// let queue = WorkQueue::new();
/// queue.add_all(0..250);
/// # queue.shut_down();
/// loop {
///     let batch = queue.get_batch(100); // waits for the first key
///     if batch.is_empty() {
///         break; // the queue is shut down
///     }
///     write_all(batch.iter().map(|item| item.key()));
///     batch.succeed();
/// }
/// assert_eq!(queue.stats().handed_out, 250);
/// ```
/// Some keys have failed:
/// ```
/// # let queue = keyqueue::WorkQueue::builder().driver(keyqueue::Driver::Manual).build();
/// queue.add_all(["pod-1", "pod-2", "pod-3"]);
/// let mut batch = queue.get_batch(10);
/// let failed = |key: &str| key == "pod-2";
/// while let Some(index) = batch.iter().position(|item| failed(item)) {
///     batch.swap_remove(index).retry();
/// }
/// batch.succeed();
/// assert_eq!((queue.delayed_len(), queue.processing_len()), (1, 0));
/// ```
#[must_use = "dropping a batch says that its keys are done"]
pub struct Batch<'q, K> {
    items: Vec<Item<'q, K>>,
}

impl<'q, K> Batch<'q, K> {
    pub(crate) fn new(items: Vec<Item<'q, K>>) -> Self {
        Self { items }
    }

    /// Ends all hand-outs: the same as a drop.
    ///
    /// # Panics
    /// Like [`Item::done`]. All keys are done then too.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(0..10);
    /// queue.get_batch(10).done();
    /// assert_eq!(queue.processing_len(), 0);
    /// ```
    pub fn done(mut self) {
        self.end(End::Done);
    }

    /// Ends all hand-outs after a success, and forgets the failures of the keys. See [`Item::succeed`].
    ///
    /// # Panics
    /// Like [`Item::succeed`]. All keys are done then too.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_rate_limited("pod-1"); // counts a failure
    /// queue.get_batch(10).succeed();
    /// assert_eq!(queue.num_requeues(&"pod-1"), 0);
    /// ```
    pub fn succeed(mut self) {
        let mut caught = Caught::NOTHING;
        self.items.iter().for_each(|item| caught.keep(item.limiter_forget()));
        self.end(End::Succeed);
        caught.pass_on();
    }

    /// Takes an item out of the batch, for an end of its own. The last item takes its place.
    ///
    /// # Panics
    /// If `index` is out of bounds.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-2"]);
    /// let mut batch = queue.get_batch(10);
    /// batch.swap_remove(0).retry();
    /// assert_eq!(*batch[0], "pod-2");
    /// ```
    pub fn swap_remove(&mut self, index: usize) -> Item<'q, K> {
        self.items.swap_remove(index)
    }

    /// The items, each of which then ends by itself.
    ///
    /// # Examples
    /// ```
    /// let queue = keyqueue::WorkQueue::new();
    /// queue.add_all(["pod-1", "pod-2"]);
    /// let mut items = queue.get_batch(10).into_items();
    /// items.remove(0).retry();
    /// items.remove(0).succeed();
    /// ```
    #[must_use = "an item that is dropped is done"]
    pub fn into_items(mut self) -> Vec<Item<'q, K>> {
        std::mem::take(&mut self.items)
    }

    fn end(&mut self, end: End) {
        let Some(first) = self.items.first() else { return };
        let queue = first.queue();
        queue.end_all(std::mem::take(&mut self.items), end);
    }
}

impl<K> Drop for Batch<'_, K> {
    fn drop(&mut self) {
        if panicking() {
            self.items.clear(); // each item says what a panic means for its key
        } else {
            self.end(End::Done);
        }
    }
}

impl<'q, K> Deref for Batch<'q, K> {
    type Target = [Item<'q, K>];

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl<'q, K> IntoIterator for Batch<'q, K> {
    type Item = Item<'q, K>;
    type IntoIter = std::vec::IntoIter<Item<'q, K>>;

    /// See [`into_items`](Batch::into_items). Items that the iterator has not yielded are done when it is dropped.
    fn into_iter(self) -> Self::IntoIter {
        self.into_items().into_iter()
    }
}

impl<'b, 'q, K> IntoIterator for &'b Batch<'q, K> {
    type Item = &'b Item<'q, K>;
    type IntoIter = std::slice::Iter<'b, Item<'q, K>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<K: fmt::Debug> fmt::Debug for Batch<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}
