//! `kube-runtime`'s scheduler (see [`crate::kube`]) in a task, as controllers use it: it receives requests through a channel, and here
//! passes keys whose delays have expired to the mutex queue.
//!
//! What it cannot do: cancel, and report the number of its delays. Its resolution is a millisecond.

use super::paused::Paused;
use super::{ManualRival, Passes, Passing, Ready, ReadyQueue, Timer};
use crate::Subject as _;
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

const NAME: &str = "kube-runtime scheduler in a task";

/// The scheduler is polled after this number of requests.
const BATCH: usize = 128;

/// The scheduler in a task, and the mutex queue.
pub type KubeTask = Passing<Task>;

pub struct Task {
    messages: UnboundedSender<Message>,
    task: Option<thread::JoinHandle<()>>,
}

enum Message {
    Request(ScheduleRequest<u64>),
    Settle(mpsc::Sender<()>),
}

/// The requests. A `Settle` is answered when the scheduler asks for the next request: by then it has taken in those before.
fn requests(mut messages: UnboundedReceiver<Message>) -> impl Stream<Item = ScheduleRequest<u64>> {
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

impl Passes for Task {
    const NAME: &'static str = NAME;

    fn make(ready: Arc<ReadyQueue>) -> Self {
        let (messages, receiver) = unbounded();
        let task = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(async {
                let mut scheduler = pin!(scheduler(requests(receiver)));
                while let Some(key) = scheduler.next().await {
                    ready.add(key);
                }
            });
        });
        Self { messages, task: Some(task) }
    }

    #[inline]
    fn add_after(&self, message: u64, delay: Duration) {
        let run_at = (Instant::now() + delay).into();
        _ = self.messages.unbounded_send(Message::Request(ScheduleRequest { message, run_at }));
    }

    fn settle(&self) -> Option<usize> {
        let (sender, answer) = mpsc::channel();
        _ = self.messages.unbounded_send(Message::Settle(sender));
        answer.recv().expect("the task lives");
        None
    }

    fn shut_down(&self) {
        self.messages.close_channel();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shut_down();
        self.task.take().map(thread::JoinHandle::join);
    }
}

/// The scheduler and its channel without the task, under tokio's paused clock.
pub type ManualKube = ManualRival<KubeTimer>;

pub struct KubeTimer {
    requests: UnboundedSender<ScheduleRequest<u64>>,
    /// Requests that are only in the channel.
    unread: usize,
    scheduler: Pin<Box<Scheduler<u64, UnboundedReceiver<ScheduleRequest<u64>>>>>,
    clock: Paused,
}

impl KubeTimer {
    /// Advances the clock, passes on the keys whose delays have expired, and returns their number.
    fn turn(&mut self, by: Duration, mut pass: impl FnMut(u64)) -> usize {
        let Self { scheduler, clock, unread, .. } = self;
        *unread = 0;
        clock.advance(by, |context| {
            let mut due = 0;
            while let Poll::Ready(Some(key)) = scheduler.as_mut().poll_next(context) {
                pass(key);
                due += 1;
            }
            due
        })
    }
}

impl Timer for KubeTimer {
    const NAME: &'static str = NAME;

    fn make() -> Self {
        // The clock is made first: the scheduler uses it.
        let clock = Paused::new();
        let (requests, receiver) = unbounded();
        Self { requests, unread: 0, scheduler: Box::pin(scheduler(receiver)), clock }
    }

    #[inline]
    fn set(&mut self, message: u64, delay: Duration) {
        _ = self.requests.unbounded_send(ScheduleRequest { message, run_at: self.clock.now() + delay });
        self.unread += 1;
        if self.unread == BATCH {
            self.turn(Duration::ZERO, |_| unreachable!("the clock has not moved"));
        }
    }

    /// The requests are taken in before the clock moves, since their delays count from then.
    fn advance(&mut self, by: Duration, ready: &mut Ready<u64>) -> usize {
        let mut pass = |key| _ = ready.add(key);
        self.turn(Duration::ZERO, &mut pass) + self.turn(by, &mut pass)
    }

    fn cancel(&mut self, _key: &u64) -> bool {
        unreachable!("it takes part in no workload that cancels")
    }
}
