//! Those that wait, but not for a key: in a drain or an idle wait, for the shut-down, or for a key to become dirty.

use crate::machine;
use crate::wait::{Ticket, WaitList, Waiter, WakeList};
use std::collections::BTreeMap;
use std::task::Waker;

/// Waits for the end of the work, and for the shut-down.
#[derive(Default)]
pub(super) struct LifeCycle {
    /// Threads and tasks in a drain or in an idle wait.
    pub(super) drainers: WaitList,
    /// The shards whose work they wait for, as bits.
    awaited: u64,
    /// The number of plain shut-downs: each releases the drains that wait.
    pub(super) released: u64,
    /// Tasks that wait for the shut-down to begin. They have a list of their own: the shut-down by a drain wakes them, but not the threads
    /// and tasks that wait for a drain to end.
    pub(super) shut_down_waiters: WaitList,
}

impl LifeCycle {
    /// Puts a waiter on the list until the work of this shard has ended.
    pub(super) fn wait_for(&mut self, shard: usize, waiter: Waiter) -> Ticket {
        self.awaited |= 1 << shard;
        self.drainers.push(waiter)
    }

    /// The work of this shard has ended: returns all waiters, to be woken, if one of them waits for this shard.
    pub(super) fn work_ended(&mut self, shard: usize) -> WakeList {
        if self.awaited & 1 << shard == 0 { WakeList::default() } else { self.take_drainers() }
    }

    /// Returns all waiters, to be woken.
    pub(super) fn take_drainers(&mut self) -> WakeList {
        self.awaited = 0;
        self.drainers.take_all()
    }
}

/// The tasks, by shard, ticket of the machine, and a number of their own.
#[derive(Default)]
pub(super) struct DirtyWaiters {
    pub(super) waiting: BTreeMap<DirtyTicket, Waker>,
    pub(super) next: u64,
}

/// A task's place in the list; it keeps the place while it is off the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirtyTicket(pub(super) usize, pub(super) machine::DirtyTicket, pub(super) u64);

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
