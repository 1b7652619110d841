//! The ready line: keys in the order in which they became ready, and who waits for them.
//!
//! Line and waiters stand under one lock, so "the line is empty and I am on the list" is one step, and there is no window in
//! which a push could miss a sleeper. In numbers (checked in `loom-tests/`):
//!
//! * **W1** A getter sleeps only after it was put on the list in the same critical section in which it found the line empty
//!   (I6).
//! * **W2** Whenever the lock is free, the line is not empty and somebody is on the list, then somebody else has been woken
//!   and has not arrived yet. So: a push wakes one, and who arrives wakes the next while keys are left.
//! * **W3** Who was woken and leaves without a key (time-out, dropped future) wakes the next in its place.
//!
//! *Threads* that were woken are counted until they arrive (`waking`), and while one is on its way, a push wakes nobody
//! unless the line grows long: a burst of adds costs one wake-up, not one each, and workers that are not needed stay asleep.
//! A woken thread always arrives; it is inside our `get`. A *task* may be slow to be polled, so it is not counted, and
//! the next push wakes the next waiter.
//!
//! What stands in line is behind [`Line`]: first-in-first-out today; priorities or fairness between groups are another
//! implementation of its three methods.

use crate::key::slab::SlotRef;
use crate::sync::{AtomicUsize, Mutex, Ordering, sized};
use crate::wait::{Ticket, WaitList, Waiter, Wake};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::marker::PhantomData;

/// An order among ready keys. Plain data under the ready line's lock.
pub(crate) trait Line<T> {
    fn push(&mut self, item: T);
    fn pop(&mut self) -> Option<T>;
    fn len(&self) -> usize;
    /// Gives back memory that a burst left behind; `all`: everything that is not needed now.
    fn shrink(&mut self, all: bool);
}

/// First in, first out.
pub(crate) struct Fifo<T>(VecDeque<T>);

/// A line of this length is not worth shrinking.
const KEEP: usize = sized(4096, 2);

impl<T> Line<T> for Fifo<T> {
    #[inline]
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        let item = self.0.pop_front();
        if self.0.len() < self.0.capacity() / 8 {
            self.shrink(false);
        }
        item
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    fn shrink(&mut self, all: bool) {
        let keep = if all { 0 } else { KEEP.max(self.0.capacity() / 4) };
        if self.0.capacity() > keep {
            self.0.shrink_to(keep);
        }
    }
}

/// One more thread is woken for so many keys that those on their way have left in line: a thread that the system does not
/// let run must not hold up the others for ever.
const PER_WAKE: usize = sized(64, 1);

/// See the module's head.
pub(crate) struct Ready<K> {
    core: CachePadded<Mutex<Core<K, Fifo<SlotRef<K>>>>>,
    /// The line's length, written under the lock, read without: a hint for who spins, and a snapshot for `len`.
    len: CachePadded<AtomicUsize>,
}

struct Core<K, L: Line<SlotRef<K>>> {
    line: L,
    waiters: WaitList,
    /// Threads that were taken from the list and have not come to the lock since.
    waking: usize,
    /// Hand-outs so far.
    popped: u64,
    closed: bool,
    keys: PhantomData<fn(K)>,
}

/// What a getter gets.
pub(crate) enum Pop<T> {
    Item(T),
    Empty,
    /// Empty, and nobody can add any more.
    Closed,
}

/// What a getter that is willing to wait gets.
pub(crate) enum Wait<T> {
    Item(T),
    Closed,
    /// On the list. Sleep, then come back with the ticket.
    Sleep(Ticket),
    /// Was told to give up, and is off the list.
    GaveUp,
}

impl<K, L: Line<SlotRef<K>>> Core<K, L> {
    /// Whom to wake now (W2).
    #[inline]
    fn next_wake(&mut self) -> Option<Waiter> {
        if self.waiters.is_empty() || self.line.len() <= self.waking * PER_WAKE {
            return None;
        }
        let waiter = self.waiters.pop();
        if waiter.as_ref().is_some_and(Waiter::is_thread) {
            self.waking += 1;
        }
        waiter
    }
}

#[allow(clippy::needless_late_init, reason = "waiters must be dropped after the guard: a waker is user code")]
impl<K> Ready<K> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            core: CachePadded::new(Mutex::new(Core {
                line: Fifo(VecDeque::with_capacity(capacity)),
                waiters: WaitList::default(),
                waking: 0,
                popped: 0,
                closed: false,
                keys: PhantomData,
            })),
            len: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// To the end of the line. The caller holds the lock of the key's shard: nobody can see the key DIRTY before it stands
    /// in line, and so no second add can overtake this one (P4).
    #[inline]
    pub(crate) fn push(&self, slot: SlotRef<K>) -> Wake {
        let mut core = self.core.lock();
        core.line.push(slot);
        self.len.store(core.line.len(), Ordering::Relaxed);
        Wake::one(core.next_wake())
    }

    /// As [`push`](Self::push), for an adder that will call [`rouse`](Self::rouse) when it has pushed all.
    #[inline]
    pub(crate) fn push_quietly(&self, slot: SlotRef<K>) {
        let mut core = self.core.lock();
        core.line.push(slot);
        self.len.store(core.line.len(), Ordering::Relaxed);
    }

    /// Wakes whom the line as it is needs.
    pub(crate) fn rouse(&self) -> Wake {
        Wake::one(self.core.lock().next_wake())
    }

    /// Takes the first key, if there is one.
    #[inline]
    pub(crate) fn pop(&self) -> Pop<SlotRef<K>> {
        self.take(&mut self.core.lock())
    }

    /// Takes up to `max` keys more, in one go.
    pub(crate) fn pop_many(&self, max: usize, mut each: impl FnMut(SlotRef<K>)) {
        let core = &mut self.core.lock();
        for _ in 0..max {
            match self.take(core) {
                Pop::Item(slot) => each(slot),
                Pop::Empty | Pop::Closed => break,
            }
        }
    }

    #[inline]
    fn take<L: Line<SlotRef<K>>>(&self, core: &mut Core<K, L>) -> Pop<SlotRef<K>> {
        match core.line.pop() {
            Some(slot) => {
                self.len.store(core.line.len(), Ordering::Relaxed);
                core.popped += 1;
                // Under the lock: keys are taken in the order of the line also for those who watch the words.
                // SAFETY: it was in line until now, and what is no longer in line is held by us.
                unsafe { slot.get() }.state.get();
                Pop::Item(slot)
            }
            None if core.closed => Pop::Closed,
            None => Pop::Empty,
        }
    }

    /// Takes the first key, or goes on the list (W1).
    pub(crate) fn pop_or_wait(&self, waiter: Waiter) -> Wait<SlotRef<K>> {
        // A waker is user code also when it is dropped: arguments outlive the guard.
        let core = &mut self.core.lock();
        match self.take(core) {
            Pop::Item(slot) => Wait::Item(slot),
            Pop::Closed => Wait::Closed,
            Pop::Empty => Wait::Sleep(core.waiters.push(waiter)),
        }
    }

    /// Comes back to the line after a sleep, whoever ended it: takes a key, goes back on the list, or gives up.
    pub(crate) fn resume(&self, ticket: Ticket, waiter: Waiter, give_up: bool) -> (Wait<SlotRef<K>>, Wake) {
        let listed: Option<Waiter>; // declared before the guard, dropped after it
        let core = &mut self.core.lock();
        listed = core.waiters.remove(ticket);
        if listed.is_none() && waiter.is_thread() {
            core.waking -= 1; // arrived
        }
        let outcome = match self.take(core) {
            Pop::Item(slot) => Wait::Item(slot),
            Pop::Closed => Wait::Closed,
            Pop::Empty if give_up => Wait::GaveUp,
            Pop::Empty => {
                core.waiters.put_back(ticket, waiter);
                Wait::Sleep(ticket)
            }
        };
        // W2 after a hand-out, W3 after giving up; after neither is there anything in line.
        (outcome, Wake::one(core.next_wake()))
    }

    /// Leaves for good without looking at the line: a future that was dropped (W3).
    pub(crate) fn leave(&self, ticket: Ticket) -> Wake {
        let listed: Option<Waiter>; // declared before the guard, dropped after it
        let core = &mut self.core.lock();
        listed = core.waiters.remove(ticket);
        match listed {
            Some(_) => Wake::default(),
            None => Wake::one(core.next_wake()),
        }
    }

    /// No key will come but those that are dirty while processing. Returns all who wait, to be woken.
    pub(crate) fn close(&self) -> Vec<Waiter> {
        let core = &mut self.core.lock();
        core.closed = true;
        let waiters = core.waiters.take_all();
        core.waking += waiters.iter().filter(|waiter| waiter.is_thread()).count();
        waiters
    }

    /// A snapshot.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is concluded from it.
        self.len.load(Ordering::Relaxed)
    }

    /// Hand-outs so far, and waiters now.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let core = self.core.lock();
        (core.popped, core.waiters.len())
    }

    pub(crate) fn shrink(&self) {
        self.core.lock().line.shrink(true);
    }
}
