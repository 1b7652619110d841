//! What a user would write by hand: a mutex around client-go's sets, with a sorted map, or with a ring of groups, in place of the line.

use super::priority_of;
use ahash::RandomState;
use common::Subject;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Keys by priority, and by the order of their pushes.
#[derive(Default)]
pub struct ByPriority {
    inner: Mutex<Priorities>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Priorities {
    queue: BTreeMap<(Reverse<i8>, u64), u64>,
    /// Where a queued key is; its priority, if it is processing and dirty.
    dirty: HashMap<u64, (i8, u64), RandomState>,
    processing: HashSet<u64, RandomState>,
    pushes: u64,
    shut_down: bool,
}

impl Priorities {
    fn push(&mut self, key: u64, priority: i8) {
        self.pushes += 1;
        self.dirty.insert(key, (priority, self.pushes));
        self.queue.insert((Reverse(priority), self.pushes), key);
    }
}

impl ByPriority {
    pub fn add_at(&self, key: u64, priority: i8) {
        let mut inner = self.inner.lock();
        let is_processing = inner.processing.contains(&key);
        match inner.dirty.get(&key).copied() {
            Some((before, _)) if before >= priority => return,
            Some((_, push)) if is_processing => _ = inner.dirty.insert(key, (priority, push)),
            Some((before, push)) => {
                inner.queue.remove(&(Reverse(before), push));
                inner.push(key, priority);
            }
            None if is_processing => _ = inner.dirty.insert(key, (priority, 0)),
            None => {
                inner.push(key, priority);
                drop(inner);
                self.wakeup.notify_one();
            }
        }
    }
}

impl Subject<u64> for ByPriority {
    const NAME: &'static str = "BTreeMap";

    fn make() -> Self {
        Self::default()
    }

    fn add(&self, key: u64) {
        self.add_at(key, priority_of(key));
    }

    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        let key = {
            let mut inner = self.inner.lock();
            loop {
                if let Some((_, key)) = inner.queue.pop_first() {
                    inner.dirty.remove(&key);
                    inner.processing.insert(key);
                    break key;
                }
                if inner.shut_down {
                    return false;
                }
                self.wakeup.wait(&mut inner);
            }
        };
        work(self, &key);
        let mut inner = self.inner.lock();
        inner.processing.remove(&key);
        if let Some((priority, _)) = inner.dirty.get(&key).copied() {
            inner.push(key, priority);
            drop(inner);
            self.wakeup.notify_one();
        }
        true
    }

    fn shut_down(&self) {
        self.inner.lock().shut_down = true;
        self.wakeup.notify_all();
    }
}

/// Groups that take turns.
#[derive(Default)]
pub struct ByGroup<const GROUPS: u64> {
    inner: Mutex<Groups>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Groups {
    queues: HashMap<u64, VecDeque<u64>, RandomState>,
    ring: VecDeque<u64>,
    dirty: HashSet<u64, RandomState>,
    processing: HashSet<u64, RandomState>,
    shut_down: bool,
}

impl Groups {
    fn push(&mut self, key: u64, group: u64) {
        let queue = self.queues.entry(group).or_default();
        queue.push_back(key);
        if queue.len() == 1 {
            self.ring.push_back(group);
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let group = self.ring.pop_front()?;
        let queue = self.queues.get_mut(&group).expect("a group in the ring has keys");
        let key = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&group);
        } else {
            self.ring.push_back(group);
        }
        key
    }
}

impl<const GROUPS: u64> Subject<u64> for ByGroup<GROUPS> {
    const NAME: &'static str = "map of VecDeques";

    fn make() -> Self {
        Self::default()
    }

    fn add(&self, key: u64) {
        let mut inner = self.inner.lock();
        if inner.dirty.insert(key) && !inner.processing.contains(&key) {
            inner.push(key, key % GROUPS);
            drop(inner);
            self.wakeup.notify_one();
        }
    }

    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        let key = {
            let mut inner = self.inner.lock();
            loop {
                if let Some(key) = inner.pop() {
                    inner.dirty.remove(&key);
                    inner.processing.insert(key);
                    break key;
                }
                if inner.shut_down {
                    return false;
                }
                self.wakeup.wait(&mut inner);
            }
        };
        work(self, &key);
        let mut inner = self.inner.lock();
        inner.processing.remove(&key);
        if inner.dirty.contains(&key) {
            inner.push(key, key % GROUPS);
            drop(inner);
            self.wakeup.notify_one();
        }
        true
    }

    fn shut_down(&self) {
        self.inner.lock().shut_down = true;
        self.wakeup.notify_all();
    }
}
