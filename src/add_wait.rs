//! Adds that wait for room: the future, and the same for threads.

use crate::Added;
use crate::shared::Shared;
use crate::sync::{Arc, with_parker};
use crate::wait::{Ticket, Waiter};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future that [`WorkQueue::add_wait_async`](crate::WorkQueue::add_wait_async) returns.
///
/// # Cancel safety
/// Dropping it before it is ready drops the key, which was not added. If the queue has woken it for room, another one is woken in its
/// place. A leaked future may keep that wake-up, so that the others wait until more room is made.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// use keyqueue::{Added, WorkQueue};
///
/// let queue = WorkQueue::builder().max_keys(1000).build();
/// assert_eq!(queue.add_wait_async("pod-1").await, Added::Queued);
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct AddWait<'q, K> {
    queue: &'q Arc<Shared<K>>,
    /// `None` if it is ready, unless the queue had the key already.
    key: Option<K>,
    is_ready: bool,
    /// Its place in the list, also if it was woken.
    ticket: Option<Ticket>,
}

// Nothing refers to the key.
impl<K> Unpin for AddWait<'_, K> {}

impl<'q, K> AddWait<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>, key: K) -> Self {
        Self { queue, key: Some(key), is_ready: false, ticket: None }
    }

    fn leave(&mut self) {
        if let (Some(ticket), Some(bound)) = (self.ticket.take(), &self.queue.bound) {
            let (waiter, wakes) = bound.give_up(ticket);
            self.queue.note_caught(wakes.wake());
            self.queue.discard(waiter);
        }
    }
}

impl<K: Hash + Eq> AddWait<'_, K> {
    /// Parks the thread until the key is added or refused.
    pub(crate) fn block(mut self) -> Added {
        with_parker(|parker| {
            loop {
                if let Some(added) = self.attempt(|| Waiter::Thread(parker.unparker())) {
                    return added;
                }
                parker.park(None);
            }
        })
    }

    /// Adds the key, or goes on the list.
    fn attempt(&mut self, waiter: impl FnOnce() -> Waiter) -> Option<Added> {
        assert!(!self.is_ready, "AddWait polled after it was ready");
        let mut added = Added::Full;
        if self.ticket.is_none() {
            added = Shared::try_add(self.queue, &mut self.key);
        }
        if let (Added::Full, Some(bound)) = (added, &self.queue.bound) {
            self.queue.discard(bound.wait(&mut self.ticket, waiter())); // before the last try (W8)
            added = Shared::try_add(self.queue, &mut self.key);
            if added == Added::Full {
                return None;
            }
        }
        self.is_ready = true;
        self.leave();
        Some(added)
    }
}

impl<K: Hash + Eq> Future for AddWait<'_, K> {
    type Output = Added;

    /// # Panics
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Added> {
        let added = self.get_mut().attempt(|| Waiter::Task(cx.waker().clone()));
        added.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<K> Drop for AddWait<'_, K> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<K> fmt::Debug for AddWait<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddWait").field("is_ready", &self.is_ready).finish_non_exhaustive()
    }
}
