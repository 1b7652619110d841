//! The futures that a queue and its items return.

use crate::WorkQueue;
use crate::item::Item;
use crate::machine::Claimed;
use crate::shared::{DirtyTicket, Shared, Wait, WaitGoal};
use crate::sync::{Arc, yield_now};
use crate::wait::{Ticket, Waiter};
use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The future that [`WorkQueue::get_async`] returns. It waits in the same list as threads in [`get`](WorkQueue::get).
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
    queue: &'q WorkQueue<K>,
    state: GetState,
}

/// How far a task is that gets a key: what [`GetAsync`] and the stream of items have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GetState {
    New,
    Waiting(Ticket),
    Finished,
}

impl GetState {
    /// Makes an item of the next key. `None`: the queue is shut down and no key is queued. Nothing is left to [leave](Self::leave) when this
    /// is ready.
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
        let wait = match *self {
            Self::New => match Shared::try_take(shared) {
                Some(claimed) => {
                    *self = Self::Finished;
                    return Poll::Ready(Some(item(claimed)));
                }
                None => Shared::take_or_wait(shared, Waiter::Task(waker.clone())),
            },
            Self::Waiting(ticket) => Shared::resume(shared, ticket, Waiter::Task(waker.clone()), false),
            Self::Finished => panic!("GetAsync polled after it was ready"),
        };
        *self = Self::Finished;
        match wait {
            Wait::Item(taken) => Poll::Ready(Some(item(Shared::hand_out(shared, taken)))),
            Wait::ShutDown | Wait::GaveUp => Poll::Ready(None),
            Wait::Park(ticket) => {
                *self = Self::Waiting(ticket);
                Poll::Pending
            }
            Wait::ParkBriefly(ticket) => {
                *self = Self::Waiting(ticket);
                if !Shared::wake_later(shared, ticket) {
                    yield_now(); // the shard's holder may wait for this core
                    waker.wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// The task gives up. A wake-up that it had received goes to the next getter (W3).
    pub(crate) fn leave<K>(self, shared: &Shared<K>) {
        if let Self::Waiting(ticket) = self {
            shared.leave_getters(ticket);
        }
    }
}

impl<'q, K> GetAsync<'q, K> {
    pub(crate) fn new(queue: &'q WorkQueue<K>) -> Self {
        Self { queue, state: GetState::New }
    }
}

impl<'q, K> Future for GetAsync<'q, K> {
    type Output = Option<Item<'q, K>>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = &this.queue.shared;
        this.state.poll(shared, cx.waker(), |claimed| Item::new(shared, claimed))
    }
}

impl<K> Drop for GetAsync<'_, K> {
    fn drop(&mut self) {
        self.state.leave(&self.queue.shared);
    }
}

/// The future that [`WorkQueue::wait_idle_async`] returns.
///
/// # Cancel safety
/// Dropping it ends the wait, and changes nothing in the queue. A leaked future keeps its waker until the work of the queue ends. It takes
/// no wake-up from another future: the queue wakes all of them together.
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
    pub(crate) fn new(queue: &'q WorkQueue<K>) -> Self {
        Self(GoalWait::new(queue, WaitGoal::Idle))
    }
}

impl<K> Future for WaitIdle<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// The future that [`WorkQueue::shut_down_with_drain_async`] returns.
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
    pub(crate) fn new(queue: &'q WorkQueue<K>) -> Self {
        Self(GoalWait::new(queue, WaitGoal::Drained))
    }
}

impl<K> Future for ShutDownWithDrain<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().0.poll(cx.waker())
    }
}

/// A task that waits for a goal: what [`WaitIdle`] and [`ShutDownWithDrain`] have in common.
struct GoalWait<'q, K> {
    queue: &'q WorkQueue<K>,
    goal: WaitGoal,
    /// The number of times that drains had been released, as of the first poll.
    released: Option<u64>,
    ticket: Option<Ticket>,
}

impl<'q, K> GoalWait<'q, K> {
    fn new(queue: &'q WorkQueue<K>, goal: WaitGoal) -> Self {
        Self { queue, goal, released: None, ticket: None }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let shared = &self.queue.shared;
        Shared::ensure_driver(shared);
        let released = *self.released.get_or_insert_with(|| match self.goal {
            WaitGoal::Drained => shared.begin_drain(),
            WaitGoal::Idle => 0,
        });
        ready(shared.poll_for(self.goal, released, &mut self.ticket, waker))
    }
}

impl<K> Drop for GoalWait<'_, K> {
    fn drop(&mut self) {
        self.queue.shared.leave_drainers(self.ticket);
    }
}

/// The future that [`Item::until_dirty`] returns.
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
    queue: &'i Arc<Shared<K>>,
    claimed: &'i Claimed<K>,
    ticket: Option<DirtyTicket>,
}

impl<'i, K> UntilDirty<'i, K> {
    pub(crate) fn new(queue: &'i Arc<Shared<K>>, claimed: &'i Claimed<K>) -> Self {
        Self { queue, claimed, ticket: None }
    }
}

impl<K> Future for UntilDirty<'_, K> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        ready(this.queue.poll_dirty(this.claimed, &mut this.ticket, cx.waker()))
    }
}

impl<K> Drop for UntilDirty<'_, K> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.queue.leave_dirty_waiters(ticket);
        }
    }
}

/// The future that [`WorkQueue::until_shutting_down`] and [`Item::until_shutting_down`] return.
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
        ready(this.queue.poll_shutting_down(&mut this.ticket, cx.waker()))
    }
}

impl<K> Drop for UntilShuttingDown<'_, K> {
    fn drop(&mut self) {
        self.queue.leave_shut_down_waiters(self.ticket);
    }
}

fn ready(ready: bool) -> Poll<()> {
    if ready { Poll::Ready(()) } else { Poll::Pending }
}

// Like `Item` and `WorkQueue`: a panic leaves no step half made.
impl<K: RefUnwindSafe> UnwindSafe for UntilDirty<'_, K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for UntilDirty<'_, K> {}
impl<K: RefUnwindSafe> UnwindSafe for UntilShuttingDown<'_, K> {}
impl<K: RefUnwindSafe> RefUnwindSafe for UntilShuttingDown<'_, K> {}

impl<K> fmt::Debug for GetAsync<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetAsync").field("state", &self.state).finish_non_exhaustive()
    }
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

opaque_debug!(WaitIdle, ShutDownWithDrain, UntilDirty, UntilShuttingDown);
