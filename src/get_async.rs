//! The future that gets a key.

use crate::GetTimeoutError;
use crate::coop;
use crate::item::Item;
use crate::machine::Claimed;
use crate::shared::{Shared, Wait};
use crate::sync::Arc;
use crate::wait::{Ticket, Waiter};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The future that [`WorkQueue::get_async`](crate::WorkQueue::get_async) returns. It waits in the same list as threads in
/// [`get`](crate::WorkQueue::get), and after 128 keys that were there at once it gives way to other tasks.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("pod-1");
/// assert_eq!(*queue.get_async().await.unwrap(), "pod-1");
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct GetAsync<'q, K> {
    queue: &'q Arc<Shared<K>>,
    state: GetState,
}

/// The progress of a task that gets a key, which [`GetAsync`] and the stream of items have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GetState {
    New,
    /// The same, for a loop that gives way by itself.
    NewInLoop,
    Waiting(Ticket),
    Finished,
}

impl GetState {
    /// Makes an item of the next key, or `None` if the queue is shut down and no key is queued. Once this is ready, there is nothing left
    /// to [leave](Self::leave).
    ///
    /// # Panics
    /// If it was ready before.
    #[inline(always)] // `#[inline]` costs `get_async` two instructions
    pub(crate) fn poll<K, I>(
        &mut self,
        shared: &Arc<Shared<K>>,
        waker: &Waker,
        item: impl FnOnce(Claimed<K>) -> I,
    ) -> Poll<Option<I>> {
        Shared::ensure_driver(shared);
        let is_new = matches!(self, Self::New);
        let wait = match *self {
            Self::New if coop::is_due() && coop::gives_way(waker, &|| shared.note_caught(1)) => return Poll::Pending,
            Self::New | Self::NewInLoop => match Shared::try_take(shared) {
                Some(claimed) => {
                    if is_new {
                        coop::count_key();
                    }
                    *self = Self::Finished;
                    return Poll::Ready(Some(item(claimed)));
                }
                None => Shared::take_or_wait(shared, Waiter::Task(waker.clone())),
            },
            Self::Waiting(ticket) => Shared::resume(shared, ticket, Waiter::Task(waker.clone()), false),
            Self::Finished => panic!("GetAsync polled after it was ready"),
        };
        let wait = match wait {
            // A task that wakes itself would keep its thread busy while the shard's holder may wait for the core.
            Wait::ParkBriefly(ticket) if !Shared::wake_later(shared, ticket) => Shared::wait_for_busy(shared, ticket),
            wait => wait,
        };
        *self = Self::Finished;
        match wait {
            Wait::Item(taken) => {
                if is_new {
                    coop::count_key(); // the key's delay has just expired, so the task has not waited either
                }
                Poll::Ready(Some(item(Shared::hand_out(shared, taken))))
            }
            Wait::ShutDown | Wait::GaveUp => Poll::Ready(None),
            Wait::Park(ticket) | Wait::ParkBriefly(ticket) => {
                *self = Self::Waiting(ticket);
                Poll::Pending
            }
        }
    }

    /// The task gives up. A wake-up that it has received goes to the next getter (W3).
    pub(crate) fn leave<K>(self, shared: &Shared<K>) {
        if let Self::Waiting(ticket) = self {
            shared.leave_getters(ticket, false);
        }
    }
}

impl<'q, K> GetAsync<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>) -> Self {
        Self { queue, state: GetState::New }
    }

    /// For a loop that gives way by itself.
    pub(crate) fn in_loop(mut self) -> Self {
        self.state = GetState::NewInLoop;
        self
    }

    /// For a loop that may have to end instead: if `leaves` says so before it takes a key, or after it has gone on the list, the error is
    /// `Timeout`. An answer that changes in between, because another loop has ended, leaves it on the list or brings it back.
    pub(crate) fn unless(
        mut self,
        leaves: impl Fn() -> bool,
    ) -> impl Future<Output = Result<Item<'q, K>, GetTimeoutError>> {
        poll_fn(move |cx| {
            if leaves() {
                return Poll::Ready(Err(GetTimeoutError::Timeout));
            }
            match Pin::new(&mut self).poll(cx) {
                Poll::Pending if leaves() => Poll::Ready(Err(GetTimeoutError::Timeout)),
                poll => poll.map(|item| item.ok_or(GetTimeoutError::ShutDown)),
            }
        })
    }
}

impl<'q, K> Future for GetAsync<'q, K> {
    type Output = Option<Item<'q, K>>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = this.queue;
        this.state.poll(shared, cx.waker(), |claimed| Item::new(shared, claimed))
    }
}

impl<K> Drop for GetAsync<'_, K> {
    fn drop(&mut self) {
        self.state.leave(self.queue);
    }
}

impl<K> fmt::Debug for GetAsync<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetAsync").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Driver, WorkQueue};
    use std::cell::Cell;

    /// A loop may have to end, and then need not, because another one has ended: it comes back at once, or is on the list of getters.
    #[test]
    fn a_task_that_need_not_leave_any_more_waits_on_the_list() {
        let queue = WorkQueue::<u32>::builder().driver(Driver::Manual).build();
        for (leaves_at, comes_back) in [(0, true), (1, true), (2, false)] {
            let asked = Cell::new(0);
            let mut get =
                std::pin::pin!(queue.get_async().in_loop().unless(|| asked.replace(asked.get() + 1) == leaves_at));
            let poll = get.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(matches!(poll, Poll::Ready(Err(GetTimeoutError::Timeout))), comes_back, "{leaves_at}");
            assert!(comes_back || queue.stats().waiters == 1, "{leaves_at}: nobody would wake it");
        }
    }
}
