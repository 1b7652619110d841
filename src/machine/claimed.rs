//! The token of a key that was handed out: an item has it, and `done` or `requeue` takes it, once.
//!
//! A hot `done` checks that the token is of its machine in debug builds only, because that takes seven instructions.

use super::{EntryRef, Machine};
use crate::key::{KeyHash, SlotId};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

const IS_OF_ANOTHER: &str = "the key was handed out by another queue, or by another shard";

/// A key that was handed out. Its owner ends its processing, once.
#[must_use = "a key that is processing has to be ended"]
pub(crate) struct Claimed<K>(EntryRef<K>);

// A panic leaves no step of the slot half done. See the same `impl` of what all handles of a queue share.
impl<K: RefUnwindSafe> UnwindSafe for Claimed<K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for Claimed<K> {}

impl<K> Claimed<K> {
    #[inline]
    pub(super) fn new(entry: EntryRef<K>) -> Self {
        Self(entry)
    }

    /// The token of a key that a lock-free queue has handed out.
    #[cfg(feature = "lock-free")]
    #[inline]
    pub(crate) fn of_node(node: crate::key::NodeRef<K>) -> Self {
        Self(node.entry())
    }

    /// The node of a key that a lock-free queue has handed out.
    #[cfg(feature = "lock-free")]
    #[inline]
    pub(crate) fn node(&self) -> crate::key::NodeRef<K> {
        self.0.node().expect("handed out by a lock-free queue")
    }

    #[inline]
    pub(crate) fn key(&self) -> &K {
        self.0.key()
    }

    /// A second token, to move it out of a value that has a `Drop`, or to lend it to an item that is not dropped.
    ///
    /// # Safety
    /// The caller passes at most one of the two tokens to a verb that consumes it (S4).
    #[inline]
    pub(crate) unsafe fn duplicate(&self) -> Self {
        Self(self.0)
    }

    /// Whether the machine counts failures of the key. Without the lock the answer may be out of date.
    pub(crate) fn has_failed(&self) -> bool {
        #[cfg(feature = "lock-free")]
        if let Some(node) = self.0.node() {
            return node.word().load().is_noted();
        }
        self.0.state().has_failed()
    }

    /// The hash that is kept of the key, which says in which shard it is.
    pub(crate) fn hash(&self) -> KeyHash {
        self.0.hash()
    }

    #[inline]
    pub(crate) fn prefetch(&self) {
        self.0.prefetch();
    }

    /// A name of the hand-out that no other one of the queue has at the same time.
    pub(crate) fn slot(&self) -> SlotId {
        self.0.id()
    }

    /// Whether the key was added since it was handed out.
    pub(crate) fn is_dirty(&self) -> bool {
        #[cfg(feature = "lock-free")]
        if let Some(node) = self.0.node() {
            return node.word().load().is_dirty();
        }
        self.0.state().is_dirty()
    }

    /// Whether the thread was already unwinding when it got the key, so that a drop by this unwinding does not mean that the work on the
    /// key has panicked.
    pub(crate) fn was_unwinding(&self) -> bool {
        #[cfg(feature = "lock-free")]
        if let Some(node) = self.0.node() {
            return node.word().load().was_unwinding();
        }
        self.0.state().was_unwinding()
    }
}

impl<K: fmt::Debug> fmt::Debug for Claimed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claimed").field(self.key()).finish()
    }
}

impl<K> Machine<K> {
    /// The key of a token. Panics if it was handed out by another machine.
    #[inline(always)]
    pub(super) fn held(&self, claimed: &Claimed<K>) -> EntryRef<K> {
        assert!(self.keys.owns(claimed.0), "{IS_OF_ANOTHER}");
        claimed.0
    }

    /// The same for hot calls, with a check in debug builds only.
    #[inline(always)]
    pub(super) fn just_held(&self, claimed: &Claimed<K>) -> EntryRef<K> {
        debug_assert!(self.keys.owns(claimed.0), "{IS_OF_ANOTHER}");
        claimed.0
    }

    pub(crate) fn priority(&self, claimed: &Claimed<K>) -> i8 {
        self.held(claimed).priority()
    }

    pub(crate) fn note_unwinding(&mut self, claimed: &Claimed<K>) {
        self.held(claimed).state().set_unwinding();
    }
}
