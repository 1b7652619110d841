//! The time limits of the runs of workers.
//!
//! ```text
//!   worker  hub: note the run; the driver parks for longer: wake it ─▶ handler ─▶ hub: forget the run ─▶ late and not told: tell
//!   driver  parks until the first limit ─▶ hub: the runs that are late ─ unlock ─▶ tell of each, and wake those who wait for it
//! ```
//!
//! Whoever finds a run late takes its hook out of the list, under the hub's lock, and calls the hook after the lock. That is the driver, or
//! the loop if the run ends first, so the hook is called once. The driver then marks the run as told in the list and wakes the task, whose
//! loop drops the handler.
//!
//! A queue without limits pays nothing, because a flag tells the driver whether there is a list to look at.

use super::Shared;
use super::hub::{Flags, Hub};
use super::limited_runs::{Late, LimitedRun, Tell};
use super::waiters::{Event, TaskTicket};
use crate::key::SlotId;
use crate::machine::NEVER;
use crate::sync::Arc;
use crate::time::nanos;
use crate::wait::WakeList;
use std::task::Waker;
use std::time::Duration;

impl<K> Shared<K> {
    /// A run of a key that is held begins, and is late when it has lasted for this time. `tell` is called once if that comes. The caller
    /// [ends](Self::end_limited_run) it before the hand-out. A limit that the clock does not reach is none.
    pub(crate) fn begin_limited_run(this: &Arc<Self>, slot: SlotId, limit: Duration, tell: Tell) {
        let began = this.settings.clock.now();
        let Some(late_at) = began.checked_add(nanos(limit)).filter(|&at| at != NEVER) else {
            this.contain(|| drop(tell)); // with a key, whose drop is foreign code
            return;
        };
        {
            let mut hub = this.hub();
            hub.set(Flags::TIMED, true);
            hub.limited_runs.insert(slot, began, late_at, tell);
            this.wake_driver_for(late_at, &mut hub);
        }
        Self::ensure_driver(this);
    }

    /// A run has ended. If it is late and nobody has told of that, this does.
    pub(crate) fn end_limited_run(&self, slot: SlotId) {
        let mut left = WakeList::default();
        let run = {
            let mut hub = self.hub();
            hub.tasks.take(Event::Late(slot), &mut left);
            hub.limited_runs.remove(slot)
        };
        // What it drops is foreign code as well: a key, and wakers.
        self.contain(|| {
            let _of_leaked_futures = left;
            let Some(LimitedRun { began, late_at, tell: Some(tell), .. }) = run else { return };
            let now = self.settings.clock.now();
            if late_at <= now {
                tell(Duration::from_nanos(now - began));
            }
        });
    }

    /// Tells of the runs that are late at this time, and wakes those who wait for that.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_of_late_runs(&self, now: u64) {
        let late = self.hub().limited_runs.take_late(now);
        for Late { began, tell, run } in late {
            self.contain(|| tell(Duration::from_nanos(now - began)));
            let mut hub = self.hub();
            if hub.limited_runs.told(run) {
                hub.wake_tasks(Event::Late(run.0));
            }
        }
    }

    /// Whether the run of a key that is held has lasted longer than its limit.
    pub(crate) fn is_late(&self, slot: SlotId) -> bool {
        self.limit_of(slot).is_some_and(|(_, late_at)| late_at <= self.settings.clock.now())
    }

    /// When the run of a key that is held began, and when it is late, if it has a limit.
    pub(super) fn limit_of(&self, slot: SlotId) -> Option<(u64, u64)> {
        self.hub().limited_runs.get(slot).map(|run| (run.began, run.late_at))
    }

    /// Whether the driver has told that the run is late. If not, and if it has a limit, puts the task on the list of those that are woken then,
    /// and sets `ticket`.
    pub(crate) fn poll_late(&self, slot: SlotId, ticket: &mut Option<TaskTicket>, waker: &Waker) -> bool {
        let is_told = |hub: &Hub| hub.limited_runs.get(slot).is_some_and(|run| run.is_told);
        self.limit_of(slot).is_some() && self.poll_event(Event::Late(slot), ticket, waker, is_told)
    }
}
