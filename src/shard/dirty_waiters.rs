//! Tasks that wait until a key that is processing becomes dirty, because the work on it is stale then.
//!
//! Most queues have no such task: then an add of a processing key costs one test more. The step that makes the key dirty takes the tasks
//! that wait for it off the list, and they are woken after the critical section. So no task can find the key clean and miss the add.

use super::{Known, Shard};
use crate::key::Claimed;
use crate::wait::Waiter;
use std::collections::BTreeMap;
use std::task::Waker;

/// The tasks, by the number of the key's slot and a number of their own.
#[derive(Default)]
pub(super) struct DirtyWaiters {
    waiting: BTreeMap<(u32, u64), Waker>,
    next: u64,
}

/// A task's place in the list; it keeps the place while it is off the list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirtyTicket(u32, u64);

impl<K> Shard<K> {
    /// Puts a task on the list, for the next add of a key that is processing and not dirty to wake it. Returns the task's older waker.
    pub(crate) fn wait_for_dirty(
        &mut self,
        claimed: &Claimed<K>,
        ticket: &mut Option<DirtyTicket>,
        waker: Waker,
    ) -> Option<Waker> {
        let waiters = &mut self.dirty_waiters;
        let DirtyTicket(number, own) = *ticket.get_or_insert_with(|| {
            waiters.next += 1;
            DirtyTicket(self.table.number(claimed.view()), waiters.next)
        });
        waiters.waiting.insert((number, own), waker)
    }

    /// Takes a task off the list.
    pub(crate) fn stop_waiting_for_dirty(&mut self, DirtyTicket(number, own): DirtyTicket) -> Option<Waker> {
        self.dirty_waiters.waiting.remove(&(number, own))
    }
}

impl<K> Known<'_, K> {
    /// The key is processing and became dirty: owes a wake-up to each task that waits for this. (A future that was leaked may leave an
    /// entry behind; then an add of a later key in this slot wakes its task in vain.)
    #[inline]
    pub(super) fn owe_dirty_waiters(&mut self) {
        if !self.shard.dirty_waiters.waiting.is_empty() {
            self.owe_waiters_of_this();
        }
    }

    #[cold]
    fn owe_waiters_of_this(&mut self) {
        let number = self.number();
        let Shard { dirty_waiters: DirtyWaiters { waiting, .. }, effects, .. } = &mut *self.shard;
        while let Some((&at, _)) = waiting.range((number, 0)..=(number, u64::MAX)).next() {
            let waker = waiting.remove(&at).expect("it was just found");
            effects.owe(Waiter::Task(waker));
        }
    }
}
