//! The futures that a queue and its items return, except that of a get.

use crate::key::SlotId;
use crate::machine::Claimed;
use crate::shared::{Shared, TaskTicket, WaitGoal};
use crate::sync::Arc;
use crate::wait::Ticket;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The future that [`WorkQueue::wait_idle_async`](crate::WorkQueue::wait_idle_async) returns.
///
/// # Cancel safety
/// Dropping it ends the wait, and changes nothing in the queue. A leaked future keeps its waker until the work of the queue ends. It takes
/// no wake-up from another future, because the queue wakes all of them together.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// keyqueue::WorkQueue::<u32>::new().wait_idle_async().await;
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct WaitIdle<'q, K>(GoalWait<'q, K>);

impl<'q, K> WaitIdle<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>) -> Self {
        Self(GoalWait { queue, goal: Some(WaitGoal::Idle), ticket: None })
    }
}

impl<K> Future for WaitIdle<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// The future that [`WorkQueue::shut_down_with_drain_async`](crate::WorkQueue::shut_down_with_drain_async) returns.
///
/// # Cancel safety
/// Dropping it ends the wait. If it was polled, the queue stays shut down.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// keyqueue::WorkQueue::<u32>::new().shut_down_with_drain_async().await;
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct ShutDownWithDrain<'q, K>(GoalWait<'q, K>);

impl<'q, K> ShutDownWithDrain<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>) -> Self {
        Self(GoalWait { queue, goal: None, ticket: None })
    }
}

impl<K> Future for ShutDownWithDrain<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// Waits for a goal, or for the end of a drain that has not begun (`None`).
struct GoalWait<'q, K> {
    queue: &'q Arc<Shared<K>>,
    goal: Option<WaitGoal>,
    ticket: Option<Ticket>,
}

impl<K> GoalWait<'_, K> {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        Shared::ensure_driver(self.queue);
        let goal = *self.goal.get_or_insert_with(|| self.queue.begin_drain());
        ready(self.queue.poll_for(goal, &mut self.ticket, waker))
    }
}

impl<K> Drop for GoalWait<'_, K> {
    fn drop(&mut self) {
        self.queue.leave_drainers(self.ticket);
    }
}

/// The future that [`Item::until_dirty`](crate::Item::until_dirty) returns.
///
/// # Cancel safety
/// Dropping it loses nothing: the key stays dirty. A leaked future keeps its waker until an add makes the key dirty.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// let queue = keyqueue::WorkQueue::new();
/// queue.add("pod-1");
/// let item = queue.get().unwrap();
/// queue.add("pod-1");
/// item.until_dirty().await; // at once
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct UntilDirty<'i, K> {
    wait: EventWait<'i, K>,
    claimed: &'i Claimed<K>,
}

impl<'i, K> UntilDirty<'i, K> {
    pub(crate) fn new(queue: &'i Arc<Shared<K>>, claimed: &'i Claimed<K>) -> Self {
        Self { wait: EventWait { queue, ticket: None }, claimed }
    }
}

impl<K> Future for UntilDirty<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { wait, claimed } = self.get_mut();
        ready(wait.queue.poll_dirty(claimed, &mut wait.ticket, cx.waker()))
    }
}

/// The future that [`Item::until_late`](crate::Item::until_late) returns.
///
/// # Cancel safety
/// Dropping it loses nothing: a run that is late stays so. A leaked future keeps its waker until the run ends.
///
/// # Examples
/// ```
/// # use std::time::Duration;
/// let queue = keyqueue::WorkQueue::<&str>::new();
/// let workers = queue.workers().time_limit(Duration::from_millis(1)).spawn(1, |item| {
///     futures_executor::block_on(item.until_late());
/// })?;
/// queue.add("pod-1");
/// assert!(workers.drain().is_empty());
/// assert_eq!(workers.tally().late, 1);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct UntilLate<'i, K> {
    wait: EventWait<'i, K>,
    slot: SlotId,
}

impl<'i, K> UntilLate<'i, K> {
    pub(crate) fn new(queue: &'i Arc<Shared<K>>, claimed: &'i Claimed<K>) -> Self {
        Self { wait: EventWait { queue, ticket: None }, slot: claimed.slot() }
    }
}

impl<K> Future for UntilLate<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { wait, slot } = self.get_mut();
        ready(wait.queue.poll_late(*slot, &mut wait.ticket, cx.waker()))
    }
}

/// The future that [`WorkQueue::until_shutting_down`](crate::WorkQueue::until_shutting_down) and
/// [`Item::until_shutting_down`](crate::Item::until_shutting_down) return.
///
/// # Cancel safety
/// Dropping it loses nothing: a queue that is shutting down stays so. A leaked future keeps its waker until then.
///
/// # Examples
/// ```
/// # futures_executor::block_on(async {
/// let queue = keyqueue::WorkQueue::<u32>::new();
/// queue.shut_down();
/// queue.until_shutting_down().await; // at once
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct UntilShuttingDown<'q, K>(EventWait<'q, K>);

impl<'q, K> UntilShuttingDown<'q, K> {
    pub(crate) fn new(queue: &'q Arc<Shared<K>>) -> Self {
        Self(EventWait { queue, ticket: None })
    }
}

impl<K> Future for UntilShuttingDown<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let wait = &mut self.get_mut().0;
        ready(wait.queue.poll_shutting_down(&mut wait.ticket, cx.waker()))
    }
}

/// A task that waits for an event, until this is dropped.
struct EventWait<'q, K> {
    queue: &'q Arc<Shared<K>>,
    ticket: Option<TaskTicket>,
}

impl<K> Drop for EventWait<'_, K> {
    fn drop(&mut self) {
        self.queue.leave_tasks(self.ticket);
    }
}

fn ready(ready: bool) -> Poll<()> {
    if ready { Poll::Ready(()) } else { Poll::Pending }
}

macro_rules! opaque_debug {
    ($($future:ident),+) => {$(
        impl<K> fmt::Debug for $future<'_, K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($future)).finish_non_exhaustive()
            }
        }
    )+};
}

opaque_debug!(WaitIdle, ShutDownWithDrain, UntilDirty, UntilLate, UntilShuttingDown);
