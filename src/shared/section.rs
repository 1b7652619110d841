//! A critical section of the queue, and the work that it defers to after the lock.
//!
//! No thread or task is woken, and no large memory freed, under the lock (W4). A step that owes a wake-up puts the waiter into
//! `Core::owed`; memory to be freed stays in lists of the table, the line and the wheel. The drop of the [`Section`] unlocks, and then
//! does the deferred work. So no caller can forget it, and a hot call that owes nothing, as nearly all do, makes one test.

use super::{Core, Shared};
use crate::key::slab::{Retired, SlotRef};
use crate::key::table;
use crate::line::Block;
use crate::sync::MutexGuard;
use crate::time::wheel;
use crate::wait::{Waiter, WakeList};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// The guard of the lock.
pub(super) struct Section<'s, K> {
    shared: &'s Shared<K>,
    core: ManuallyDrop<MutexGuard<'s, Core<K>>>,
}

/// What few queues have, or only from time to time, as bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Special(u8);

impl Special {
    pub(super) const NONE: Self = Self(0);
    /// Times are kept. There may be an observer.
    pub(super) const MEASURED: Self = Self(1);
    /// There is no driver thread, and the next call that adds, gets or waits starts one.
    pub(super) const NO_DRIVER: Self = Self(1 << 1);
    /// Adds are refused.
    pub(super) const SHUT_DOWN: Self = Self(1 << 2);
    /// The bits that make a hand-out take the slow path.
    pub(super) const HAND_OUT: Self = Self(Self::MEASURED.0 | Self::NO_DRIVER.0);

    #[inline]
    pub(super) fn is_any(self) -> bool {
        self.0 != 0
    }

    #[inline]
    pub(super) fn has(self, bit: Self) -> bool {
        self.0 & bit.0 != 0
    }

    pub(super) fn set(&mut self, bit: Self) {
        self.0 |= bit.0;
    }

    pub(super) fn clear(&mut self, bit: Self) {
        self.0 &= !bit.0;
    }
}

impl<K> Shared<K> {
    /// Takes the lock.
    #[inline]
    pub(super) fn enter(&self) -> Section<'_, K> {
        Section { shared: self, core: ManuallyDrop::new(self.core.lock()) }
    }

    /// Unlocks, and does the deferred work.
    #[cold]
    fn run_owed(&self, mut core: MutexGuard<'_, Core<K>>) {
        core.owes = false;
        let wakes = std::mem::take(&mut core.owed);
        let _garbage = core.take_garbage();
        drop(core);
        let panics = wakes.wake();
        self.note_caught(panics);
    }
}

impl<K> Deref for Section<'_, K> {
    type Target = Core<K>;

    #[inline]
    fn deref(&self) -> &Core<K> {
        &self.core
    }
}

impl<K> DerefMut for Section<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Core<K> {
        &mut self.core
    }
}

impl<K> Drop for Section<'_, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes the guard, and a value is dropped once.
        let core = unsafe { ManuallyDrop::take(&mut self.core) };
        if core.owes {
            self.shared.run_owed(core);
        }
    }
}

/// Memory that a critical section no longer needs. Freeing it may take long: if it is the last block before a gap, the allocator gives the
/// whole gap back to the system, which takes a millisecond for some twenty megabytes.
#[allow(clippy::vec_box, reason = "a block goes from list to list without being copied")]
struct Garbage<K> {
    _chunks: Vec<Retired<K>>,
    _line: Vec<Box<Block<SlotRef<K>>>>,
    _wheel: Vec<Box<wheel::Block>>,
    _buckets: Option<Box<table::Buckets<K>>>,
}

impl<K> Core<K> {
    /// Has the end of the critical section wake these.
    pub(super) fn owe(&mut self, waiters: WakeList) {
        self.owes |= !waiters.is_empty();
        self.owed.append(waiters);
    }

    /// Has the end of the critical section wake this waiter.
    pub(super) fn owe_one(&mut self, waiter: Waiter) {
        self.owes = true;
        self.owed.push(waiter);
    }

    /// Has the end of the critical section free the memory that the table, the line and the wheel do not need any more.
    pub(super) fn owe_garbage(&mut self) {
        self.owes = true;
    }

    fn take_garbage(&mut self) -> Garbage<K> {
        Garbage {
            _chunks: std::mem::take(self.table.retired()),
            _line: std::mem::take(self.line.retired()),
            _wheel: self.wheel.as_mut().map(|wheel| wheel.retired()).unwrap_or_default(),
            _buckets: self.table.retired_buckets(),
        }
    }
}
