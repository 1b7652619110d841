//! Calls that look at the queue, the wait of `until_dirty`, and `shrink_to_fit`.

use super::hub::Flags;
use super::{Limiter, Shared};
use crate::Priority;
use crate::key::Claimed;
use crate::observe::{Histogram, Metrics};
use crate::shard::{CHUNKS, DirtyTicket};
use crate::stats::{DelayedKey, Level, Stats};
use crate::sync::give_way;
use std::task::Waker;
use std::time::Duration;

impl<K> Shared<K> {
    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        let (mut metrics, mut normal, mut lens) = (Metrics::default(), Histogram::default(), [0; 256]);
        for locked in self.all() {
            // Allocates here, not under the lock (but for a level that comes in between).
            let priorities = locked.lock().measured_priorities();
            priorities.into_iter().for_each(|priority| _ = metrics.level(Priority(priority)));
            let shard = &mut *locked.lock();
            metrics.stats.add_shard(&shard.stats(&self.clock));
            shard.add_levels(&mut lens);
            shard.add_durations(&mut metrics, &mut normal);
        }
        self.add_hub(&mut metrics.stats);
        let runs = self.hub.lock().runs.clone();
        metrics.runs = runs.sum();
        metrics.queue_duration.add(&normal);
        metrics.levels.iter().for_each(|level| metrics.queue_duration.add(&level.queue_duration));
        // Read after the locks: so it is set if a level is there.
        if self.flags().has(Flags::ORDERED) {
            levels_of(lens).for_each(|(priority, len)| metrics.level(priority).len = len);
            metrics.level(Priority::NORMAL).queue_duration = normal;
        }
        metrics
    }

    /// `levels`.
    pub(crate) fn levels(&self) -> Vec<Level> {
        let mut lens = [0; 256];
        self.all().for_each(|locked| locked.lock().add_levels(&mut lens));
        levels_of(lens).map(|(priority, len)| Level { priority, len }).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.all().for_each(|locked| stats.add_shard(&locked.lock().stats(&self.clock)));
        self.add_hub(&mut stats);
        stats
    }

    fn add_hub(&self, stats: &mut Stats) {
        stats.shutting_down = self.is_shutting_down();
        let hub = self.hub.lock();
        stats.waiters = hub.getters.len();
        stats.drainers = hub.life_cycle.drainers.len();
        stats.panics = hub.counts.panics;
        stats.caught_panics = hub.counts.caught_panics;
        stats.driver_failures = hub.counts.driver_failures;
    }

    pub(crate) fn processing_len(&self) -> usize {
        self.all().map(|locked| locked.lock().processing()).sum()
    }

    pub(crate) fn delayed_len(&self) -> usize {
        self.all().map(|locked| locked.lock().delayed()).sum()
    }

    /// The priority of a key that the caller holds.
    pub(crate) fn priority(&self, claimed: &Claimed<K>) -> crate::Priority {
        if !self.flags().has(Flags::ORDERED) {
            return crate::Priority::NORMAL;
        }
        self.home(claimed).lock().held_priority(claimed)
    }

    /// How long the key that the caller holds was queued.
    pub(crate) fn waited(&self, claimed: &Claimed<K>) -> Option<Duration> {
        if !self.measured {
            return None;
        }
        let waited = self.home(claimed).lock().waited(claimed);
        waited.duration()
    }

    /// Whether a key that the caller holds is dirty. If not, puts the task on the list, for the next add of the key to wake it, and sets
    /// `ticket`.
    pub(crate) fn poll_dirty(&self, claimed: &Claimed<K>, ticket: &mut Option<DirtyTicket>, waker: &Waker) -> bool {
        let waker = waker.clone();
        // Wakers are foreign code: dropped after the lock.
        let (dirty, _older, _unused) = {
            let shard = &mut *self.home(claimed).lock();
            if claimed.view().state().is_dirty() {
                (true, None, Some(waker))
            } else {
                (false, shard.wait_for_dirty(claimed, ticket, waker), None)
            }
        };
        dirty
    }

    /// A task stops waiting for its key to become dirty.
    pub(crate) fn leave_dirty_waiters(&self, claimed: &Claimed<K>, ticket: DirtyTicket) {
        let _dropped_after_the_lock = self.home(claimed).lock().stop_waiting_for_dirty(ticket);
    }

    /// `shrink_to_fit`, in many short critical sections.
    pub(crate) fn shrink(&self) {
        if let Limiter::External(limiter) = &self.limiter {
            limiter.shrink_to_fit();
        }
        self.hub().getters.shrink();
        for locked in self.all() {
            let _wheel = self.enter(locked).begin_shrink();
            let mut chunk = 0;
            while self.enter(locked).shrink_step(&mut chunk) {
                give_way();
            }
        }
    }
}

/// The priorities with queued keys, highest first. `lens`: the number of queued keys of each, lowest first.
fn levels_of(lens: [usize; 256]) -> impl Iterator<Item = (Priority, usize)> {
    let levels = (i8::MIN..=i8::MAX).map(Priority).zip(lens);
    levels.rev().filter(|&(_, len)| len > 0)
}

impl<K: Clone> Shared<K> {
    /// `processing_keys`: visits the slots, some hundred at a time.
    pub(crate) fn processing_keys(&self) -> Vec<(K, Option<Duration>)> {
        let mut keys = Vec::new();
        for locked in self.all() {
            let (mut chunk, now) = (0, locked.lock().now_for_ages(&self.clock));
            loop {
                // Allocates here, so that the critical section allocates little.
                keys.reserve(64 * CHUNKS);
                if !locked.lock().copy_processing(chunk, now, &mut keys) {
                    break;
                }
                chunk += CHUNKS;
                give_way();
            }
        }
        keys.sort_by_key(|&(_, age)| std::cmp::Reverse(age)); // stable
        keys
    }

    /// `delayed_keys`: visits the slots, some hundred at a time.
    pub(crate) fn delayed_keys(&self) -> Vec<DelayedKey<K>> {
        let mut keys = Vec::new();
        for locked in self.all() {
            let mut chunk = 0;
            loop {
                // Allocates here, so that the critical section allocates nothing.
                keys.reserve(64 * CHUNKS);
                if !locked.lock().copy_delayed(chunk, &mut keys) {
                    break;
                }
                chunk += CHUNKS;
                give_way();
            }
        }
        keys.sort_by_key(|&(deadline, ..)| deadline);
        let now = self.clock.now();
        let keys = keys.into_iter();
        keys.map(|(deadline, priority, key)| DelayedKey::new(key, deadline, priority, now)).collect()
    }
}
