//! Tasks that wait for the shut-down to begin.
//!
//! They have a list of their own: a drain's shut-down wakes these, and not those that wait for a drain to end.

use super::{Core, Shared};
use crate::wait::{Ticket, WaitList, leave, poll_on};
use std::task::Waker;

impl<K> Shared<K> {
    /// Whether the queue is shutting down. If not, the shut-down wakes this task, by the place that is kept in `ticket`.
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.core, enders, ticket, waker, |core| core.is_shutting_down())
    }

    /// A task does not wait any more.
    pub(crate) fn leave_enders(&self, ticket: Option<Ticket>) {
        leave(&self.core, enders, ticket);
    }
}

fn enders<K>(core: &mut Core<K>) -> &mut WaitList {
    &mut core.enders
}
