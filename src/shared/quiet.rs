//! Waiting for the end: until nothing is in line and nothing in work, or moreover nothing is delayed.
//!
//! Threads and tasks wait in one list. All of them are woken whenever nothing is in line and nothing in work any more (at a
//! `done`, or if the last delay is taken away by then), and look for themselves whether that is what they wait for.

use super::{Core, Shared};
use crate::sync::with_parker;
use crate::wait::{Ticket, Waiter};
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
        let released = self.core.lock().released;
        self.shut_down(false);
        released
    }

    /// Sleeps until the goal is reached, until the deadline, or, if it is a drain, until a plain shut-down after the first
    /// `released` ones.
    pub(crate) fn wait_for(&self, goal: Goal, released: u64, deadline: Option<Instant>) -> End {
        with_parker(|parker| {
            loop {
                let unparker = parker.unparker();
                let ticket = {
                    let core = &mut *self.core.lock();
                    if let Some(end) = core.end(goal, released) {
                        return end;
                    }
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return End::TimedOut { queued: core.queued(), processing: core.processing };
                    }
                    core.drainers.push(Waiter::Thread(unparker))
                };
                parker.park(deadline);
                // Still there if something else ended the sleep. All are woken at once: nobody waits for ours.
                let _listed = self.core.lock().drainers.remove(ticket);
            }
        })
    }

    /// As [`wait_for`](Self::wait_for), for a task: `true` if it is over, else the task will be woken, by the place that is kept
    /// in `ticket`.
    pub(crate) fn poll_for(&self, goal: Goal, released: u64, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        let mut waiter = Some(Waiter::Task(waker.clone()));
        let (over, _listed) = {
            let core = &mut *self.core.lock();
            let listed = ticket.take().and_then(|ticket| core.drainers.remove(ticket));
            let over = core.end(goal, released).is_some();
            if !over {
                *ticket = Some(core.drainers.push(waiter.take().expect("not used yet")));
            }
            (over, listed)
        };
        over
    }

    /// A task does not wait any more.
    pub(crate) fn leave_drainers(&self, ticket: Ticket) {
        let _dropped_after_the_lock = self.core.lock().drainers.remove(ticket);
    }
}

impl<K> Core<K> {
    fn end(&self, goal: Goal, released: u64) -> Option<End> {
        let moot = goal == Goal::Drained || self.delayed == 0 || self.shutting_down;
        if self.is_drained() && moot {
            Some(End::Reached)
        } else if goal == Goal::Drained && self.released != released {
            Some(End::Released)
        } else {
            None
        }
    }
}
