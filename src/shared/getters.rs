//! Getters that wait, and which of them a queued key wakes.
//!
//! * **W1** (I6) A getter goes on the list, and after that visits each shard under its lock; it parks only if each was empty.
//! * **W2** While a key is queued and a getter sleeps, a woken getter is on its way, or the call that queued the key still owes a wake-up
//!   (`add_all` pays it at its end). A getter *sleeps* if it is on the list, and visited the key's shard before the key was queued. So a
//!   push wakes one getter. A getter that arrives wakes the next one while keys are left in any shard.
//! * **W3** If a woken getter leaves without a key (time-out, dropped future), it wakes the next one in its place. If it has passed by a
//!   busy shard, it goes back on the list, and still counts as woken when it arrives again: the key may be in that shard.
//! * **W5** A task that has passed by a busy shard is woken at most [`BUSY`] later. Before its poll returns, it is in `passed_by`; or, if
//!   no driver can be started to wake it, it has waited for the shard, and looked into it as W1 says. `wake_at` is set while
//!   tasks are in `passed_by`. While it is set, the driver starts, runs, or is parked no longer than until then. (A thread parks for that
//!   time by itself.)
//! * **W4** Under a lock no thread or task is woken, no waker cloned or dropped, no key dropped, no observer called (P17). `Eq` and
//!   `Equivalent` of keys, the function of `Clock::from_fn` and, in `take_delayed`, `take_where`, `stop`, `processing_keys`, `delayed_keys`
//!   and `groups`, `K::clone` are the foreign code that runs there.
//!
//! Threads that were woken are counted until they arrive (`waking`). While one is on its way, a push wakes no other getter, unless
//! the queue grows long or the woken thread is overdue: a burst of adds costs one wake-up, not one each, and workers that are not
//! needed stay parked. The getter that arrives makes up for it: it leaves the count first, then takes a key, and then reads the lengths
//! of all shards. A push that found it in the count comes before, under the hub's lock, so the getter sees its key.
//!
//! A woken thread always arrives, as it is inside our `get`; but it may have to wait for a core, or run a signal handler. So a push that
//! comes [`OVERDUE`](crate::sync::OVERDUE) after the last wake-up wakes the next getter. A *task* may be polled late, so it is not
//! counted, and the next push wakes the next waiter.
//!
//! The driver takes the tasks of W5 off the list as a push does. So they count as woken: if they find no key, they go back to their places,
//! and if they are dropped, they wake the next getter if keys are queued (W3). That is more than is needed, and does no harm.

use crate::sync::{model_const, now, overdue};
use crate::wait::{Ticket, WaitList, Waiter, WakeList};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a getter waits before it visits a shard again that was busy for longer than a critical section takes. (In the models no time
/// passes, so there it is over at once.)
pub(super) const BUSY: Duration = Duration::from_micros(model_const(100, 0) as u64);

/// While woken threads have not arrived, one more thread is woken for each 64 queued keys: a woken thread that the system does not run
/// must not stall the others.
const PER_WAKE: usize = model_const(64, 2);

/// Keys come fast if a thread parks again after this number of hand-outs at least, and a key has taken less than this time on average: much
/// less than a park and a wake-up.
const MANY: u64 = 8;
const FAST: Duration = Duration::from_micros(2);

/// Getters that wait.
#[derive(Default)]
pub(super) struct Getters {
    pub(super) waiters: WaitList,
    /// The number of threads that were taken off the list to be woken, and have not arrived since.
    waking: usize,
    /// When the last of them was woken. (`None` at first: no clock is read where the standard library has none, and no threads.)
    pub(super) woken_at: Option<Instant>,
    /// When a thread has last found no key, and the number of hand-outs at that time.
    pub(super) last_park: Option<(Instant, u64)>,
    /// Many keys were handed out between the last two times that a thread has found none, and in a short time. Then a thread that finds no key
    /// yields before it goes on the list. If it shares a CPU with the producer, parking after every few keys costs most of the time (335 ns
    /// a key, and 33 if it yields). If keys come more slowly, it does not yield, because the scheduler may let a thread that has yielded wait
    /// longer, until it goes on (100 µs and more) and at its next wake-up (35 µs instead of 4).
    pub(super) keys_come_fast: bool,
    /// Getters that were woken and are on the list again, as they have passed by a busy shard: a call that queued a key still relies on
    /// them.
    owing: BTreeSet<Ticket>,
    /// Tasks that have passed by a busy shard, and that the driver wakes at `wake_at` (W5). Some may have been taken off the list since, to
    /// be woken. One that arrives leaves this set, too: so each is in here once at most, and none that was dropped.
    passed_by: BTreeSet<Ticket>,
    /// If it is set, the driver knows of it, or will see it before it parks.
    pub(super) wake_at: Option<Instant>,
}

impl Getters {
    /// Puts a getter that was woken in vain back to its position (W1). `owing`: it has passed by a busy shard, and still counts as woken when
    /// it arrives again.
    pub(super) fn put_back(&mut self, ticket: Ticket, waiter: Waiter, owing: bool) {
        self.waiters.put_back(ticket, waiter);
        if owing {
            self.owing.insert(ticket);
        }
    }

    /// Takes a getter that runs again, or stops waiting, off the list. Returns its waiter, unless it was taken off before, to be woken; and
    /// whether a call that queued a key relies on it.
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

    /// The driver is to wake this task, which is on the list, or was taken off it to be woken.
    pub(super) fn wake_later(&mut self, task: Ticket) {
        self.passed_by.insert(task);
        self.wake_at.get_or_insert_with(|| now() + BUSY);
    }

    /// There is no driver: the caller wakes the tasks, which then wait for the shard.
    pub(super) fn forget_passed_by(&mut self) {
        (self.passed_by, self.wake_at) = (BTreeSet::new(), None);
    }

    /// For the driver: the tasks that it is to wake by now.
    pub(super) fn take_passed_by(&mut self) -> BTreeSet<Ticket> {
        if self.wake_at.is_none_or(|at| at > now()) {
            return BTreeSet::new();
        }
        let tasks = std::mem::take(&mut self.passed_by);
        // If they pass by again, as is likely, they need not wake the driver. If no task does, this is the last time.
        self.wake_at = (!tasks.is_empty()).then(|| now() + BUSY);
        tasks
    }

    /// Takes a task off the list, to be woken.
    pub(super) fn take_task(&mut self, task: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(task);
        debug_assert!(!waiter.as_ref().is_some_and(Waiter::is_thread), "it does not count in `waking`");
        waiter
    }

    /// The getter to wake for a key, if one is to be woken. `queued`: the number of queued keys.
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

    /// A thread is on the list, has found no key, and is about to park. `handed_out`: the number of hand-outs so far. What this says of the
    /// time since the last such park is the estimate for the time until the next.
    pub(super) fn note_park(&mut self, at: Instant, handed_out: u64) {
        let before = self.last_park.replace((at, handed_out));
        self.keys_come_fast = before.is_some_and(|(last, before)| {
            // Another thread may have written a later number. And a shard that was passed by is not in the number.
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
