//! What one would write in an hour instead.
//!
//! * [`std_mutex`], [`parking_lot_mutex`]: client-go's own design, two sets, a deque and a condition variable under one lock.
//! * [`DashSeg`]: the shape one thinks of first for "fast": a concurrent map of states and a lock-free queue. Each key is
//!   stored twice and hashed four times a cycle; it is here to show what those two crates cost in the hot path.

use crate::floors::Line;
use crate::{Key, Subject};
use ahash::RandomState;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::collections::{HashSet, VecDeque};

macro_rules! mutex_queue {
    ($module:ident, $name:literal, $mutex:ty, $condvar:ty, |$lock:ident| $guard:expr, |$cv:ident, $held:ident| $wait:expr) => {
        pub mod $module {
            use super::*;

            pub struct Queue<K> {
                inner: $mutex,
                wakeup: $condvar,
            }

            impl<K: Key> Subject<K> for Queue<K> {
                const NAME: &'static str = $name;

                fn make() -> Self {
                    Self { inner: Inner::default().into(), wakeup: Default::default() }
                }

                #[inline]
                fn add(&self, key: K) {
                    let $lock = &self.inner;
                    let mut inner = $guard;
                    if inner.add(key) {
                        drop(inner);
                        self.wakeup.notify_one();
                    }
                }

                #[inline]
                fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
                    let key = {
                        let $lock = &self.inner;
                        let mut $held = $guard;
                        loop {
                            if let Some(key) = $held.take() {
                                break key;
                            }
                            if $held.shutting_down {
                                return false;
                            }
                            let $cv = &self.wakeup;
                            $wait;
                        }
                    };
                    work(self, &key);
                    let $lock = &self.inner;
                    let mut inner = $guard;
                    if inner.done(key) {
                        drop(inner);
                        self.wakeup.notify_one();
                    }
                    true
                }

                fn shut_down(&self) {
                    let $lock = &self.inner;
                    $guard.shutting_down = true;
                    self.wakeup.notify_all();
                }
            }
        }
    };
}

pub(crate) struct Inner<K> {
    dirty: HashSet<K, RandomState>,
    processing: HashSet<K, RandomState>,
    line: VecDeque<K>,
    pub(crate) shutting_down: bool,
}

impl<K> Default for Inner<K> {
    fn default() -> Self {
        Self { dirty: HashSet::default(), processing: HashSet::default(), line: VecDeque::new(), shutting_down: false }
    }
}

/// What is done under the lock, for the delayed rivals too.
impl<K: Key> Inner<K> {
    /// `true`: in line now, wake somebody.
    #[inline]
    pub(crate) fn add(&mut self, key: K) -> bool {
        if self.shutting_down || !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.line.push_back(key);
        true
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<K> {
        let key = self.line.pop_front()?;
        let known = self.dirty.take(&key).expect("what is in line is dirty");
        self.processing.insert(known);
        Some(key)
    }

    /// `true`: in line once more, wake somebody.
    #[inline]
    pub(crate) fn done(&mut self, key: K) -> bool {
        self.processing.remove(&key);
        let again = self.dirty.contains(&key);
        if again {
            self.line.push_back(key);
        }
        again
    }
}

mutex_queue!(
    std_mutex,
    "std mutex",
    std::sync::Mutex<Inner<K>>,
    std::sync::Condvar,
    |mutex| mutex.lock().unwrap(),
    |condvar, held| held = condvar.wait(held).unwrap()
);

mutex_queue!(
    parking_lot_mutex,
    "parking_lot mutex",
    parking_lot::Mutex<Inner<K>>,
    parking_lot::Condvar,
    |mutex| mutex.lock(),
    |condvar, held| condvar.wait(&mut held)
);

/// See the module's head.
pub struct DashSeg<K> {
    states: DashMap<K, State, RandomState>,
    line: Line<K>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Processing,
    Again,
}

impl<K: Key> Subject<K> for DashSeg<K> {
    const NAME: &'static str = "DashMap + SegQueue";

    fn make() -> Self {
        Self { states: DashMap::default(), line: Line::default() }
    }

    #[inline]
    fn add(&self, key: K) {
        if self.line.is_shutting_down() {
            return;
        }
        let push = match self.states.entry(key) {
            Entry::Occupied(mut state) => {
                if *state.get() == State::Processing {
                    state.insert(State::Again);
                }
                None
            }
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                vacant.insert(State::Queued);
                Some(key)
            }
        };
        if let Some(key) = push {
            self.line.push(key);
        }
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        let Some(key) = self.line.pop() else { return false };
        *self.states.get_mut(&key).expect("queued") = State::Processing;
        work(self, &key);
        if let Entry::Occupied(mut state) = self.states.entry(key) {
            if *state.get() == State::Again {
                state.insert(State::Queued);
                let key = state.key().clone();
                drop(state);
                self.line.push(key);
            } else {
                state.remove();
            }
        }
        true
    }

    fn shut_down(&self) {
        self.line.shut_down();
    }
}
