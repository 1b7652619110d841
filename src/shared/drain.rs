//! Drains, which wait until no key is queued or processing, and idle waits, which wait until no key is delayed either.
//!
//! The threads and tasks of both kinds wait in one list of the hub, each for a shard that has work. A call that may end the work of a
//! shard, such as a `done`, a `cancel` or a shut-down, wakes all of them if one waits for this shard, and each looks again.

use super::Shared;
use super::getters::BUSY;
use super::state::if_free;
use crate::WaitIdleTimeoutError;
use crate::machine::Machine;
use crate::sync::{Arc, give_way, model_const, with_parker};
use crate::time::deadline::Deadline;
use crate::wait::{Ticket, Waiter};
use std::task::Waker;
use std::time::Instant;

/// How many looks in a row may meet adds of others before the thread pauses between its looks. (In the models it never pauses.)
const LOOKS: usize = model_const(16, usize::MAX);

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitGoal {
    /// No key is queued or processing, or there was a plain shut-down since `released` was read in [`begin_drain`](Shared::begin_drain).
    Drained { released: u64 },
    /// No key is delayed either, unless the queue is shut down, when delays no longer count.
    Idle,
}

/// What a thread or task that waits has found.
pub(super) enum Look {
    Over,
    /// It is on the list, and parks.
    Listed(Ticket),
    /// The goal is not reached, and there was no waiter to put on the list.
    NotYet,
    /// No shard had work when it was visited, but adds came in between, so the queue may have been idle or not.
    Unknown,
}

impl<K> Shared<K> {
    /// Shuts down. Returns what to wait for.
    pub(crate) fn begin_drain(&self) -> WaitGoal {
        WaitGoal::Drained { released: self.close(false) }
    }

    /// Shuts down, and parks until no key is queued or processing, until the deadline, or until a plain shut-down (P7). An error says what
    /// is left.
    pub(crate) fn drain(this: &Arc<Self>, deadline: &Deadline) -> Result<(), WaitIdleTimeoutError> {
        Self::wait_for(this, this.begin_drain(), deadline)
    }

    /// Parks until no key is queued, processing or delayed, or until the deadline.
    pub(crate) fn wait_idle(this: &Arc<Self>, deadline: &Deadline) -> Result<(), WaitIdleTimeoutError> {
        Self::wait_for(this, WaitGoal::Idle, deadline)
    }

    fn wait_for(this: &Arc<Self>, goal: WaitGoal, deadline: &Deadline) -> Result<(), WaitIdleTimeoutError> {
        Self::ensure_driver(this);
        let mut was_late = false;
        while !Self::park_for(this, goal, deadline) {
            let left = this.left();
            let delayed = if this.delays_count(goal) { left.delayed } else { 0 };
            // The work may have ended since that look, so it looks once more.
            if left.queued + left.processing + delayed > 0 || std::mem::replace(&mut was_late, true) {
                return Err(left);
            }
        }
        Ok(())
    }

    /// Parks until the goal is reached. Returns `false` if the deadline passes first.
    fn park_for(this: &Arc<Self>, goal: WaitGoal, deadline: &Deadline) -> bool {
        with_parker(|parker| {
            let (mut late, mut looks) = (deadline.is_zero(), 0);
            loop {
                let waiter = (!late).then(|| Waiter::Thread(parker.unparker()));
                match this.look(goal, waiter) {
                    Look::Over => return true,
                    Look::NotYet => return false,
                    Look::Unknown if late => return false,
                    Look::Unknown if looks < LOOKS => {
                        looks += 1;
                        give_way();
                    }
                    Look::Unknown => {
                        let soon = Some(Instant::now() + BUSY);
                        Self::park(this, parker, deadline.start().into_iter().chain(soon).min());
                    }
                    Look::Listed(ticket) => {
                        Self::park(this, parker, deadline.start());
                        this.leave_drainers(Some(ticket));
                    }
                }
                late = deadline.is_over();
            }
        })
    }

    /// Like [`park_for`](Self::park_for), for a task. Returns `true` if the wait has ended.
    pub(crate) fn poll_for(&self, goal: WaitGoal, ticket: &mut Option<Ticket>, waker: &Waker) -> bool {
        self.leave_drainers(ticket.take());
        match self.look(goal, Some(Waiter::Task(waker.clone()))) {
            Look::Listed(listed) => {
                *ticket = Some(listed);
                false
            }
            Look::Unknown => {
                waker.wake_by_ref();
                false
            }
            Look::Over | Look::NotYet => true,
        }
    }

    /// For a thread or task that stops waiting or is about to look again.
    pub(crate) fn leave_drainers(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            let listed = self.hub().life_cycle.drainers.remove(ticket);
            self.discard(listed); // after the lock (W4)
        }
    }

    /// Visits the shards until one has work left, and puts the waiter on the list while that shard is locked, so that the step that ends
    /// its work finds the flag.
    ///
    /// * A drain is over when each shard was found without work once, because after the shut-down no add gives it any.
    /// * A queue with several shards is idle if two visits find each shard without work and no add came in between, because then no shard
    ///   had work at some moment between them. If adds have come, the caller decides whether to look again.
    fn look(&self, goal: WaitGoal, waiter: Option<Waiter>) -> Look {
        if_free!(self, free => self.free_look(free, goal, waiter));
        let mut activity_before = None;
        loop {
            let mut activity = 0_u64;
            for locked in self.all() {
                let machine = &*locked.lock();
                if self.has_work(machine, goal) {
                    let mut hub = self.hub();
                    if !self.has_work(machine, goal) {
                        continue; // a shut-down came in between, which the hub's lock makes visible
                    }
                    if matches!(goal, WaitGoal::Drained { released } if released != hub.life_cycle.released) {
                        return Look::Over;
                    }
                    let Some(waiter) = waiter else { return Look::NotYet };
                    return Look::Listed(hub.life_cycle.wait_for(locked.index, waiter));
                }
                activity = activity.wrapping_add(machine.activity());
            }
            if self.shards() == 1 || goal != WaitGoal::Idle || activity_before == Some(activity) {
                return Look::Over;
            }
            if activity_before.replace(activity).is_some() {
                return Look::Unknown;
            }
        }
    }

    fn has_work(&self, machine: &Machine<K>, goal: WaitGoal) -> bool {
        !machine.is_drained() || self.delays_count(goal) && machine.delayed() > 0
    }

    pub(super) fn delays_count(&self, goal: WaitGoal) -> bool {
        goal == WaitGoal::Idle && !self.is_shutting_down()
    }

    /// What the queue still has to do. Unlike `stats`, it reads no clock.
    fn left(&self) -> WaitIdleTimeoutError {
        if_free!(self, free => {
            let ((queued, processing), delayed) = (free.count_active(), free.records.lock().delayed());
            WaitIdleTimeoutError { queued, processing, delayed }
        });
        let mut left = WaitIdleTimeoutError { queued: 0, processing: 0, delayed: 0 };
        for locked in self.all() {
            let machine = locked.lock();
            left.queued += machine.len();
            left.processing += machine.processing();
            left.delayed += machine.delayed();
        }
        left
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::shared::Wait;
    use crate::shared::stopped::until;
    use crate::{Clock, Driver, WorkQueue};
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    /// Calls that have their answer at once, and calls with a time-out of zero, start no deadline (P27).
    #[test]
    fn a_call_that_does_not_park_reads_no_clock() {
        let build = || WorkQueue::builder().clock(Clock::mock().0).driver(Driver::Manual).build();
        let [long, zero] = [Duration::from_secs(3600), Duration::ZERO].map(|timeout| move || Deadline::after(timeout));
        let queue = build();
        let idle = long();
        assert!(Shared::wait_idle(&queue.shared, &idle).is_ok() && !idle.has_started());
        let (got, drained) = (long(), long());
        assert!(Shared::drain(&queue.shared, &drained).is_ok() && !drained.has_started());
        assert!(matches!(Shared::get_parked(&queue.shared, &got, &|| false), Wait::ShutDown) && !got.has_started());

        let queue = build();
        queue.add(1);
        let [idle, drained] = [zero(), zero()];
        assert!(Shared::wait_idle(&queue.shared, &idle).is_err() && !idle.has_started());
        assert!(Shared::drain(&queue.shared, &drained).is_err() && !drained.has_started());
        let item = queue.get().unwrap();
        let drained = Deadline::after(Duration::from_millis(1));
        assert!(Shared::drain(&queue.shared, &drained).is_err() && drained.has_started());
        item.done();
    }

    fn looks(queue: &WorkQueue<u64>) -> usize {
        queue.shared.first.looks.load(Relaxed)
    }

    /// While an idle wait waits for the lock of the second shard, a key comes to the first one and goes. The queue may have been idle or not:
    /// a wait that has time looks again.
    #[test]
    fn an_idle_wait_beside_adds_looks_again_until_its_deadline() {
        let queue = WorkQueue::builder().shards(2).driver(Driver::Manual).build();
        let key = (0_u64..).find(|key| queue.shared.hash(key).shard(2) == 0).expect("each shard has keys");
        for timeout in [Duration::from_secs(3600), Duration::ZERO] {
            let second = queue.shared.at(1).lock_beside_another();
            let before = looks(&queue);
            let is_idle = std::thread::scope(|scope| {
                let waits = scope.spawn(|| Shared::park_for(&queue.shared, WaitGoal::Idle, &Deadline::after(timeout)));
                until("it has visited the first shard", || looks(&queue) > before);
                queue.add(key);
                drop(queue.try_get().expect("it is queued"));
                drop(second);
                waits.join().unwrap()
            });
            assert_eq!(is_idle, !timeout.is_zero());
        }
    }

    /// A wait with a time-out of zero looks once, and counts what is left.
    #[test]
    fn a_wait_whose_time_is_up_looks_once() {
        let queue = WorkQueue::builder().driver(Driver::Manual).build();
        queue.add(1);
        for held in [false, true] {
            let _item = held.then(|| queue.get().unwrap());
            let before = looks(&queue);
            assert!(queue.wait_idle_timeout(Duration::ZERO).is_err());
            assert_eq!(looks(&queue) - before, 2, "held {held}");
        }
        assert!(queue.is_empty());
        let before = looks(&queue);
        assert!(queue.wait_idle_timeout(Duration::ZERO).is_ok());
        assert_eq!(looks(&queue) - before, 1, "nothing is left");
    }
}
