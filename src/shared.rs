//! What all handles of one queue share: the data under the lock, and every step that is made under it.
//!
//! ```text
//!            add                     get                      done
//!             │                       │                        │
//!             ▼                       ▼                        ▼
//!  ┌─ Core, under one lock ──────────────────────────────────────────────────────────┐
//!  │  table: key ─▶ slot (state word, key)      line: queued slots, in order          │
//!  │  wheel: deadlines of slots                 measures: times of slots              │
//!  │  waiters: getters that wait                owed: what is to be woken             │
//!  └─────────────────────────────────────────────────────────────────────────────────┘
//!                   │ the end of the critical section unlocks, and then wakes what is owed and frees memory
//!                   ▼
//! ```
//!
//! One file per kind of step: [`add`], [`get`], [`done`], [`delays`] (set, move, cancel, expire), [`failures`] (limiters),
//! [`drain`] (drain and idle waits), [`take_where`], [`shrink`]. [`section`] is the critical section itself.
//!
//! **One lock**, because it was measured (`BENCHMARKS.md`, "Designs") against a sharded table with one shared line: every key passes
//! the line twice, so such shards save the look-up at most, and each part of the finer design (a lock per shard, an atomic step per
//! transition, a fence against sleepers) costs as much as this lock does once. A critical section takes 5 to 15 ns as a rule. The price
//! is that adds of *different* keys do not run in parallel, which shows where dozens of cores only add.
//!
//! It also makes the contract simple: **the queue is linearizable**, each call takes effect at one moment while it holds the lock (P1,
//! P2, P4 follow from the sequential picture in [`state`](crate::key::state)), and what a thread did before a call is visible to every
//! thread whose call comes later. Calls that consist of several steps say so: `add_all`, `get_many`, `turn`, `take_delayed`,
//! `take_where` and the drains. `len` alone takes no lock, and publishes nothing.
//!
//! **No critical section is long**, whatever the number of keys: the wheel moves a hundred entries at a time, calls that visit many
//! keys visit some hundred at a time, the line grows by a block at a time, a large table by a few chains (a smaller one at once, in
//! half a millisecond), and memory is freed after the lock.
//!
//! **Hot calls** (`add`, `get`, `done`) return what fits in two registers, test one byte for all that few queues have
//! ([`Special`]) and one for all that is owed, and leave the rest to functions that are not inlined. A result of
//! several words that goes through memory is stored in pieces and loaded whole, and the processor waits for it: that was half of the
//! time of these calls.
//!
//! **Waiting**, by number:
//!
//! * **W1** (I6) A getter sleeps only after it was put on the list in the same critical section in which it found the line empty.
//! * **W2** Whenever the lock is free, the line is not empty and a getter is on the list, another getter has been woken and has not
//!   arrived yet. So a push wakes one getter, and a getter that arrives wakes the next while keys are queued.
//! * **W3** A getter that was woken and leaves without a key (time-out, dropped future) wakes the next in its place.
//! * **W4** Under the lock no thread or task is woken, no waker cloned or dropped, no key dropped, no observer called (P17). `Eq` and
//!   `Borrow` of keys and, in `take_delayed`, `take_where` and `processing_keys`, `K::clone` are the foreign code that runs there.
//!
//! Threads that were woken are counted until they arrive (`waking`). While one is on its way, a push wakes no other thread, unless
//! the line grows long or the woken thread is overdue: a burst of adds costs one wake-up, not one each, and workers that are not
//! needed stay asleep. A woken thread always arrives, as it is inside our `get`; but it may have to wait for a core, or run a signal
//! handler. So a push that comes [`OVERDUE`](crate::sync::OVERDUE) after the last wake-up wakes the next getter. A *task* may be
//! polled late, so it is not counted, and the next push wakes the next waiter.

mod add;
mod delays;
mod dirty_waiters;
mod done;
mod drain;
mod failures;
mod get;
mod measure;
mod put_back;
mod section;
mod shrink;
mod shut_down_waiters;
mod take_where;

pub(crate) use add::Wakeups;
pub(crate) use dirty_waiters::DirtyTicket;
pub(crate) use drain::{WaitGoal, WaitOutcome};
pub(crate) use failures::{Failures, Limiter};
pub(crate) use get::Wait;

use crate::key::slab::SlotRef;
use crate::key::table::{self, Table};
use crate::line::Fifo;
use crate::observe::Observer;
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, hasher, model_const, now};
use crate::time::clock::Clock;
use crate::time::driver::{Driver, State};
use crate::time::wheel::Wheel;
use crate::wait::{WaitList, WakeList};
use crate::{DelayedAdd, OnPanic};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use dirty_waiters::DirtyWaiters;
use measure::Measures;
use section::Special;
use std::hash::Hash;
use std::time::Instant;

/// What all handles of one queue share.
pub(crate) struct Shared<K> {
    pub(crate) name: Box<str>,
    pub(crate) clock: Clock,
    driver: Driver,
    delayed_add: DelayedAdd,
    pub(crate) on_panic: Option<OnPanic>,
    limiter: Limiter<K>,
    /// The queue measures.
    measured: bool,
    observer: Option<Box<dyn Observer>>,
    /// Starts the driver thread. A pointer, made where `K` is known to be `Send` and `Sync`.
    start: fn(&Arc<Self>) -> std::io::Result<()>,
    hasher: RandomState,
    /// [`OBSERVED`] and [`NO_DRIVER`], for calls that do not hold the lock.
    extras: AtomicU8,
    core: CachePadded<Mutex<Core<K>>>,
    /// The line's length. Written under the lock, and read without it by `len` and by getters that spin.
    len: CachePadded<AtomicUsize>,
    /// Where the table's buckets are, and how many. Written and read in the same way, by `add_with`; may be out of date.
    buckets: CachePadded<(AtomicUsize, AtomicUsize)>,
}

/// The queue has an observer.
const OBSERVED: u8 = 1;
/// The next call has to start the driver thread. A hint, written under the lock together with the driver's state.
const NO_DRIVER: u8 = 1 << 1;

/// What the lock guards.
struct Core<K> {
    /// What few queues have: a hot call tests it once.
    special: Special,
    /// The end of the critical section has deferred work: to wake what is in `owed`, or to free memory.
    owes: bool,
    owed: WakeList,
    table: Table<K>,
    line: Fifo<SlotRef<K>>,
    /// The deadlines of delayed keys. `None`: there was no delay so far.
    wheel: Option<Box<Wheel>>,
    /// Keys in the wheel.
    delayed: usize,
    /// Keys whose failures the queue counts.
    failing: usize,
    /// The latest time that a call has read from the clock. Never goes back.
    time: u64,
    driver: State,
    /// Getters that wait.
    waiters: WaitList,
    /// The number of threads that were taken off the list to be woken, and have not taken the lock since.
    waking: usize,
    /// When the last of them was woken.
    woken_at: Instant,
    /// The number of keys that were pushed and have woken no getter yet: the call that pushes them wakes getters at its end.
    unwoken: usize,
    /// Keys that are processing.
    processing: usize,
    /// The value of `counts.handed_out` when a getter was last about to park.
    handed_out_at_park: u64,
    /// Threads and tasks in a drain or in an idle wait.
    drainers: WaitList,
    /// The number of plain shut-downs: each releases the drains that wait.
    released: u64,
    /// Tasks that wait for the shut-down to begin.
    shut_down_waiters: WaitList,
    /// Tasks that wait until a key that is processing becomes dirty.
    dirty_waiters: DirtyWaiters,
    /// `None`: the queue does not measure.
    measures: Option<Box<Measures>>,
    counts: Counts,
}

/// The number of events so far, for [`Stats`](crate::Stats).
#[derive(Default)]
struct Counts {
    pushed: u64,
    coalesced: u64,
    deferred: u64,
    rejected: u64,
    handed_out: u64,
    delays: u64,
    expired: u64,
    retries: u64,
    failures: u64,
    given_up: u64,
    panics: u64,
    caught_panics: u64,
    driver_failures: u64,
    taken: u64,
}

/// The settings of a new queue.
pub(crate) struct Settings {
    pub(crate) name: Box<str>,
    pub(crate) capacity: usize,
    pub(crate) clock: Clock,
    pub(crate) driver: Driver,
    pub(crate) delayed_add: DelayedAdd,
    pub(crate) on_panic: Option<OnPanic>,
    pub(crate) measure: bool,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

/// The number of keys that one critical section visits, in calls that visit many: some ten microseconds.
const STEP: usize = model_const(256, 2);

impl<K> Core<K> {
    /// Adds are refused.
    #[inline]
    fn is_shutting_down(&self) -> bool {
        self.special.has(Special::SHUT_DOWN)
    }

    /// Refuses adds from here on (I7). Owes a wake-up to all getters, to the driver, and to the tasks that wait for the shut-down.
    fn begin_shut_down(&mut self) {
        self.special.set(Special::SHUT_DOWN);
        self.owe_all_getters();
        let shut_down_waiters = self.shut_down_waiters.take_all();
        self.owe(shut_down_waiters);
        self.driver.wake().into_iter().for_each(|driver| self.owe_one(driver));
        // Delays no longer count for an idle wait, so it may be over.
        self.owe_drainers();
    }

    fn is_drained(&self) -> bool {
        self.line.len() == 0 && self.processing == 0
    }

    /// If no key is queued or processing, owes a wake-up to all drains and idle waits.
    #[inline]
    fn owe_drainers(&mut self) {
        if !self.drainers.is_empty() {
            self.owe_drainers_if_drained();
        }
    }

    #[cold]
    fn owe_drainers_if_drained(&mut self) {
        if self.is_drained() {
            let drainers = self.drainers.take_all();
            self.owe(drainers);
        }
    }
}

impl<K: Hash + Eq> Shared<K> {
    pub(crate) fn new(settings: Settings, limiter: Limiter<K>, start: fn(&Arc<Self>) -> std::io::Result<()>) -> Self {
        let Settings { name, capacity, clock, driver, delayed_add, on_panic, measure, observer } = settings;
        let measured_for_observer = observer.is_some();
        let measured = measure || measured_for_observer;
        if measured {
            clock.calibrate();
        }
        let measures = measured.then(|| Box::new(Measures::new(clock.clone())));
        Self {
            name,
            clock,
            driver,
            delayed_add,
            on_panic,
            limiter,
            measured,
            observer,
            start,
            hasher: hasher(),
            extras: AtomicU8::new(if measured_for_observer { OBSERVED } else { 0 }),
            core: CachePadded::new(Mutex::new(Core {
                special: if measured { Special::MEASURED } else { Special::NONE },
                owes: false,
                owed: WakeList::default(),
                table: Table::new(capacity, measured),
                line: Fifo::with_capacity(capacity),
                wheel: None,
                delayed: 0,
                failing: 0,
                time: 0,
                driver: State::Absent,
                waiters: WaitList::default(),
                waking: 0,
                unwoken: 0,
                woken_at: now(),
                processing: 0,
                handed_out_at_park: 0,
                drainers: WaitList::default(),
                released: 0,
                shut_down_waiters: WaitList::default(),
                dirty_waiters: DirtyWaiters::default(),
                measures,
                counts: Counts::default(),
            })),
            len: CachePadded::new(AtomicUsize::new(0)),
            buckets: CachePadded::new((AtomicUsize::new(0), AtomicUsize::new(0))),
        }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> table::Hash {
        table::Hash(self.hasher.hash_one(key) as u32)
    }
}

impl<K> Shared<K> {
    /// Whether a call has more to do after the lock: there is an observer, or the driver thread has to be started.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.extras.load(Ordering::Relaxed) != 0 // Relaxed: see `start_driver`
    }

    /// Calls the observer, if there is one. Not under the lock (P17).
    #[inline]
    pub(crate) fn tell(&self, of: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer {
            of(&**observer);
        }
    }

    /// Counts panics of foreign code that were caught.
    pub(crate) fn note_caught(&self, panics: usize) {
        if panics > 0 {
            self.core.lock().counts.caught_panics += panics as u64;
        }
    }

    /// There is an observer.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// Refuses adds from here on; a getter that finds no queued key learns that the queue is shut down (P6, I7). Releases drains (P7).
    pub(crate) fn shut_down(&self) {
        let mut section = self.enter();
        let core = &mut *section;
        core.released += 1;
        let drainers = core.drainers.take_all();
        core.begin_shut_down();
        core.owe(drainers);
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.core.lock().is_shutting_down()
    }

    /// The line's length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: no conclusion about other data follows from it. A getter that spins takes the lock next.
        self.len.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use crate::sync::{OVERDUE, Parker};
    use crate::wait::Waiter;

    /// Two getters are parked. The first is woken and does not run, so the next add, some time later, wakes the second.
    #[test]
    fn a_push_passes_over_an_overdue_getter() {
        let queue = WorkQueue::new();
        let parkers = [Parker::new(), Parker::new()];
        for parker in &parkers {
            let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker()));
            assert!(matches!(wait, Wait::Sleep(_)));
        }
        let parked = || queue.shared.core.lock().waiters.len();
        queue.add(1);
        assert_eq!(parked(), 1);
        while queue.shared.core.lock().woken_at.elapsed() < OVERDUE {}
        queue.add(2);
        assert_eq!(parked(), 0);
    }
}
