//! * [`Channel`]: `crossbeam-channel`, without a bound, deduplication, `done` or delays: every message is handed out. It is no rival but a
//!   lower bound: the cost of passing messages from thread to thread.
//! * [`Line`]: `crossbeam-queue`'s `SegQueue`, of which rivals are made. It cannot wait, so a getter that finds it empty waits on a condition
//!   variable.

use crate::{Key, Subject};
use crossbeam_channel::{Receiver, Sender, unbounded};
use crossbeam_queue::SegQueue;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// `crossbeam-channel`.
pub struct Channel<K> {
    sender: Sender<Option<K>>,
    /// `None`: shut down. The getter that takes it puts it back, for the next getter.
    receiver: Receiver<Option<K>>,
}

impl<K: Key> Subject<K> for Channel<K> {
    const NAME: &'static str = "crossbeam-channel (no dedup)";

    fn make() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver }
    }

    #[inline]
    fn add(&self, key: K) {
        self.sender.send(Some(key)).expect("has a receiver");
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        match self.receiver.recv().expect("has a sender") {
            Some(key) => {
                work(self, &key);
                true
            }
            None => {
                self.shut_down();
                false
            }
        }
    }

    fn shut_down(&self) {
        self.sender.send(None).expect("has a receiver");
    }
}

/// `SegQueue` and a condition variable.
pub struct Line<K> {
    line: SegQueue<K>,
    waiters: AtomicUsize,
    shutting_down: AtomicBool,
    lock: Mutex<()>,
    wakeup: Condvar,
}

impl<K> Line<K> {
    #[inline]
    pub(crate) fn push(&self, key: K) {
        self.line.push(key);
        // Pairs with the fence of a getter that is about to wait: either the getter sees the key, or this thread sees the getter.
        fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::Relaxed) > 0 {
            drop(self.lock.lock());
            self.wakeup.notify_one();
        }
    }

    /// Waits for a key. `None`: shut down and empty.
    #[inline]
    pub(crate) fn pop(&self) -> Option<K> {
        if let Some(key) = self.line.pop() {
            return Some(key);
        }
        let mut guard = self.lock.lock();
        self.waiters.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let key = loop {
            if let Some(key) = self.line.pop() {
                break Some(key);
            }
            if self.is_shutting_down() {
                break None;
            }
            self.wakeup.wait(&mut guard);
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        key
    }

    #[inline]
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    pub(crate) fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
        let _guard = self.lock.lock();
        self.wakeup.notify_all();
    }
}

impl<K> Default for Line<K> {
    fn default() -> Self {
        Self {
            line: SegQueue::new(),
            waiters: AtomicUsize::new(0),
            shutting_down: AtomicBool::new(false),
            lock: Default::default(),
            wakeup: Default::default(),
        }
    }
}
