//! The shut-down, and the threads and tasks that wait for it or for the end of the work.

use super::section::Special;
use super::{Core, Shared};
use crate::wait::{Ticket, WaitList, leave, poll_on};
use std::task::Waker;

/// Waits for the end of the work, and for the shut-down.
#[derive(Default)]
pub(super) struct LifeCycle {
    /// Threads and tasks in a drain or in an idle wait.
    pub(super) drainers: WaitList,
    /// The number of plain shut-downs: each releases the drains that wait.
    pub(super) released: u64,
    /// Tasks that wait for the shut-down to begin. They have a list of their own: the shut-down by a drain wakes them, but not the threads
    /// and tasks that wait for a drain to end.
    shut_down_waiters: WaitList,
}

impl<K> Shared<K> {
    /// Refuses adds from here on; a getter that finds no queued key learns that the queue is shut down (P6, I7). Releases drains (P7).
    pub(crate) fn shut_down(&self) {
        let mut section = self.enter();
        let core = &mut *section;
        core.life_cycle.released += 1;
        core.begin_shut_down();
        core.owe_all_drainers();
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.core.lock().is_shutting_down()
    }

    /// Whether the queue is shutting down. If not, puts the task on the list, for the shut-down to wake it, and sets `ticket`.
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.core, shut_down_waiters, ticket, waker, |core| core.is_shutting_down())
    }

    /// A task stops waiting for the shut-down.
    pub(crate) fn leave_shut_down_waiters(&self, ticket: Option<Ticket>) {
        leave(&self.core, shut_down_waiters, ticket);
    }
}

fn shut_down_waiters<K>(core: &mut Core<K>) -> &mut WaitList {
    &mut core.life_cycle.shut_down_waiters
}

impl<K> Core<K> {
    /// Adds are refused.
    #[inline]
    pub(super) fn is_shutting_down(&self) -> bool {
        self.special.has(Special::SHUT_DOWN)
    }

    /// Refuses adds from here on (I7). Owes a wake-up to all getters, to the driver, to the tasks that wait for the shut-down, and, if no
    /// key is queued or processing, to drains and idle waits.
    pub(super) fn begin_shut_down(&mut self) {
        self.special.set(Special::SHUT_DOWN);
        self.owe_all_getters();
        let shut_down_waiters = self.life_cycle.shut_down_waiters.take_all();
        self.shard.owe_all(shut_down_waiters);
        self.driver.wake().into_iter().for_each(|driver| self.shard.owe(driver));
        // Delays no longer count for an idle wait, so it may be over.
        self.owe_drainers();
    }

    /// If no key is queued or processing, owes a wake-up to all drains and idle waits.
    #[inline]
    pub(super) fn owe_drainers(&mut self) {
        if !self.life_cycle.drainers.is_empty() {
            self.owe_drainers_if_drained();
        }
    }

    #[cold]
    fn owe_drainers_if_drained(&mut self) {
        if self.shard.is_drained() {
            self.owe_all_drainers();
        }
    }

    /// Owes a wake-up to all drains and idle waits.
    pub(super) fn owe_all_drainers(&mut self) {
        let drainers = self.life_cycle.drainers.take_all();
        self.shard.owe_all(drainers);
    }
}
