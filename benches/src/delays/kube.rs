//! `kube-runtime`'s scheduler (see [`crate::kube`]) in a task, as controllers use it: it receives requests through a channel, and here
//! passes keys whose delays have expired to the mutex queue.
//!
//! What it cannot do: cancel, and report the number of its delays. Its resolution is a millisecond.

use super::paused::Paused;
use super::{DelaySubject, Manual};
use crate::{Key, Subject};
use common::mutex::parking_lot_mutex;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::Stream;
use futures_util::stream::{StreamExt, poll_fn};
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Poll, ready};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The scheduler is polled after this number of requests.
const BATCH: usize = 128;

/// The scheduler in a task, and the mutex queue.
pub struct KubeTask<K> {
    ready: Arc<parking_lot_mutex::Queue<K>>,
    messages: UnboundedSender<Message<K>>,
    task: Option<thread::JoinHandle<()>>,
}

enum Message<K> {
    Request(ScheduleRequest<K>),
    Settle(mpsc::Sender<()>),
}

/// The requests. A `Settle` is answered when the scheduler asks for the next request: by then it has taken in those before.
fn requests<K>(mut messages: UnboundedReceiver<Message<K>>) -> impl Stream<Item = ScheduleRequest<K>> {
    poll_fn(move |context| {
        loop {
            match ready!(messages.poll_next_unpin(context)) {
                Some(Message::Request(request)) => return Poll::Ready(Some(request)),
                Some(Message::Settle(answer)) => _ = answer.send(()),
                None => return Poll::Ready(None),
            }
        }
    })
}

impl<K: Key> Subject<K> for KubeTask<K> {
    const NAME: &'static str = "kube-runtime scheduler in a task";

    fn make() -> Self {
        let ready = Arc::new(parking_lot_mutex::Queue::make());
        let (messages, receiver) = unbounded();
        let task = thread::spawn({
            let ready = Arc::clone(&ready);
            move || {
                let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
                runtime.block_on(async {
                    let mut scheduler = pin!(scheduler(requests(receiver)));
                    while let Some(key) = scheduler.next().await {
                        ready.add(key);
                    }
                });
            }
        });
        Self { ready, messages, task: Some(task) }
    }

    #[inline]
    fn add(&self, key: K) {
        self.ready.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        self.ready.process(|_, key| work(self, key))
    }

    fn shut_down(&self) {
        self.ready.shut_down();
        self.messages.close_channel();
    }
}

impl<K: Key> DelaySubject<K> for KubeTask<K> {
    #[inline]
    fn add_after(&self, message: K, delay: Duration) {
        let run_at = (Instant::now() + delay).into();
        _ = self.messages.unbounded_send(Message::Request(ScheduleRequest { message, run_at }));
    }

    fn settle(&self) -> Option<usize> {
        let (sender, answer) = mpsc::channel();
        _ = self.messages.unbounded_send(Message::Settle(sender));
        answer.recv().expect("the task lives");
        None
    }
}

impl<K> Drop for KubeTask<K> {
    fn drop(&mut self) {
        self.messages.close_channel();
        self.task.take().map(thread::JoinHandle::join);
    }
}

/// The scheduler and its channel without the task, under tokio's paused clock.
pub struct ManualKube<K> {
    ready: parking_lot_mutex::Queue<K>,
    requests: UnboundedSender<ScheduleRequest<K>>,
    /// Requests that are only in the channel.
    unread: usize,
    scheduler: Pin<Box<Scheduler<K, UnboundedReceiver<ScheduleRequest<K>>>>>,
    clock: Paused,
}

impl<K: Key> ManualKube<K> {
    /// Advances the clock, queues the keys whose delays have expired, and returns their number.
    fn turn(&mut self, by: Duration) -> usize {
        let Self { ready, scheduler, clock, unread, .. } = self;
        *unread = 0;
        clock.advance(by, |context| {
            let mut due = 0;
            while let Poll::Ready(Some(key)) = scheduler.as_mut().poll_next(context) {
                ready.add(key);
                due += 1;
            }
            due
        })
    }
}

impl<K: Key> Manual<K> for ManualKube<K> {
    const NAME: &'static str = <KubeTask<K> as Subject<K>>::NAME;

    fn make() -> Self {
        // The clock is made first: the scheduler uses it.
        let clock = Paused::new();
        let (requests, receiver) = unbounded();
        Self {
            ready: parking_lot_mutex::Queue::make(),
            requests,
            unread: 0,
            scheduler: Box::pin(scheduler(receiver)),
            clock,
        }
    }

    #[inline]
    fn add(&mut self, key: K) {
        self.ready.add(key);
    }

    #[inline]
    fn add_after(&mut self, message: K, delay: Duration) {
        _ = self.requests.unbounded_send(ScheduleRequest { message, run_at: self.clock.now() + delay });
        self.unread += 1;
        // The clock has not moved, so nothing expires here, and no count is lost.
        if self.unread == BATCH {
            self.turn(Duration::ZERO);
        }
    }

    /// The requests are taken in before the clock moves, since their delays count from then.
    fn advance(&mut self, by: Duration) -> usize {
        self.turn(Duration::ZERO) + self.turn(by)
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&K)) -> bool {
        self.ready.process(|_, key| work(key))
    }
}
