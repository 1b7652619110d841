//! The future of a drain, or of a wait until nothing is left to do.

use crate::WorkQueue;
use crate::shared::{Goal, Shared};
use crate::wait::Ticket;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future that [`WorkQueue::idle`] and [`WorkQueue::shut_down_with_drain_async`] return.
///
/// # Cancel safety
/// Dropping it takes back nothing but the waiting. (A drain that was polled has shut the queue down.)
#[must_use = "futures do nothing unless polled"]
pub struct Quiet<'q, K> {
    queue: &'q WorkQueue<K>,
    goal: Goal,
    /// How often drains had been released when it was first polled.
    released: Option<u64>,
    ticket: Option<Ticket>,
}

impl<'q, K> Quiet<'q, K> {
    pub(crate) fn new(queue: &'q WorkQueue<K>, goal: Goal) -> Self {
        Self { queue, goal, released: None, ticket: None }
    }
}

impl<K> Future for Quiet<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let shared = &this.queue.shared;
        Shared::ensure_driver(shared);
        let released = *this.released.get_or_insert_with(|| match this.goal {
            Goal::Drained => shared.begin_drain(),
            Goal::Idle => 0,
        });
        if shared.poll_for(this.goal, released, &mut this.ticket, cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<K> Drop for Quiet<'_, K> {
    fn drop(&mut self) {
        self.queue.shared.leave_drainers(self.ticket);
    }
}

impl<K> fmt::Debug for Quiet<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quiet").field("goal", &self.goal).finish_non_exhaustive()
    }
}
