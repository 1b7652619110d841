//! Getters that wait, and which of them a queued key wakes.
//!
//! * **W1** (I6) A getter goes on the list, and after that visits each shard under its lock; it parks only if each was empty.
//! * **W2** If a key is queued, and a getter on the list has visited the key's shard before it was queued, then another getter was taken off
//!   the list to be woken and has not arrived yet; or the call that queued the key is still to take one off (`add_all` does so at its
//!   end). So a push wakes one getter, and a getter that arrives wakes the next while keys are left in any shard.
//! * **W3** A getter that was woken and leaves without a key (time-out, dropped future) wakes the next in its place. One that has passed by
//!   a busy shard goes back on the list, and still counts as woken when it arrives again: the key may be in that shard.
//! * **W4** Under a lock no thread or task is woken, no waker cloned or dropped, no key dropped, no observer called (P17). `Eq` and
//!   `Borrow` of keys and, in `take_delayed`, `take_where`, `stop`, `processing_keys`, `delayed_keys` and `groups`, `K::clone` are the foreign
//!   code that runs there.
//!
//! Threads that were woken are counted until they arrive (`waking`). While one is on its way, a push wakes no other getter, unless
//! the line grows long or the woken thread is overdue: a burst of adds costs one wake-up, not one each, and workers that are not
//! needed stay parked. The getter that arrives makes up for it: it leaves the count first, then takes a key, and then reads the lengths
//! of all shards. A push that found it in the count comes before, under the hub's lock, so the getter sees its key.
//!
//! A woken thread always arrives, as it is inside our `get`; but it may have to wait for a core, or run a signal handler. So a push that
//! comes [`OVERDUE`](crate::sync::OVERDUE) after the last wake-up wakes the next getter. A *task* may be polled late, so it is not
//! counted, and the next push wakes the next waiter.

use super::Shared;
use super::hub::Flags;
use crate::sync::{model_const, now, overdue};
use crate::wait::{Ticket, WaitList, Waiter, WakeList};
use std::time::Instant;

/// While woken threads have not arrived, one more thread is woken for each 64 queued keys: a woken thread that the system does not run
/// must not stall the others.
const PER_WAKE: usize = model_const(64, 2);

/// Getters that wait.
pub(super) struct Getters {
    waiters: WaitList,
    /// The number of threads that were taken off the list to be woken, and have not arrived since.
    waking: usize,
    /// When the last of them was woken.
    woken_at: Instant,
    /// The number of hand-outs when a thread has last found no key.
    handed_out_at_park: u64,
    /// Getters that were woken and are on the list again, as they have passed by a busy shard: a call that queued a key still relies on them.
    owing: Vec<Ticket>,
}

impl Getters {
    pub(super) fn new() -> Self {
        Self { waiters: WaitList::default(), waking: 0, woken_at: now(), handed_out_at_park: 0, owing: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn woken_at(&self) -> Instant {
        self.woken_at
    }

    /// Puts a getter on the list (W1).
    pub(super) fn push(&mut self, waiter: Waiter) -> Ticket {
        self.waiters.push(waiter)
    }

    /// Puts a getter that was woken in vain back to its position (W1).
    pub(super) fn put_back(&mut self, ticket: Ticket, waiter: Waiter) {
        self.waiters.put_back(ticket, waiter);
    }

    /// The same, of a getter that has passed by a busy shard: it still counts as woken when it arrives again.
    pub(super) fn put_back_owing(&mut self, ticket: Ticket, waiter: Waiter) {
        self.put_back(ticket, waiter);
        self.owing.push(ticket);
    }

    /// Takes a getter that runs again, or stops waiting, off the list. Returns its waiter, unless it was taken off before, to be woken; and
    /// whether a call that queued a key relies on it.
    pub(super) fn arrive(&mut self, ticket: Ticket, is_thread: bool) -> (Option<Waiter>, bool) {
        let listed = self.waiters.remove(ticket);
        if listed.is_none() && is_thread {
            self.waking -= 1;
        }
        let owing = self.owing.iter().position(|owing| *owing == ticket);
        owing.into_iter().for_each(|at| _ = self.owing.swap_remove(at));
        let is_relied_on = listed.is_none() || owing.is_some();
        (listed, is_relied_on)
    }

    /// The getter to wake for a key, if one is to be woken. `queued`: the number of queued keys.
    pub(super) fn next(&mut self, queued: usize) -> Option<Waiter> {
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

    /// For a thread that has found no key: whether keys come so fast that it first yields. If it shares a CPU with the producer, parking
    /// after every few keys costs most of the time (335 ns a key, and 33 if it yields). If keys come more slowly, it does not yield: the
    /// scheduler lets a thread that has yielded wait longer at its next wake-up (35 µs instead of 4). `handed_out`: the number of
    /// hand-outs so far.
    pub(super) fn should_yield(&mut self, handed_out: u64) -> bool {
        let before = std::mem::replace(&mut self.handed_out_at_park, handed_out);
        handed_out.saturating_sub(before) >= 8 // another thread may have written a later number
    }

    pub(super) fn shrink(&mut self) {
        self.waiters.shrink();
        self.owing.shrink_to_fit();
    }

    /// All getters, to be woken.
    pub(super) fn take_all(&mut self) -> WakeList {
        self.waking += self.waiters.threads();
        self.waiters.take_all()
    }
}

impl<K> Shared<K> {
    /// Keys may be queued, and no getter was woken for them: wakes some, at most this number (W2). Not for a thread that holds a shard.
    pub(crate) fn wake_getters(&self, at_most: usize) {
        // The flags of this thread's past critical sections: a getter that has not set its flag before them finds their keys by itself.
        if !self.flags().has(Flags::GETTERS) {
            return;
        }
        let mut hub = self.hub();
        let queued = self.ready();
        for _ in 0..at_most {
            let Some(waiter) = hub.getters.next(queued) else { return };
            hub.wakes.push(waiter);
        }
    }

    /// A queued key was taken. If it was the last one, and the queue is shut down, getters that have waited for keys of full groups return.
    pub(super) fn end_getters(&self) {
        let waited = self.flags().has(Flags::LIMITED) && self.is_shutting_down() && self.flags().has(Flags::GETTERS);
        if waited && self.len() == 0 {
            let mut hub = self.hub();
            let all = hub.getters.take_all();
            hub.wakes.append(all);
        }
    }
}
