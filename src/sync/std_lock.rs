//! `std`'s mutex in place of [the queue's own](super::lock), with the feature `std-lock`.
//!
//! It is slower, because each section takes one more locked read-modify-write and a contender goes to sleep sooner, but nothing in it has
//! to be taken on trust from this crate. As in the queue's own lock, a panic does not poison it, and a debug build panics if a thread takes
//! it twice.

use super::{Holder, spin_hint};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex as StdMutex, MutexGuard as StdGuard, PoisonError, TryLockError};

/// Data that one thread at a time may touch.
pub(crate) struct Mutex<T> {
    holder: Holder,
    data: StdMutex<T>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { holder: Holder::default(), data: StdMutex::new(value) }
    }

    /// The same, because `std`'s mutex has only one way to wait.
    pub(crate) fn one_of_many(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.holder.assert_another_thread();
        self.guard(self.data.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.data.try_lock() {
            Ok(data) => Some(self.guard(data)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the lock if it becomes free while this thread spins for some microseconds.
    pub(crate) fn lock_briefly(&self) -> Option<MutexGuard<'_, T>> {
        self.holder.assert_another_thread();
        self.try_lock().or_else(|| {
            (0..20).find_map(|_| {
                spin_hint(8);
                self.try_lock()
            })
        })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.data.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn guard<'m>(&'m self, data: StdGuard<'m, T>) -> MutexGuard<'m, T> {
        self.holder.set();
        MutexGuard { holder: &self.holder, data }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(f)
    }
}

/// The lock, until it is dropped.
pub(crate) struct MutexGuard<'m, T> {
    holder: &'m Holder,
    data: StdGuard<'m, T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.holder.clear(); // and then `data` is dropped, which unlocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_poison_it() {
        let lock = Mutex::new(1);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(unwound.is_err());
        *lock.lock() += 1;
        assert!(lock.try_lock().is_some_and(|guard| *guard == 2));
    }

    #[test]
    fn a_held_lock_is_passed_by() {
        let lock = Mutex::new(1);
        let guard = lock.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.lock_briefly().is_none() && lock.try_lock().is_none()));
        });
        drop(guard);
        assert!(lock.lock_briefly().is_some());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a thread took a lock that it holds")]
    fn taking_it_twice_panics_in_a_debug_build() {
        let lock = Mutex::new(1);
        let _guard = lock.lock();
        drop(lock.lock());
    }
}
