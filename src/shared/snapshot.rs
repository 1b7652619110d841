//! Calls that look at the queue, the wait of `until_dirty`, and `shrink_to_fit`.

use super::{Core, Limiter, Shared};
use crate::key::Claimed;
use crate::observe::Metrics;
use crate::shard::{CHUNKS, DirtyTicket};
use crate::stats::Stats;
use crate::sync::give_way;
use crate::time::clock::Clock;
use std::task::Waker;
use std::time::Duration;

impl<K> Shared<K> {
    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        // Allocates here, not under the lock.
        let mut metrics = Metrics::default();
        let core = &mut *self.core.lock();
        metrics.stats = core.stats(&self.clock);
        core.shard.copy_durations(&mut metrics.queue_duration, &mut metrics.work_duration);
        metrics
    }

    pub(crate) fn stats(&self) -> Stats {
        self.core.lock().stats(&self.clock)
    }

    pub(crate) fn delayed_len(&self) -> usize {
        self.core.lock().shard.delayed()
    }

    /// How long the key that the caller holds was queued.
    pub(crate) fn waited(&self, claimed: &Claimed<K>) -> Option<Duration> {
        if !self.measured {
            return None;
        }
        let waited = self.core.lock().shard.waited(claimed);
        waited.duration()
    }

    /// Whether a key that the caller holds is dirty. If not, puts the task on the list, for the next add of the key to wake it, and sets
    /// `ticket`.
    pub(crate) fn poll_dirty(&self, claimed: &Claimed<K>, ticket: &mut Option<DirtyTicket>, waker: &Waker) -> bool {
        let waker = waker.clone();
        // Wakers are foreign code: dropped after the lock.
        let (dirty, _older, _unused) = {
            let core = &mut *self.core.lock();
            if claimed.view().state().is_dirty() {
                (true, None, Some(waker))
            } else {
                (false, core.shard.wait_for_dirty(claimed, ticket, waker), None)
            }
        };
        dirty
    }

    /// A task stops waiting for its key to become dirty.
    pub(crate) fn leave_dirty_waiters(&self, ticket: DirtyTicket) {
        let _dropped_after_the_lock = self.core.lock().shard.stop_waiting_for_dirty(ticket);
    }

    /// `shrink_to_fit`, in many short critical sections.
    pub(crate) fn shrink(&self) {
        if let Limiter::External(limiter) = &self.limiter {
            limiter.shrink_to_fit();
        }
        let _wheel = {
            let core = &mut *self.enter();
            core.getters.shrink();
            core.shard.begin_shrink()
        };
        let mut chunk = 0;
        while self.enter().shard.shrink_step(&mut chunk) {
            give_way();
        }
    }
}

impl<K: Clone> Shared<K> {
    /// `processing_keys`: visits the slots, some hundred at a time.
    pub(crate) fn processing_keys(&self) -> Vec<(K, Option<Duration>)> {
        let mut keys = Vec::with_capacity(self.core.lock().shard.processing());
        let (mut chunk, now) = (0, self.core.lock().shard.now_for_ages(&self.clock));
        loop {
            // Allocates here, so that the critical section allocates little.
            keys.reserve(64 * CHUNKS);
            if !self.core.lock().shard.copy_processing(chunk, now, &mut keys) {
                break;
            }
            chunk += CHUNKS;
            give_way();
        }
        keys.sort_by_key(|&(_, age)| std::cmp::Reverse(age)); // stable
        keys
    }
}

impl<K> Core<K> {
    fn stats(&mut self, clock: &Clock) -> Stats {
        Stats {
            waiters: self.getters.len(),
            drainers: self.life_cycle.drainers.len(),
            shutting_down: self.is_shutting_down(),
            ..self.shard.stats(clock)
        }
    }
}
