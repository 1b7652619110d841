//! Getters that wait, and which of them a queued key wakes.
//!
//! * **W1** (I6) A getter parks only after it was put on the list in the same critical section in which it found the line empty.
//! * **W2** Whenever the lock is free, the line is not empty and a getter is on the list, another getter was taken off the list to be
//!   woken and has not arrived yet; or a call that wakes getters at its end (`add_all`) is under way, with `unwoken` keys. So a push wakes
//!   one getter, and a getter that arrives wakes the next while keys are queued.
//! * **W3** A getter that was woken and leaves without a key (time-out, dropped future) wakes the next in its place.
//! * **W4** Under the lock no thread or task is woken, no waker cloned or dropped, no key dropped, no observer called (P17). `Eq` and
//!   `Borrow` of keys and, in `take_delayed`, `take_where` and `processing_keys`, `K::clone` are the foreign code that runs there.
//!
//! Threads that were woken are counted until they arrive (`waking`). While one is on its way, a push wakes no other getter, unless
//! the line grows long or the woken thread is overdue: a burst of adds costs one wake-up, not one each, and workers that are not
//! needed stay parked. A woken thread always arrives, as it is inside our `get`; but it may have to wait for a core, or run a signal
//! handler. So a push that comes [`OVERDUE`](crate::sync::OVERDUE) after the last wake-up wakes the next getter. A *task* may be
//! polled late, so it is not counted, and the next push wakes the next waiter.

use super::{Core, Shared};
use crate::sync::{model_const, now, overdue};
use crate::wait::{Ticket, WaitList, Waiter};
use std::time::Instant;

/// While woken threads have not arrived, one more thread is woken for each 64 queued keys: a woken thread that the system does not run
/// must not stall the others.
const PER_WAKE: usize = model_const(64, 2);

/// Getters that wait.
pub(super) struct Getters {
    waiters: WaitList,
    /// The number of threads that were taken off the list to be woken, and have not taken the lock since.
    waking: usize,
    /// When the last of them was woken.
    woken_at: Instant,
    /// The number of keys that were pushed and have woken no getter yet: the call that pushes them wakes getters at its end.
    unwoken: usize,
    /// The number of hand-outs when a getter was last about to park.
    handed_out_at_park: u64,
}

impl Getters {
    pub(super) fn new() -> Self {
        Self { waiters: WaitList::default(), waking: 0, woken_at: now(), unwoken: 0, handed_out_at_park: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn woken_at(&self) -> Instant {
        self.woken_at
    }

    /// Puts a getter on the list (W1). `handed_out`: the number of hand-outs so far.
    pub(super) fn push(&mut self, waiter: Waiter, handed_out: u64) -> Ticket {
        self.handed_out_at_park = handed_out;
        self.waiters.push(waiter)
    }

    /// Puts a getter that was woken in vain back to its position (W1).
    pub(super) fn put_back(&mut self, ticket: Ticket, waiter: Waiter) {
        self.waiters.put_back(ticket, waiter);
    }

    /// Takes a getter that runs again off the list. `None`: it was taken off before, to be woken.
    pub(super) fn arrive(&mut self, ticket: Ticket, waiter: &Waiter) -> Option<Waiter> {
        let listed = self.waiters.remove(ticket);
        if listed.is_none() && waiter.is_thread() {
            self.waking -= 1;
        }
        listed
    }

    /// Takes a task that stops waiting off the list. `None`: it was taken off before, to be woken.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        self.waiters.remove(ticket)
    }

    /// Keys were pushed, and their getters will be woken by [`Core::owe_unwoken`].
    #[inline]
    pub(super) fn note_unwoken(&mut self, pushed: usize) {
        self.unwoken += pushed;
    }

    /// The getter to wake for a key, if one is to be woken. `queued`: the number of queued keys.
    fn next(&mut self, queued: usize) -> Option<Waiter> {
        if queued == 0 || queued <= self.waking * PER_WAKE && !overdue(self.woken_at) {
            return None;
        }
        let waiter = self.waiters.pop()?;
        if waiter.is_thread() {
            self.waking += 1;
            self.woken_at = now();
        }
        Some(waiter)
    }

    /// Whether keys come so fast that a getter that finds no key first yields. If it shares a CPU with the producer, parking after every
    /// few keys costs most of the time (335 ns a key, and 33 if it yields). If keys come more slowly, it does not yield: the scheduler
    /// lets a thread that has yielded wait longer at its next wake-up (35 µs instead of 4).
    pub(super) fn should_yield(&self, handed_out: u64) -> bool {
        handed_out - self.handed_out_at_park >= 8
    }

    pub(super) fn shrink(&mut self) {
        self.waiters.shrink();
    }
}

impl<K> Shared<K> {
    /// Wakes getters for the keys that were pushed with [`Wakeups::Later`](super::add::Wakeups::Later).
    pub(crate) fn wake_for_all(&self) {
        self.enter().owe_unwoken();
    }
}

impl<K> Core<K> {
    /// A key became queued: owes a wake-up to a getter that is on the list (W2).
    #[inline]
    pub(super) fn owe_getter(&mut self) {
        if !self.getters.waiters.is_empty() {
            self.owe_getters(1);
        }
    }

    /// Owes the wake-ups for the `unwoken` keys: those pushed with [`Wakeups::Later`](super::add::Wakeups::Later), or by a driver.
    pub(super) fn owe_unwoken(&mut self) {
        let pushed = std::mem::take(&mut self.getters.unwoken);
        self.owe_getters(pushed);
    }

    /// This number of keys became queued: owes a wake-up to at most as many getters, and fewer if woken threads have not arrived yet.
    #[cold]
    fn owe_getters(&mut self, pushed: usize) {
        for _ in 0..pushed {
            let Some(waiter) = self.getters.next(self.shard.len()) else { return };
            self.shard.owe(waiter);
        }
    }

    /// Owes a wake-up to all getters.
    pub(super) fn owe_all_getters(&mut self) {
        self.getters.waking += self.getters.waiters.threads();
        let getters = self.getters.waiters.take_all();
        self.shard.owe_all(getters);
    }
}
