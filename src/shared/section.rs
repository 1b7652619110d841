//! A critical section of the queue, and the work that it defers to after the lock.
//!
//! The drop of the [`Section`] unlocks, and then does the deferred work: see [`Effects`](crate::shard::Effects). So no caller can forget
//! it, and a hot call that owes nothing, as nearly all do, makes one test.
//!
//! Some calls take the lock without a section, by `core.lock()`. They must owe no wake-up: it would wait for the end of a later section.
//! Memory that they leave is freed at the end of the next section.

use super::{Core, Shared};
use crate::sync::MutexGuard;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// The guard of the lock.
pub(super) struct Section<'s, K> {
    shared: &'s Shared<K>,
    core: ManuallyDrop<MutexGuard<'s, Core<K>>>,
}

/// Conditions that send a hot call to its slow path, as bits. They hold for few queues, or only from time to time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Special(u8);

impl Special {
    pub(super) const NONE: Self = Self(0);
    /// The queue measures. A queue with an observer always does.
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
        let mut effects = core.shard.take_effects();
        drop(core);
        let panics = effects.wake();
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
        if core.shard.has_effects() {
            self.shared.run_owed(core);
        }
    }
}
