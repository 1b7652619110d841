//! What all handles of one queue share, and the calls on it.
//!
//! ```text
//!  handles ──▶ Shared: settings, limiter, observer
//!                 └─ one lock ─▶ Core ┌ shard: keys, order, delays: `src/shard/`
//!                                     ├ getters: threads and tasks that wait for a key
//!                                     ├ life cycle: drains, idle waits, waits for the shut-down
//!                                     └ driver: the state of the thread that expires delays
//! ```
//!
//! A call takes the lock, makes a step of the shard, and says which waiters are owed a wake-up. The end of the critical section
//! ([`section`]) unlocks, and then wakes them and frees memory.
//!
//! One file per kind of call: [`add`], [`get`] and [`getters`], [`done`], [`delays`] (set, cancel, take), [`driver`] and
//! [`driver_thread`] (delays expire), [`failures`] (limiters), [`life_cycle`] and [`drain`], [`take_where`], [`put_back`], [`snapshot`]
//! (also `until_dirty` and `shrink_to_fit`).
//!
//! **One lock**, because it was measured (`BENCHMARKS.md`, "Designs") against a sharded table with one shared line: every key passes
//! the line twice, so such shards save the look-up at most, and each part of the finer design (a lock per shard, an atomic step per
//! transition, a fence against parked getters) costs as much as this lock does once. A critical section takes 5 to 15 ns as a rule. The
//! price is that adds of *different* keys do not run in parallel, which shows where dozens of cores only add.
//!
//! It also makes the contract simple: **the queue is linearizable**, each call takes effect at one moment while it holds the lock (P1,
//! P2, P4 follow from the sequential picture in `src/key/state.rs`), and what a thread did before a call is visible to every
//! thread whose call comes later. Calls that consist of several steps say so: `add_all`, `get_many`, `turn`, `take_delayed`,
//! `take_where`, `processing_keys`, `shrink_to_fit` and the drains. Three calls take no lock: `len` and `is_empty`, which publish
//! nothing, and `Item::is_dirty`.
//!
//! **No critical section is long**, whatever the number of keys: the wheel moves a hundred entries at a time, calls that visit many
//! keys visit some hundred at a time, the line grows by a block at a time, a large table by a few chains (a smaller one at once, in
//! half a millisecond), and memory is freed after the lock.
//!
//! **Hot calls** (`add`, `get`, `done`) return what fits in two registers, test one byte for all that few queues have
//! ([`Special`]) and one for all that is owed, and leave the rest to functions that are not inlined. A result of
//! several words that goes through memory is stored in pieces and loaded whole, and the processor waits for it: that was half of the
//! time of these calls.

mod add;
mod delays;
mod done;
mod drain;
mod driver;
mod driver_thread;
mod failures;
mod get;
mod getters;
mod life_cycle;
mod put_back;
mod section;
mod snapshot;
mod take_where;

pub(crate) use add::Wakeups;
pub(crate) use drain::{WaitGoal, WaitOutcome};
pub(crate) use driver_thread::start_driver_thread;
pub(crate) use failures::{Failures, Limiter};
pub(crate) use get::Wait;

use crate::DelayedAdd;
use crate::OnPanic;
use crate::key::Hash as KeyHash;
use crate::observe::Observer;
use crate::shard::Shard;
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, Ordering, hasher};
use crate::time::clock::Clock;
use crate::time::driver::{Driver, State};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use getters::Getters;
use life_cycle::LifeCycle;
use section::Special;
use std::hash::Hash;

/// What all handles of one queue share.
pub(crate) struct Shared<K> {
    pub(crate) name: Box<str>,
    pub(crate) clock: Clock,
    driver: Driver,
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
    /// The number of queued keys. Written under the lock, and read without it by `len` and by getters that spin.
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
    shard: Shard<K>,
    getters: Getters,
    life_cycle: LifeCycle,
    driver: State,
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

impl<K: Hash + Eq> Shared<K> {
    pub(crate) fn new(settings: Settings, limiter: Limiter<K>, start: fn(&Arc<Self>) -> std::io::Result<()>) -> Self {
        let Settings { name, capacity, clock, driver, delayed_add, on_panic, measure, observer } = settings;
        let observed = observer.is_some();
        let measured = measure || observed;
        if measured {
            clock.calibrate();
        }
        let shard = Shard::new(capacity, delayed_add, measured.then(|| clock.clone()));
        Self {
            name,
            clock,
            driver,
            on_panic,
            limiter,
            measured,
            observer,
            start,
            hasher: hasher(),
            extras: AtomicU8::new(if observed { OBSERVED } else { 0 }),
            core: CachePadded::new(Mutex::new(Core {
                special: if measured { Special::MEASURED } else { Special::NONE },
                shard,
                getters: Getters::new(),
                life_cycle: LifeCycle::default(),
                driver: State::Absent,
            })),
            len: CachePadded::new(AtomicUsize::new(0)),
            buckets: CachePadded::new((AtomicUsize::new(0), AtomicUsize::new(0))),
        }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> KeyHash {
        KeyHash(self.hasher.hash_one(key) as u32)
    }
}

impl<K> Shared<K> {
    /// Whether a call has more to do after the lock: there is an observer, or the driver thread has to be started.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.extras.load(Ordering::Relaxed) != 0 // Relaxed: see `notify_driver`
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
            self.core.lock().shard.counts.caught_panics += panics as u64;
        }
    }

    /// There is an observer.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Relaxed: no conclusion about other data follows from it. A getter that spins takes the lock next.
        self.len.load(Ordering::Relaxed)
    }

    /// A step has changed the number of queued keys.
    #[inline]
    fn publish_len(&self, core: &Core<K>) {
        self.len.store(core.shard.len(), Ordering::Relaxed); // Relaxed: see `len`
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
            assert!(matches!(wait, Wait::Park(_)));
        }
        let parked = || queue.shared.core.lock().getters.len();
        queue.add(1);
        assert_eq!(parked(), 1);
        while queue.shared.core.lock().getters.woken_at().elapsed() < OVERDUE {}
        queue.add(2);
        assert_eq!(parked(), 0);
    }
}
