//! What all handles of one queue share, and the steps that touch more than one part of it.
//!
//! Locks, in the order in which they may be taken: a shard's, then the ready line's or the drain's. Never two shards at once,
//! and no user code under any of them but `K::eq` under a shard's. Wake-ups leave as values and are paid after unlocking.

use crate::Added;
use crate::drain::{Drain, Drained};
use crate::key::slab::SlotRef;
use crate::key::state::{OnAdd, OnDone};
use crate::key::table::{Hash, Table};
use crate::ready::{Pop, Ready, Wait};
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, parallelism, sized, spin_while, with_parker};
use crate::wait::{Waiter, Wake, wake_all};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use std::hash::Hash as HashKey;
use std::time::Instant;

/// See the module's head.
pub(crate) struct Shared<K> {
    pub(crate) name: Box<str>,
    hasher: RandomState,
    shards: Box<[CachePadded<Shard<K>>]>,
    /// How far to shift a hash to the right for the number of its shard.
    shift: u32,
    pub(crate) ready: Ready<K>,
    pub(crate) drain: Drain,
    /// Adds are refused. Set once; read under a shard's lock by `add`, see `close`.
    shutting_down: AtomicBool,
}

#[derive(Debug)]
struct Shard<K> {
    table: Mutex<Table<K>>,
    /// `table.len()`, written under its lock, read without by who wonders whether to sweep.
    len: AtomicUsize,
}

/// How many idle keys the whole table may keep, see [`table`](crate::key::table).
const KEEP: usize = sized(2048, 2);
/// One done in so many (by the number of its slot) looks whether the table is mostly idle.
const TRIM_EVERY: u32 = sized(64, 1) as u32;

/// How a get ended that was willing to wait.
pub(crate) enum Got<T> {
    Item(T),
    ShutDown,
    TimedOut,
}

impl<K: HashKey + Eq> Shared<K> {
    pub(crate) fn new(name: Box<str>, capacity: usize) -> Self {
        // Enough that two threads seldom meet, few enough that their locks stay in the cache.
        let shards = sized((parallelism() * 4).next_power_of_two().clamp(4, 256), 2);
        let (capacity, keep) = (capacity.div_ceil(shards), (KEEP / shards).max(1));
        Self {
            name,
            hasher: hasher(),
            shards: (0..shards)
                .map(|_| {
                    CachePadded::new(Shard { table: Mutex::new(Table::new(capacity, keep)), len: AtomicUsize::new(0) })
                })
                .collect(),
            shift: u32::BITS - shards.ilog2(),
            ready: Ready::new(capacity),
            drain: Drain::default(),
            shutting_down: AtomicBool::new(false),
        }
    }

    /// `add` up to the wake-up: whom to wake is up to `push`, which runs under the shard's lock.
    #[inline]
    pub(crate) fn add(&self, key: K, push: impl FnOnce(&Ready<K>, SlotRef<K>) -> Wake) -> Added {
        let hash = Hash(self.hasher.hash_one(&key) as u32);
        let shard = self.shard(hash);
        let mut table = shard.table.lock();
        // Relaxed would do: `close` passes through this lock after it has set the flag, so who comes later sees it. Acquire,
        // so that a refused adder also sees what came before the shut-down.
        if self.shutting_down.load(Ordering::Acquire) {
            table.counts.rejected += 1;
            return Added::Rejected;
        }
        let before = table.len();
        let (todo, slot, spare) = table.add(key, hash);
        // While we hold the lock no other add can see the key dirty, so nobody is told "in line" before it is (P4).
        let wake = slot.map_or_else(Wake::default, |slot| push(&self.ready, slot));
        if table.len() != before {
            shard.len.store(table.len(), Ordering::Relaxed);
        }
        drop(table);
        drop(spare);
        wake.wake();
        match todo {
            OnAdd::Push => Added::Queued,
            OnAdd::Coalesce => Added::Coalesced,
            OnAdd::Defer => Added::Deferred,
        }
    }
}

impl<K> Shared<K> {
    #[inline]
    fn shard(&self, hash: Hash) -> &Shard<K> {
        &self.shards[(hash.0 >> self.shift) as usize]
    }

    /// Takes a key, sleeping for it until the deadline.
    pub(crate) fn get(&self, deadline: Option<Instant>) -> Got<SlotRef<K>> {
        for _ in 0..2 {
            match self.ready.pop() {
                Pop::Item(slot) => return Got::Item(slot),
                Pop::Closed => return Got::ShutDown,
                Pop::Empty => spin_while(|| self.ready.len() == 0),
            }
        }
        self.get_parked(deadline)
    }

    #[cold]
    fn get_parked(&self, deadline: Option<Instant>) -> Got<SlotRef<K>> {
        with_parker(|parker| {
            let waiter = || Waiter::Thread(parker.unparker());
            let mut wait = self.ready.pop_or_wait(waiter());
            loop {
                match wait {
                    Wait::Item(slot) => return Got::Item(slot),
                    Wait::Closed => return Got::ShutDown,
                    Wait::GaveUp => return Got::TimedOut,
                    Wait::Sleep(ticket) => {
                        parker.park(deadline);
                        let late = deadline.is_some_and(|deadline| deadline <= Instant::now());
                        let (next, wake) = self.ready.resume(ticket, waiter(), late);
                        wake.wake();
                        wait = next;
                    }
                }
            }
        })
    }

    /// `done`.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    #[inline]
    pub(crate) unsafe fn done(&self, slot: SlotRef<K>) {
        // SAFETY: the caller holds the key.
        let held = unsafe { slot.get() };
        let (hash, id) = (Hash(held.hash()), held.id());
        // A key that owns something goes at once, and that takes the lock anyway.
        if !std::mem::needs_drop::<K>() && held.state.try_done() {
            // The slot is not ours any more.
            if id % TRIM_EVERY == 0 {
                self.trim(hash);
            }
            return;
        }
        self.done_locked(slot, hash, id);
    }

    fn done_locked(&self, slot: SlotRef<K>, hash: Hash, id: u32) {
        let shard = self.shard(hash);
        let mut table = shard.table.lock();
        // The slot is ours until this, and under the lock also after it.
        let todo = table.slot(id).state.done();
        let (mut wake, mut key) = (Wake::default(), None);
        if todo == OnDone::Push {
            wake = self.ready.push(slot);
        } else if std::mem::needs_drop::<K>() {
            key = Some(table.remove(id));
            shard.len.store(table.len(), Ordering::Relaxed);
        }
        drop(table);
        // In this order: a panic in the key's drop must not lose a wake-up.
        wake.wake();
        if todo == OnDone::IdleWatched {
            self.drain.done();
        }
        drop(key);
    }

    /// Sweeps the shard if the table is mostly idle, as it is when a burst has been worked off. All numbers are estimates.
    fn trim(&self, hash: Hash) {
        let shard = self.shard(hash);
        let keys = shard.len.load(Ordering::Relaxed) * self.shards.len();
        if keys > 2 * (self.ready.len() + KEEP) {
            let mut table = shard.table.lock();
            table.sweep(4 * TRIM_EVERY as usize);
            shard.len.store(table.len(), Ordering::Relaxed);
        }
    }

    /// Refuses adds from here on, and lets getters go once the line is empty.
    pub(crate) fn close(&self) {
        // **Linearization point of a shut-down.**
        self.shutting_down.store(true, Ordering::Release);
        // Whoever did not see the flag holds a lock and pushes before letting go of it: behind this loop nobody pushes any
        // more but `done` (I7).
        for shard in &self.shards {
            drop(shard.table.lock());
        }
        wake_all(self.ready.close());
    }

    /// Closes, and waits until nothing is in line and nothing in work.
    pub(crate) fn close_and_drain(&self, deadline: Option<Instant>) -> Drained {
        // First, so that a plain shut-down from here on releases us.
        let drainer = self.drain.begin();
        self.close();
        for shard in &self.shards {
            let table = shard.table.lock();
            self.drain.watch(|| table.iter().filter(|slot| slot.state.watch()).count());
        }
        self.drain.wait(&drainer, deadline)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    /// How many keys are held now, found by looking at every key.
    pub(crate) fn processing(&self) -> usize {
        self.tables(|table| table.iter().filter(|slot| slot.state.is_processing()).count()).sum()
    }

    /// Asks each shard in turn, under its lock.
    pub(crate) fn tables<R>(&self, mut ask: impl FnMut(&mut Table<K>) -> R) -> impl Iterator<Item = R> {
        self.shards.iter().map(move |shard| {
            let mut table = shard.table.lock();
            let answer = ask(&mut table);
            shard.len.store(table.len(), Ordering::Relaxed);
            answer
        })
    }
}

/// Seeds anew for every queue, but never per operation: making a `RandomState` touches a global counter.
fn hasher() -> RandomState {
    if cfg!(loom) { RandomState::with_seeds(1, 2, 3, 4) } else { RandomState::new() }
}
