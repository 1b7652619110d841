//! Counters of events. Each thread has a block, which it writes with plain stores; threads that find no free block share the last one.
//!
//! An add is *begun* before its step, and *settled* once its answer is known and what it has queued is in the line. F7 compares the sums:
//! if the settled adds, which are read first, are as many as those begun, then no add was between the two at that time.

use crate::Added;
use crate::sync::{AtomicU64, Ordering, model_const};
use crossbeam_utils::CachePadded;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    // Each of the first five settles an add; they are in the order of `Added`.
    Queued,
    Coalesced,
    Deferred,
    /// The add has set a delay, the records count it, or it has panicked.
    Other,
    Rejected,
    /// An add, or an expiry, has begun.
    Begun,
    HandedOut,
    Ended,
    GivenUp,
    /// An add found the queue shut down before it began.
    Refused,
    /// A dirty key was taken back.
    Taken,
    /// A push, for [`NodeRef::order`](crate::key::NodeRef::order).
    Pushed,
}

use Event::{Begun, Coalesced, Deferred, Other, Queued, Rejected};

// What `settle_as` relies on.
const _: () = {
    assert!(Queued as usize == Added::Queued as usize && Coalesced as usize == Added::Coalesced as usize);
    assert!(Deferred as usize == Added::Deferred as usize && Other as usize == Added::Delayed as usize);
    assert!(Rejected as usize == Added::Rejected as usize);
};
const EVENTS: usize = Event::Pushed as usize + 1;
const BLOCKS: usize = model_const(64, 1);

#[derive(Default)]
struct Block {
    events: [AtomicU64; EVENTS],
    /// See [`Lines`](super::lines::Lines).
    stay: AtomicU64,
}

pub(super) struct Tally(Box<[CachePadded<Block>; BLOCKS]>);

/// The block of the calling thread, and its number.
#[derive(Clone, Copy)]
pub(super) struct Mine<'t> {
    block: &'t Block,
    pub(super) at: usize,
    is_shared: bool,
}

/// An add that has begun. It is settled even if it panics.
pub(crate) struct Begin<'t>(Mine<'t>);

impl Begin<'_> {
    #[inline]
    pub(super) fn settle_as(self, added: Added) {
        self.0.count_at(added as usize);
        std::mem::forget(self);
    }

    #[inline]
    pub(super) fn settle(self, as_: Event) {
        self.0.count(as_);
        std::mem::forget(self);
    }
}

impl Drop for Begin<'_> {
    fn drop(&mut self) {
        self.0.count(Other);
    }
}

impl<'t> Mine<'t> {
    /// Returns how many of these events the block had before.
    #[inline(always)]
    pub(super) fn count(self, event: Event) -> u64 {
        self.count_at(event as usize)
    }

    #[inline(always)]
    fn count_at(self, event: usize) -> u64 {
        let cell = &self.block.events[event];
        if self.is_shared {
            return cell.fetch_add(1, Ordering::AcqRel);
        }
        let before = cell.load(Ordering::Relaxed); // Relaxed: only this thread writes it
        cell.store(before + 1, Ordering::Release); // Release: a thread that sees the count sees what came before it
        before
    }

    /// Takes a count back, because the event did not happen.
    #[cold]
    pub(super) fn uncount(self, event: Event) {
        self.block.events[event as usize].fetch_sub(1, Ordering::Relaxed); // Relaxed: an event that did not happen orders nothing
    }

    /// The line from which this thread last took an entry.
    #[inline(always)]
    pub(super) fn stay(self) -> &'t AtomicU64 {
        &self.block.stay
    }

    #[inline(always)]
    pub(super) fn begin(self) -> Begin<'t> {
        self.count(Begun);
        Begin(self)
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        let blocks: Box<[_]> = (0..BLOCKS).map(|_| CachePadded::default()).collect();
        Self(blocks.try_into().unwrap_or_else(|_| unreachable!("there are so many")))
    }

    pub(super) fn blocks(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    pub(super) fn mine(&self) -> Mine<'_> {
        let at = place();
        Mine { block: &self.0[at], at, is_shared: at == BLOCKS - 1 }
    }

    pub(super) fn sum(&self, event: Event) -> u64 {
        self.0.iter().map(|block| block.events[event as usize].load(Ordering::Acquire)).sum()
    }

    /// The number of settled adds, to be compared with [`begun`](Self::begun), which is read later (F7).
    pub(super) fn settled(&self) -> u64 {
        [Queued, Coalesced, Deferred, Rejected, Other].map(|event| self.sum(event)).iter().sum()
    }

    pub(super) fn begun(&self) -> u64 {
        self.sum(Begun)
    }
}

#[cfg(loom)]
fn place() -> usize {
    0
}

/// The number of the calling thread's block in each queue. No other living thread has it, except that of the last block.
#[cfg(not(loom))]
#[inline(always)]
fn place() -> usize {
    use std::cell::Cell;
    use std::sync::Mutex;

    thread_local!(static PLACE: Cell<usize> = const { Cell::new(usize::MAX) });

    /// The number of places that were ever taken, and the places of threads that have ended.
    static PLACES: Mutex<(usize, Vec<usize>)> = Mutex::new((0, Vec::new()));

    struct Owned(Cell<usize>);
    impl Drop for Owned {
        fn drop(&mut self) {
            // Events of the drops of other thread-locals, which come later, are counted in the last block.
            PLACE.set(BLOCKS - 1);
            if self.0.get() < BLOCKS - 1 {
                PLACES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).1.push(self.0.get());
            }
        }
    }
    thread_local!(static OWNED: Owned = const { Owned(Cell::new(usize::MAX)) });

    #[cold]
    #[inline(never)]
    fn take() -> usize {
        let give = |owned: &Owned| {
            let mut places = PLACES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let at = places.1.pop().unwrap_or(places.0).min(BLOCKS - 1);
            places.0 = places.0.max(at + 1).min(BLOCKS - 1);
            owned.0.set(at);
            PLACE.set(at);
            at
        };
        OWNED.try_with(give).unwrap_or(BLOCKS - 1)
    }

    let at = PLACE.get();
    if at < BLOCKS { at } else { take() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Threads side by side, more than there are blocks, and threads one after the other.
    #[test]
    fn each_event_is_counted() {
        let tally = Tally::new();
        for threads in [BLOCKS + 20, 3, 3] {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..1000).for_each(|_| tally.mine().begin().settle(Queued)));
                }
            });
        }
        let all = (BLOCKS as u64 + 26) * 1000;
        assert_eq!((tally.settled(), tally.begun()), (all, all));
        drop(tally.mine().begin());
        assert_eq!((tally.settled(), tally.sum(Other)), (all + 1, 1));
    }

    /// The place of a thread that has ended goes to another one.
    #[test]
    fn places_are_used_again() {
        let place = || std::thread::spawn(|| Tally::new().mine().at).join().unwrap();
        assert!((0..1000).all(|_| place() < BLOCKS - 1) || place() == BLOCKS - 1);
    }
}
