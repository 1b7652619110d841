//! `tokio_util`'s `DelayQueue`, a ready-made timer wheel. It must belong to one task: that task receives calls through a channel,
//! and passes keys whose delays have expired to the mutex queue.

use super::paused::Paused;
use super::{Cancel, DelaySubject, Manual};
use crate::{Key, Subject};
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

/// The number of calls, or of expired keys, that the task handles before it turns to the other.
const BATCH: usize = 128;

/// A task that owns the delays, and the mutex queue.
pub struct TaskQueue<K> {
    ready: Arc<parking_lot_mutex::Queue<K>>,
    messages: UnboundedSender<Message<K>>,
    task: Option<thread::JoinHandle<()>>,
}

/// The same without the task, and so without the channel, under tokio's paused clock.
pub struct ManualTask<K> {
    ready: parking_lot_mutex::Queue<K>,
    delays: Delays<K>,
    clock: Paused,
}

enum Message<K> {
    Add(K, Instant),
    Settle(mpsc::Sender<usize>),
    ShutDown,
}

struct Delays<K> {
    queue: DelayQueue<K>,
    keys: HashMap<K, delay_queue::Key, RandomState>,
}

impl<K: Key> Delays<K> {
    fn new() -> Self {
        Self { queue: DelayQueue::new(), keys: HashMap::default() }
    }

    /// Sets the delay unless the key has an earlier one.
    #[inline]
    fn set(&mut self, key: K, deadline: tokio::time::Instant) {
        match self.keys.entry(key) {
            Entry::Occupied(known) => {
                if deadline < self.queue.deadline(known.get()) {
                    self.queue.reset_at(known.get(), deadline);
                }
            }
            Entry::Vacant(new) => {
                let handle = self.queue.insert_at(new.key().clone(), deadline);
                new.insert(handle);
            }
        }
    }

    #[inline]
    fn cancel(&mut self, key: &K) -> bool {
        self.keys.remove(key).is_some_and(|handle| self.queue.try_remove(&handle).is_some())
    }

    /// Queues keys whose delays have expired, at most `most`, and returns their number.
    fn expire(&mut self, context: &mut Context<'_>, most: usize, ready: &parking_lot_mutex::Queue<K>) -> usize {
        let mut due = 0;
        while due < most
            && let Poll::Ready(Some(expired)) = self.queue.poll_expired(context)
        {
            self.keys.remove(expired.get_ref());
            ready.add(expired.into_inner());
            due += 1;
        }
        due
    }
}

async fn drive<K: Key>(mut messages: UnboundedReceiver<Message<K>>, ready: Arc<parking_lot_mutex::Queue<K>>) {
    let mut delays = Delays::new();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let expire = poll_fn(|context| match delays.expire(context, BATCH, &ready) {
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

impl<K: Key> Subject<K> for TaskQueue<K> {
    const NAME: &'static str = "DelayQueue in a task";

    fn make() -> Self {
        let ready = Arc::new(parking_lot_mutex::Queue::make());
        let (messages, receiver) = unbounded_channel();
        let task = thread::spawn({
            let ready = Arc::clone(&ready);
            move || {
                Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(drive(receiver, ready))
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
        _ = self.messages.send(Message::ShutDown);
    }
}

impl<K: Key> DelaySubject<K> for TaskQueue<K> {
    #[inline]
    fn add_after(&self, key: K, delay: Duration) {
        _ = self.messages.send(Message::Add(key, Instant::now() + delay));
    }

    fn settle(&self) -> Option<usize> {
        let (sender, answer) = mpsc::channel();
        _ = self.messages.send(Message::Settle(sender));
        Some(answer.recv().expect("the task lives"))
    }
}

impl<K> Drop for TaskQueue<K> {
    fn drop(&mut self) {
        _ = self.messages.send(Message::ShutDown);
        self.task.take().map(thread::JoinHandle::join);
    }
}

impl<K: Key> Manual<K> for ManualTask<K> {
    const NAME: &'static str = <TaskQueue<K> as Subject<K>>::NAME;

    fn make() -> Self {
        // The clock is made first: the delays use it.
        let clock = Paused::new();
        Self { ready: parking_lot_mutex::Queue::make(), delays: Delays::new(), clock }
    }

    #[inline]
    fn add(&mut self, key: K) {
        self.ready.add(key);
    }

    #[inline]
    fn add_after(&mut self, key: K, delay: Duration) {
        self.delays.set(key, self.clock.now() + delay);
    }

    fn advance(&mut self, by: Duration) -> usize {
        let Self { delays, ready, clock } = self;
        clock.advance(by, |context| delays.expire(context, usize::MAX, ready))
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&K)) -> bool {
        self.ready.process(|_, key| work(key))
    }
}

impl<K: Key> Cancel<K> for ManualTask<K> {
    #[inline]
    fn cancel(&mut self, key: &K) -> bool {
        self.delays.cancel(key)
    }
}
