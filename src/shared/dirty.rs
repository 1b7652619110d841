//! Tasks that wait until a key that is processing becomes dirty, which makes the work on it stale.
//!
//! ```text
//!   task   lock the shard ─ the key is clean: the machine marks it, and returns a ticket ─ lock the hub: on the list ─ unlock both
//!   add    lock the shard ─ the marked key becomes dirty: its ticket is owed ─ lock the hub: off the list ─ unlock both ─ wake
//! ```
//!
//! Both hold the shard throughout, so no task finds the key clean and misses the add.

use super::Shared;
use super::state::if_free;
use super::waiters::{Event, TaskTicket};
use crate::machine::Claimed;
use std::task::Waker;

impl<K> Shared<K> {
    /// Whether a key that the caller holds is dirty. If not, puts the task on the list, where the next add of the key finds it, and sets
    /// `ticket`.
    pub(crate) fn poll_dirty(&self, claimed: &Claimed<K>, ticket: &mut Option<TaskTicket>, waker: &Waker) -> bool {
        if_free!(self, _free => self.free_poll_dirty(claimed, ticket, waker.clone()));
        let (locked, waker) = (self.home(claimed), waker.clone());
        let mut held = locked.lock();
        let Some(of) = held.marks().wait_for_dirty(claimed) else { return true };
        let older = self.hub().tasks.insert(Event::Dirty(locked.index, of), ticket, waker);
        drop(held);
        self.discard(older); // a waker is foreign code, so one that is replaced is dropped after the locks
        false
    }
}
