//! The latest value of each key: for events that carry data.
//!
//! A [`WorkQueue`] merges the adds of a key, so an event cannot hand its data to a worker: the queue keeps the first key and drops the
//! rest. A [`ValueQueue`] is a layer over a queue that keeps one value for each key beside it. An add that finds a value there merges the
//! two, by default so that the latest one wins, and a value stays until a run with it has succeeded.
//!
//! Before you take it, ask whether the worker can read the present state instead, as the [crate's page](crate) advises: then no value can
//! be stale, and none has to be kept.
//!
//! # Examples
//! ```
//! use keyqueue::WorkQueue;
//! use keyqueue::values::ValueQueue;
//!
//! # fn write(_: &str, _: &u32) -> Result<(), std::io::Error> { Ok(()) }
//! let values = ValueQueue::new(WorkQueue::<&str>::new());
//! let workers = values.queue().workers().spawn(2, {
//!     let values = values.clone();
//!     move |sensor| -> Result<(), std::io::Error> {
//!         let Some(reading) = values.value(sensor) else { return Ok(()) }; // an earlier run had it
//!         write(sensor, &reading)?; // after an error or a panic, the retry has this value, or a later one
//!         reading.succeed();
//!         Ok(())
//!     }
//! })?;
//!
//! for reading in [20, 21, 23] {
//!     values.add("kitchen", reading)?; // an error gives the value back: the queue is shutting down
//! }
//!
//! let left = workers.drain();
//! assert!(left.is_empty() && values.take_all().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a value moves
//!
//! ```text
//!   add(key, b)          value(&item)            succeed, finish(Ok)
//!  ────────────▶ [ a, b ] ───────────▶ [ ab ] ──────────────────────▶ [ ]
//!                                        │ │
//!                                        │ └ another end: stays ────▶ [ ab ]  ── add(key, c) ──▶ [ ab, c ] …
//!                                        └ add(key, c): beside it ──▶ [ ab, c ]
//! ```
//!
//! A value never leaves the layer before a run has succeeded. A worker reads it where it is, so a handler that fails or panics, a task
//! that is aborted, and a [`Value`] that is leaked all leave it there, and there is nothing to put back. A value that has been added since
//! stands beside it, and the next run has both, merged, the older one first.
//!
//! An add stores its value first, and then adds the key. A run that begins in between has the value already, and the run that follows,
//! for the add of the key, may then find none. A handler therefore returns early, as above, if there is no value. The same happens if the
//! key was added by a call of the [queue](ValueQueue::queue) itself.
//!
//! # What it guarantees
//!
//! Each value whose add was accepted is in the value of exactly one successful run, which reads it after the add, or a call takes it out:
//! [`take_all`](ValueQueue::take_all), as what is left after a drain, or [`remove`](ValueQueue::remove). ([P26](crate::guarantees))
//!
//! A value by itself brings no run about, only its key does. The key of a value may therefore be gone from the queue: it was given up, its
//! delay was [cancelled](WorkQueue::cancel), a call took it out, or its handler returned a success and did not say that of the value. The
//! value then waits for the next add of the key, or for a call that takes it out.

use crate::panics::{Caught, contained, drop_each};
use crate::sync::Mutex;
use crate::{AddOptions, Added, Equivalent, IntoOutcome, Outcome, WorkQueue};
use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use sealed::Held;
use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::mem;
use std::ops::{Deref, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// A queue of keys with values. See the [module's page](self).
///
/// This is a handle of the layer and its queue, and clones are cheap. The calls of the [queue](Self::queue) itself stay as they are:
/// workers, loops of your own, delays, limits, drains. Only adds come through here.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::values::ValueQueue;
///
/// // Flags that say what has changed: no flag is lost.
/// let values = ValueQueue::with_merge(WorkQueue::new(), |older: &u8, newer: &u8| older | newer);
/// values.add("pod-1", 0b001)?;
/// values.add("pod-1", 0b100)?;
///
/// let item = values.queue().get().unwrap();
/// let flags = values.value(&item).unwrap();
/// assert_eq!(*flags, 0b101);
/// flags.succeed();
/// item.succeed();
/// # Ok::<(), keyqueue::values::Refused<u8>>(())
/// ```
pub struct ValueQueue<K, V> {
    inner: Arc<Inner<K, V>>,
}

type Merge<V> = dyn Fn(&V, &V) -> V + Send + Sync;

struct Inner<K, V> {
    queue: WorkQueue<K>,
    /// `None`: the latest value wins.
    merge: Option<Box<Merge<V>>>,
    /// As many as the queue has, which is a power of two, each under a lock of its own. A section takes one of these locks and no other
    /// one, and runs no foreign code but the `Eq` of keys (P17).
    shards: Box<[CachePadded<Locked<K, V>>]>,
}

type Locked<K, V> = Mutex<Shard<K, V>>;

struct Shard<K, V> {
    entries: HashTable<Entry<K, V>>,
    /// The stamp of the last add. Stamps grow for as long as the shard lives, so a stamp names one part, even of a key that was gone.
    stamp: u64,
}

/// What the layer has of a key: at least one part.
struct Entry<K, V> {
    hash: u64,
    key: K,
    /// From the oldest to the newest. They are merged under no lock, so there may be several.
    parts: Vec<Part<V>>,
    /// Runs have read the parts up to this stamp. A merge of an add leaves them alone, so that a run's success takes out what it has read.
    read: u64,
}

struct Part<V> {
    /// The stamp of the last add whose value is in it.
    stamp: u64,
    value: Arc<V>,
}

/// Stamps of parts: those greater than `after`, up to `end`.
struct Stamps {
    after: u64,
    end: u64,
}

/// Where a key is: its shard, and its hash.
type Place<'a, K, V> = (&'a Locked<K, V>, u64);

/// A table of at most this number of buckets does not shrink.
const SHRINK_MIN: usize = 64;

/// The queue has refused the key, because it is shutting down or [full](crate::WorkQueueBuilder::max_keys). This gives the value back.
///
/// # Examples
/// ```
/// use keyqueue::WorkQueue;
/// use keyqueue::values::{Refused, ValueQueue};
///
/// let values = ValueQueue::new(WorkQueue::new());
/// values.queue().shut_down();
/// let Err(Refused(value)) = values.add("pod-1", 7) else { panic!("accepted") };
/// assert_eq!(value, 7);
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<V>(pub V);

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").finish_non_exhaustive()
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is shutting down or full, and refused the key and its value")
    }
}

impl<V> Error for Refused<V> {}

impl<K, V> ValueQueue<K, V> {
    /// A layer over this queue, of which the latest value of a key wins.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::values::ValueQueue;
    ///
    /// let values = ValueQueue::new(WorkQueue::builder().shards(4).build());
    /// values.add("pod-1", "old")?;
    /// values.add("pod-1", "new")?;
    /// let item = values.queue().get().unwrap();
    /// assert_eq!(*values.value(&item).unwrap(), "new");
    /// # Ok::<(), keyqueue::values::Refused<&str>>(())
    /// ```
    #[must_use]
    pub fn new(queue: WorkQueue<K>) -> Self {
        Self::build(queue, None)
    }

    /// Like [`new`](Self::new), with a function that merges two values of a key. It gets the older one first.
    ///
    /// It runs under no lock, in the thread of an add, of [`value`](Self::value), or of a call that takes values out. The layer chooses
    /// which neighbours it merges first, so the function should be associative: the merge of a and b, with c, is the same as a with the
    /// merge of b and c. If another thread has changed the values meanwhile, the layer throws the result away, and calls the function
    /// again. If the function panics, both values stay as they were, and the next add or run of the key merges them.
    ///
    /// It gets references, because a run may be reading the older value, and so that no panic loses a value. If values have large parts,
    /// put these into an `Arc`.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue::values::ValueQueue;
    /// use std::time::Instant;
    ///
    /// /// When the first event came, and the newest state.
    /// #[derive(Clone)]
    /// struct Change {
    ///     first: Instant,
    ///     state: String,
    /// }
    ///
    /// let values = ValueQueue::with_merge(WorkQueue::<u64>::new(), |older: &Change, newer: &Change| {
    ///     Change { first: older.first, ..newer.clone() }
    /// });
    /// # let _ = values;
    /// ```
    #[must_use]
    pub fn with_merge(queue: WorkQueue<K>, merge: impl Fn(&V, &V) -> V + Send + Sync + 'static) -> Self {
        Self::build(queue, Some(Box::new(merge)))
    }

    fn build(queue: WorkQueue<K>, merge: Option<Box<Merge<V>>>) -> Self {
        let shard = || Mutex::one_of_many(Shard { entries: HashTable::new(), stamp: 0 });
        let shards = (0..queue.shards()).map(|_| CachePadded::new(shard())).collect();
        Self { inner: Arc::new(Inner { queue, merge, shards }) }
    }

    /// The queue of the keys. An add by a call of the queue itself brings a run about, which finds a value only if the key has one.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::new());
    /// values.add("pod-1", 7)?;
    /// assert_eq!(values.queue().len(), 1);
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K> {
        &self.inner.queue
    }

    /// The number of keys that have a value, of which no run has succeeded yet. A snapshot. It is more than the keys in the queue, if keys
    /// were given up or taken out and their values were not.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::new());
    /// values.add("pod-1", 7)?;
    /// values.add("pod-1", 8)?;
    /// assert_eq!(values.len(), 1);
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// Whether no key has a value. A snapshot.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::<&str, i32>::new(WorkQueue::new());
    /// assert!(values.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V> ValueQueue<K, V> {
    /// Stores a value, or merges it with the one that the key has, and [adds](WorkQueue::add) the key.
    ///
    /// # Errors
    /// [`Refused`] if the queue refuses the key, because it is shutting down or [full](crate::WorkQueueBuilder::max_keys). Nothing has
    /// changed then. If a run or another add has read the value meanwhile, the call returns [`Added::Coalesced`] instead: the value is in
    /// theirs, which stays until a run with it has succeeded, or [`take_all`](Self::take_all) returns it.
    ///
    /// # Panics
    /// Like [`WorkQueue::add`], and if the key's `Clone`, the merge, or the drop of a value that was merged panics. If the key's `Hash`,
    /// `Eq` or `Clone` panics before the value is stored, nothing has changed. After any other panic the value is stored, and is in the
    /// next run of the key, even if the queue has not added the key.
    ///
    /// # Blocking
    /// Like [`WorkQueue::add`], and two sections of a lock of this layer, for some tens of nanoseconds. The layer clones a key that has no
    /// value yet. `Eq` runs under the lock, so it must not use this layer or its queue.
    ///
    /// # Memory ordering
    /// An accepted `add` *happens-before* the [`value`](Self::value) that has its value.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Added, WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::new());
    /// assert_eq!(values.add("pod-1", 7)?, Added::Queued);
    /// assert_eq!(values.add("pod-1", 8)?, Added::Coalesced); // and 8 is the value now
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    pub fn add(&self, key: K, value: V) -> Result<Added, Refused<V>> {
        self.store_and_add(key, value, WorkQueue::add)
    }

    /// Like [`add`](Self::add), with a [delay](WorkQueue::add_after). A key has one value, so a run that comes before the end of the
    /// delay has this one, too.
    ///
    /// # Errors
    /// Like [`add`](Self::add).
    ///
    /// # Panics
    /// Like [`add`](Self::add) and [`WorkQueue::add_after`].
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// # use std::time::Duration;
    /// let values = ValueQueue::new(WorkQueue::new());
    /// values.add_after("pod-1", 7, Duration::from_millis(5))?;
    /// let item = values.queue().get().unwrap();
    /// assert_eq!(*values.value(&item).unwrap(), 7);
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    pub fn add_after(&self, key: K, value: V, delay: Duration) -> Result<Added, Refused<V>> {
        self.add_with(key, value, AddOptions::new().after(delay))
    }

    /// Like [`add`](Self::add), with [options](WorkQueue::add_with).
    ///
    /// # Errors
    /// Like [`add`](Self::add).
    ///
    /// # Panics
    /// Like [`add`](Self::add) and [`WorkQueue::add_with`].
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{AddOptions, Priority, WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::new());
    /// values.add_with("pod-1", 7, AddOptions::new().priority(Priority::HIGH))?;
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    pub fn add_with(&self, key: K, value: V, options: AddOptions) -> Result<Added, Refused<V>> {
        self.store_and_add(key, value, |queue, key| queue.add_with(key, options))
    }

    fn store_and_add(
        &self,
        key: K,
        value: V,
        add: impl FnOnce(&WorkQueue<K>, K) -> Added,
    ) -> Result<Added, Refused<V>> {
        let place = self.inner.place(&key);
        // First, so that the run which the add brings about finds it.
        let stored = self.inner.store(place, &key, value);
        let added = add(&self.inner.queue, key);
        if !added.is_accepted() {
            return self.inner.take_back(place, stored.end).map_or(Ok(Added::Coalesced), |value| Err(Refused(value)));
        }
        self.inner.merge(place, stored);
        Ok(added)
    }

    /// The value of a key that a worker holds: all that was added, and that no run has succeeded with. `None` if there is nothing, because
    /// an earlier run has had it, or the key was added without a value. The item is an [`Item`](crate::Item), an
    /// [`OwnedItem`](crate::OwnedItem), or a [`BatchItem`](crate::BatchItem).
    ///
    /// Call this first in a handler, before you read other state, because the run counts as one with this value from this call on. Values
    /// that are added later are for the next run. If the hand-out ends without a success of the [`Value`], the value stays, but does not
    /// bring the key back, so [retry](crate::Item::retry) the key then.
    ///
    /// # Panics
    /// If the item is of another queue, or the key's `Hash` or `Eq`, the merge, or the drop of a value that is merged panics. No value is
    /// lost then.
    ///
    /// # Examples
    /// A loop of your own:
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// # fn write(_: &str, _: i32) -> Result<(), std::io::Error> { Ok(()) }
    /// # let values = ValueQueue::new(WorkQueue::new());
    /// # values.add("pod-1", 7)?;
    /// # values.queue().shut_down();
    /// while let Some(item) = values.queue().get() {
    ///     if let Some(value) = values.value(&item) {
    ///         if write(&item, *value).is_err() {
    ///             item.retry(); // the value stays
    ///             continue;
    ///         }
    ///         value.succeed();
    ///     }
    ///     item.succeed();
    /// }
    /// # assert!(values.is_empty());
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    /// Tasks:
    /// ```
    /// # use keyqueue::{Outcome, WorkQueue, values::ValueQueue};
    /// # async fn write(_: &str, _: &i32) -> Result<(), std::io::Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keyqueue::values::Refused<i32>> {
    /// let values = ValueQueue::new(WorkQueue::<&str>::new());
    /// let workers = values.queue().workers().build();
    /// tokio::spawn(workers.run_async({
    ///     let values = values.clone();
    ///     async move |item| {
    ///         let Some(value) = values.value(item) else { return Outcome::Success };
    ///         let written = write(item, &value).await;
    ///         value.finish(written) // an error: the value stays for the retry
    ///     }
    /// }));
    /// values.add("pod-1", 7)?;
    /// workers.drain_async().await;
    /// assert!(values.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn value<'i>(&'i self, item: &'i impl Held<K>) -> Option<Value<'i, K, V>> {
        let Some(key) = item.key_in(self.queue()) else {
            panic!("keyqueue: the item is of another queue than the values")
        };
        self.inner.read(key)
    }

    /// Takes a key [out of the queue](WorkQueue::remove) if it is queued or delayed, and takes its value out. Returns the value.
    ///
    /// If a worker is reading the value, it goes on, but [`Value::succeed`] will say that it was taken out. For a key that is given up,
    /// call this in [`on_give_up`](crate::WorkersBuilder::on_give_up), unless the value is to wait for the next add of the key.
    ///
    /// # Panics
    /// Like [`WorkQueue::remove`] and [`value`](Self::value).
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::<String>::new());
    /// values.add("pod-1".to_owned(), 7)?;
    /// assert_eq!(values.remove("pod-1").as_deref(), Some(&7));
    /// assert!(values.is_empty() && values.queue().is_empty());
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Arc<V>> {
        // First the key. An add in between leaves it queued without a value, while the other way round it would leave a value without it.
        self.inner.queue.remove(key);
        loop {
            let found = self.inner.read(key)?;
            let value = Arc::clone(&found.value);
            if found.succeed() {
                return Some(value);
            }
        }
    }

    /// Takes all values out: those of keys that were not processed, of runs that failed, and of runs that are not over. Call it after a
    /// drain or a stop, whose [`Leftover`](crate::Leftover) has the keys. It takes no key out of the queue.
    ///
    /// If a worker is still reading a value, it goes on, but [`Value::succeed`] will say that the value was taken out.
    ///
    /// Each key is there once, in no order. If the merge of two of its values panics, the call catches that, and the key is there with
    /// each of them, the older first.
    ///
    /// # Panics
    /// If the key's `Clone` does, which the call needs only in that last case.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// let values = ValueQueue::new(WorkQueue::new());
    /// let workers = values.queue().workers().build();
    /// values.add("pod-1", 7)?;
    /// let keys = workers.stop();
    /// let left = values.take_all();
    /// assert_eq!((keys.queued, *left[0].1), (vec!["pod-1"], 7)); // for the next start
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    #[must_use = "these values are gone from the layer"]
    pub fn take_all(&self) -> Vec<(K, Arc<V>)> {
        let mut all = Vec::new();
        for shard in &self.inner.shards {
            let entries = mem::take(&mut shard.lock().entries);
            for Entry { key, parts, .. } in entries {
                match contained(|| self.inner.merged(&parts)) {
                    Some(value) => {
                        all.push((key, value));
                        drop_each(parts); // a panic must not keep the values from the caller
                    }
                    None => {
                        let mut values = parts.into_iter().map(|part| part.value);
                        let newest = values.next_back();
                        all.extend(values.map(|value| (key.clone(), value)));
                        all.extend(newest.map(|value| (key, value)));
                    }
                }
            }
        }
        all
    }
}

/// The value of a key that a worker holds. It dereferences to the value, which stays in the layer until this says that the run has
/// succeeded. From [`ValueQueue::value`].
///
/// It borrows the item, so that it ends before the hand-out does:
/// ```compile_fail,E0505
/// # use keyqueue::{WorkQueue, values::ValueQueue};
/// # let values = ValueQueue::new(WorkQueue::new());
/// # _ = values.add("pod-1", 7);
/// let item = values.queue().get().unwrap();
/// let value = values.value(&item).unwrap();
/// item.succeed();
/// value.succeed(); // too late: another run might have the value already
/// ```
///
/// # Examples
/// ```
/// # use keyqueue::{WorkQueue, values::ValueQueue};
/// let values = ValueQueue::new(WorkQueue::new());
/// values.add("pod-1", 7)?;
/// let item = values.queue().get().unwrap();
/// let value = values.value(&item).unwrap();
/// assert_eq!(*value, 7);
/// value.succeed();
/// item.succeed();
/// assert!(values.is_empty());
/// # Ok::<(), keyqueue::values::Refused<i32>>(())
/// ```
#[must_use = "the value stays, for the next run, until `succeed` or `finish` says that this run has succeeded"]
pub struct Value<'i, K, V> {
    inner: &'i Inner<K, V>,
    place: Place<'i, K, V>,
    stamp: u64,
    value: Arc<V>,
}

impl<K, V> Value<'_, K, V> {
    /// The run has succeeded, and the value is done with. A value that was added meanwhile stays for the next run.
    ///
    /// Returns `false` if a call had [taken the value out](ValueQueue::take_all) meanwhile, or the holder has read it once more, together
    /// with a later one.
    ///
    /// # Panics
    /// If the drop of the value does. It is out of the layer then.
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{WorkQueue, values::ValueQueue};
    /// # let values = ValueQueue::new(WorkQueue::new());
    /// # values.add("pod-1", 7)?;
    /// # let item = values.queue().get().unwrap();
    /// let value = values.value(&item).unwrap();
    /// values.add("pod-1", 8)?;
    /// value.succeed();
    /// assert_eq!(*values.value(&item).unwrap(), 8);
    /// # Ok::<(), keyqueue::values::Refused<i32>>(())
    /// ```
    pub fn succeed(self) -> bool {
        self.inner.take_read(self.place, self.stamp)
    }

    /// Ends the run of a [handler](crate::Workers): the value is done with if this result is a success, and stays otherwise. Returns the
    /// result as an [`Outcome`], which the handler returns.
    ///
    /// Successes are [`Success`](Outcome::Success), [`Cooldown`](Outcome::Cooldown) and [`RequeueAfter`](Outcome::RequeueAfter). After
    /// [`RequeueWith`](Outcome::RequeueWith), [`GiveUp`](Outcome::GiveUp) and failures the value stays.
    ///
    /// # Panics
    /// Like [`succeed`](Self::succeed).
    ///
    /// # Examples
    /// ```
    /// # use keyqueue::{Outcome, WorkQueue, values::ValueQueue};
    /// # fn write(_: &str, _: &i32) -> Result<(), std::io::Error> { Ok(()) }
    /// # let values = ValueQueue::new(WorkQueue::<&str>::new());
    /// let workers = values.queue().workers().spawn(2, {
    ///     let values = values.clone();
    ///     move |item| {
    ///         let Some(value) = values.value(item) else { return Outcome::Success };
    ///         let written = write(item, &value);
    ///         value.finish(written)
    ///     }
    /// })?;
    /// # values.add("pod-1", 7)?;
    /// # assert!(workers.drain().is_empty() && values.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the handler returns this"]
    pub fn finish(self, result: impl IntoOutcome) -> Outcome {
        let outcome = result.into_outcome();
        if matches!(outcome, Outcome::Success | Outcome::Cooldown(_) | Outcome::RequeueAfter(_)) {
            self.succeed();
        }
        outcome
    }
}

impl<K, V> Deref for Value<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<K, V> Inner<K, V> {
    /// Adds a part to what the layer has of a key. Returns the stamps of what no run has read: the last one is that of the part.
    /// **Linearization point of an add**, as to its value.
    fn store(&self, (shard, hash): Place<'_, K, V>, key: &K, value: V) -> Stamps
    where
        K: Eq + Clone,
    {
        let value = Arc::new(value);
        {
            let shard = &mut *shard.lock();
            if let Some(entry) = shard.entries.find_mut(hash, |entry| entry.key == *key) {
                return entry.push(&mut shard.stamp, value);
            }
        }
        // Declared before the guard, so that it is dropped after it, if another thread has inserted the key meanwhile.
        let new = Entry { hash, key: key.clone(), parts: Vec::with_capacity(1), read: 0 };
        let shard = &mut *shard.lock();
        let entry = match shard.entries.entry(hash, |entry| entry.key == *key, |entry| entry.hash) {
            TableEntry::Occupied(entry) => entry,
            TableEntry::Vacant(place) => place.insert(new),
        };
        entry.into_mut().push(&mut shard.stamp, value)
    }

    /// The queue has refused the key: takes the part out again, unless it was read or merged meanwhile, and so belongs to a run, or to
    /// another add, too.
    fn take_back(&self, (shard, hash): Place<'_, K, V>, stamp: u64) -> Option<V> {
        let mut shard = shard.lock();
        let entry = shard.find(hash, stamp)?;
        let index = entry.index_of(stamp)?;
        // A merge holds another reference, which it has taken under the lock.
        if stamp <= entry.read || Arc::strong_count(&entry.parts[index].value) > 1 {
            return None;
        }
        let (mut parts, key) = shard.take(hash, stamp, index..index + 1)?;
        drop(shard);
        contained(|| drop(key)); // its panic must not keep the value from the caller
        Arc::into_inner(parts.pop()?.value)
    }

    /// The value of a key, merged, for a run that begins.
    fn read<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<Value<'_, K, V>> {
        let place = self.place(key);
        loop {
            let stamp = {
                let shard = &mut *place.0.lock();
                let entry = shard.entries.find_mut(place.1, |entry| key.equivalent(&entry.key))?;
                // Linearization point.
                entry.read = entry.parts.last()?.stamp;
                entry.read
            };
            // None: a call has taken it out meanwhile.
            if let Some(value) = self.merge(place, Stamps { after: 0, end: stamp }) {
                return Some(Value { inner: self, place, stamp, value });
            }
        }
    }

    /// Merges the parts with these stamps, and returns the value. `None` if there is no part with the last stamp any more, because it was
    /// taken out, or merged with a later one.
    ///
    /// Either no run has read these parts, or one run has read all of them, so that no success divides them. They stay where they are
    /// while the merge runs, and are replaced if they are still the same then. So a panic changes nothing.
    fn merge(&self, (shard, hash): Place<'_, K, V>, stamps: Stamps) -> Option<Arc<V>> {
        loop {
            let parts = {
                let mut shard = shard.lock();
                let entry = shard.find(hash, stamps.end)?;
                let range = entry.range(&stamps);
                if range.len() < 2 || self.merge.is_none() {
                    let value = Arc::clone(&entry.parts[range.end - 1].value);
                    let superseded: Vec<_> = entry.parts.drain(range.start..range.end - 1).collect();
                    drop(shard);
                    drop_values(superseded);
                    return Some(value);
                }
                entry.parts[range].to_vec()
            };
            let value = self.merged(&parts);
            let mut shard = shard.lock();
            let entry = shard.find(hash, stamps.end)?;
            let range = entry.range(&stamps);
            if entry.parts[range.clone()].iter().map(|part| part.stamp).eq(parts.iter().map(|part| part.stamp)) {
                // No value is dropped here, under the lock, because `parts` has those that this replaces.
                entry.parts.splice(range, [Part { stamp: stamps.end, value: Arc::clone(&value) }]);
                drop(shard);
                drop_values(parts);
                return Some(value);
            }
        }
    }

    /// Calls the merge, from the oldest part to the newest. There is at least one.
    fn merged(&self, parts: &[Part<V>]) -> Arc<V> {
        let mut values = parts.iter().map(|part| Arc::clone(&part.value));
        let merged = match &self.merge {
            Some(merge) => values.reduce(|older, newer| Arc::new(merge(&older, &newer))),
            None => values.next_back(),
        };
        merged.expect("an entry has a part")
    }

    /// A run has succeeded: takes out what it has read. Returns whether that was still there. **Linearization point of a success.**
    fn take_read(&self, (shard, hash): Place<'_, K, V>, stamp: u64) -> bool {
        let mut shard = shard.lock();
        let index = shard.find(hash, stamp).and_then(|entry| entry.index_of(stamp));
        let taken = index.and_then(|index| shard.take(hash, stamp, 0..index + 1));
        drop(shard);
        // As above: `remove` returns the value.
        taken.map(|(_parts, key)| contained(|| drop(key))).is_some()
    }

    fn place<Q: Hash + ?Sized>(&self, key: &Q) -> Place<'_, K, V> {
        let hash = self.queue.shared.wide_hash(key);
        (&self.shards[(hash >> 32) as usize & (self.shards.len() - 1)], hash)
    }
}

/// Passes on the first panic of a drop. With a second one, the drop of the list would abort the process.
fn drop_values<V>(parts: Vec<Part<V>>) {
    Caught::call_for_each(parts, drop).pass_on();
}

impl<K, V> Shard<K, V> {
    /// The entry that has a part with this stamp.
    fn find(&mut self, hash: u64, stamp: u64) -> Option<&mut Entry<K, V>> {
        self.entries.find_mut(hash, |entry| entry.index_of(stamp).is_some())
    }

    /// Takes parts out of that entry, and the entry if no part is left. The caller drops them when it has released the lock.
    fn take(&mut self, hash: u64, stamp: u64, range: Range<usize>) -> Option<(Vec<Part<V>>, Option<K>)> {
        let mut found = self.entries.find_entry(hash, |entry| entry.index_of(stamp).is_some()).ok()?;
        let entry = found.get_mut();
        if range.len() < entry.parts.len() {
            return Some((entry.parts.drain(range).collect(), None));
        }
        let (entry, _) = found.remove();
        // Compares the buckets, because the capacity does not count those of removed keys.
        if self.entries.num_buckets() > SHRINK_MIN && self.entries.len() < self.entries.num_buckets() / 8 {
            self.entries.shrink_to(self.entries.len() * 2, |entry| entry.hash);
        }
        Some((entry.parts, Some(entry.key)))
    }
}

impl<K, V> Entry<K, V> {
    fn push(&mut self, last: &mut u64, value: Arc<V>) -> Stamps {
        *last += 1;
        self.parts.push(Part { stamp: *last, value });
        Stamps { after: self.read, end: *last }
    }

    fn index_of(&self, stamp: u64) -> Option<usize> {
        self.parts.iter().rposition(|part| part.stamp == stamp)
    }

    /// The parts with these stamps.
    fn range(&self, stamps: &Stamps) -> Range<usize> {
        let count_to = |stamp| self.parts.partition_point(|part| part.stamp <= stamp);
        count_to(stamps.after)..count_to(stamps.end)
    }
}

impl<V> Clone for Part<V> {
    fn clone(&self) -> Self {
        Self { stamp: self.stamp, value: Arc::clone(&self.value) }
    }
}

impl<K, V> Clone for ValueQueue<K, V> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

// As for `WorkQueue`: no lock is poisoned, and a merge that panics changes nothing.
impl<K: RefUnwindSafe, V: RefUnwindSafe> UnwindSafe for ValueQueue<K, V> {}
impl<K: RefUnwindSafe, V: RefUnwindSafe> RefUnwindSafe for ValueQueue<K, V> {}

/// Shows the queue and the number of values.
impl<K, V> fmt::Debug for ValueQueue<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueQueue").field("queue", self.queue()).field("values", &self.len()).finish()
    }
}

/// Shows the value.
impl<K, V: fmt::Debug> fmt::Debug for Value<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&**self).finish()
    }
}

mod sealed {
    use crate::sync::Arc;
    use crate::{BatchItem, Item, OwnedItem, WorkQueue};

    /// An item, of either type.
    #[allow(unreachable_pub)] // a method names it, and no user can
    pub trait Held<K> {
        /// The key, unless the item is of another queue.
        fn key_in(&self, queue: &WorkQueue<K>) -> Option<&K>;
    }

    impl<K> Held<K> for Item<'_, K> {
        fn key_in(&self, queue: &WorkQueue<K>) -> Option<&K> {
            Arc::ptr_eq(self.queue(), &queue.shared).then(|| self.key())
        }
    }

    impl<K> Held<K> for BatchItem<'_, K> {
        fn key_in(&self, queue: &WorkQueue<K>) -> Option<&K> {
            Held::key_in(&**self, queue)
        }
    }

    impl<K> Held<K> for OwnedItem<K> {
        fn key_in(&self, queue: &WorkQueue<K>) -> Option<&K> {
            Arc::ptr_eq(self.queue(), &queue.shared).then(|| self.key())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_shrinks_after_a_burst() {
        let values = ValueQueue::new(WorkQueue::new());
        (0..10_000).for_each(|key| _ = values.add(key, key).unwrap());
        let buckets = || values.inner.shards[0].lock().entries.num_buckets();
        assert!(buckets() >= 10_000);
        (0..10_000).for_each(|key| assert_eq!(values.remove(&key).as_deref(), Some(&key)));
        assert!(buckets() <= SHRINK_MIN, "{} buckets", buckets());
    }
}
