//! The keys that the machine knows, in the table and its slots: what the rest of the crate uses of this folder, without unsafe code of its own.
//!
//! ```text
//!   slot of the table    state · index · levels · hash · next · entry
//!   entry                position · group · key
//! ```
//!
//! Of the levels the first is the priority with which the key is queued, or was handed out; the second is the priority that it will have
//! when its processing ends, if it is dirty then. With a `u64`, a slot takes 32 bytes.
//!
//! **The rule of this file**, which the rest of the machine keeps without unsafe code: an [`EntryRef`] is that of a key in the table. The
//! order has it while the key is queued, a [`Claimed`](crate::machine::Claimed) while the key is processing, and a verb while it runs, until the
//! verb calls [`Keys::remove`] (S4). So the slot is taken (S2), and does not move (S3). A verb that gets a `Claimed` asks [`Keys::owns`]
//! before it changes anything; `done` does so in debug builds.
//!
//! All but the key is used under the queue's lock. The holder of a key reads the key without it.

use super::hash::Hash;
use super::slab::Retired;
use super::slot::{SlotId, SlotRef, SlotView};
use super::state::State;
use super::table::Table;
use equivalent::Equivalent;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// A key, and where it is in the order.
pub(crate) struct Entry<K> {
    /// Atomic only because the holder of the key has a reference to all of the entry, and may be on another thread.
    position: AtomicU32,
    /// The number of its group. Does not change.
    group: AtomicU32,
    key: K,
}

/// A key in the table: see the rule at the top of this file.
pub(crate) struct EntryRef<K>(SlotRef<Entry<K>>);

impl<K> Clone for EntryRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for EntryRef<K> {}

impl<K> PartialEq for EntryRef<K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> EntryRef<K> {
    #[inline]
    fn view(&self) -> SlotView<'_, Entry<K>> {
        // SAFETY: in the table by the rule of this file, so the slot is taken.
        unsafe { self.0.view() }
    }

    #[inline]
    fn entry(&self) -> &Entry<K> {
        self.view().key()
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        &self.entry().key
    }

    pub(crate) fn hash(&self) -> Hash {
        self.view().hash()
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.view().id()
    }

    #[inline]
    pub(crate) fn state(&self) -> &State {
        self.view().state()
    }

    /// The priority with which the key is queued, or was handed out.
    #[inline]
    pub(crate) fn priority(&self) -> i8 {
        self.view().levels()[0].get()
    }

    #[inline]
    pub(crate) fn set_priority(&self, priority: i8) {
        self.view().levels()[0].set(priority);
    }

    /// The priority that the key will have when its processing ends. Only while it is processing and dirty.
    #[inline]
    pub(crate) fn pending(&self) -> i8 {
        self.view().levels()[1].get()
    }

    #[inline]
    pub(crate) fn set_pending(&self, priority: i8) {
        self.view().levels()[1].set(priority);
    }

    /// The number of its group.
    #[inline]
    pub(crate) fn group(&self) -> u32 {
        self.entry().group.load(Ordering::Relaxed)
    }

    /// Its position in the order. Only while it is queued.
    #[inline]
    pub(crate) fn position(&self) -> u32 {
        self.entry().position.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_position(&self, position: u32) {
        self.entry().position.store(position, Ordering::Relaxed);
    }

    /// Brings the slot near.
    #[inline]
    pub(crate) fn prefetch(self) {
        self.0.prefetch();
    }
}

/// The keys of a machine.
pub(crate) struct Keys<K>(Table<Entry<K>>);

/// Finds a key by another type.
struct By<'q, Q: ?Sized>(&'q Q);

impl<K, Q: Equivalent<K> + ?Sized> Equivalent<Entry<K>> for By<'_, Q> {
    #[inline]
    fn equivalent(&self, entry: &Entry<K>) -> bool {
        self.0.equivalent(&entry.key)
    }
}

impl<K> Keys<K> {
    /// The slots of a chunk.
    pub(crate) const CHUNK: usize = Table::<Entry<K>>::CHUNK;

    #[cfg(test)]
    pub(crate) const BYTES: usize = Table::<Entry<K>>::SLOT;

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub(crate) fn new(capacity: usize) -> Self {
        Self(Table::new(capacity))
    }

    #[inline]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: Hash) -> Option<EntryRef<K>> {
        self.0.find(&By(key), hash).map(EntryRef)
    }

    /// Puts in a key that is not there. The verb sets a bit of its state (I4).
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: K, hash: Hash, group: u32) -> EntryRef<K> {
        let entry = Entry { position: AtomicU32::new(0), group: AtomicU32::new(group), key };
        EntryRef(self.0.insert(entry, hash))
    }

    /// Takes out a key whose last bit the verb has cleared (I4). The verb forgets the entry, and the caller drops the key after its lock.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: EntryRef<K>) -> K {
        debug_assert!(entry.state().is_vacant(), "I4");
        // SAFETY: in the table by the rule of this file; no bit is set, so the key is not queued and has no holder; the caller forgets it.
        unsafe { self.0.remove(entry.0) }.key
    }

    /// Whether the key is in this table, and not in that of another machine.
    #[inline]
    pub(crate) fn owns(&self, entry: EntryRef<K>) -> bool {
        self.0.owns(entry.view())
    }

    /// The number of the key's slot.
    #[inline]
    pub(crate) fn number(&self, entry: EntryRef<K>) -> u32 {
        self.0.number(entry.view())
    }

    /// The key in the slot of this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<EntryRef<K>> {
        self.0.get(number).map(EntryRef)
    }

    /// The keys in these chunks of slots.
    pub(crate) fn iter(&self, chunks: Range<usize>) -> impl Iterator<Item = EntryRef<K>> {
        self.0.iter_chunks(chunks).map(|slot| EntryRef(slot.slot_ref()))
    }

    /// The end of the numbers of chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.0.chunks()
    }

    /// Frees the chunks in this range that have no keys.
    pub(crate) fn shrink_chunks(&mut self, chunks: Range<usize>) {
        self.0.shrink_chunks(chunks);
    }

    /// One step of freeing what the table does not need. `true`: there is more to do.
    pub(crate) fn shrink_buckets(&mut self, chains: usize) -> bool {
        self.0.shrink_buckets(chains)
    }

    /// The number of keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Brings near what the end of the processing of this key will read of the table.
    #[inline]
    pub(crate) fn prefetch_chain(&self, entry: EntryRef<K>) {
        self.0.prefetch(entry.view());
    }

    /// Where the buckets are, and their number.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.0.buckets()
    }

    #[inline]
    pub(crate) fn has_retired(&self) -> bool {
        self.0.has_retired()
    }

    /// Memory that is not needed any more.
    pub(crate) fn take_retired(&mut self) -> Vec<Retired<Entry<K>>> {
        self.0.take_retired()
    }
}
