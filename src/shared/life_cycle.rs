//! The shut-down, and the threads and tasks that wait for it or for the end of the work.

use super::Shared;
use super::hub::Flags;
use super::state::if_free;
use super::waiters::{Event, TaskTicket};
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
        hub.wake_tasks(Event::ShutDown);
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
    pub(crate) fn poll_shutting_down(&self, ticket: &mut Option<TaskTicket>, waker: &Waker) -> bool {
        self.poll_event(Event::ShutDown, ticket, waker, |_| self.is_shutting_down())
    }
}
