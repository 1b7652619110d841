//! The queue around the machine: hash, lock, verb, publish, and apply what is owed. It has no step of its own.
//!
//! No getter parks here, so what is owed is memory and the news of a deadline.

use crate::key::Hash as KeyHash;
use crate::machine::{Claimed, End, EntryRef, How, Machine, Mode, Owed};
use crate::order::{AnyOrder, Group};
use crate::sync::{Mutex, MutexGuard, hasher};
use crate::{Added, DelayedAdd};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

type GroupOf<K> = Box<dyn Fn(&K, &RandomState) -> u64 + Send + Sync>;

pub struct Queue<K> {
    hasher: RandomState,
    group_of: Option<GroupOf<K>>,
    machine: CachePadded<Mutex<Machine<K>>>,
    published: CachePadded<Published>,
}

/// Written under the lock.
struct Published {
    /// The keys that a get may take.
    ready: AtomicUsize,
    /// No delay expires before this.
    until: AtomicU64,
    flags: AtomicU8,
}

const SHUT_DOWN: u8 = 1;
const ORDERED: u8 = 2;
/// Some thread waits: here none ever does.
const AWAITED: u8 = 4;

/// The only way to a verb: publishes, and applies what is owed. A macro and not a function with a closure, so that the verb is compiled in
/// its caller.
macro_rules! call {
    ($queue:expr, $guard:ident, $mode:expr, $verb:expr) => {{
        let (answer, owed) = $verb;
        $queue.leave($guard, owed, $mode);
        answer
    }};
}

/// The same of a queue that is not plain: compiled for one that is ordered and nothing else, and for all others.
macro_rules! call_special {
    ($queue:expr, $guard:ident, |$mode:ident| $verb:expr) => {
        if $queue.flags() == ORDERED {
            let $mode = Mode::ORDERED;
            call!($queue, $guard, $mode, $verb)
        } else {
            let $mode = $queue.mode();
            call!($queue, $guard, $mode, $verb)
        }
    };
}

impl<K: Hash + Eq> Queue<K> {
    pub fn plain() -> Self {
        Self::new(AnyOrder::new(false), None, 0)
    }

    pub fn fair_by<G: Hash>(group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        Self::fair_by_with_limit(None, group)
    }

    /// `limit`: at most this number of keys of a group are processing.
    pub fn fair_by_with_limit<G: Hash>(limit: Option<u32>, group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        let group_of: GroupOf<K> = Box::new(move |key, hasher| hasher.hash_one(group(key)));
        Self::new(AnyOrder::groups(limit, false), Some(group_of), ORDERED)
    }

    fn new(order: AnyOrder<EntryRef<K>>, group_of: Option<GroupOf<K>>, flags: u8) -> Self {
        let (ready, until, flags) = (AtomicUsize::new(0), AtomicU64::new(u64::MAX), AtomicU8::new(flags));
        Self {
            hasher: hasher(),
            group_of,
            machine: CachePadded::new(Mutex::new(Machine::new(order, DelayedAdd::default(), 0))),
            published: CachePadded::new(Published { ready, until, flags }),
        }
    }

    #[inline]
    fn flags(&self) -> u8 {
        self.published.flags.load(Ordering::Relaxed)
    }

    fn mode(&self) -> Mode {
        let has = |flag| self.flags() & flag != 0;
        Mode { is_open: !has(SHUT_DOWN), is_ordered: has(ORDERED), is_awaited: has(AWAITED), is_measured: false }
    }

    /// The end of a critical section that has changed which keys are ready, or owes something.
    #[inline(always)]
    fn leave(&self, machine: MutexGuard<'_, Machine<K>>, owed: Owed, mode: Mode) {
        self.published.ready.store(machine.ready(mode), Ordering::Relaxed);
        if owed != Owed::NOTHING {
            self.apply(machine, owed);
        }
    }

    /// Publishes the deadline, and frees memory after the lock.
    #[cold]
    fn apply(&self, mut machine: MutexGuard<'_, Machine<K>>, owed: Owed) {
        if owed.has(Owed::DEADLINE) {
            self.published.until.store(machine.until(), Ordering::Relaxed);
        }
        let garbage = owed.has(Owed::GARBAGE).then(|| machine.take_garbage());
        drop(machine);
        drop(garbage);
    }

    // The flags say which form of a call is likely, and say it again under the lock, where it is certain.

    #[inline]
    pub fn add(&self, key: K) -> Added {
        let hash = KeyHash(self.hasher.hash_one(&key) as u32);
        let mut hand = Some(key);
        if self.flags() != 0 {
            return self.add_special(hand, hash);
        }
        let mut machine = self.machine.lock();
        if self.flags() != 0 {
            drop(machine);
            return self.add_special(hand, hash);
        }
        let (added, owed) = machine.add(&mut hand, hash, Group::default(), &How::NOW, Mode::PLAIN);
        if added == Added::Queued {
            self.leave(machine, owed, Mode::PLAIN);
        }
        added
        // A key that is left in the hand is dropped here, after the lock.
    }

    #[inline(never)]
    pub fn add_at(&self, key: K, priority: i8) -> Added {
        let hash = KeyHash(self.hasher.hash_one(&key) as u32);
        if priority != 0 && self.flags() & ORDERED == 0 {
            let _lock = self.machine.lock();
            self.published.flags.fetch_or(ORDERED, Ordering::Relaxed);
        }
        self.add_as(Some(key), hash, &How { priority, ..How::NOW })
    }

    #[inline(never)]
    fn add_special(&self, hand: Option<K>, hash: KeyHash) -> Added {
        self.add_as(hand, hash, &How::NOW)
    }

    #[inline(always)]
    fn add_as(&self, mut hand: Option<K>, hash: KeyHash, how: &How<'_>) -> Added {
        let (mut group, mut machine) = (Group { hash: 0, weight: 1 }, self.machine.lock());
        if let (Some(group_of), Some(key)) = (&self.group_of, &hand) {
            if !machine.is_known(key, hash) {
                // Foreign code runs under no lock.
                drop(machine);
                group.hash = group_of(key, &self.hasher);
                machine = self.machine.lock();
            }
        }
        if self.flags() == ORDERED {
            let (added, owed) = machine.add(&mut hand, hash, group, how, Mode::ORDERED);
            if added == Added::Queued || owed != Owed::NOTHING {
                self.leave(machine, owed, Mode::ORDERED);
            }
            return added;
        }
        let mode = self.mode();
        call!(self, machine, mode, machine.add(&mut hand, hash, group, how, mode))
    }

    #[inline(never)]
    fn take(&self) -> Option<Claimed<K>> {
        let mut machine = self.machine.lock();
        let claimed = if self.flags() == 0 { machine.get_simple() } else { None };
        match claimed {
            Some(claimed) => {
                self.leave(machine, Owed::NOTHING, Mode::PLAIN);
                Some(claimed)
            }
            None => self.take_from(machine),
        }
    }

    #[inline(never)]
    fn take_special(&self) -> Option<Claimed<K>> {
        self.take_from(self.machine.lock())
    }

    #[inline]
    fn take_from(&self, mut machine: MutexGuard<'_, Machine<K>>) -> Option<Claimed<K>> {
        call_special!(self, machine, |mode| machine.get(mode))
    }

    #[inline]
    pub fn get(&self) -> Option<Item<'_, K>> {
        let claimed = if self.flags() == 0 { self.take() } else { self.take_special() }?;
        Some(Item { queue: self, claimed: Some(claimed) })
    }

    #[inline(never)]
    fn done(&self, claimed: Claimed<K>) {
        let (mut hand, mut machine) = (None, self.machine.lock());
        if self.flags() == 0 {
            call!(self, machine, Mode::PLAIN, machine.done(&mut hand, claimed, End::Done, Mode::PLAIN));
        } else {
            drop(machine);
            self.done_special(claimed);
        }
        // A key that is forgotten is dropped here, after the lock.
    }

    #[inline(never)]
    fn done_special(&self, claimed: Claimed<K>) {
        let (mut hand, mut machine) = (None, self.machine.lock());
        call_special!(self, machine, |mode| machine.done(&mut hand, claimed, End::Done, mode));
    }

    pub fn shut_down(&self) {
        let mut machine = self.machine.lock();
        self.published.flags.fetch_or(SHUT_DOWN, Ordering::Relaxed);
        let owed = machine.shut_down();
        self.leave(machine, owed, self.mode());
    }
}

/// A key that the caller holds. Its drop ends the processing.
pub struct Item<'q, K: Hash + Eq> {
    queue: &'q Queue<K>,
    claimed: Option<Claimed<K>>,
}

impl<K: Hash + Eq> Deref for Item<'_, K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        self.claimed.as_ref().expect("an item ends once").key()
    }
}

impl<K: Hash + Eq> Drop for Item<'_, K> {
    #[inline]
    fn drop(&mut self) {
        if let Some(claimed) = self.claimed.take() {
            if self.queue.flags() == 0 { self.queue.done(claimed) } else { self.queue.done_special(claimed) }
        }
    }
}
