//! One key of a lock-free queue in memory.
//!
//! ```text
//!   node   slot: of this only the key and its hash · word · order · times, if the queue measures
//! ```
//!
//! The map of the queue owns its nodes, each an allocation of its own. A node begins with a [`Slot`], so that an item reads key and hash in
//! the same way in either kind of memory, which the index in the slot tells apart. A [`NodeRef`] is used only while a claim, an entry, the
//! holder, the records or a guard of the map keeps the node from being freed (F6).

use super::hash::KeyHash;
use super::slot::{EntryRef, Slot, SlotId};
use super::word::{Bits, Word};
use crate::sync::{AtomicU64, Ordering};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The index in the slot of a node, which no slot of a chunk has.
const IS_NODE: u8 = u8::MAX;

#[repr(C)]
struct Node<K> {
    /// The first field, so that a pointer to the node is one to the slot.
    slot: Slot<K>,
    word: Word,
    order: AtomicU64,
    times: Option<Box<NodeTimes>>,
}

/// When a key became dirty, when it was handed out, and how long it had been queued by then: in nanoseconds, or [`UNKNOWN`](Self::UNKNOWN).
pub(crate) struct NodeTimes {
    pub(crate) queued_at: AtomicU64,
    pub(crate) started_at: AtomicU64,
    pub(crate) waited: AtomicU64,
}

impl NodeTimes {
    pub(crate) const UNKNOWN: u64 = u64::MAX;
}

/// A reference to a node that is not freed (F6).
pub(crate) struct NodeRef<K>(NonNull<Node<K>>);

impl<K> Clone for NodeRef<K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for NodeRef<K> {}

impl<K> PartialEq for NodeRef<K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K> Eq for NodeRef<K> {}

// SAFETY: a `NodeRef` behaves as a `&Node<K>`. Any thread reads the key through it (`Sync`), and any thread may free the node and drop the
// key (`Send`). The slot's cells are not written after the node was made (F6).
unsafe impl<K: Send + Sync> Send for NodeRef<K> {}
// SAFETY: the same holds for a reference to a `NodeRef` (F6).
unsafe impl<K: Send + Sync> Sync for NodeRef<K> {}

impl<K> NodeRef<K> {
    /// A new node. Its owner [frees](Self::free) it.
    pub(crate) fn new(key: K, hash: KeyHash, bits: Bits, is_measured: bool) -> Self {
        let slot = Slot::vacant(IS_NODE);
        slot.hash.set(hash);
        let unknown = || AtomicU64::new(NodeTimes::UNKNOWN);
        let times =
            is_measured.then(|| Box::new(NodeTimes { queued_at: unknown(), started_at: unknown(), waited: unknown() }));
        let mut node = Box::new(Node { slot, word: Word::new(bits), order: AtomicU64::new(0), times });
        node.slot.key = crate::sync::UnsafeCell::new(MaybeUninit::new(key));
        Self(NonNull::from(Box::leak(node)))
    }

    #[inline]
    fn node(&self) -> &Node<K> {
        // SAFETY: the node is not freed, and no code makes a `&mut` to it (F6).
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn word(&self) -> &Word {
        &self.node().word
    }

    /// The key as an item has it.
    #[inline]
    pub(crate) fn entry(self) -> EntryRef<K> {
        EntryRef(self.0.cast())
    }

    #[inline]
    pub(crate) fn hash(&self) -> KeyHash {
        self.node().slot.hash.get()
    }

    #[inline]
    pub(crate) fn id(&self) -> SlotId {
        self.entry().id()
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        self.node().slot.key.with(|key| {
            // SAFETY: `key` points into the node, which is not freed (F6), and the cell is not written after the node was made.
            let key = unsafe { &*key };
            // SAFETY: each node has its key from the beginning (F6).
            unsafe { key.assume_init_ref() }
        })
    }

    /// The place of the key's last push among all pushes. Lists of keys are sorted by it, while hand-outs come in the order of the line.
    pub(crate) fn order(&self) -> u64 {
        self.node().order.load(Ordering::Relaxed) // Relaxed: the word says whether this is the place of a push
    }

    #[inline]
    pub(crate) fn set_order(&self, order: u64) {
        self.node().order.store(order, Ordering::Relaxed); // Relaxed: see `order`
    }

    /// The times of the key, if the queue measures.
    #[inline]
    pub(crate) fn times(&self) -> Option<&NodeTimes> {
        self.node().times.as_deref()
    }

    #[inline]
    pub(crate) fn into_address(self) -> *mut () {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// The address is that of [`into_address`](Self::into_address), and the node is not freed (F6).
    #[inline]
    pub(crate) unsafe fn from_address(address: *mut ()) -> Self {
        // SAFETY: the address is that of a `NodeRef` (F6).
        Self(unsafe { NonNull::new_unchecked(address.cast()) })
    }

    /// Returns the key.
    ///
    /// # Safety
    /// The caller owns the node, and no other reference to it is left (F6).
    pub(crate) unsafe fn free(self) -> K {
        // SAFETY: `new` has made it from a box, and the caller owns it (F6).
        let node = unsafe { Box::from_raw(self.0.as_ptr()) };
        node.slot.key.with(|key| {
            // SAFETY: `key` points into the node, which is freed below (F6).
            let key = unsafe { &*key };
            // SAFETY: each node has its key, which is read once: the node is freed, and a slot does not drop its key (F6).
            unsafe { key.assume_init_read() }
        })
    }
}

impl<K> EntryRef<K> {
    /// The node of a held key, if that is a key of a lock-free queue.
    #[inline]
    pub(crate) fn node(&self) -> Option<NodeRef<K>> {
        (self.slot().index == IS_NODE).then(|| NodeRef(self.0.cast()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_node_is_read_as_a_slot() {
        let key = Rc::new(5_u128);
        let node = NodeRef::new(Rc::clone(&key), KeyHash(7), Bits::CLAIMED, false);
        let entry = node.entry();
        assert_eq!((**entry.key(), entry.hash(), entry.id()), (5, KeyHash(7), node.id()));
        assert!(entry.node() == Some(node));
        assert_eq!(Rc::strong_count(&key), 2);
        // SAFETY: this test owns the node, and uses no other reference afterwards (F6).
        drop(unsafe { node.free() });
        assert_eq!(Rc::strong_count(&key), 1);
    }
}
