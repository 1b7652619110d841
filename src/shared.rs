//! The one lock, what it guards, and every step that is made under it.
//!
//! ```text
//!            add                     get                      done
//!             │                       │                        │
//!             ▼                       ▼                        ▼
//!  ┌─ Core, under one lock ──────────────────────────────────────────────────────────┐
//!  │  table: key ─▶ slot (state word, key)      line: slots in order     waiters      │
//!  │  wheel: deadlines of slots          measures: times of slots                     │
//!  └─────────────────────────────────────────────────────────────────────────────────┘
//!                   │ what leaves the lock as a value: wake-ups, keys to drop
//!                   ▼
//! ```
//!
//! Why one lock, when one could shard the table and make the line lock-free? It was measured (`BENCHMARKS.md`, "Designs"):
//! the line is one place that every key passes twice, so the most that shards save is the look-up; and each of the parts that a
//! finer design adds — a lock per shard, an atomic step per transition, a fence against sleepers — costs as much as this
//! lock does once. What makes a critical section cheap is that it is short: 5 to 15 ns here, as a rule. The price is that adds of
//! *different* keys do not run in parallel, which shows where dozens of cores do nothing but add.
//!
//! It also makes the contract easy to state: **the queue is linearizable**, each call takes effect at one moment while it
//! holds the lock (P1, P2, P4 follow from the sequential picture in [`state`](crate::key::state)), and whatever a thread did
//! before a call is visible to every thread whose call comes later. Calls that are several steps say so: `add_all`, `get_many`,
//! `turn`, `take_delayed` and the drains. `len` alone takes no lock, and publishes nothing.
//!
//! No critical section is long, whatever the number of keys: the wheel turns a hundred steps at a time, calls that go through many keys
//! do so some hundred at a time, the line grows by a block at a time, a large table by a few chains (a smaller one at once, in half a
//! millisecond), and memory is freed after the lock.
//!
//! **Waiting**, by number:
//!
//! * **W1** (I6) A getter sleeps only after it was put on the list in the same critical section in which it found the line
//!   empty.
//! * **W2** Whenever the lock is free, the line is not empty and somebody is on the list, then somebody else has been woken
//!   and has not arrived yet. So: a push wakes one, and who arrives wakes the next while keys are left.
//! * **W3** Who was woken and leaves without a key (time-out, dropped future) wakes the next in its place.
//! * **W4** No wake-up is paid, no waker cloned or dropped, no key dropped, no observer told under the lock (P17). `Eq` and `Borrow`
//!   of keys and, in `take_delayed`, `take_where` and `in_work`, `K::clone` are the foreign code that runs there.
//!
//! Threads that were woken are counted until they arrive (`waking`). While one is on its way, a push wakes no other thread, unless
//! the line grows long or the woken thread is overdue: a burst of adds costs one wake-up, not one each, and workers that are not
//! needed stay asleep. A woken thread always arrives, as it is inside our `get`; but the system may let it wait for a core, or it
//! runs a signal handler. So a push that comes [`OVERDUE`](crate::sync::OVERDUE) after the last wake-up wakes the next getter.
//! A *task* may be polled late, so it is not counted, and the next push wakes the next waiter.

mod delays;
mod ending;
mod failures;
mod measure;
mod put_back;
mod quiet;
mod take_where;
mod watch;

pub(crate) use failures::Limiter;
pub(crate) use quiet::{End, Goal};
pub(crate) use watch::Watch;

use crate::key::slab::{Retired, SlotRef};
use crate::key::state::{OnAdd, OnDone};
use crate::key::table::{self, Table};
use crate::line::{Block, Fifo};
use crate::panics::{contained, drop_each};
use crate::sync::{
    Arc, AtomicU8, AtomicUsize, Mutex, Ordering, Parker, give_way, hasher, now, overdue, sized, spin_while,
    with_parker, yield_while,
};
use crate::time::clock::Clock;
use crate::time::driver::{ClockSubscription, Driver, State};
use crate::time::wheel::{self, Wheel};
use crate::wait::{Ticket, WaitList, Waiter, Wake, Wakes};
use crate::{Added, DelayedAdd, Observer, OnPanic};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use delays::Delivered;
use measure::{Measures, UNREAD, known};
use std::hash::Hash;
use std::time::{Duration, Instant};
use watch::Watchers;

/// What all handles of one queue share.
pub(crate) struct Shared<K> {
    pub(crate) name: Box<str>,
    pub(crate) clock: Clock,
    driver: Driver,
    delayed_add: DelayedAdd,
    pub(crate) on_panic: Option<OnPanic>,
    limiter: Limiter<K>,
    /// Times are kept.
    measured: bool,
    observer: Option<Box<dyn Observer>>,
    /// Starts the driver thread. Here, where it knows that `K` may go to other threads.
    start: fn(&Arc<Self>) -> std::io::Result<()>,
    hasher: RandomState,
    /// [`OBSERVED`] and [`NO_DRIVER`]: what few queues have, so that all others look at one byte after each call.
    extras: AtomicU8,
    core: CachePadded<Mutex<Core<K>>>,
    /// The line's length, written under the lock, read without: for `len`, and for who spins.
    len: CachePadded<AtomicUsize>,
    /// Where the table's buckets are and how many, likewise: a hint for `add_with`, that may be out of date.
    buckets: CachePadded<(AtomicUsize, AtomicUsize)>,
}

/// The queue has an observer.
const OBSERVED: u8 = 1;
/// The driver thread could not be started: a hint for calls that pass by. Written under the lock, with the driver's state.
const NO_DRIVER: u8 = 1 << 1;

/// What the lock guards.
struct Core<K> {
    table: Table<K>,
    line: Fifo<SlotRef<K>>,
    /// Deadlines of delayed keys. `None`: none so far.
    wheel: Option<Box<Wheel>>,
    /// Keys in the wheel.
    delayed: usize,
    /// Keys that are known to fail.
    failing: usize,
    /// The latest time that anybody has seen: the clock's, made to never go back.
    time: u64,
    driver: State,
    /// Getters that sleep.
    waiters: WaitList,
    /// Threads that were taken from the list and have not come to the lock since.
    waking: usize,
    /// When the last of them was.
    woken_at: Instant,
    /// Keys that are held.
    processing: usize,
    /// What `counts.handed_out` was when a getter last gave up looking and went to sleep.
    handed_out_at_sleep: u64,
    /// Adds are refused.
    shutting_down: bool,
    /// Who waits until nothing is in line and nothing held, or nothing delayed either.
    drainers: WaitList,
    /// How often a plain shut-down has released drainers.
    released: u64,
    /// Tasks that wait for the shut-down to begin.
    enders: WaitList,
    /// Who waits for a key to be added that is held.
    watchers: Watchers,
    /// Times that are kept, if they are.
    measures: Option<Box<Measures>>,
    counts: Counts,
}

/// What happened so far.
#[derive(Default)]
struct Counts {
    queued: u64,
    coalesced: u64,
    deferred: u64,
    rejected: u64,
    handed_out: u64,
    delays: u64,
    expired: u64,
    retries: u64,
    failures: u64,
    dropped: u64,
    panics: u64,
    caught_panics: u64,
    driver_failures: u64,
    taken: u64,
}

/// How a queue is made.
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

/// One more thread is woken for so many keys that those on their way have left in line: a thread that the system does not
/// let run must not hold up the others.
const PER_WAKE: usize = sized(64, 2);

/// How many keys one critical section goes through, of calls that go through many: some ten microseconds.
const STEP: usize = sized(256, 2);

/// With more than so many keys in line, the table is larger than the nearest cache, ...
const FAR: usize = 1024;
/// ... and the bucket that the `done` of a key will need is fetched when the key is this far from the front: it makes filling
/// and draining 300k keys a quarter faster.
const AHEAD: usize = 6;

/// A key that was handed out. Dropping it is `done`, so that whatever panics from here on (a waker is user code), the key is
/// not stuck (P13).
pub(crate) struct Held<'q, K> {
    shared: &'q Shared<K>,
    slot: SlotRef<K>,
    /// How long it waited, in nanoseconds, or `UNKNOWN`.
    waited: u64,
}

impl<K> Held<'_, K> {
    /// How long it waited, if that is known.
    pub(crate) fn waited(&self) -> Option<Duration> {
        known(self.waited)
    }

    /// For who will say `done` in its place.
    #[inline]
    pub(crate) fn into_slot(self) -> SlotRef<K> {
        std::mem::ManuallyDrop::new(self).slot
    }
}

impl<K> Drop for Held<'_, K> {
    fn drop(&mut self) {
        // SAFETY: `take` made this for who took the key out of the line, and `slot` is not used after this.
        unsafe { self.shared.done_in_panic(self.slot) }
    }
}

/// What `done` leaves to do without the lock.
#[must_use = "wake-ups are owed"]
struct Done<K> {
    wake: Wake,
    key: Option<K>,
    /// How long the key was worked on, in nanoseconds, or `UNKNOWN`.
    worked: u64,
    /// There is memory to be freed.
    has_garbage: bool,
}

/// Memory that a critical section has let go of. It is freed after the lock, as that may take long: freeing the last block before a
/// gap gives all of the gap back to the system, which takes a millisecond for some twenty megabytes.
type Garbage<K> = Option<Box<Memory<K>>>;

#[allow(clippy::vec_box, reason = "blocks were boxes before")]
struct Memory<K> {
    _chunks: Vec<Retired<K>>,
    _line: Vec<Box<Block<SlotRef<K>>>>,
    _wheel: Vec<Box<wheel::Block>>,
    _buckets: Option<table::Buckets<K>>,
}

impl<K> Done<K> {
    #[inline]
    fn nothing() -> Self {
        Self { wake: Wake::default(), key: None, worked: 0, has_garbage: false }
    }

    /// Wakers before the observer and the key's drop: a panic must not lose a wake-up.
    #[inline]
    fn settle(self, shared: &Shared<K>) {
        let Self { wake, key, worked, has_garbage } = self;
        shared.wake(wake);
        shared.tell(|observer| observer.done(known(worked)));
        if has_garbage {
            shared.free_garbage();
        }
        drop(key);
    }
}

/// What a getter finds.
pub(crate) enum Pop<'q, K> {
    Item(Held<'q, K>),
    Empty,
    /// Empty, and adds are refused.
    ShutDown,
}

/// What a getter that would wait finds.
pub(crate) enum Wait<'q, K> {
    Item(Held<'q, K>),
    ShutDown,
    /// It is on the list: let it sleep, and come back with the ticket.
    Sleep(Ticket),
    /// It was told to give up, and is off the list.
    GaveUp,
}

impl<K> Core<K> {
    /// Refuses an add.
    #[inline]
    fn reject(&mut self) -> Added {
        self.counts.rejected += 1;
        Added::Rejected
    }

    /// Whom to wake now (W2).
    #[inline]
    fn next_wake(&mut self) -> Wake {
        Wake::one(self.next_waiter())
    }

    #[inline]
    fn next_waiter(&mut self) -> Option<Waiter> {
        if self.waiters.is_empty() { None } else { self.wake_next() }
    }

    #[cold]
    fn wake_next(&mut self) -> Option<Waiter> {
        let queued = self.line.len();
        if queued == 0 || queued <= self.waking * PER_WAKE && !overdue(self.woken_at) {
            return None;
        }
        let waiter = self.waiters.pop();
        if waiter.as_ref().is_some_and(Waiter::is_thread) {
            self.waking += 1;
            self.woken_at = now();
        }
        waiter
    }

    /// All getters, to be woken.
    fn take_waiters(&mut self) -> Wakes {
        self.waking += self.waiters.threads();
        self.waiters.take_all()
    }

    /// Whom to wake for so many keys that were pushed quietly: as many tasks as they would have woken one by one, and as many
    /// threads as the line is long enough for.
    fn next_waiters(&mut self, pushed: usize) -> Wakes {
        std::iter::from_fn(|| self.next_waiter()).take(pushed).collect()
    }

    /// Keys come faster than getters go to sleep. Then a getter that finds the line empty first yields: if it shares a CPU with
    /// the producer, sleeping for every few keys costs more than all the rest (335 ns a key, and 33 if it yields). Only then:
    /// the scheduler lets a thread that has yielded wait longer at its next wake-up (35 µs instead of 4).
    fn is_busy(&self) -> bool {
        self.counts.handed_out - self.handed_out_at_sleep >= 8
    }

    /// Chunks of keys, or blocks of the line, are to be freed after the lock.
    #[inline]
    fn has_garbage(&mut self) -> bool {
        !self.table.retired().is_empty() || !self.line.retired().is_empty()
    }

    /// All that is to be freed after the lock, if there is something. What stays is freed by a later call.
    #[inline]
    fn collect(&mut self) -> Garbage<K> {
        let wheel = self.wheel.as_ref().is_some_and(|wheel| wheel.has_retired());
        if wheel || self.has_garbage() { self.take_garbage() } else { None }
    }

    #[cold]
    fn take_garbage(&mut self) -> Garbage<K> {
        let (chunks, line) = (std::mem::take(self.table.retired()), std::mem::take(self.line.retired()));
        let wheel = self.wheel.as_mut().map(|wheel| wheel.retired()).unwrap_or_default();
        let buckets = self.table.retired_buckets();
        let none = chunks.is_empty() && line.is_empty() && wheel.is_empty() && buckets.is_none();
        (!none).then(|| Box::new(Memory { _chunks: chunks, _line: line, _wheel: wheel, _buckets: buckets }))
    }

    fn queued(&self) -> usize {
        self.line.len()
    }

    fn is_drained(&self) -> bool {
        self.line.len() == 0 && self.processing == 0
    }

    /// As [`next_drainers`](Self::next_drainers), beside a wake-up that is owed already.
    #[cold]
    fn add_drainers(&mut self, wake: &mut Wake) {
        *wake = std::mem::take(wake).and(self.next_drainers().into());
    }

    /// What is owed to who waits for the end, if this is it.
    #[inline]
    fn next_drainers(&mut self) -> Wakes {
        if !self.drainers.is_empty() && self.is_drained() { self.drainers.take_all() } else { Wakes::default() }
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
                table: Table::new(capacity, measured),
                line: Fifo::with_capacity(capacity),
                wheel: None,
                delayed: 0,
                failing: 0,
                time: 0,
                driver: State::Absent,
                waiters: WaitList::default(),
                waking: 0,
                woken_at: now(),
                processing: 0,
                handed_out_at_sleep: 0,
                shutting_down: false,
                drainers: WaitList::default(),
                released: 0,
                enders: WaitList::default(),
                watchers: Watchers::default(),
                measures,
                counts: Counts::default(),
            })),
            len: CachePadded::new(AtomicUsize::new(0)),
            buckets: CachePadded::new((AtomicUsize::new(0), AtomicUsize::new(0))),
        }
    }

    /// `add`. `quietly`: whoever calls will tell the observer, and [`rouse`](Self::rouse) later.
    #[inline]
    pub(crate) fn add(&self, key: K, quietly: bool) -> Added {
        let hash = self.hash(&key);
        let (added, wake) = {
            let core = &mut *self.core.lock();
            if core.shutting_down {
                (core.reject(), Wake::default())
            } else {
                match core.table.find(&key, hash) {
                    Some(slot) => self.add_slot(core, slot, UNREAD, quietly),
                    None => (Added::Queued, self.add_new(core, key, hash, UNREAD, quietly)),
                }
            }
        };
        self.wake(wake);
        added
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> table::Hash {
        table::Hash(self.hasher.hash_one(key) as u32)
    }
}

impl<K> Shared<K> {
    /// There is an observer, or no driver thread could be started: [`after_add`](Self::after_add) and
    /// [`after_hand_out`](Self::after_hand_out) have something to do.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.extras.load(Ordering::Relaxed) != 0 // Relaxed: see `start_driver`
    }

    /// What follows an add.
    #[cold]
    pub(crate) fn after_add(this: &Arc<Self>, added: Added) {
        Self::ensure_driver(this);
        this.tell(|observer| observer.added(added));
    }

    /// What follows a hand-out. If the observer panics, the panic is caught and counted: the key must reach its holder (P2).
    #[cold]
    pub(crate) fn after_hand_out(this: &Arc<Self>, waited: Option<Duration>) {
        Self::ensure_driver(this);
        this.tell_handed_out(waited);
    }

    /// Calls the observer, if there is one. Not under the lock (P17).
    #[inline]
    pub(crate) fn tell(&self, of: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer {
            of(&**observer);
        }
    }

    /// Tells the observer of a hand-out, and catches its panic.
    pub(crate) fn tell_handed_out(&self, waited: Option<Duration>) {
        if contained(|| self.tell(|observer| observer.handed_out(waited))).is_none() {
            self.note_caught(1);
        }
    }

    /// Wakes, after the lock.
    #[inline]
    pub(crate) fn wake(&self, wake: Wake) {
        if wake.is_none() {
            std::mem::forget(wake); // no call of its drop, which is not inlined
        } else {
            self.wake_now(wake);
        }
    }

    #[cold]
    fn wake_now(&self, wake: Wake) {
        self.note_caught(wake.wake());
    }

    /// Drops a waiter that need not be woken, after the lock.
    #[inline]
    fn discard(&self, waiter: Option<Waiter>) {
        if let Some(waiter @ Waiter::Task(_)) = waiter {
            self.note_caught(drop_each([waiter]));
        }
    }

    /// Frees what critical sections have let go of.
    #[cold]
    fn free_garbage(&self) {
        let _garbage = self.core.lock().take_garbage();
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

    /// Somebody who held a key has panicked.
    #[cold]
    pub(crate) fn note_panic(&self) {
        self.core.lock().counts.panics += 1;
        self.tell(|observer| observer.panicked());
    }

    /// The thread that was handed this key was already unwinding.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    #[cold]
    pub(crate) unsafe fn note_unwinding(&self, slot: SlotRef<K>) {
        let _lock = self.core.lock();
        // SAFETY: held, says the caller (S2), and we hold the lock.
        unsafe { slot.get() }.state.unwind();
    }

    /// `add` of a key that is not in the table. **Linearization point of such an add**, as the next of others.
    #[inline]
    fn add_new(&self, core: &mut Core<K>, key: K, hash: table::Hash, now: u64, quietly: bool) -> Wake {
        let slot = core.table.insert(key, hash);
        core.counts.queued += 1;
        core.note_added(slot, now);
        // SAFETY: taken (S2), and we hold the lock.
        unsafe { slot.get() }.state.add_new();
        self.push(core, slot, quietly)
    }

    /// `add` of a key that is in the table. Also quietly, wakes who watches it.
    #[inline]
    fn add_slot(&self, core: &mut Core<K>, slot: SlotRef<K>, now: u64, quietly: bool) -> (Added, Wake) {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let state = &unsafe { slot.get() }.state;
        if state.is_delayed() {
            match self.delayed_add {
                DelayedAdd::Independent => {}
                DelayedAdd::Promote => _ = core.undelay(slot),
                DelayedAdd::Strict => {
                    let _waits = state.wait();
                    core.counts.coalesced += 1;
                    return (Added::Coalesced, Wake::default());
                }
            }
        }
        match state.add() {
            OnAdd::Push => {
                core.counts.queued += 1;
                core.note_added(slot, now);
                (Added::Queued, self.push(core, slot, quietly))
            }
            OnAdd::Coalesce => {
                core.counts.coalesced += 1;
                (Added::Coalesced, Wake::default())
            }
            OnAdd::Defer => {
                core.counts.deferred += 1;
                core.note_added(slot, now);
                (Added::Deferred, core.next_watchers(slot))
            }
        }
    }

    #[inline]
    fn push(&self, core: &mut Core<K>, slot: SlotRef<K>, quietly: bool) -> Wake {
        core.line.push(slot);
        self.len.store(core.line.len(), Ordering::Relaxed); // Relaxed: see `len`
        if quietly { Wake::default() } else { core.next_wake() }
    }

    /// Takes the first key out of the line. **Linearization point of a get.**
    #[inline]
    fn take<'q>(&'q self, core: &mut Core<K>) -> Pop<'q, K> {
        match core.line.pop() {
            Some(slot) => {
                self.len.store(core.line.len(), Ordering::Relaxed); // Relaxed: see `len`
                core.counts.handed_out += 1;
                core.processing += 1;
                if core.line.len() > FAR {
                    core.line.peek(AHEAD).into_iter().for_each(|slot| core.table.prefetch(slot));
                }
                // SAFETY: it was in line (S2), and we hold the lock.
                unsafe { slot.get() }.state.get();
                let waited = core.note_taken(slot);
                Pop::Item(Held { shared: self, slot, waited })
            }
            None if core.shutting_down => Pop::ShutDown,
            None => Pop::Empty,
        }
    }

    /// Pays the wake-ups that so many quiet pushes owe.
    pub(crate) fn rouse(&self, pushed: usize) {
        let waiters = self.core.lock().next_waiters(pushed);
        self.wake(waiters.into());
    }

    /// Takes a key if there is one.
    #[inline]
    pub(crate) fn pop(&self) -> Pop<'_, K> {
        self.take(&mut self.core.lock())
    }

    /// Takes up to `max` keys, as many as are queued, some hundred at a time.
    pub(crate) fn pop_many<'q>(&'q self, max: usize, mut each: impl FnMut(Held<'q, K>)) {
        let mut left = max;
        loop {
            let step = left.min(STEP);
            left -= step;
            {
                let core = &mut *self.core.lock();
                for _ in 0..step {
                    let Pop::Item(held) = self.take(core) else { return };
                    each(held);
                }
            }
            if left == 0 {
                return;
            }
            give_way();
        }
    }

    /// Takes a key, sleeping for it until the deadline.
    #[inline]
    pub(crate) fn get(this: &Arc<Self>, deadline: Option<Instant>) -> Wait<'_, K> {
        match this.pop() {
            Pop::Item(held) => Wait::Item(held),
            Pop::ShutDown => Wait::ShutDown,
            Pop::Empty => {
                Self::ensure_driver(this);
                this.get_parked(deadline)
            }
        }
    }

    #[cold]
    fn get_parked(&self, deadline: Option<Instant>) -> Wait<'_, K> {
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            spin_while(|| self.len() == 0);
            if self.core.lock().is_busy() {
                yield_while(|| self.len() == 0);
            }
        }
        with_parker(|parker| {
            let mut wait = self.pop_or_wait(Waiter::Thread(parker.unparker()));
            while let Wait::Sleep(ticket) = wait {
                self.park(parker, deadline);
                let late = deadline.is_some_and(|deadline| deadline <= Instant::now());
                wait = self.resume(ticket, Waiter::Thread(parker.unparker()), late);
            }
            wait
        })
    }

    /// Parks a getter that is on the list. If there is no driver thread, the getter delivers what is due, and parks until the
    /// earliest deadline at most.
    fn park(&self, parker: &Parker, deadline: Option<Instant>) {
        if !self.is_driver_failed() {
            return parker.park(deadline);
        }
        let _subscription = ClockSubscription::new(&self.clock, parker);
        match self.deliver_due() {
            Delivered::Nothing { until } => parker.park(deadline.into_iter().chain(until).min()),
            // Wakers and observers have run on this thread, and may have parked it: then they have used up its wake-up.
            Delivered::Some => {}
        }
    }

    /// Takes a key, or goes on the list (W1).
    pub(crate) fn pop_or_wait(&self, waiter: Waiter) -> Wait<'_, K> {
        let mut waiter = Some(waiter);
        let wait = {
            let core = &mut *self.core.lock();
            match self.take(core) {
                Pop::Item(held) => Wait::Item(held),
                Pop::ShutDown => Wait::ShutDown,
                Pop::Empty => {
                    core.handed_out_at_sleep = core.counts.handed_out;
                    core.note_calm();
                    Wait::Sleep(core.waiters.push(waiter.take().expect("not used yet")))
                }
            }
        };
        self.discard(waiter); // after the lock (W4)
        wait
    }

    /// Comes back after a sleep, whoever ended it: takes a key, goes back on the list, or gives up. Also pays the wake-up that
    /// is owed then.
    pub(crate) fn resume(&self, ticket: Ticket, waiter: Waiter, give_up: bool) -> Wait<'_, K> {
        let mut waiter = Some(waiter);
        let (wait, wake, listed) = {
            let core = &mut *self.core.lock();
            let listed = core.waiters.remove(ticket);
            if listed.is_none() && waiter.as_ref().is_some_and(Waiter::is_thread) {
                core.waking -= 1; // arrived
            }
            let wait = match self.take(core) {
                Pop::Item(held) => Wait::Item(held),
                Pop::ShutDown => Wait::ShutDown,
                Pop::Empty if give_up => Wait::GaveUp,
                Pop::Empty => {
                    core.waiters.put_back(ticket, waiter.take().expect("not used yet"));
                    Wait::Sleep(ticket)
                }
            };
            // W2 if keys are left. (W3 is met by looking at the line once more before giving up.)
            (wait, core.next_wake(), listed)
        };
        // After the lock (W4).
        self.wake(wake);
        self.discard(listed);
        self.discard(waiter);
        wait
    }

    /// Leaves for good without taking a key: a future that was dropped (W3).
    pub(crate) fn leave(&self, ticket: Ticket) {
        let (wake, listed) = {
            let core = &mut *self.core.lock();
            let listed = core.waiters.remove(ticket);
            (if listed.is_none() { core.next_wake() } else { Wake::default() }, listed)
        };
        self.wake(wake);
        self.discard(listed);
    }

    /// `done`.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    #[inline]
    pub(crate) unsafe fn done(&self, slot: SlotRef<K>) {
        let mut done = Done::nothing();
        // SAFETY: as the caller's.
        unsafe { self.done_slot(&mut self.core.lock(), slot, UNREAD, &mut done) };
        done.settle(self);
    }

    /// `done` as a thread unwinds: a second panic, of a waker, of the observer or of the key's drop, would end the process. The key
    /// is done by then.
    ///
    /// # Safety
    /// As for [`done`](Self::done).
    #[cold]
    pub(crate) unsafe fn done_in_panic(&self, slot: SlotRef<K>) {
        // SAFETY: as the caller's.
        contained(|| unsafe { self.done(slot) });
    }

    /// The step of `done`. **Linearization point.** What it leaves to do is put into `done`: returned, it would be copied from one
    /// place on the stack to another, which costs as much as all the rest.
    ///
    /// # Safety
    /// As for [`done`](Self::done).
    #[inline]
    unsafe fn done_slot(&self, core: &mut Core<K>, slot: SlotRef<K>, now: u64, done: &mut Done<K>) {
        core.processing -= 1;
        done.worked = core.note_done(slot, now);
        // SAFETY: the caller holds the key (S2), and we hold the lock.
        match unsafe { slot.get() }.state.done() {
            OnDone::Push => done.wake = self.push(core, slot, false),
            OnDone::Keep => {}
            OnDone::Remove => {
                // SAFETY: the caller was its last holder.
                done.key = Some(unsafe { core.table.remove(slot) });
            }
        }
        done.has_garbage = core.has_garbage();
        if !core.drainers.is_empty() {
            core.add_drainers(&mut done.wake);
        }
    }

    /// Refuses adds from here on, and lets getters go when the line is empty (P6, I7). `release`: lets drainers go too.
    pub(crate) fn shut_down(&self, release: bool) {
        let (waiters, driver) = {
            let core = &mut *self.core.lock();
            core.shutting_down = true;
            let mut waiters = core.take_waiters();
            waiters.append(core.enders.take_all());
            core.released += u64::from(release);
            // Also who waits for the queue to be idle: need not wait for delays any more.
            waiters.append(if release { core.drainers.take_all() } else { core.next_drainers() });
            (waiters, core.driver.wake())
        };
        self.wake(driver);
        self.wake(waiters.into());
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.core.lock().shutting_down
    }

    /// The line's length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: nothing is concluded from it. Who spins takes the lock next.
        self.len.load(Ordering::Relaxed)
    }

    /// `shrink_to_fit`, in many short critical sections.
    pub(crate) fn shrink(&self) {
        if let Limiter::Asked(limiter) = &self.limiter {
            limiter.shrink_to_fit();
        }
        let _wheel = {
            let core = &mut *self.core.lock();
            core.line.shrink();
            core.waiters.shrink();
            if core.delayed == 0 { core.wheel.take() } else { None }
        };
        let (mut chunk, mut more) = (0, true);
        while more {
            let _garbage = {
                let core = &mut *self.core.lock();
                // The array of chunks gets shorter meanwhile, if its last chunk is freed.
                more = chunk < core.table.chunks();
                if more {
                    core.table.shrink_chunks(chunk..chunk + STEP);
                    chunk += STEP;
                } else {
                    more = core.table.shrink_buckets(2 * STEP);
                }
                core.take_garbage()
            };
            give_way();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use crate::sync::OVERDUE;

    /// Two getters are parked. The first is woken and does not run, so the next add, some time later, wakes the second.
    #[test]
    fn an_overdue_getter_keeps_no_key_from_another() {
        let queue = WorkQueue::new();
        let parkers = [Parker::new(), Parker::new()];
        for parker in &parkers {
            let wait = queue.shared.pop_or_wait(Waiter::Thread(parker.unparker()));
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
