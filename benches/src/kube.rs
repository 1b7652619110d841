//! `kube-runtime`'s scheduler, which stands behind its controllers: a stream that one task polls, of keys that are asked for by
//! another stream, each at its moment, or earlier if it is asked for once more.
//!
//! What it does not do: it knows no work in progress (a controller keeps a list beside it), it has no way to cancel, and it is
//! no line: what is due at once comes out in any order, the last first. Its moments are milliseconds; so that no key waits for
//! the next one, those of this queue are always past.

use crate::{Key, Subject};
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::Stream;
use futures_util::stream::{Chain, Pending, StreamExt, pending};
use futures_util::task::noop_waker_ref;
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// What is asked for. It never ends: the scheduler would end with it, whatever is due.
type Requests<K> = Chain<UnboundedReceiver<ScheduleRequest<K>>, Pending<ScheduleRequest<K>>>;

type Source<K> = Pin<Box<Scheduler<K, Requests<K>>>>;

/// For one thread that takes keys, which polls the scheduler itself: there is no task to hand over from.
pub struct KubeQueue<K> {
    requests: UnboundedSender<ScheduleRequest<K>>,
    /// Locked by the thread that takes keys, and so never waited for.
    scheduler: Mutex<Source<K>>,
    runtime: Runtime,
    shutting_down: AtomicBool,
    past: Instant,
}

impl<K: Key> Subject<K> for KubeQueue<K> {
    const NAME: &'static str = "kube-runtime scheduler";

    fn make() -> Self {
        let past = Instant::now();
        let (requests, receiver) = unbounded();
        Self {
            requests,
            scheduler: Mutex::new(Box::pin(scheduler(receiver.chain(pending())))),
            runtime: Builder::new_current_thread().enable_time().build().expect("a runtime"),
            shutting_down: AtomicBool::new(false),
            past,
        }
    }

    #[inline]
    fn add(&self, message: K) {
        self.requests.unbounded_send(ScheduleRequest { message, run_at: self.past }).expect("has a receiver");
    }

    /// The requests are only in a channel so far: has them scheduled.
    fn catch_up(&self) {
        let _entered = self.runtime.enter();
        let mut scheduler = self.scheduler.lock();
        _ = scheduler.as_mut().hold().poll_next_unpin(&mut Context::from_waker(noop_waker_ref()));
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        let mut scheduler = self.scheduler.lock();
        let entered = self.runtime.enter();
        let mut next = scheduler.as_mut().poll_next(&mut Context::from_waker(noop_waker_ref()));
        drop(entered);
        if next.is_pending() {
            let until_shut_down = |context: &mut Context<'_>| match scheduler.as_mut().poll_next(context) {
                Poll::Pending if self.shutting_down.load(Ordering::Relaxed) => Poll::Ready(None),
                next => next,
            };
            next = Poll::Ready(self.runtime.block_on(poll_fn(until_shut_down)));
        }
        drop(scheduler);
        let Poll::Ready(Some(key)) = next else { return false };
        work(self, &key);
        true
    }

    fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
        // Wakes the thread that waits.
        self.requests.close_channel();
    }
}
