//! `tokio_util`'s `DelayQueue`, a ready-made timer wheel. It must belong to one task: that task receives calls through a channel,
//! and passes keys whose delays have expired to the mutex queue.

use super::DelaySubject;
use crate::Subject;
use ahash::RandomState;
use common::mutex::parking_lot_mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::time::{DelayQueue, delay_queue};

type ReadyQueue = parking_lot_mutex::Queue<u64>;

/// The number of calls, or of expired keys, that the task handles before it turns to the other.
const BATCH: usize = 128;

#[derive(Default)]
struct Delays {
    queue: DelayQueue<u64>,
    keys: HashMap<u64, delay_queue::Key, RandomState>,
}

impl Delays {
    /// Sets the delay unless the key has an earlier one.
    #[inline]
    fn set(&mut self, key: u64, deadline: tokio::time::Instant) {
        match self.keys.entry(key) {
            Entry::Occupied(known) => {
                if deadline < self.queue.deadline(known.get()) {
                    self.queue.reset_at(known.get(), deadline);
                }
            }
            Entry::Vacant(new) => _ = new.insert(self.queue.insert_at(key, deadline)),
        }
    }

    /// Passes on keys whose delays have expired, at most `most`, and returns their number.
    fn expire(&mut self, context: &mut Context<'_>, most: usize, mut pass: impl FnMut(u64)) -> usize {
        let mut due = 0;
        while due < most
            && let Poll::Ready(Some(expired)) = self.queue.poll_expired(context)
        {
            let key = expired.into_inner();
            self.keys.remove(&key);
            pass(key);
            due += 1;
        }
        due
    }
}

/// A task that owns the delays, and the mutex queue.
pub struct TaskQueue {
    ready: Arc<ReadyQueue>,
    messages: UnboundedSender<Message>,
    task: Option<thread::JoinHandle<()>>,
}

enum Message {
    Add(u64, Instant),
    Settle(mpsc::Sender<usize>),
    ShutDown,
}

async fn drive(mut messages: UnboundedReceiver<Message>, ready: Arc<ReadyQueue>) {
    let mut delays = Delays::default();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let expire = poll_fn(|context| match delays.expire(context, BATCH, |key| ready.add(key)) {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        });
        tokio::select! {
            _ = messages.recv_many(&mut batch, BATCH) => {}
            () = expire => continue,
        }
        for message in batch.drain(..) {
            match message {
                Message::Add(key, deadline) => delays.set(key, deadline.into()),
                Message::Settle(answer) => _ = answer.send(delays.queue.len()),
                Message::ShutDown => return,
            }
        }
    }
}

impl Subject<u64> for TaskQueue {
    const NAME: &'static str = "DelayQueue in a task";

    fn make() -> Self {
        let ready = Arc::new(ReadyQueue::make());
        let (messages, receiver) = unbounded_channel();
        let drive = drive(receiver, Arc::clone(&ready));
        let task = thread::spawn(move || {
            Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(drive);
        });
        Self { ready, messages, task: Some(task) }
    }

    #[inline]
    fn add(&self, key: u64) {
        self.ready.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        self.ready.process(|_, key| work(self, key))
    }

    fn shut_down(&self) {
        self.ready.shut_down();
        _ = self.messages.send(Message::ShutDown);
    }
}

impl DelaySubject for TaskQueue {
    #[inline]
    fn add_after(&self, key: u64, delay: Duration) {
        _ = self.messages.send(Message::Add(key, Instant::now() + delay));
    }

    fn settle(&self) -> usize {
        let (sender, answer) = mpsc::channel();
        _ = self.messages.send(Message::Settle(sender));
        answer.recv().expect("the task lives")
    }
}

impl Drop for TaskQueue {
    fn drop(&mut self) {
        self.shut_down();
        self.task.take().map(thread::JoinHandle::join);
    }
}
