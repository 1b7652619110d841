//! What all shards of a queue share and rarely use: the getters that wait, the life cycle and the driver, under a lock of its own; and the
//! flags, from which a verb knows whether it owes something, and a call whether it has to look there.
//!
//! ```text
//!  hot call:  lock a shard ─ read the flags ─ verb ─ owes nothing ─ unlock                  (nobody waits)
//!                                                └─ owes: lock the hub ─ take a waiter ─ unlock      (a getter waits, a drain waits, …)
//!
//!  getter:    lock the hub: go on the list, which sets the flag ─ unlock ─ visit each shard under its lock ─ no key: park
//! ```
//!
//! **Why no wake-up is lost.** A thread that waits sets the flag *first*, and *then* visits the shards, each under its lock. A call that
//! queues a key reads the flags *inside* its critical section. The lock of this shard orders the two: if the visit comes later, it finds
//! the key; if the call comes later, it finds the flag. So the hot calls need no fence, and write nothing that shards share.
//!
//! **Lock order.** A thread that holds a shard may lock the hub, and never the other way round. A thread holds one shard at a time. A
//! thread that holds the hub may lock the counts of workers, and never the other way round.

use super::Shared;
use super::dirty::DirtyWaiters;
use super::getters::Getters;
use super::life_cycle::LifeCycle;
use crate::machine::NEVER;
use crate::sync::{MutexGuard, Ordering};
use crate::time::driver::State;
use crate::wait::WakeList;
use crate::workers::group::AllRuns;
use std::ops::{Deref, DerefMut};

/// What the hub's lock guards.
pub(super) struct Hub {
    /// The queue's flags: the atomic of the queue is a copy.
    flags: Flags,
    pub(super) getters: Getters,
    pub(super) life_cycle: LifeCycle,
    pub(super) dirty_waiters: DirtyWaiters,
    pub(super) driver: State,
    /// The thread in the driver's place: see [`stand_in`](super::stand_in). Never `Missing`.
    pub(super) stand_in: State,
    /// The number of deadlines that calls have told the hub of: see [`driver`](super::driver).
    pub(super) deadlines_told: u64,
    /// When the driver reports next: see [`reports`](super::reports).
    pub(super) report_at: u64,
    pub(super) counts: RareCounts,
    pub(super) runs: AllRuns,
}

/// What [`Stats`](crate::Stats) counts, and no shard.
#[derive(Default)]
pub(super) struct RareCounts {
    pub(super) panics: u64,
    pub(super) caught_panics: u64,
    pub(super) driver_failures: u64,
}

impl Hub {
    pub(super) fn new(flags: Flags) -> Self {
        Self {
            flags,
            getters: Getters::new(),
            life_cycle: LifeCycle::default(),
            dirty_waiters: DirtyWaiters::default(),
            driver: State::Absent,
            stand_in: State::Absent,
            deadlines_told: 0,
            report_at: NEVER,
            counts: RareCounts::default(),
            runs: AllRuns::default(),
        }
    }
}

/// Conditions that send a hot call to its slow path, as bits. They hold for few queues, or only from time to time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// The queue measures. A queue with an observer always does.
    pub(super) const MEASURED: Self = Self(1);
    /// The queue has an observer.
    pub(super) const OBSERVED: Self = Self(1 << 1);
    /// There is no driver thread, and the next call that adds, gets or waits starts one.
    pub(super) const NO_DRIVER: Self = Self(1 << 2);
    /// Adds are refused. Never cleared.
    pub(super) const SHUT_DOWN: Self = Self(1 << 3);
    /// Getters are on the list.
    pub(super) const GETTERS: Self = Self(1 << 4);
    /// Threads or tasks wait in a drain or in an idle wait.
    pub(super) const DRAINERS: Self = Self(1 << 5);
    /// Keys have priorities or groups: a shard may have an order other than a line (O1). Never cleared.
    pub(super) const ORDERED: Self = Self(1 << 6);
    /// Groups may be full.
    pub(super) const LIMITED: Self = Self(1 << 7);

    /// Some thread or task waits for keys, or for the end of the work.
    pub(super) const AWAITED: Self = Self(Self::GETTERS.0 | Self::DRAINERS.0);

    /// The flags that make an add take its slow path.
    pub(super) const ADD: Self = Self(!Self::DRAINERS.0);
    /// The same, for a hand-out.
    pub(super) const HAND_OUT: Self = Self(Self::MEASURED.0 | Self::NO_DRIVER.0 | Self::ORDERED.0);
    /// The same, for `done`.
    pub(super) const DONE: Self = Self(Self::MEASURED.0 | Self::GETTERS.0 | Self::DRAINERS.0 | Self::ORDERED.0);
    /// A call has more to do after the lock.
    pub(super) const EXTRAS: Self = Self(Self::OBSERVED.0 | Self::NO_DRIVER.0);

    #[inline]
    pub(super) fn has(self, any_of: Self) -> bool {
        self.0 & any_of.0 != 0
    }

    #[inline]
    pub(super) fn without(self, these: Self) -> Self {
        Self(self.0 & !these.0)
    }
}

/// The guard of the hub's lock. Its drop sets the flags to what the lists say, unlocks, and then wakes the waiters in `wakes`.
pub(super) struct HubGuard<'s, K> {
    shared: &'s Shared<K>,
    hub: Option<MutexGuard<'s, Hub>>,
    /// To be woken. Only for callers that hold no shard: others owe the wake-ups to the end of the shard's critical section (W4).
    pub(super) wakes: WakeList,
}

impl<K> Shared<K> {
    /// Locks the hub.
    pub(super) fn hub(&self) -> HubGuard<'_, K> {
        HubGuard { shared: self, hub: Some(self.hub.lock()), wakes: WakeList::default() }
    }

    /// The queue has more or fewer workers.
    pub(crate) fn change_workers(&self, change: impl FnOnce(&mut AllRuns)) {
        change(&mut self.hub.lock().runs);
    }

    /// The flags. A call reads them while it holds the shard on which it makes its step: see above.
    #[inline]
    pub(super) fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed)) // Relaxed: the shard's lock orders it
    }

    /// The same. If adds are refused, what happened before the shut-down is visible to the caller.
    #[inline]
    pub(super) fn flags_acquired(&self) -> Flags {
        Flags(self.flags.load(Ordering::Acquire)) // pairs with the release in `set`
    }
}

impl<K> Shared<K> {
    /// Adds are refused. What happened before the shut-down is visible to the caller.
    #[inline]
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.flags_acquired().has(Flags::SHUT_DOWN)
    }
}

impl<K> HubGuard<'_, K> {
    /// Sets or clears flags.
    pub(super) fn set(&mut self, flags: Flags, set: bool) {
        let before = self.flags;
        let after = Flags(if set { before.0 | flags.0 } else { before.0 & !flags.0 });
        if after != before {
            self.flags = after;
            self.shared.flags.store(after.0, Ordering::Release); // Release: see `flags_acquired`
        }
    }
}

impl<K> Deref for HubGuard<'_, K> {
    type Target = Hub;

    fn deref(&self) -> &Hub {
        self.hub.as_ref().expect("locked until the drop")
    }
}

impl<K> DerefMut for HubGuard<'_, K> {
    fn deref_mut(&mut self) -> &mut Hub {
        self.hub.as_mut().expect("locked until the drop")
    }
}

impl<K> Drop for HubGuard<'_, K> {
    fn drop(&mut self) {
        let (getters, drainers) = (!self.getters.is_empty(), !self.life_cycle.drainers.is_empty());
        self.set(Flags::GETTERS, getters);
        self.set(Flags::DRAINERS, drainers);
        self.hub = None; // unlocks
        let wakes = std::mem::take(&mut self.wakes);
        if !wakes.is_empty() {
            let panics = wakes.wake();
            self.shared.note_caught(panics);
        }
    }
}
