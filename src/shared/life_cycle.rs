//! The shut-down, and the threads and tasks that wait for it or for the end of the work.

use super::Shared;
use super::hub::{Flags, Hub};
use super::state::if_free;
use crate::wait::{Ticket, WaitList, leave, poll_on};
use std::task::Waker;

impl<K> Shared<K> {
    /// Refuses adds from now on, so that a getter that finds no queued key learns of the shut-down (P6, I7), and releases drains (P7).
    pub(crate) fn shut_down(&self) {
        self.close(true);
    }

    /// Ends a pause of the queue, and wakes all getters, the driver, adds that wait for room, the tasks that wait for the shut-down and, if
    /// it `releases` them, all drains and idle waits.
    ///
    /// Then enters each shard once, so that every later critical section sees that adds are refused (I7). Delays no longer count from here
    /// on, so an idle wait may be over: this wakes the waiters of a shard that has no queued or processing keys.
    pub(super) fn close(&self, releases: bool) -> u64 {
        let mut hub = self.hub();
        hub.set(Flags::SHUT_DOWN, true);
        hub.set(Flags::PAUSED, false); // for good: see `pause`
        hub.wake_all_getters();
        let shut_down_waiters = hub.life_cycle.shut_down_waiters.take_all();
        hub.wakes.append(shut_down_waiters);
        let driver = hub.driver.wake();
        hub.wakes.extend(driver);
        if releases {
            hub.life_cycle.released += 1;
            let drainers = hub.life_cycle.take_drainers();
            hub.wakes.append(drainers);
        }
        let released = hub.life_cycle.released;
        let adders = self.bound.as_ref().map(|bound| bound.end());
        hub.wakes.append(adders.unwrap_or_default());
        drop(hub);
        if_free!(self, free => {
            self.free_close(free);
            released
        });
        for locked in self.all() {
            let held = locked.lock();
            let mut section = self.section(held);
            section.shut_down();
            section.end();
        }
        released
    }

    /// Whether the queue is shutting down. If not, puts the task on the list of those that the shut-down wakes, and sets `ticket`.
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        poll_on(&self.hub, shut_down_waiters, ticket, waker, |_| self.is_shutting_down())
    }

    /// For a task that no longer waits for the shut-down.
    pub(crate) fn leave_shut_down_waiters(&self, ticket: Option<Ticket>) {
        leave(&self.hub, shut_down_waiters, ticket);
    }
}

fn shut_down_waiters(hub: &mut Hub) -> &mut WaitList {
    &mut hub.life_cycle.shut_down_waiters
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::WorkQueue;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_dropped_task_waits_for_no_shut_down() {
        let queue = WorkQueue::<u32>::new();
        let waiting = || queue.shared.hub().life_cycle.shut_down_waiters.len();
        {
            let mut shut_down = pin!(queue.until_shutting_down());
            assert!(shut_down.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(waiting(), 1);
        }
        assert_eq!(waiting(), 0);
    }
}
