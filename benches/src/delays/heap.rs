//! The delayed queue that one would write in an hour: a binary heap, a map and the mutex queue's sets under one lock, and a thread that
//! parks until the earliest deadline.
//!
//! A key that is moved or cancelled leaves its entry in the heap, where it is dropped as stale at its old deadline.

use super::{DelaySubject, ManualRival, Ready, Timer};
use crate::Subject;
use ahash::RandomState;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "heap under a mutex";

#[derive(Default)]
struct Delays {
    /// Deadline, number, key. The earliest is on top.
    heap: BinaryHeap<Reverse<(Instant, u64, u64)>>,
    /// The delay that counts for a key: the heap's other entries for it are stale.
    pending: HashMap<u64, (Instant, u64), RandomState>,
    /// The number of delays so far: orders delays with the same deadline.
    number: u64,
}

impl Delays {
    fn earliest(&self) -> Option<Instant> {
        self.heap.peek().map(|first| first.0.0)
    }

    /// Sets the delay unless the key has an earlier one. Returns `true` if it is now the earliest of all.
    #[inline]
    fn set(&mut self, key: u64, deadline: Instant) -> bool {
        let delay = (deadline, self.number);
        match self.pending.entry(key) {
            Entry::Occupied(known) if known.get().0 <= deadline => return false,
            Entry::Occupied(mut known) => _ = known.insert(delay),
            Entry::Vacant(new) => _ = new.insert(delay),
        }
        let is_earliest = self.earliest().is_none_or(|first| deadline < first);
        self.heap.push(Reverse((deadline, self.number, key)));
        self.number += 1;
        is_earliest
    }

    /// Queues the keys whose delays have expired, and returns their number.
    fn expire(&mut self, now: Instant, ready: &mut Ready<u64>) -> usize {
        let mut due = 0;
        while self.earliest().is_some_and(|first| first <= now) {
            let Reverse((_, number, key)) = self.heap.pop().expect("looked");
            if let Entry::Occupied(known) = self.pending.entry(key)
                && known.get().1 == number
            {
                known.remove();
                ready.add(key);
                due += 1;
            }
        }
        due
    }
}

/// The queue with its thread.
pub struct HeapQueue {
    shared: Arc<Shared>,
    driver: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    inner: Mutex<(Ready<u64>, Delays)>,
    /// Getters wait here.
    ready: Condvar,
    /// The driver waits here.
    timer: Condvar,
}

impl Shared {
    /// The driver: queues keys whose delays have expired, wakes as many getters, and parks until the earliest deadline.
    fn drive(&self) {
        let mut guard = self.inner.lock();
        loop {
            let (ready, delays) = &mut *guard;
            if ready.shutting_down {
                return;
            }
            let mut due = delays.expire(Instant::now(), ready);
            if due > 0 {
                drop(guard);
                while due > 0 && self.ready.notify_one() {
                    due -= 1;
                }
                guard = self.inner.lock();
                continue;
            }
            match delays.earliest() {
                Some(deadline) => _ = self.timer.wait_until(&mut guard, deadline),
                None => self.timer.wait(&mut guard),
            }
        }
    }
}

impl Subject<u64> for HeapQueue {
    const NAME: &'static str = NAME;

    fn make() -> Self {
        let shared = Arc::<Shared>::default();
        let driver = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.drive()
        });
        Self { shared, driver: Some(driver) }
    }

    #[inline]
    fn add(&self, key: u64) {
        if self.shared.inner.lock().0.add(key) {
            self.shared.ready.notify_one();
        }
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        let mut guard = self.shared.inner.lock();
        let key = loop {
            if let Some(key) = guard.0.take() {
                break key;
            }
            if guard.0.shutting_down {
                return false;
            }
            self.shared.ready.wait(&mut guard);
        };
        drop(guard);
        work(self, &key);
        if self.shared.inner.lock().0.done(key) {
            self.shared.ready.notify_one();
        }
        true
    }

    fn shut_down(&self) {
        self.shared.inner.lock().0.shutting_down = true;
        self.shared.ready.notify_all();
        self.shared.timer.notify_all();
    }
}

impl DelaySubject for HeapQueue {
    #[inline]
    fn add_after(&self, key: u64, delay: Duration) {
        let deadline = Instant::now() + delay;
        let mut inner = self.shared.inner.lock();
        if !inner.0.shutting_down && inner.1.set(key, deadline) {
            drop(inner);
            self.shared.timer.notify_one();
        }
    }

    fn settle(&self) -> usize {
        self.shared.inner.lock().1.pending.len()
    }
}

impl Drop for HeapQueue {
    fn drop(&mut self) {
        self.shut_down();
        self.driver.take().map(thread::JoinHandle::join);
    }
}

/// The same queue without the thread.
pub type ManualHeap = ManualRival<HeapTimer>;

pub struct HeapTimer {
    delays: Mutex<Delays>,
    now: Instant,
}

impl Timer for HeapTimer {
    const NAME: &'static str = NAME;

    fn make() -> Self {
        Self { delays: Mutex::default(), now: Instant::now() }
    }

    #[inline]
    fn set(&mut self, key: u64, delay: Duration) {
        self.delays.lock().set(key, self.now + delay);
    }

    fn advance(&mut self, by: Duration, ready: &mut Ready<u64>) -> usize {
        self.now += by;
        self.delays.lock().expire(self.now, ready)
    }

    #[inline]
    fn cancel(&mut self, key: &u64) -> bool {
        self.delays.lock().pending.remove(key).is_some()
    }
}
