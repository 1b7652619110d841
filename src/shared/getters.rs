//! Getters that wait, and which of them a queued key wakes. The rules W1 to W5 are in `INVARIANTS.md`.
//!
//! A getter goes on the list, then visits each shard under its lock, and parks only if all were empty (W1). [`hub`](super::hub) says why it
//! misses no key.
//!
//! **A push wakes one getter, unless one is on its way** (W2). Threads that were woken are counted in `waking` until they arrive. While one
//! is on its way, a push wakes no other, so a burst of adds costs one wake-up. The getter makes up for this when it arrives: it leaves the
//! count, takes a key, and then wakes the next getter if any shard has keys left. A push that found it in the count came before that, under
//! the hub's lock, so its key is seen. A getter that leaves without a key also wakes the next one (W3).
//!
//! **A woken getter may be late.** A thread always arrives, because it is inside our `get`, but it may have to wait for a core. So a push
//! wakes another getter if the queue has grown long, or if the last wake-up was [`OVERDUE`](crate::sync::OVERDUE) ago. A task may be polled
//! late, so it is not counted, and the next push wakes the next waiter.
//!
//! **A busy shard is passed by**, although the key may be there. A woken getter that has done so goes back on the list and still counts as
//! woken when it arrives again. A thread parks for [`BUSY`] at most. A task is woken by the driver, which knows of it by `passed_by` and
//! `wake_at` before the poll returns, or waits for the shard in its poll if no driver can be started (W5).

use crate::sync::{model_const, now, overdue};
use crate::wait::{Ticket, WaitList, Waiter, WakeList};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a getter waits before it visits a busy shard again. (In the models no time passes, so there it is over at once.)
pub(super) const BUSY: Duration = Duration::from_micros(model_const(100, 0) as u64);

/// While woken threads have not arrived, one more thread is woken for each 64 queued keys, so that one that the system does not run cannot
/// stall the others.
const PER_WAKE: usize = model_const(64, 2);

/// Keys come fast if at least this many were handed out since a thread last parked, in less than this time each on average, which is much
/// less than a park and a wake-up take.
const MANY: u64 = 8;
const FAST: Duration = Duration::from_micros(2);

/// Getters that wait.
#[derive(Default)]
pub(super) struct Getters {
    pub(super) waiters: WaitList,
    /// The number of threads that were taken off the list to be woken, and have not arrived since.
    waking: usize,
    /// When the last of them was woken. (At first `None`, so that no clock is read on platforms without one.)
    pub(super) woken_at: Option<Instant>,
    /// When a thread last found no key, and the number of hand-outs at that time.
    pub(super) last_park: Option<(Instant, u64)>,
    /// Whether many keys were handed out in a short time between the last two times that a thread found none. If so, such a thread yields
    /// before it goes on the list, because parking after every few keys costs most of the time if it shares a CPU with the producer.
    /// Otherwise yielding would only make it wait longer.
    pub(super) keys_come_fast: bool,
    /// Getters that were woken and are on the list again because they have passed by a busy shard. Calls that queued keys still rely on
    /// them.
    owing: BTreeSet<Ticket>,
    /// Tasks that have passed by a busy shard, for the driver to wake at `wake_at` (W5). Some may have been woken since. A task that
    /// arrives leaves this set, so each is here at most once, and none that was dropped.
    passed_by: BTreeSet<Ticket>,
    /// Once it is set, the driver knows of it or will see it before it parks.
    pub(super) wake_at: Option<Instant>,
    /// When the driver wakes a getter for the next token of the [pace](super::pace). As `wake_at`.
    pub(super) token_at: Option<u64>,
}

impl Getters {
    /// Puts a getter that was woken in vain back to its position (W1). If it has passed by a busy shard (`owing`), it still counts as woken
    /// when it arrives again.
    pub(super) fn put_back(&mut self, ticket: Ticket, waiter: Waiter, owing: bool) {
        self.waiters.put_back(ticket, waiter);
        if owing {
            self.owing.insert(ticket);
        }
    }

    /// Takes a getter that runs again, or stops waiting, off the list. Returns its waiter, unless that was taken off before to be woken,
    /// and whether a call that queued a key relies on it.
    pub(super) fn arrive(&mut self, ticket: Ticket, is_thread: bool) -> (Option<Waiter>, bool) {
        let listed = self.waiters.remove(ticket);
        if listed.is_none() && is_thread {
            self.waking -= 1;
        }
        self.passed_by.remove(&ticket);
        let owing = self.owing.remove(&ticket);
        let is_relied_on = listed.is_none() || owing;
        (listed, is_relied_on)
    }

    /// Has the driver wake this task, which is on the list, or was taken off it to be woken.
    pub(super) fn wake_later(&mut self, task: Ticket) {
        self.passed_by.insert(task);
        self.wake_at.get_or_insert_with(|| now() + BUSY);
    }

    /// There is no driver, so the caller wakes the tasks, which then wait for the shard.
    pub(super) fn forget_passed_by(&mut self) {
        (self.passed_by, self.wake_at) = (BTreeSet::new(), None);
    }

    /// For the driver: the tasks that it is to wake by now.
    pub(super) fn take_passed_by(&mut self) -> BTreeSet<Ticket> {
        if self.wake_at.is_none_or(|at| at > now()) {
            return BTreeSet::new();
        }
        let tasks = std::mem::take(&mut self.passed_by);
        // Tasks that pass by again, as is likely, need not wake the driver. If none does, this is the last time.
        self.wake_at = (!tasks.is_empty()).then(|| now() + BUSY);
        tasks
    }

    /// Takes a task off the list, to be woken.
    pub(super) fn take_task(&mut self, task: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(task);
        debug_assert!(!waiter.as_ref().is_some_and(Waiter::is_thread), "it does not count in `waking`");
        waiter
    }

    /// The getter to wake for a key, if any, when so many keys are queued.
    pub(super) fn next(&mut self, queued: usize) -> Option<Waiter> {
        let enough_are_coming = queued <= self.waking * PER_WAKE && !self.woken_at.is_some_and(overdue);
        if queued == 0 || enough_are_coming {
            return None;
        }
        let waiter = self.waiters.pop()?;
        if waiter.is_thread() {
            self.waking += 1;
            self.woken_at = Some(now());
        }
        Some(waiter)
    }

    /// A thread on the list has found no key, after so many hand-outs, and is about to park. The time since the last such park is the
    /// estimate for the time until the next.
    pub(super) fn note_park(&mut self, at: Instant, handed_out: u64) {
        let before = self.last_park.replace((at, handed_out));
        self.keys_come_fast = before.is_some_and(|(last, before)| {
            // Another thread may have written a later number, and shards that were passed by are not in it.
            let keys = handed_out.saturating_sub(before);
            keys >= MANY
                && at.saturating_duration_since(last) < FAST.saturating_mul(keys.try_into().unwrap_or(u32::MAX))
        });
    }

    pub(super) fn shrink(&mut self) {
        self.waiters.shrink();
    }

    /// All getters, to be woken.
    pub(super) fn take_all(&mut self) -> WakeList {
        let threads = self.waiters.threads();
        if threads > 0 {
            self.waking += threads;
            self.woken_at = Some(now());
        }
        self.waiters.take_all()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Parker;
    use std::task::Waker;

    /// Eight hand-outs between two parks, and at most two microseconds for each.
    #[test]
    fn keys_come_fast_if_many_were_handed_out_in_a_short_time() {
        let (begin, micros) = (Instant::now(), Duration::from_micros);
        let is_fast_after = |(keys, time)| {
            let mut getters = Getters::default();
            getters.note_park(begin, 100);
            assert!(!getters.keys_come_fast);
            getters.note_park(begin + time, 100 + keys);
            getters.keys_come_fast
        };
        let cases =
            [(0, micros(0)), (7, micros(1)), (8, micros(1)), (8, micros(15)), (8, micros(16)), (100, micros(199))];
        assert_eq!(cases.map(is_fast_after), [false, false, true, true, false, true]);
        assert!(is_fast_after((u64::MAX - 100, micros(1))));
    }

    /// When all are woken, the threads are on their way, and may be overdue.
    #[test]
    fn threads_that_are_woken_together_count_as_woken() {
        let mut getters = Getters::default();
        getters.waiters.push(Waiter::Task(Waker::noop().clone()));
        drop(getters.take_all());
        assert_eq!((getters.waking, getters.woken_at), (0, None));
        (0..2).for_each(|_| _ = getters.waiters.push(Waiter::Thread(Parker::new().unparker())));
        drop(getters.take_all());
        assert!(getters.waking == 2 && getters.woken_at.is_some());
    }

    /// While the driver is kept from its work, a task that is polled again and again is to be woken once, and not at all when it is gone.
    #[test]
    fn a_task_that_passes_by_again_and_again_is_noted_once() {
        let task = || Waiter::Task(Waker::noop().clone());
        let mut getters = Getters::default();
        let tickets = [(); 2].map(|()| getters.waiters.push(task()));
        for _ in 0..100 {
            for ticket in tickets {
                drop(getters.arrive(ticket, false));
                getters.put_back(ticket, task(), false);
                getters.wake_later(ticket);
            }
            assert!(getters.passed_by.len() <= 2, "{} notes of two tasks", getters.passed_by.len());
        }
        drop(getters.arrive(tickets[0], false));
        assert_eq!(getters.passed_by.len(), 1, "one is gone");
        while now() < getters.wake_at.expect("the other is to be woken") {}
        let before = now();
        assert!(getters.take_passed_by().contains(&tickets[1]));
        assert!(getters.wake_at.is_some_and(|at| at >= before + BUSY), "the driver looks again, and not at once");
    }
}
