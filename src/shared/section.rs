//! A critical section of one shard, and the work that it defers to after the lock.
//!
//! The drop of the [`Section`] unlocks, and then does the deferred work: see [`Effects`](crate::shard::Effects). So no caller can forget
//! it, and a hot call that owes nothing, as nearly all do, makes one test.
//!
//! Some calls take the lock without a section, by `lock()`. They must owe no wake-up: it would wait for the end of a later section.
//! Memory that they leave is freed at the end of the next section.

use super::Shared;
use super::add::Wakeups;
use super::hub::Flags;
use super::locked::Locked;
use crate::shard::Shard;
use crate::sync::MutexGuard;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// The guard of a shard's lock.
pub(super) struct Section<'s, K> {
    shared: &'s Shared<K>,
    locked: &'s Locked<K>,
    shard: ManuallyDrop<MutexGuard<'s, Shard<K>>>,
}

impl<K> Shared<K> {
    /// Takes the lock of a shard.
    #[inline]
    pub(super) fn enter<'s>(&'s self, locked: &'s Locked<K>) -> Section<'s, K> {
        let shard = ManuallyDrop::new(locked.lock());
        #[cfg(keyqueue_steps)]
        crate::steps::is_section();
        Section { shared: self, locked, shard }
    }

    /// Takes the lock of a shard, unless there are others and this one is busy for longer than a critical section takes (P21).
    pub(super) fn lock_unless_busy<'s>(&self, locked: &'s Locked<K>) -> Option<MutexGuard<'s, Shard<K>>> {
        if self.shards() == 1 { Some(locked.lock()) } else { locked.lock_briefly() }
    }

    /// [`enter`](Self::enter), unless the shard is busy.
    pub(super) fn enter_unless_busy<'s>(&'s self, locked: &'s Locked<K>) -> Option<Section<'s, K>> {
        let shard = ManuallyDrop::new(self.lock_unless_busy(locked)?);
        Some(Section { shared: self, locked, shard })
    }

    /// Unlocks, and does the deferred work.
    #[cold]
    fn run_owed(&self, mut shard: MutexGuard<'_, Shard<K>>) {
        let mut effects = shard.take_effects();
        drop(shard);
        let panics = effects.wake();
        self.note_caught(panics);
    }
}

impl<'s, K> Section<'s, K> {
    pub(super) fn shared(&self) -> &'s Shared<K> {
        self.shared
    }

    pub(super) fn locked(&self) -> &'s Locked<K> {
        self.locked
    }

    /// The number of queued keys has changed.
    #[inline]
    pub(super) fn publish_len(&self) {
        self.locked.publish_len(self);
    }

    /// A step has queued a key: owes a wake-up to a getter (W2), unless the caller wakes getters for many keys at its end.
    #[inline]
    pub(super) fn pushed(&mut self, wakeups: Wakeups) {
        self.publish();
        if matches!(wakeups, Wakeups::Now) && self.shared.flags().has(Flags::GETTERS) {
            self.owe_getters(1);
        }
    }

    /// This number of keys became queued: owes a wake-up to at most as many getters, and fewer if woken threads have not arrived yet (W2).
    #[cold]
    pub(super) fn owe_getters(&mut self, pushed: usize) {
        let queued = self.ready() * self.shared.shards();
        let mut hub = self.shared.hub();
        for _ in 0..pushed {
            let Some(waiter) = hub.getters.next(queued) else { return };
            self.shard.owe(waiter);
        }
    }

    /// If no key of this shard is queued or processing, owes a wake-up to the drains and idle waits that wait for it.
    #[inline]
    pub(super) fn owe_drainers(&mut self) {
        if self.shared.flags().has(Flags::DRAINERS) {
            self.owe_drainers_if_drained();
        }
    }

    #[cold]
    fn owe_drainers_if_drained(&mut self) {
        if self.is_drained() {
            let drainers = self.shared.hub().life_cycle.work_ended(self.locked.index);
            self.owe_all(drainers);
        }
    }
}

impl<K> Deref for Section<'_, K> {
    type Target = Shard<K>;

    #[inline]
    fn deref(&self) -> &Shard<K> {
        &self.shard
    }
}

impl<K> DerefMut for Section<'_, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard<K> {
        &mut self.shard
    }
}

impl<K> Drop for Section<'_, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes the guard, and a value is dropped once.
        let shard = unsafe { ManuallyDrop::take(&mut self.shard) };
        if shard.has_effects() {
            self.shared.run_owed(shard);
        }
    }
}
