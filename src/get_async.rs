//! The future of a get. It waits in the same list as threads do.

use crate::WorkQueue;
use crate::item::Item;
use crate::shared::{Shared, Wait};
use crate::wait::{Ticket, Waiter};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future that [`WorkQueue::get_async`] returns.
#[must_use = "futures do nothing unless polled"]
pub struct GetAsync<'q, K> {
    queue: &'q WorkQueue<K>,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    New,
    Waiting(Ticket),
    Finished,
}

impl<'q, K> GetAsync<'q, K> {
    pub(crate) fn new(queue: &'q WorkQueue<K>) -> Self {
        Self { queue, state: State::New }
    }
}

impl<'q, K> Future for GetAsync<'q, K> {
    type Output = Option<Item<'q, K>>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = &this.queue.shared;
        Shared::ensure_driver(shared);
        let wait = match this.state {
            State::New => match Shared::try_take(shared) {
                Some(slot) => {
                    this.state = State::Finished;
                    return Poll::Ready(Some(Item::new(shared, slot)));
                }
                None => Shared::take_or_wait(shared, Waiter::Task(cx.waker().clone())),
            },
            State::Waiting(ticket) => Shared::resume(shared, ticket, Waiter::Task(cx.waker().clone()), false),
            State::Finished => panic!("GetAsync polled after it was ready"),
        };
        this.state = State::Finished;
        match wait {
            Wait::Item(taken) => Poll::Ready(Some(Item::new(shared, Shared::hand_out(shared, taken)))),
            Wait::ShutDown | Wait::GaveUp => Poll::Ready(None),
            Wait::Sleep(ticket) => {
                this.state = State::Waiting(ticket);
                Poll::Pending
            }
        }
    }
}

impl<K> Drop for GetAsync<'_, K> {
    fn drop(&mut self) {
        if let State::Waiting(ticket) = self.state {
            self.queue.shared.leave(ticket);
        }
    }
}

impl<K> fmt::Debug for GetAsync<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetAsync").field("state", &self.state).finish_non_exhaustive()
    }
}
