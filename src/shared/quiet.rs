//! Waiting for the end: until nothing is in line and nothing in work, or moreover nothing is delayed.
//!
//! Threads and tasks wait in one list. All of them are woken whenever nothing is in line and nothing in work any more (at a
//! `done`, or if the last delay is taken away by then), and look for themselves whether that is what they wait for.

use super::delays::Delivered;
use super::{Core, Shared};
use crate::WaitIdleTimeoutError;
use crate::sync::Arc;
use crate::time::driver::RETRY;
use crate::wait::{Ticket, WaitList, leave, poll_on, sleep_on};
use std::task::Waker;
use std::time::Instant;

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Nothing in line and nothing in work.
    Drained,
    /// And nothing delayed, unless a shut-down has cut that off.
    Idle,
}

/// How it ended.
pub(crate) enum End {
    Reached,
    /// By a plain shut-down.
    Released,
    TimedOut {
        queued: usize,
        processing: usize,
    },
}

impl<K> Shared<K> {
    /// Shuts down, and sleeps until nothing is in line and nothing held, until the deadline, or until a plain shut-down (P7).
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> End {
        let released = self.begin_drain();
        self.wait_for(Goal::Drained, released, deadline)
    }

    /// Shuts down. Says what [`wait_for`](Self::wait_for) is to know.
    pub(crate) fn begin_drain(&self) -> u64 {
        let core = &mut *self.enter();
        core.begin_shut_down();
        core.released
    }

    /// Sleeps until nothing is queued, processing or delayed, or until the deadline. If there is no driver thread, delivers what is
    /// due in its place, as getters do, and tries to start it now and then.
    pub(crate) fn wait_idle(this: &Arc<Self>, deadline: Option<Instant>) -> Result<(), WaitIdleTimeoutError> {
        loop {
            Self::ensure_driver(this);
            let driverless = this.is_driver_failed();
            let due = if driverless { this.deliver_due() } else { Delivered::Nothing { until: None } };
            let Delivered::Nothing { until } = due else { continue };
            let retry = driverless.then(|| Instant::now() + RETRY);
            let until = deadline.into_iter().chain(until).chain(retry).min();
            let end = sleep_on(&this.core, drainers, until, |core, late| {
                let look_again = late || this.is_driver_failed() != driverless;
                core.end(Goal::Idle, 0).map(|_| Ok(())).or_else(|| look_again.then(|| Err(core.not_idle())))
            });
            match end {
                Err(_) if deadline.is_none_or(|deadline| deadline > Instant::now()) => {}
                end => return end,
            }
        }
    }

    /// Sleeps until the goal is reached, until the deadline, or, if it is a drain, until a plain shut-down after the first
    /// `released` ones.
    pub(crate) fn wait_for(&self, goal: Goal, released: u64, deadline: Option<Instant>) -> End {
        sleep_on(&self.core, drainers, deadline, |core, late| {
            let timed_out = || late.then(|| End::TimedOut { queued: core.line.len(), processing: core.processing });
            core.end(goal, released).or_else(timed_out)
        })
    }

    /// As [`wait_for`](Self::wait_for), for a task.
    pub(crate) fn poll_for(&self, goal: Goal, released: u64, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.core, drainers, ticket, waker, |core| core.end(goal, released).is_some())
    }

    /// A task does not wait any more.
    pub(crate) fn leave_drainers(&self, ticket: Option<Ticket>) {
        leave(&self.core, drainers, ticket);
    }
}

fn drainers<K>(core: &mut Core<K>) -> &mut WaitList {
    &mut core.drainers
}

impl<K> Core<K> {
    fn not_idle(&self) -> WaitIdleTimeoutError {
        WaitIdleTimeoutError { queued: self.line.len(), processing: self.processing, delayed: self.delayed }
    }

    fn end(&self, goal: Goal, released: u64) -> Option<End> {
        let moot = goal == Goal::Drained || self.delayed == 0 || self.is_shutting_down();
        if self.is_drained() && moot {
            Some(End::Reached)
        } else if goal == Goal::Drained && self.released != released {
            Some(End::Released)
        } else {
            None
        }
    }
}
