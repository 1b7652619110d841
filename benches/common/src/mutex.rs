//! The rivals: client-go's design, which is two hash sets, a deque and a condition variable under one lock.

use crate::{Key, Subject};
use ahash::RandomState;
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
                    if inner.add(key) && inner.waiting > 0 {
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
                            $held.waiting += 1;
                            let $cv = &self.wakeup;
                            $wait;
                            $held.waiting -= 1;
                        }
                    };
                    work(self, &key);
                    let $lock = &self.inner;
                    let mut inner = $guard;
                    if inner.done(key) && inner.waiting > 0 {
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

pub struct Inner<K> {
    dirty: HashSet<K, RandomState>,
    processing: HashSet<K, RandomState>,
    line: VecDeque<K>,
    pub shutting_down: bool,
    /// Threads that wait for the condition variable: a notification of none would still cost `std` a system call.
    waiting: usize,
}

impl<K> Default for Inner<K> {
    fn default() -> Self {
        let [dirty, processing] = [(); 2].map(|()| HashSet::default());
        Self { dirty, processing, line: VecDeque::new(), shutting_down: false, waiting: 0 }
    }
}

/// The data under the lock. The delayed rivals use it too.
impl<K: Key> Inner<K> {
    /// Returns `true` if the add has queued the key, so that the caller must wake a getter.
    #[inline]
    pub fn add(&mut self, key: K) -> bool {
        if self.shutting_down || !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return false;
        }
        self.line.push_back(key);
        true
    }

    #[inline]
    pub fn take(&mut self) -> Option<K> {
        let key = self.line.pop_front()?;
        let known = self.dirty.take(&key).expect("a queued key is dirty");
        self.processing.insert(known);
        Some(key)
    }

    /// Returns `true` if the key is queued again, so that the caller must wake a getter.
    #[inline]
    pub fn done(&mut self, key: K) -> bool {
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
