//! What all handles of one queue share, and the calls on it.
//!
//! ```text
//!              hash ──▶ shard
//!  handles ──▶ Shared: settings, limiter, observer, flags
//!                 ├─ shard 0: a lock over a machine: keys, order, delays     ┐ one, unless the user asks for more
//!                 ├─ shard 1 …                                               ┘
//!                 └─ hub: a lock over ┌ getters: threads and tasks that wait for a key
//!                                     ├ life cycle: drains, idle waits, waits for the shut-down
//!                                     ├ driver: the state of the thread that expires delays
//!                                     └ runs: where the queue's workers count, for metrics
//! ```
//!
//! A call takes the lock of the key's shard, calls a verb of its [machine](crate::machine), and ends the critical section ([`section`]). If
//! the verb owes something, this end locks the hub and takes out the waiters; it unlocks, wakes them and frees memory. Why no wake-up is
//! lost: [`hub`].
//!
//! One file per kind of call: [`add`], [`get`], [`getters`] and [`choose`], [`done`] (also requeues), [`delays`] (`cancel`, `take_delayed`,
//! `remove`), [`driver`], [`driver_thread`] and [`stand_in`] (delays expire), [`reports`], [`failures`] (limiters), [`life_cycle`] and [`drain`],
//! [`take_where`], [`dirty`] (`until_dirty`), [`snapshot`] (also `shrink_to_fit`). [`locked`] is a shard with its lock; [`groups`] has the
//! user's functions that name groups.
//!
//! **One shard, one lock.** A critical section takes 5 to 15 ns as a rule, so one lock serves most programs, and it makes the contract
//! simple: **the queue is linearizable**, each call takes effect at one moment while it holds the lock (P1, P2, P4 follow from the
//! sequential picture in `src/key/state.rs`), and what a thread did before a call is visible to every thread whose call comes later. Calls
//! that consist of several steps say so. Some calls take no lock: `len` and `is_empty`, which publish nothing, `Item::is_dirty` and
//! `shutting_down`.
//!
//! **Several shards** (P18) let threads work side by side. Each is a whole queue but for what the hub has. (A sharded table with *one
//! shared order* saves the look-up at most, as every key passes the order twice: `benches/TABLES.md`, "Designs".)
//!
//! **No critical section is long**, whatever the number of keys: the wheel moves a hundred entries at a time, calls that visit many
//! keys visit some hundred at a time, the order grows by a block at a time, a large table by a few chains (a smaller one at once, in
//! half a millisecond), and memory is freed after the lock.
//!
//! **Hot calls** (`add`, `get`, `done`) return what fits in two registers, test one byte for all that few queues have ([`Flags`]) and one
//! for all that is owed, and leave the rest to functions that are not inlined. (A result of several words goes through memory, stored in
//! pieces and loaded whole, and the processor waits for it: that was half of the time of these calls.)

mod add;
mod choose;
mod delays;
mod dirty;
mod done;
mod drain;
mod driver;
mod driver_thread;
mod failures;
mod get;
mod getters;
mod groups;
mod hub;
mod life_cycle;
mod locked;
mod reports;
mod section;
mod snapshot;
mod stand_in;
#[cfg(all(test, not(loom)))]
mod stopped;
mod take_where;

pub(crate) use add::Wakeups;
pub(crate) use dirty::DirtyTicket;
pub(crate) use drain::{WaitGoal, WaitOutcome};
pub(crate) use driver_thread::start_driver_thread;
pub(crate) use failures::{Failures, Limiter};
pub(crate) use get::Wait;
pub(crate) use groups::Order;

use crate::DelayedAdd;
use crate::OnPanic;
use crate::key::Hash as KeyHash;
use crate::machine::{Claimed, Machine};
use crate::observe::Observer;
use crate::order::AnyOrder;
use crate::random::Numbers;
use crate::sync::{Arc, AtomicU8, AtomicUsize, Mutex, counted_stamp, hasher, next_id, stamp};
use crate::time::clock::Clock;
use crate::time::driver::Driver;
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use groups::Groups;
use hub::{Flags, Hub};
use locked::Locked;
use reports::Reports;
use std::hash::Hash;

/// The most shards that a queue can have.
pub(crate) const MAX_SHARDS: usize = 64;

/// What all handles of one queue share.
pub(crate) struct Shared<K> {
    pub(crate) name: Box<str>,
    /// No other queue of the process has it: for the cursors of threads.
    id: u64,
    pub(crate) clock: Clock,
    driver: Driver,
    pub(crate) on_panic: Option<OnPanic>,
    limiter: Limiter<K>,
    /// Lower priorities wait while higher ones have keys.
    strict: bool,
    groups: Option<Box<Groups<K>>>,
    /// The queue measures.
    measured: bool,
    observer: Option<Box<dyn Observer>>,
    /// The observer has an interval.
    reports: Option<Reports>,
    /// Starts the driver thread. A pointer, made where `K` is known to be `Send` and `Sync`.
    start: fn(&Arc<Self>) -> std::io::Result<()>,
    hasher: RandomState,
    /// In a queue with several shards: what gives the keys at their fronts a time.
    stamp: Option<fn() -> u64>,
    /// [`Flags`]: written under the hub's lock.
    flags: AtomicU8,
    first: Locked<K>,
    /// The shards after the first: none, unless the user has asked for them.
    others: Box<[Locked<K>]>,
    hub: CachePadded<Mutex<Hub>>,
    /// The number of choices of a shard: see [`choose`]. Only in a queue with several shards and with priorities or groups.
    choices: CachePadded<AtomicUsize>,
}

/// The settings of a new queue.
pub(crate) struct Settings {
    pub(crate) name: Box<str>,
    /// Where the queue draws its numbers from. `None`: from the system.
    pub(crate) seed: Option<u64>,
    /// A power of two, up to [`MAX_SHARDS`].
    pub(crate) shards: usize,
    pub(crate) capacity: usize,
    pub(crate) clock: Clock,
    pub(crate) driver: Driver,
    pub(crate) delayed_add: DelayedAdd,
    pub(crate) on_panic: Option<OnPanic>,
    pub(crate) measure: bool,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

impl<K: Hash + Eq> Shared<K> {
    pub(crate) fn new(
        settings: Settings,
        mut limiter: Limiter<K>,
        order: Order<K>,
        start: fn(&Arc<Self>) -> std::io::Result<()>,
    ) -> Self {
        let Settings { name, seed, shards, capacity, clock, driver, delayed_add, on_panic, measure, observer } =
            settings;
        let observed = observer.is_some();
        let interval = observer.as_ref().and_then(|observer| observer.interval());
        let measured = measure || observed;
        if measured {
            clock.calibrate();
        }
        let numbers = seed.map(Numbers::new);
        let hasher = numbers.as_ref().map_or_else(hasher, Numbers::hasher);
        if let (Some(numbers), Limiter::External(limiter)) = (numbers, &mut limiter) {
            limiter.reseed(numbers.next());
        }
        let stamp: fn() -> u64 = if clock.is_given() { counted_stamp } else { stamp };
        let stamp = (shards > 1).then_some(stamp);
        stamp.into_iter().for_each(|stamp| _ = stamp()); // the first call takes long
        let new_shard = |index| {
            let queued = match order.group_of.is_some() {
                true => AnyOrder::groups(order.limit, order.strict),
                false => AnyOrder::new(order.strict),
            };
            let mut machine = Machine::new(queued, delayed_add, capacity / shards);
            if measured {
                machine.measure(clock.is_given()); // the same each time (P27)
            }
            if stamp.is_some() {
                machine.want_stamps();
            }
            Locked::new(index, if shards == 1 { Mutex::new(machine) } else { Mutex::one_of_many(machine) })
        };
        let mut flags = Flags(0);
        flags.0 |= if measured { Flags::MEASURED.0 } else { 0 };
        flags.0 |= if observed { Flags::OBSERVED.0 } else { 0 };
        flags.0 |= if order.group_of.is_some() { Flags::ORDERED.0 } else { 0 };
        flags.0 |= if order.limit.is_some() { Flags::LIMITED.0 } else { 0 };
        Self {
            name,
            id: next_id(),
            first: new_shard(0),
            others: (1..shards).map(new_shard).collect(),
            clock,
            driver,
            on_panic,
            limiter,
            strict: order.strict,
            groups: Groups::new(order.group_of, order.weight_of),
            measured,
            observer,
            reports: interval.map(Reports::new),
            start,
            hasher,
            stamp,
            flags: AtomicU8::new(flags.0),
            hub: CachePadded::new(Mutex::new(Hub::new(flags))),
            choices: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    #[inline]
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> KeyHash {
        KeyHash(self.hasher.hash_one(key) as u32)
    }

    /// The index of a key's shard.
    pub(crate) fn shard_index(&self, key: &K) -> usize {
        self.hash(key).shard(self.shards())
    }
}

impl<K> Shared<K> {
    /// The number of shards.
    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.others.len() + 1
    }

    /// All shards.
    #[inline]
    fn all(&self) -> impl ExactSizeIterator<Item = &Locked<K>> {
        (0..self.shards()).map(|index| self.at(index))
    }

    /// The shard of this index.
    #[inline]
    fn at(&self, index: usize) -> &Locked<K> {
        if index == 0 { &self.first } else { &self.others[index - 1] }
    }

    /// The shard that has the keys of this hash.
    #[inline]
    fn shard_of(&self, hash: KeyHash) -> &Locked<K> {
        if self.others.is_empty() { &self.first } else { self.at(hash.shard(self.shards())) }
    }

    /// The shard that has a key that the caller holds.
    #[inline]
    fn home(&self, claimed: &Claimed<K>) -> &Locked<K> {
        if self.others.is_empty() { &self.first } else { self.at(claimed.hash().shard(self.shards())) }
    }

    /// Whether a call has more to do after the lock: there is an observer, or the driver thread has to be started.
    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.flags().has(Flags::EXTRAS)
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
            self.hub().counts.caught_panics += panics as u64;
        }
    }

    /// There is an observer.
    pub(crate) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    /// The number of queued keys that a getter may take.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.first.len() + self.others.iter().map(Locked::len).sum::<usize>()
    }

    /// The number of queued keys.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.flags().has(Flags::LIMITED) { self.first.total() } else { self.ready() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::WorkQueue;
    use crate::sync::{OVERDUE, Parker};
    use crate::wait::Waiter;

    /// What the times of fronts are read from, if the clock is given (P27).
    #[test]
    fn the_fronts_of_a_queue_with_a_given_clock_are_counted() {
        let before = counted_stamp();
        let queue = WorkQueue::builder().shards(2).clock(Clock::mock().0).build();
        (0..200).for_each(|key| _ = queue.add(key));
        let after = counted_stamp();
        for locked in queue.shared.all() {
            let (_, stamp) = locked.lock().front().expect("with several shards");
            assert!((before..after).contains(&stamp), "{before} {stamp} {after}");
        }
    }

    /// Two getters are parked. The first is woken and does not run, so the next add, some time later, wakes the second.
    #[test]
    fn a_push_passes_over_an_overdue_getter() {
        let queue = WorkQueue::new();
        let parkers = [Parker::new(), Parker::new()];
        for parker in &parkers {
            let wait = Shared::take_or_wait(&queue.shared, Waiter::Thread(parker.unparker()));
            assert!(matches!(wait, Wait::Park(_)));
        }
        let parked = || queue.shared.hub().getters.len();
        queue.add(1);
        assert_eq!(parked(), 1);
        while queue.shared.hub().getters.woken_at().is_some_and(|at| at.elapsed() < OVERDUE) {}
        queue.add(2);
        assert_eq!(parked(), 0);
    }
}
