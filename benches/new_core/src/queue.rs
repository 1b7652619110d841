//! The queue around the machine: hash, lock, verb, publish, and test what is owed. It has no step of its own.
//!
//! One thread at a time uses it: no getter waits, and only memory is awaited.

use crate::key::Hash as KeyHash;
use crate::machine::{Claimed, End, How, Machine, Mode, Owed};
use crate::order::{AnyOrder, Group};
use crate::sync::{Mutex, MutexGuard, hasher};
use crate::{Added, DelayedAdd};
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

type GroupOf<K> = Box<dyn Fn(&K, &RandomState) -> u64 + Send + Sync>;

pub struct Queue<K> {
    hasher: RandomState,
    group_of: Option<GroupOf<K>>,
    machine: CachePadded<Mutex<Machine<K>>>,
    published: CachePadded<Published>,
}

/// Written under the lock.
struct Published {
    len: AtomicUsize,
    /// The bits of [`Owed::what`] that some thread waits for.
    awaited: AtomicU8,
    is_shut_down: AtomicBool,
}

/// The only way to the machine. A macro and not a function with a closure, so that the verb is compiled in its caller.
macro_rules! call {
    ($queue:expr, |$machine:ident, $mode:ident| $verb:expr) => {{
        let mut guard = $queue.machine.lock();
        let $mode = Mode { is_open: !$queue.published.is_shut_down.load(Ordering::Relaxed) };
        let $machine = &mut *guard;
        let (answer, owed) = $verb;
        $queue.leave(guard, owed);
        answer
    }};
}

impl<K: Hash + Eq> Queue<K> {
    pub fn plain() -> Self {
        Self::new(AnyOrder::new(false), None)
    }

    pub fn fair_by<G: Hash>(group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        Self::new(AnyOrder::groups(None, false), Some(Box::new(move |key, hasher| hasher.hash_one(group(key)))))
    }

    fn new(order: AnyOrder<crate::machine::EntryRef<K>>, group_of: Option<GroupOf<K>>) -> Self {
        let (len, awaited) = (AtomicUsize::new(0), AtomicU8::new(Owed::GARBAGE));
        Self {
            hasher: hasher(),
            group_of,
            machine: CachePadded::new(Mutex::new(Machine::new(order, DelayedAdd::default(), 0))),
            published: CachePadded::new(Published { len, awaited, is_shut_down: AtomicBool::new(false) }),
        }
    }

    /// The end of a critical section.
    #[inline(always)]
    fn leave(&self, machine: MutexGuard<'_, Machine<K>>, owed: Owed) {
        self.published.len.store(machine.ready(), Ordering::Relaxed);
        if owed.what & self.published.awaited.load(Ordering::Relaxed) != 0 {
            Self::free(machine);
        }
    }

    /// Frees memory, after the lock.
    #[cold]
    fn free(mut machine: MutexGuard<'_, Machine<K>>) {
        let garbage = machine.take_garbage();
        drop(machine);
        drop(garbage);
    }

    #[inline]
    pub fn add(&self, key: K) -> Added {
        self.add_as(key, &How::NOW)
    }

    #[inline]
    pub fn add_at(&self, key: K, priority: i8) -> Added {
        self.add_as(key, &How { priority, ..How::NOW })
    }

    /// Inlined, so that `add` is compiled for what it is.
    #[inline(always)]
    fn add_as(&self, key: K, how: &How<'_>) -> Added {
        let hash = KeyHash(self.hasher.hash_one(&key) as u32);
        match &self.group_of {
            None => self.add_to(0, key, hash, how),
            Some(group_of) => self.add_in_group(group_of, key, hash, how),
        }
    }

    #[inline(never)]
    fn add_in_group(&self, group_of: &GroupOf<K>, key: K, hash: KeyHash, how: &How<'_>) -> Added {
        self.add_to(group_of(&key, &self.hasher), key, hash, how)
    }

    #[inline(always)]
    fn add_to(&self, group: u64, key: K, hash: KeyHash, how: &How<'_>) -> Added {
        let (mut hand, group) = (Some(key), Group { hash: group, weight: 1 });
        call!(self, |machine, mode| machine.add(&mut hand, hash, group, how, mode))
        // A key that is left in the hand is dropped here, after the lock.
    }

    #[inline(never)]
    fn take(&self) -> Option<Claimed<K>> {
        call!(self, |machine, mode| machine.get(mode))
    }

    #[inline]
    pub fn get(&self) -> Option<Item<'_, K>> {
        let claimed = self.take()?;
        Some(Item { queue: self, claimed: Some(claimed) })
    }

    #[inline(never)]
    fn done(&self, claimed: Claimed<K>) {
        let mut hand = None;
        call!(self, |machine, _mode| machine.done(&mut hand, claimed, End::Done));
        // A key that is forgotten is dropped here, after the lock.
    }

    pub fn shut_down(&self) {
        let mut machine = self.machine.lock();
        self.published.is_shut_down.store(true, Ordering::Relaxed);
        let owed = machine.shut_down();
        self.leave(machine, owed);
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
            self.queue.done(claimed);
        }
    }
}
