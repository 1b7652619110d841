//! `kube-runtime`'s scheduler, on which its controllers are built: a stream that one task polls. It yields each key that another stream
//! has requested, at the time that the request names, or earlier if a later request names an earlier time.
//!
//! What it cannot do: it does not know which keys are processing (a controller keeps its own list), it cannot cancel, and it is not first
//! in, first out: keys of one time come out in any order, mostly in reverse. Its resolution is a millisecond; so that no key waits for
//! the next one, the times that this queue requests are always past.

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

/// The requests. The stream never ends: the scheduler would end with it, and lose its keys.
type Requests<K> = Chain<UnboundedReceiver<ScheduleRequest<K>>, Pending<ScheduleRequest<K>>>;

type Source<K> = Pin<Box<Scheduler<K, Requests<K>>>>;

/// The queue for one getter, which polls the scheduler itself: no task is in between.
pub struct KubeQueue<K> {
    requests: UnboundedSender<ScheduleRequest<K>>,
    /// Only the getter locks it, so no thread waits for it.
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

    /// The requests are still in the channel: polls the scheduler, so that it takes them in.
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
        // Wakes the getter.
        self.requests.close_channel();
    }
}
