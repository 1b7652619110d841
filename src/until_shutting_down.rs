//! The future of the beginning of a shut-down.

use crate::shared::Shared;
use crate::sync::Arc;
use crate::wait::Ticket;
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future that [`WorkQueue::until_shutting_down`](crate::WorkQueue::until_shutting_down) and
/// [`Item::until_shutting_down`](crate::Item::until_shutting_down) return.
///
/// # Cancel safety
/// Dropping it loses nothing: a queue that is shutting down stays so.
#[must_use = "futures do nothing unless polled"]
pub struct UntilShuttingDown<'q, K> {
    queue: &'q Arc<Shared<K>>,
    ticket: Option<Ticket>,
}

impl<'q, K> UntilShuttingDown<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>) -> Self {
        Self { queue, ticket: None }
    }
}

impl<K> Future for UntilShuttingDown<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.queue.poll_shutting_down(&mut this.ticket, cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<K> Drop for UntilShuttingDown<'_, K> {
    fn drop(&mut self) {
        self.queue.leave_enders(self.ticket);
    }
}

// As for the queue.
impl<K: RefUnwindSafe> UnwindSafe for UntilShuttingDown<'_, K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for UntilShuttingDown<'_, K> {}

impl<K> fmt::Debug for UntilShuttingDown<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilShuttingDown").finish_non_exhaustive()
    }
}
