//! A held key becomes dirty, and its holder waits for that.
//!
//! ```text
//!   holder   lock ─ wait_for_dirty ─▶ ticket: put the waker on the list of the hub ─ unlock
//!   add      lock ─ the key becomes dirty: DIRTY is owed ─ take_dirty ─▶ tickets ─ unlock ─ wake
//! ```
//!
//! A ticket is the number of the key's slot, so it may come when nobody waits any more, or wake the holder of a later hand-out, which looks
//! and waits again.

use super::{Claimed, EntryRef, Machine, Owed};

/// Stands for those who wait until a held key becomes dirty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DirtyTicket(u32);

impl<K> Machine<K> {
    /// From now on the add that makes the key dirty owes [`Owed::DIRTY`]. `None` if the key is dirty already.
    pub(crate) fn wait_for_dirty(&mut self, claimed: &Claimed<K>) -> Option<DirtyTicket> {
        let entry = self.held(claimed);
        entry.state().await_dirty().then(|| DirtyTicket(entry.number()))
    }

    /// The tickets of keys that have become dirty: what [`Owed::DIRTY`] stands for.
    #[cold]
    pub(crate) fn take_dirty(&mut self) -> Vec<DirtyTicket> {
        std::mem::take(&mut self.news.dirty)
    }

    #[inline(always)]
    pub(super) fn became_dirty(&mut self, entry: EntryRef<K>) -> Owed {
        if entry.state().is_awaited() { self.tell_of_dirty(entry) } else { Owed::NOTHING }
    }

    #[cold]
    fn tell_of_dirty(&mut self, entry: EntryRef<K>) -> Owed {
        entry.state().clear_awaited();
        self.news.dirty.push(DirtyTicket(entry.number()));
        Owed::only_if(true, Owed::DIRTY)
    }
}
