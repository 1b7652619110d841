//! Tasks that wait until a key that is processing becomes dirty, because the work on it is stale then.
//!
//! ```text
//!   task   lock the shard ─ the key is clean: the machine marks it, and returns a ticket ─ lock the hub: on the list ─ unlock both
//!   add    lock the shard ─ the marked key becomes dirty: its ticket is owed ─ lock the hub: off the list ─ unlock both ─ wake
//! ```
//!
//! Both are one critical section of the shard, so no task finds the key clean and misses the add. Most queues have no such task: then an add
//! of a processing key costs one test more.

use super::Shared;
use crate::machine::{self, Claimed};
use crate::wait::{Waiter, WakeList};
use std::collections::BTreeMap;
use std::task::Waker;

/// The tasks, by shard, ticket of the machine, and a number of their own.
#[derive(Default)]
pub(super) struct DirtyWaiters {
    waiting: BTreeMap<DirtyTicket, Waker>,
    next: u64,
}

/// A task's place in the list; it keeps the place while it is off the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirtyTicket(usize, machine::DirtyTicket, u64);

impl DirtyWaiters {
    /// Takes the tasks off the list that wait for the hand-out of this ticket. (A future that was leaked may leave an entry behind; then
    /// an add of a later key in this slot wakes its task in vain.)
    pub(super) fn take(&mut self, shard: usize, of: machine::DirtyTicket, wakes: &mut WakeList) {
        let all = DirtyTicket(shard, of, 0)..=DirtyTicket(shard, of, u64::MAX);
        while let Some((&at, _)) = self.waiting.range(all.clone()).next() {
            wakes.extend(self.waiting.remove(&at).map(Waiter::Task));
        }
    }
}

impl<K> Shared<K> {
    /// Whether a key that the caller holds is dirty. If not, puts the task on the list, for the next add of the key to wake it, and sets
    /// `ticket`.
    pub(crate) fn poll_dirty(&self, claimed: &Claimed<K>, ticket: &mut Option<DirtyTicket>, waker: &Waker) -> bool {
        let (locked, mut waker) = (self.home(claimed), Some(waker.clone()));
        // Wakers are foreign code: those that are left are dropped after the locks.
        let _older;
        let machine = &mut *locked.lock();
        let Some(of) = machine.wait_for_dirty(claimed) else { return true };
        let mut hub = self.hub();
        let waiters = &mut hub.dirty_waiters;
        let at = *ticket.get_or_insert_with(|| {
            waiters.next += 1;
            DirtyTicket(locked.index, of, waiters.next)
        });
        _older = waiters.waiting.insert(at, waker.take().expect("not used yet"));
        false
    }

    /// A task stops waiting for its key to become dirty.
    pub(crate) fn leave_dirty_waiters(&self, ticket: DirtyTicket) {
        let _dropped_after_the_lock = self.hub().dirty_waiters.waiting.remove(&ticket);
    }
}
