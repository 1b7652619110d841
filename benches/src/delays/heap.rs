//! The delayed queue that one would write in an hour: a binary heap, a map and the mutex queue's sets under one lock, and a thread that
//! parks until the earliest deadline.
//!
//! A key that is moved or cancelled leaves its entry in the heap, where it is dropped as stale at its old deadline.

use super::{Cancel, DelaySubject, Manual};
use crate::{Key, Subject};
use ahash::RandomState;
use common::mutex::Inner as Ready;
use parking_lot::{Condvar, Mutex};
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The queue with its thread.
pub struct HeapQueue<K> {
    shared: Arc<Shared<K>>,
    driver: Option<thread::JoinHandle<()>>,
}

/// The same queue without the thread.
pub struct ManualHeap<K> {
    shared: Shared<K>,
    now: Instant,
}

struct Shared<K> {
    inner: Mutex<Inner<K>>,
    /// Getters wait here.
    ready: Condvar,
    /// The driver waits here.
    timer: Condvar,
}

struct Inner<K> {
    ready: Ready<K>,
    heap: BinaryHeap<Delay<K>>,
    /// The delay that counts for a key: the heap's other entries for it are stale.
    pending: HashMap<K, (Instant, u64), RandomState>,
    /// The number of delays so far: orders delays with the same deadline.
    number: u64,
}

struct Delay<K> {
    deadline: Instant,
    number: u64,
    key: K,
}

impl<K> Ord for Delay<K> {
    /// Reversed: `BinaryHeap` has the greatest entry on top, and the earliest must be there.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.deadline, other.number).cmp(&(self.deadline, self.number))
    }
}

impl<K> PartialOrd for Delay<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Delay<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K> Eq for Delay<K> {}

impl<K: Key> Inner<K> {
    /// Sets the delay unless the key has an earlier one. Returns `true` if it is now the earliest of all.
    #[inline]
    fn set(&mut self, key: K, deadline: Instant) -> bool {
        let delay = (deadline, self.number);
        let key = match self.pending.entry(key) {
            Entry::Occupied(known) if known.get().0 <= deadline => return false,
            Entry::Occupied(mut known) => {
                known.insert(delay);
                known.key().clone()
            }
            Entry::Vacant(new) => {
                let key = new.key().clone();
                new.insert(delay);
                key
            }
        };
        let earliest = self.heap.peek().is_none_or(|first| deadline < first.deadline);
        self.heap.push(Delay { deadline, number: self.number, key });
        self.number += 1;
        earliest
    }

    /// Queues the keys whose delays have expired, and returns their number.
    fn expire(&mut self, now: Instant) -> usize {
        let mut due = 0;
        while self.heap.peek().is_some_and(|first| first.deadline <= now) {
            let Delay { number, key, .. } = self.heap.pop().expect("looked");
            if let Entry::Occupied(known) = self.pending.entry(key)
                && known.get().1 == number
            {
                self.ready.add(known.remove_entry().0);
                due += 1;
            }
        }
        due
    }
}

impl<K: Key> Shared<K> {
    fn new() -> Self {
        let inner = Inner { ready: Ready::default(), heap: BinaryHeap::new(), pending: HashMap::default(), number: 0 };
        Self { inner: inner.into(), ready: Condvar::new(), timer: Condvar::new() }
    }

    #[inline]
    fn add(&self, key: K) {
        if self.inner.lock().ready.add(key) {
            self.ready.notify_one();
        }
    }

    #[inline]
    fn add_at(&self, key: K, deadline: Instant) {
        let mut inner = self.inner.lock();
        if !inner.ready.shutting_down && inner.set(key, deadline) {
            drop(inner);
            self.timer.notify_one();
        }
    }

    #[inline]
    fn cancel(&self, key: &K) -> bool {
        self.inner.lock().pending.remove(key).is_some()
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&K)) -> bool {
        let mut inner = self.inner.lock();
        let key = loop {
            if let Some(key) = inner.ready.take() {
                break key;
            }
            if inner.ready.shutting_down {
                return false;
            }
            self.ready.wait(&mut inner);
        };
        drop(inner);
        work(&key);
        if self.inner.lock().ready.done(key) {
            self.ready.notify_one();
        }
        true
    }

    /// The driver: queues keys whose delays have expired, wakes as many getters, and parks until the earliest deadline.
    fn drive(&self) {
        let mut inner = self.inner.lock();
        while !inner.ready.shutting_down {
            let mut due = inner.expire(Instant::now());
            if due > 0 {
                drop(inner);
                while due > 0 && self.ready.notify_one() {
                    due -= 1;
                }
                inner = self.inner.lock();
                continue;
            }
            match inner.heap.peek().map(|first| first.deadline) {
                Some(deadline) => _ = self.timer.wait_until(&mut inner, deadline),
                None => self.timer.wait(&mut inner),
            }
        }
    }

    fn shut_down(&self) {
        self.inner.lock().ready.shutting_down = true;
        self.ready.notify_all();
        self.timer.notify_all();
    }
}

impl<K: Key> Subject<K> for HeapQueue<K> {
    const NAME: &'static str = "heap under a mutex";

    fn make() -> Self {
        let shared = Arc::new(Shared::new());
        let driver = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.drive()
        });
        Self { shared, driver: Some(driver) }
    }

    #[inline]
    fn add(&self, key: K) {
        self.shared.add(key);
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        self.shared.process(|key| work(self, key))
    }

    fn shut_down(&self) {
        self.shared.shut_down();
    }
}

impl<K: Key> DelaySubject<K> for HeapQueue<K> {
    #[inline]
    fn add_after(&self, key: K, delay: Duration) {
        self.shared.add_at(key, Instant::now() + delay);
    }

    fn settle(&self) -> Option<usize> {
        Some(self.shared.inner.lock().pending.len())
    }
}

impl<K> Drop for HeapQueue<K> {
    fn drop(&mut self) {
        self.shared.inner.lock().ready.shutting_down = true;
        self.shared.timer.notify_all();
        self.driver.take().map(thread::JoinHandle::join);
    }
}

impl<K: Key> Manual<K> for ManualHeap<K> {
    const NAME: &'static str = <HeapQueue<K> as Subject<K>>::NAME;

    fn make() -> Self {
        Self { shared: Shared::new(), now: Instant::now() }
    }

    #[inline]
    fn add(&mut self, key: K) {
        self.shared.add(key);
    }

    #[inline]
    fn add_after(&mut self, key: K, delay: Duration) {
        self.shared.add_at(key, self.now + delay);
    }

    fn advance(&mut self, by: Duration) -> usize {
        self.now += by;
        self.shared.inner.lock().expire(self.now)
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&K)) -> bool {
        self.shared.process(work)
    }
}

impl<K: Key> Cancel<K> for ManualHeap<K> {
    #[inline]
    fn cancel(&mut self, key: &K) -> bool {
        self.shared.cancel(key)
    }
}
