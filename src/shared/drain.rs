//! Drain and idle waits: until no key is queued or processing, or until no key is delayed either.
//!
//! The threads and tasks of both kinds wait in one list. A call that may leave no key queued or processing (a `done`, `cancel`,
//! `take_delayed`, `take_where`, a shut-down) owes a wake-up to all of them if none is left, and each checks whether its goal is reached.

use super::driver::ExpiredNow;
use super::{Core, Shared};
use crate::WaitIdleTimeoutError;
use crate::sync::Arc;
use crate::time::driver::RETRY;
use crate::wait::{Ticket, WaitList, leave, park_on, poll_on};
use std::task::Waker;
use std::time::Instant;

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitGoal {
    /// No key is queued or processing.
    Drained,
    /// No key is delayed either. After a shut-down, delays do not count.
    Idle,
}

/// How a wait ended.
pub(crate) enum WaitOutcome {
    Reached,
    /// A plain shut-down released the drain.
    Released,
    TimedOut {
        queued: usize,
        processing: usize,
    },
}

impl<K> Shared<K> {
    /// Shuts down, and parks until no key is queued or processing, until the deadline, or until a plain shut-down (P7).
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> WaitOutcome {
        let released = self.begin_drain();
        self.wait_for(WaitGoal::Drained, released, deadline)
    }

    /// Shuts down. Returns `released` for [`wait_for`](Self::wait_for).
    pub(crate) fn begin_drain(&self) -> u64 {
        let core = &mut *self.enter();
        core.begin_shut_down();
        core.life_cycle.released
    }

    /// Parks until no key is queued, processing or delayed, or until the deadline. If the driver thread could not be started, adds the
    /// keys whose delays have expired, as getters do, and tries from time to time to start the driver.
    pub(crate) fn wait_idle(this: &Arc<Self>, deadline: Option<Instant>) -> Result<(), WaitIdleTimeoutError> {
        loop {
            Self::ensure_driver(this);
            let driverless = this.is_driver_missing();
            let expired = if driverless { this.expire_due() } else { ExpiredNow::Nothing { until: None } };
            let ExpiredNow::Nothing { until } = expired else { continue };
            let retry = driverless.then(|| Instant::now() + RETRY);
            let until = deadline.into_iter().chain(until).chain(retry).min();
            let end = park_on(&this.core, drainers, until, |core, late| {
                let look_again = late || this.is_driver_missing() != driverless;
                core.wait_outcome(WaitGoal::Idle, 0)
                    .map(|_| Ok(()))
                    .or_else(|| look_again.then(|| Err(core.not_idle())))
            });
            match end {
                Err(_) if deadline.is_none_or(|deadline| deadline > Instant::now()) => {}
                end => return end,
            }
        }
    }

    /// Parks until the goal is reached or until the deadline. A drain also ends at a plain shut-down that comes after
    /// [`begin_drain`](Self::begin_drain), which has returned `released`: the number of plain shut-downs before.
    pub(crate) fn wait_for(&self, goal: WaitGoal, released: u64, deadline: Option<Instant>) -> WaitOutcome {
        park_on(&self.core, drainers, deadline, |core, late| {
            let timed_out = || {
                late.then(|| WaitOutcome::TimedOut { queued: core.shard.len(), processing: core.shard.processing() })
            };
            core.wait_outcome(goal, released).or_else(timed_out)
        })
    }

    /// Like [`wait_for`](Self::wait_for), for a task: `true` if the wait has ended.
    pub(crate) fn poll_for(&self, goal: WaitGoal, released: u64, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.core, drainers, ticket, waker, |core| core.wait_outcome(goal, released).is_some())
    }

    /// A task stops waiting.
    pub(crate) fn leave_drainers(&self, ticket: Option<Ticket>) {
        leave(&self.core, drainers, ticket);
    }
}

fn drainers<K>(core: &mut Core<K>) -> &mut WaitList {
    &mut core.life_cycle.drainers
}

impl<K> Core<K> {
    fn not_idle(&self) -> WaitIdleTimeoutError {
        let shard = &self.shard;
        WaitIdleTimeoutError { queued: shard.len(), processing: shard.processing(), delayed: shard.delayed() }
    }

    fn wait_outcome(&self, goal: WaitGoal, released: u64) -> Option<WaitOutcome> {
        let delays_irrelevant = goal == WaitGoal::Drained || self.shard.delayed() == 0 || self.is_shutting_down();
        if self.shard.is_drained() && delays_irrelevant {
            Some(WaitOutcome::Reached)
        } else if goal == WaitGoal::Drained && self.life_cycle.released != released {
            Some(WaitOutcome::Released)
        } else {
            None
        }
    }
}
