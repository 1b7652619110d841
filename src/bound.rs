//! The bound on the number of known keys, and the adds that wait for room.
//!
//! A key is *known* while it is queued, processing or delayed. An add that finds its key unknown takes a place before the key becomes
//! known, or is refused. The step after which the key is no longer known gives the place back.
//!
//! ```text
//!   add:        take a place ─ none: refused                         done, remove, cancel …:  give the place back ─ the bit is set:
//!   add_wait:   the same ─ none: on the list, which sets the bit ─                                take waiters off the list ─ wake them
//!                 the same once more ─ none: park
//! ```
//!
//! **No wake-up is lost** (W8), because the number of keys and the bit that says that adds wait are in one word, so that their changes have
//! one order. If a place is given back after the bit was set, the call finds the bit and wakes a waiter. If it was given back before that,
//! the waiter finds the place when it looks again. A waiter that was woken, and leaves without having needed the place, hands the wake-up
//! on.

use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::wait::{Ticket, WaitList, Waiter, WakeList};

/// Adds wait for room.
const AWAITED: u64 = 1;
/// One known key.
const KEY: u64 = 2;

/// See the top of this file.
pub(crate) struct Bound {
    most: i64,
    /// The number of known keys in the bits above [`AWAITED`]. In a lock-free queue a key may leave before its add has counted it, so that
    /// the number is negative for a moment.
    word: AtomicU64,
    /// How many adds were refused.
    refused: AtomicU64,
    waiters: Mutex<WaitList>,
}

/// A place for a key that becomes known. Its drop gives it back.
pub(crate) struct Room<'b>(&'b Bound);

impl Room<'_> {
    /// The key is known.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.0.leave(1) {
            let _panics = self.0.next(1).wake();
        }
    }
}

// Relaxed, in all of this file: the word orders nothing but itself, and the list has a lock.
impl Bound {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.try_into().unwrap_or(i64::MAX).min(i64::MAX / 2), // so that `free` does not overflow
            word: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            waiters: Mutex::new(WaitList::default()),
        }
    }

    /// The number of free places. It is negative if retries of unknown keys have come beyond the bound.
    fn free(&self, word: u64) -> i64 {
        self.most - (word as i64 >> 1)
    }

    /// Takes a place. `None`: there is none.
    pub(crate) fn enter(&self) -> Option<Room<'_>> {
        let mut word = self.word.load(Ordering::Relaxed);
        while self.free(word) > 0 {
            match self.word.compare_exchange(word, word.wrapping_add(KEY), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Room(self)),
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes a place, also if there is none, for a retry.
    pub(crate) fn enter_anyway(&self) -> Room<'_> {
        self.word.fetch_add(KEY, Ordering::Relaxed);
        Room(self)
    }

    /// This number of keys is no longer known. Returns whether the caller has to wake those that are [next](Self::next).
    pub(crate) fn leave(&self, keys: u64) -> bool {
        self.word.fetch_sub(keys * KEY, Ordering::Relaxed) & AWAITED != 0
    }

    /// Takes a waiter off the list for each of this many places, if they are free.
    pub(crate) fn next(&self, places: u64) -> WakeList {
        let waiters = &mut *self.waiters.lock();
        self.take_next(waiters, places)
    }

    fn take_next(&self, waiters: &mut WaitList, places: u64) -> WakeList {
        let (free, mut wakes) = (self.free(self.word.load(Ordering::Relaxed)), WakeList::default());
        (0..places.min(free.max(0) as u64)).map_while(|_| waiters.pop()).for_each(|waiter| wakes.push(waiter));
        if waiters.is_empty() {
            self.word.fetch_and(!AWAITED, Ordering::Relaxed);
        }
        wakes
    }

    /// Puts a waiter on the list, at the place that it has there, if it has one. Returns its older waiter. The caller tries to
    /// [enter](Self::enter) once more before it parks.
    pub(crate) fn wait(&self, ticket: &mut Option<Ticket>, waiter: Waiter) -> Option<Waiter> {
        let mut waiters = self.waiters.lock();
        let older = ticket.and_then(|ticket| waiters.remove(ticket));
        match ticket {
            Some(ticket) => waiters.put_back(*ticket, waiter),
            None => *ticket = Some(waiters.push(waiter)),
        }
        self.word.fetch_or(AWAITED, Ordering::Relaxed);
        older
    }

    /// A waiter waits no longer. If there is room, because it was woken and has not needed it, another one is woken in its place.
    pub(crate) fn give_up(&self, ticket: Ticket) -> (Option<Waiter>, WakeList) {
        let waiters = &mut *self.waiters.lock();
        let waiter = waiters.remove(ticket);
        (waiter, self.take_next(waiters, 1))
    }

    /// All waiters, to be woken, because adds are refused from now on.
    pub(crate) fn end(&self) -> WakeList {
        self.waiters.lock().take_all()
    }

    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of [refusals](Self::count_refusal).
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// In a lock-free queue a key may be gone before it is counted.
    #[test]
    fn the_largest_bound_has_room_while_the_number_of_keys_is_negative() {
        for most in [usize::MAX, i64::MAX as usize] {
            let bound = Bound::new(most);
            assert!(!bound.leave(1));
            assert!(bound.enter().is_some() && bound.next(1).is_empty());
        }
    }
}
