//! Tasks that wait for the shut-down to begin.
//!
//! They have a list of their own: the shut-down by a drain wakes them, but not the threads and tasks that wait for a drain to end.

use super::{Core, Shared};
use crate::wait::{Ticket, WaitList, leave, poll_on};
use std::task::Waker;

impl<K> Shared<K> {
    /// Whether the queue is shutting down. If not, puts the task on the list, for the shut-down to wake it, and sets `ticket`.
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.core, shut_down_waiters, ticket, waker, |core| core.is_shutting_down())
    }

    /// A task stops waiting.
    pub(crate) fn leave_shut_down_waiters(&self, ticket: Option<Ticket>) {
        leave(&self.core, shut_down_waiters, ticket);
    }
}

fn shut_down_waiters<K>(core: &mut Core<K>) -> &mut WaitList {
    &mut core.shut_down_waiters
}
