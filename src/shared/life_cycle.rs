//! The shut-down, and the threads and tasks that wait for it or for the end of the work.

use super::Shared;
use super::drain::WaitGoal;
use super::hub::{Flags, Hub, HubGuard};
use crate::machine::Owed;
use crate::wait::{Ticket, WaitList, leave, poll_on};
use std::task::Waker;

impl<K> Shared<K> {
    /// Refuses adds from here on; a getter that finds no queued key learns that the queue is shut down (P6, I7). Releases drains (P7).
    pub(crate) fn shut_down(&self) {
        {
            let mut hub = self.hub();
            hub.life_cycle.released += 1;
            hub.begin_shut_down();
            hub.wake_all_drainers();
        }
        self.pass_all();
    }

    /// Shuts down. Returns what to wait for.
    pub(crate) fn begin_drain(&self) -> WaitGoal {
        let released = {
            let mut hub = self.hub();
            hub.begin_shut_down();
            hub.life_cycle.released
        };
        self.pass_all();
        WaitGoal::Drained { released }
    }

    /// Enters each shard once: after this, every critical section sees that adds are refused (I7). Delays no longer count, so an idle wait
    /// may be over: wakes waiters of a shard that has no queued or processing keys.
    fn pass_all(&self) {
        for locked in self.all() {
            let mut machine = locked.lock();
            let owed = machine.shut_down(); // changes nothing that is published
            if owed != Owed::NOTHING {
                self.settle(locked, machine, owed);
            }
        }
    }

    /// Whether the queue is shutting down. If not, puts the task on the list, for the shut-down to wake it, and sets `ticket`.
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.hub, shut_down_waiters, ticket, waker, |_| self.is_shutting_down())
    }

    /// A task stops waiting for the shut-down.
    pub(crate) fn leave_shut_down_waiters(&self, ticket: Option<Ticket>) {
        leave(&self.hub, shut_down_waiters, ticket);
    }
}

fn shut_down_waiters(hub: &mut Hub) -> &mut WaitList {
    &mut hub.life_cycle.shut_down_waiters
}

impl HubGuard<'_> {
    /// Refuses adds from here on (I7). Wakes all getters, the driver, and the tasks that wait for the shut-down.
    fn begin_shut_down(&mut self) {
        self.set(Flags::SHUT_DOWN, true);
        self.wake_all_getters();
        let shut_down_waiters = self.life_cycle.shut_down_waiters.take_all();
        self.wakes.append(shut_down_waiters);
        let driver = self.driver.wake();
        self.wakes.extend(driver);
    }

    /// Wakes all getters.
    pub(super) fn wake_all_getters(&mut self) {
        let getters = self.getters.take_all();
        self.wakes.append(getters);
    }

    /// Wakes all drains and idle waits.
    pub(super) fn wake_all_drainers(&mut self) {
        let drainers = self.life_cycle.take_drainers();
        self.wakes.append(drainers);
    }
}
