//! Those that wait, but not for a key: in a drain or an idle wait, for an event such as the shut-down, or for a time.

#[cfg(feature = "lock-free")]
use crate::key::KeyHash;
use crate::key::SlotId;
use crate::machine::{DirtyTicket, NEVER};
use crate::wait::{Ticket, WaitList, Waiter, WakeList};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::task::Waker;

/// Those that wait for the end of the work.
#[derive(Default)]
pub(super) struct LifeCycle {
    /// Threads and tasks in a drain or in an idle wait.
    pub(super) drainers: WaitList,
    /// The shards whose work they wait for, as bits.
    awaited: u64,
    /// The number of plain shut-downs, each of which releases the drains that wait.
    pub(super) released: u64,
}

impl LifeCycle {
    /// Puts a waiter on the list until the work of this shard has ended.
    pub(super) fn wait_for(&mut self, shard: usize, waiter: Waiter) -> Ticket {
        self.awaited |= 1 << shard;
        self.drainers.push(waiter)
    }

    /// If anyone waits for this shard, whose work has ended, returns all waiters, to be woken.
    pub(super) fn work_ended(&mut self, shard: usize) -> WakeList {
        if self.awaited & 1 << shard == 0 { WakeList::default() } else { self.take_drainers() }
    }

    /// Returns all waiters, to be woken.
    pub(super) fn take_drainers(&mut self) -> WakeList {
        self.awaited = 0;
        self.drainers.take_all()
    }
}

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The shut-down begins.
    ShutDown,
    /// A held key of this shard becomes dirty.
    Dirty(usize, DirtyTicket),
    /// The same in a lock-free queue.
    #[cfg(feature = "lock-free")]
    DirtyNode(KeyHash),
    /// A run was found late, and this was told.
    Late(SlotId),
}

/// The tasks, by what they wait for, so that those that wait for one event are taken off the list as a whole.
#[derive(Default)]
pub(super) struct Tasks {
    waiting: BTreeMap<Event, BTreeMap<Ticket, Waiter>>,
    next: u64,
}

/// A task's place in the list; it keeps the place while it is off the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskTicket(Event, Ticket);

impl Tasks {
    /// Puts a task on the list, at its place if it has one. Returns the waker that was there.
    pub(super) fn insert(&mut self, of: Event, ticket: &mut Option<TaskTicket>, waker: Waker) -> Option<Waiter> {
        let TaskTicket(of, ticket) = *ticket.get_or_insert_with(|| {
            self.next += 1;
            TaskTicket(of, Ticket::nth(self.next))
        });
        self.waiting.entry(of).or_default().insert(ticket, Waiter::Task(waker))
    }

    pub(super) fn remove(&mut self, TaskTicket(of, ticket): TaskTicket) -> Option<Waiter> {
        let Entry::Occupied(mut tasks) = self.waiting.entry(of) else { return None };
        let waiter = tasks.get_mut().remove(&ticket);
        if tasks.get().is_empty() {
            tasks.remove();
        }
        waiter
    }

    /// Takes the tasks off the list that wait for this event. (A leaked future that waits for a dirty key may leave an entry behind, whose
    /// task is then woken in vain by an add of a later key in this slot.)
    pub(super) fn take(&mut self, of: Event, wakes: &mut WakeList) {
        self.waiting.remove(&of).into_iter().for_each(|tasks| wakes.push_tree(tasks));
    }
}

/// Tasks that the driver wakes at a time of the queue's clock: see [`linger`](super::linger).
#[derive(Default)]
pub(super) struct Alarms {
    waiting: BTreeMap<(u64, Ticket), Waiter>,
    next: u64,
}

impl Alarms {
    /// Sets the alarm of a task, or its new waker. Returns the waker that was there.
    pub(super) fn set(&mut self, at: u64, ticket: &mut Option<Ticket>, waiter: Waiter) -> Option<Waiter> {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            Ticket::nth(self.next)
        });
        self.waiting.insert((at, ticket), waiter)
    }

    pub(super) fn remove(&mut self, at: u64, ticket: Ticket) -> Option<Waiter> {
        self.waiting.remove(&(at, ticket))
    }

    /// The time of the first alarm.
    pub(super) fn first(&self) -> u64 {
        self.waiting.first_key_value().map_or(NEVER, |(&(at, _), _)| at)
    }

    /// Takes the tasks whose time has come.
    pub(super) fn take_due(&mut self, now: u64, wakes: &mut WakeList) {
        while self.first() <= now {
            wakes.extend(self.waiting.pop_first().map(|(_, waiter)| waiter));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::Context;

    #[test]
    fn a_dropped_task_waits_for_nothing() {
        let queue = WorkQueue::new();
        queue.add(1);
        let item = queue.get().unwrap();
        let poll =
            |future: Pin<&mut _>| assert!(Future::poll(future, &mut Context::from_waker(Waker::noop())).is_pending());
        let waiting = || queue.shared.hub().tasks.waiting.values().map(|tasks| tasks.len()).collect::<Vec<_>>();
        let [mut one, mut two] = [(); 2].map(|()| Box::pin(item.until_dirty()));
        poll(one.as_mut());
        poll(two.as_mut());
        let mut shut_down = Box::pin(queue.until_shutting_down());
        assert!(shut_down.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(waiting(), [1, 2]);
        drop(one);
        assert_eq!(waiting(), [1, 1]);
        drop(shut_down);
        assert_eq!(waiting(), [1]);
        drop(two);
        assert!(waiting().is_empty());
    }

    /// The waker of a task that comes with another one, or no longer waits, panics when it is dropped. That is caught and counted (W4).
    #[test]
    fn a_waker_may_panic_when_it_is_dropped() {
        struct Panics;
        impl std::task::Wake for Panics {
            fn wake(self: std::sync::Arc<Self>) {}
        }
        impl Drop for Panics {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("as planned"));
            }
        }
        let queue = WorkQueue::new();
        queue.add(1);
        let item = queue.get().unwrap();
        let (mut shut_down, mut dirty) = (Box::pin(queue.until_shutting_down()), Box::pin(item.until_dirty()));
        for _ in 0..2 {
            for future in [shut_down.as_mut() as std::pin::Pin<&mut dyn Future<Output = ()>>, dirty.as_mut()] {
                let waker = Waker::from(std::sync::Arc::new(Panics));
                assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
            }
        }
        assert_eq!(queue.stats().caught_panics, 2, "of the wakers that were replaced");
        drop((shut_down, dirty));
        assert_eq!(queue.stats().caught_panics, 4);
    }

    /// The end of the work of a shard wakes all, if one of them waits for this shard. Those of an earlier list do not count.
    #[test]
    fn a_shard_for_which_nobody_waits_wakes_nobody() {
        let mut life_cycle = LifeCycle::default();
        let mut wait_for = |shard, ended| {
            let _ticket = life_cycle.wait_for(shard, Waiter::Task(Waker::noop().clone()));
            !life_cycle.work_ended(ended).is_empty()
        };
        assert!(wait_for(3, 3));
        assert!(!wait_for(5, 3));
        assert!(wait_for(3, 5));
    }
}
