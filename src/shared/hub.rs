//! What all shards of a queue share and rarely use, under a lock of its own, and the flags that tell hot calls whether they have to look
//! there.
//!
//! ```text
//!  hot call:  lock a shard ─ read the flags ─ verb ─ owes nothing ─ unlock                  (nobody waits)
//!                                                └─ owes: lock the hub ─ take a waiter ─ unlock      (a getter waits, a drain waits, …)
//!
//!  getter:    lock the hub: go on the list, which sets the flag ─ unlock ─ visit each shard under its lock ─ no key: park
//! ```
//!
//! **Why no wake-up is lost.** A thread that waits sets the flag first, and then visits the shards, each under its lock. A call that queues
//! a key reads the flags inside its critical section. If the visit comes later, it finds the key, and if the call comes later, it finds the
//! flag. Hot calls need no fence for this, and write nothing that shards share.
//!
//! **Lock order.** A thread holds at most one shard, and may then lock the hub, or a stripe of the [`directory`](super::directory). While it
//! holds the hub, it may lock the counts of workers. It never locks in the other order, and nothing under a stripe.

use super::getters::Getters;
use super::limited_runs::LimitedRuns;
use super::waiters::{Alarms, Event, LifeCycle, Tasks};
use crate::machine::NEVER;
use crate::observe::RunCounters;
use crate::shared::driver::states::DriverState;
use crate::sync::{AtomicU16, Mutex, MutexGuard, Ordering, now};
use crate::wait::{Waiter, WakeList};
use std::ops::{Deref, DerefMut};

/// What the hub's lock guards.
#[derive(Default)]
pub(super) struct Hub {
    pub(super) getters: Getters,
    pub(super) life_cycle: LifeCycle,
    pub(super) tasks: Tasks,
    pub(super) alarms: Alarms,
    pub(super) limited_runs: LimitedRuns,
    pub(super) driver: DriverState,
    /// How many deadlines calls have told the hub of: see [`driver`](super::driver).
    pub(super) deadlines_told: u64,
    pub(super) counts: RareCounts,
    pub(super) runs: RunCounters,
}

/// What [`Stats`](crate::Stats) counts outside of the shards.
#[derive(Default)]
pub(super) struct RareCounts {
    pub(super) panics: u64,
    pub(super) caught_panics: u64,
    pub(super) driver_failures: u64,
}

/// Conditions that send a hot call to its slow path, as bits. Most queues have none of them, or only from time to time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u16);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// The queue measures. A queue with an observer always does.
    pub(super) const MEASURED: Self = Self(1);
    /// The queue has an observer.
    pub(super) const OBSERVED: Self = Self(1 << 1);
    /// There is no driver thread, so the next call that adds, gets or waits starts one.
    pub(super) const NO_DRIVER: Self = Self(1 << 2);
    /// Adds are refused. Never cleared.
    pub(super) const SHUT_DOWN: Self = Self(1 << 3);
    /// Getters are on the list.
    pub(super) const GETTERS: Self = Self(1 << 4);
    /// Threads or tasks wait in a drain or in an idle wait.
    pub(super) const DRAINERS: Self = Self(1 << 5);
    /// Keys have priorities or groups, so that a shard may have an order other than a line (O1). Never cleared.
    pub(super) const ORDERED: Self = Self(1 << 6);
    /// Groups may be held back, so that getters may wait although keys are queued. Never cleared.
    pub(super) const LIMITED: Self = Self(1 << 7);
    /// The lock-free engine, in a queue whose keys have no groups. Never cleared.
    pub(super) const FREE: Self = Self::LIMITED;
    /// Hand-outs have a [pace](super::pace). Never cleared.
    pub(super) const PACED: Self = Self(1 << 8);
    /// The queue is [paused](super::pause). The shut-down clears it for good.
    pub(super) const PAUSED: Self = Self(1 << 9);
    /// The number of keys has a [bound](crate::bound). Never cleared.
    pub(super) const BOUNDED: Self = Self(1 << 10);
    /// Tasks may have alarms, or runs limits, so that a step of the driver has to look for them.
    pub(super) const TIMED: Self = Self(1 << 11);

    /// Some thread or task waits for keys, or for the end of the work.
    pub(super) const AWAITED: Self = Self(Self::GETTERS.0 | Self::DRAINERS.0);

    /// The flags that make an add take its slow path.
    pub(super) const ADD: Self = Self(!(Self::DRAINERS.0 | Self::PACED.0 | Self::PAUSED.0 | Self::TIMED.0));
    /// The same, for a hand-out.
    pub(super) const HAND_OUT: Self =
        Self(Self::MEASURED.0 | Self::NO_DRIVER.0 | Self::ORDERED.0 | Self::LIMITED.0 | Self::PACED.0 | Self::PAUSED.0);
    /// The same, for `done`.
    pub(super) const DONE: Self =
        Self(Self::MEASURED.0 | Self::GETTERS.0 | Self::DRAINERS.0 | Self::ORDERED.0 | Self::BOUNDED.0);
    /// Getters may wait although keys are queued, also after the shut-down.
    pub(super) const HELD_BACK: Self = Self(Self::LIMITED.0 | Self::PACED.0);
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

const LOCKED: &str = "locked until the drop";

/// The guard of the hub's lock. Its drop sets the flags to what the lists say, unlocks, and then wakes the waiters in `wakes`.
pub(super) struct HubGuard<'s> {
    lock: &'s Mutex<Hub>,
    flags: &'s AtomicU16,
    hub: Option<MutexGuard<'s, Hub>>,
    /// To be woken. A caller that holds a shard leaves this empty, and owes the wake-ups to the end of its critical section (W4).
    pub(super) wakes: WakeList,
}

impl<'s> HubGuard<'s> {
    pub(super) fn new(lock: &'s Mutex<Hub>, flags: &'s AtomicU16) -> Self {
        Self { lock, flags, hub: Some(lock.lock()), wakes: WakeList::default() }
    }

    /// Sets or clears flags.
    pub(super) fn set(&mut self, flags: Flags, set: bool) {
        let before = self.flags.load(Ordering::Relaxed); // Relaxed: written under this lock
        let after = if set { before | flags.0 } else { before & !flags.0 };
        if after != before {
            self.flags.store(after, Ordering::Release); // Release: see `Shared::flags_acquired`
        }
    }
}

impl HubGuard<'_> {
    /// Whether the queue is paused. It stays so until the guard is dropped.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        Flags(self.flags.load(Ordering::Relaxed)).has(Flags::PAUSED) // Relaxed: written under this lock
    }

    /// Whether the driver will wake a getter for the next token, so that calls that queue keys need not wake one.
    #[inline]
    pub(super) fn is_paced_by_driver(&self) -> bool {
        self.getters.token_at.is_some() && matches!(self.driver, DriverState::Running | DriverState::Parked { .. })
    }

    /// There is a new earliest deadline, or a report or a task to come. Returns whom the caller must wake.
    pub(super) fn call_driver(&mut self, at: u64) -> WakeList {
        let mut wakes = WakeList::default();
        wakes.extend(self.driver.wake_for(at));
        if matches!(self.driver, DriverState::Absent) && at < NEVER {
            self.driver = DriverState::Missing { retry_at: now() };
            // The calling thread sees the flag after the lock, and so does a getter that goes on the list later.
            self.set(Flags::NO_DRIVER, true);
        }
        wakes
    }

    /// The driver could not be started: wakes the threads that count on it, and the tasks that rely on it (W5).
    pub(super) fn call_those_who_wait(&mut self) {
        let threads = self.getters.waiters.unparkers().chain(self.life_cycle.drainers.unparkers());
        let threads: Vec<_> = threads.map(Waiter::Thread).collect();
        self.wakes.extend(threads);
        if self.getters.wake_at.is_some() {
            self.getters.forget_passed_by();
            self.wake_all_getters();
        }
    }

    /// Wakes the tasks that wait for this event.
    pub(super) fn wake_tasks(&mut self, of: Event) {
        self.hub.as_mut().expect(LOCKED).tasks.take(of, &mut self.wakes);
    }

    /// Wakes all getters.
    pub(super) fn wake_all_getters(&mut self) {
        let getters = self.getters.take_all();
        self.wakes.append(getters);
    }
}

impl Deref for HubGuard<'_> {
    type Target = Hub;

    fn deref(&self) -> &Hub {
        self.hub.as_ref().expect(LOCKED)
    }
}

impl DerefMut for HubGuard<'_> {
    fn deref_mut(&mut self) -> &mut Hub {
        self.hub.as_mut().expect(LOCKED)
    }
}

impl Drop for HubGuard<'_> {
    fn drop(&mut self) {
        let (getters, drainers) = (!self.getters.waiters.is_empty(), !self.life_cycle.drainers.is_empty());
        self.set(Flags::GETTERS, getters);
        self.set(Flags::DRAINERS, drainers);
        self.hub = None; // unlocks
        let wakes = std::mem::take(&mut self.wakes);
        if !wakes.is_empty() {
            let panics = wakes.wake();
            if panics > 0 {
                self.lock.lock().counts.caught_panics += panics as u64;
            }
        }
    }
}
