//! What a limiter remembers of each key: a hash table in parts, each under a lock of its own.
//!
//! ```text
//!  hash of the key ─┬─ high half: which part        ┌─ part ──────────────────┐
//!                   └─ low half: where in it  ────▶ │ lock │ recent │ before  │
//!                                                   └─────────────────────────┘
//! ```
//!
//! A look-up is one hash, one lock that is hardly ever contended, and one probe.
//!
//! **Bounds** (off by default). A part has two tables. A key that fails is put in `recent`, also if it was in `before`. Now and
//! then the part *turns*: `recent` becomes `before`, and what was there until then is forgotten at one blow. That costs
//! O(1) a call, and there is no list to keep in order. When it turns:
//!
//! * by number, when `recent` is full. So two tables full are remembered at most, and one table full of the latest at least.
//! * by age, at the end of each age. So a key is remembered for one age after it failed, and for two at most.
//! * when all keys in `before` have served their delay, for a limiter that need not know them any more.
//!
//! No foreign code runs under a lock but `Eq` of keys: they are hashed and cloned before it, and dropped after it.

use crate::sync::{Mutex, hasher, parallelism, sized};
use crate::time::nanos;
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

/// What is remembered of a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// How often it failed since it was last forgotten.
    pub(super) failures: u32,
    /// The key's hash: here because there is room.
    hash: u32,
    /// When the last delay that it was told is over.
    pub(super) until: u64,
}

/// See the module's head.
pub(super) struct Keyed<K> {
    hasher: RandomState,
    /// A power of two.
    parts: Box<[CachePadded<Mutex<Part<K>>>]>,
    bounds: Bounds,
}

/// When a part turns.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// How many keys make `recent` full.
    keys: usize,
    /// How long an age is, in nanoseconds.
    age: u64,
    /// Keys whose delay is over need not be remembered.
    drop_served: bool,
}

struct Part<K> {
    recent: HashTable<Entry<K>>,
    before: HashTable<Entry<K>>,
    /// When the age of `recent` began.
    since: u64,
    /// When the last delay in `before` is over, if that matters.
    served: u64,
}

struct Entry<K> {
    memory: Memory,
    key: K,
}

/// What a call forgets of other keys, to be dropped after the lock.
struct Dropped<K> {
    tables: Vec<HashTable<Entry<K>>>,
    entries: Vec<Entry<K>>,
}

/// A table with fewer places is not worth shrinking.
const SMALL: usize = 64;

/// Among fewer keys, those that are served stay: they may come again soon.
const ROOMY: usize = sized(256, 2);

/// With a bound, a part has room for at least so many keys: else chance would fill one part long before the others.
const ROOM: usize = sized(512, 4);

impl<K> Keyed<K> {
    /// Remembers all keys until they are forgotten.
    pub(super) fn new() -> Self {
        let bounds = Bounds { keys: usize::MAX, age: u64::MAX, drop_served: false };
        Self::with_bounds(bounds, sized((8 * parallelism()).next_power_of_two().min(256), 2))
    }

    fn with_bounds(bounds: Bounds, parts: usize) -> Self {
        let part = || Part { recent: HashTable::new(), before: HashTable::new(), since: 0, served: 0 };
        let parts = (0..parts).map(|_| CachePadded::new(Mutex::new(part()))).collect();
        Self { hasher: hasher(), parts, bounds }
    }

    /// Remembers at most so many keys; two at least. Call before the first key.
    pub(super) fn max_tracked(self, keys: usize) -> Self {
        let most = 1 << (keys / ROOM).max(1).ilog2();
        let parts = self.parts.len().min(most);
        let half = (keys / parts / 2).max(1);
        Self::with_bounds(Bounds { keys: half, ..self.bounds }, parts)
    }

    /// Remembers a key for this long after its last failure, and for twice as long at most.
    pub(super) fn retain_recent(mut self, age: Duration) -> Self {
        self.bounds.age = nanos(age).max(1);
        self
    }

    /// Forgets keys whose delay is over, when there are many.
    pub(super) fn drop_served(mut self) -> Self {
        self.bounds.drop_served = true;
        self
    }

    /// Whether [`update`](Self::update) and [`look`](Self::look) must be told the time.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        self.bounds.age != u64::MAX || self.bounds.drop_served
    }

    /// Whether anything is ever forgotten that nobody forgets.
    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        self.bounds.keys != usize::MAX || self.needs_time()
    }

    /// How many keys are remembered.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock_low_contention().len()).sum()
    }

    /// Forgets what need not be remembered by now, and gives back memory.
    pub(super) fn shrink(&self, now: u64) {
        for part in &self.parts {
            let mut dropped = Dropped::none();
            let part = &mut *part.lock_low_contention();
            part.turn_if_due(&self.bounds, now, &mut dropped);
            if self.bounds.drop_served {
                for table in [&mut part.recent, &mut part.before] {
                    dropped.entries.extend(table.extract_if(|entry| entry.memory.until <= now));
                }
            }
            part.recent.shrink_to_fit(Entry::hash);
            part.before.shrink_to_fit(Entry::hash);
        }
    }

    #[inline]
    fn part(&self, hash: u64) -> &Mutex<Part<K>> {
        &self.parts[(hash >> 32) as usize & (self.parts.len() - 1)]
    }
}

impl<K: Hash + Eq> Keyed<K> {
    /// What is remembered of a key.
    #[inline]
    pub(super) fn look(&self, key: &K, now: u64) -> Memory {
        let hash = self.hasher.hash_one(key);
        let part = &*self.part(hash).lock_low_contention();
        // As if it had turned: who looks changes nothing.
        let ages = part.ages(&self.bounds, now);
        part.find(key, hash as u32, ages).map(|entry| entry.memory).unwrap_or_default()
    }

    /// Forgets a key. **Linearization point of a `forget`.**
    #[inline]
    pub(super) fn forget(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        // A temporary's guard would live to the end of the statement, and so would what it drops.
        let mut part = self.part(hash).lock_low_contention();
        let entry = part.remove(key, hash as u32);
        drop(part);
        drop(entry);
    }
}

impl<K: Hash + Eq + Clone> Keyed<K> {
    /// Changes what is remembered of a key, which is nothing at first. **Linearization point of a `when`.**
    ///
    /// `change` runs under a lock.
    #[inline]
    pub(super) fn update<R>(&self, key: &K, now: u64, change: impl FnOnce(&mut Memory) -> R) -> R {
        let hash = self.hasher.hash_one(key);
        let part = self.part(hash);
        let hash = hash as u32;
        if self.bounds.age == u64::MAX {
            // It has failed before, as a rule.
            let part = &mut *part.lock_low_contention();
            if let Some(entry) = part.recent.find_mut(widen(hash), |entry| entry.is(key, hash)) {
                return change(&mut entry.memory);
            }
        }
        // As `new` below, dropped after the guards.
        let mut dropped = Dropped::none();
        if self.is_bounded() {
            let part = &mut *part.lock_low_contention();
            part.turn_if_due(&self.bounds, now, &mut dropped);
            if part.recall(key, hash, &self.bounds, now, &mut dropped) {
                return change(part.recent_memory(key, hash));
            }
        }
        let new = Entry { memory: Memory { hash, ..Memory::default() }, key: key.clone() };
        let part = &mut *part.lock_low_contention();
        // Another thread may have put it in while there was no lock.
        if part.recall(key, hash, &self.bounds, now, &mut dropped) {
            return change(part.recent_memory(key, hash));
        }
        change(part.insert(new, &self.bounds, now, &mut dropped))
    }
}

impl<K> Part<K> {
    fn len(&self) -> usize {
        self.recent.len() + self.before.len()
    }

    /// How many ages have ended since that of `recent` began: 0, 1, or more.
    #[inline]
    fn ages(&self, bounds: &Bounds, now: u64) -> u64 {
        if bounds.age == u64::MAX { 0 } else { now.saturating_sub(self.since) / bounds.age }
    }

    fn turn(&mut self, dropped: &mut Dropped<K>) {
        let full = mem::take(&mut self.recent);
        dropped.tables.push(mem::replace(&mut self.before, full));
    }

    fn turn_if_due(&mut self, bounds: &Bounds, now: u64, dropped: &mut Dropped<K>) {
        match self.ages(bounds, now) {
            0 => {}
            1 => {
                self.turn(dropped);
                self.since += bounds.age;
            }
            _ => {
                self.turn(dropped);
                self.turn(dropped);
                self.since = now;
            }
        }
        if bounds.drop_served && self.len() >= ROOMY && self.served <= now {
            self.turn(dropped);
            self.served = self.before.iter().map(|entry| entry.memory.until).max().unwrap_or(0);
        }
    }

    /// Puts in a key that is in neither table.
    fn insert(&mut self, entry: Entry<K>, bounds: &Bounds, now: u64, dropped: &mut Dropped<K>) -> &mut Memory {
        if self.recent.len() >= bounds.keys {
            self.turn(dropped);
            self.since = now;
        }
        &mut self.recent.insert_unique(widen(entry.memory.hash), entry, Entry::hash).into_mut().memory
    }
}

impl<K: Eq> Part<K> {
    /// `ages`: how many have ended.
    #[inline]
    fn find(&self, key: &K, hash: u32, ages: u64) -> Option<&Entry<K>> {
        let is = |entry: &Entry<K>| entry.is(key, hash);
        match ages {
            0 => self.recent.find(widen(hash), is).or_else(|| self.before.find(widen(hash), is)),
            1 => self.recent.find(widen(hash), is),
            _ => None,
        }
    }

    /// Sees to it that a key that is remembered is in `recent`. Whether there is one.
    fn recall(&mut self, key: &K, hash: u32, bounds: &Bounds, now: u64, dropped: &mut Dropped<K>) -> bool {
        if self.recent.find(widen(hash), |entry| entry.is(key, hash)).is_some() {
            return true;
        }
        let Some(entry) = take(&mut self.before, key, hash) else { return false };
        self.insert(entry, bounds, now, dropped);
        true
    }

    /// What is remembered of a key that is in `recent`.
    fn recent_memory(&mut self, key: &K, hash: u32) -> &mut Memory {
        let entry = self.recent.find_mut(widen(hash), |entry| entry.is(key, hash));
        &mut entry.expect("it is there").memory
    }

    #[inline]
    fn remove(&mut self, key: &K, hash: u32) -> Option<Entry<K>> {
        take(&mut self.recent, key, hash).or_else(|| take(&mut self.before, key, hash))
    }
}

/// Takes a key out of a table, and gives back memory that the others do not need.
#[inline]
fn take<K: Eq>(table: &mut HashTable<Entry<K>>, key: &K, hash: u32) -> Option<Entry<K>> {
    let found = table.find_entry(widen(hash), |entry| entry.is(key, hash)).ok()?;
    let (entry, _) = found.remove();
    if table.capacity() > SMALL && table.len() < table.capacity() / 8 {
        table.shrink_to(table.len() * 2, Entry::hash);
    }
    Some(entry)
}

impl<K> Entry<K> {
    fn hash(&self) -> u64 {
        widen(self.memory.hash)
    }
}

impl<K: Eq> Entry<K> {
    #[inline]
    fn is(&self, key: &K, hash: u32) -> bool {
        self.memory.hash == hash && self.key == *key
    }
}

impl<K> Dropped<K> {
    fn none() -> Self {
        Self { tables: Vec::new(), entries: Vec::new() }
    }
}

/// The table looks at the upper and at the lower bits of a hash, and 32 are kept.
#[inline]
fn widen(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Threads that use different keys seldom meet at a lock.
    #[test]
    fn keys_are_spread_over_all_parts() {
        let keyed = Keyed::new();
        let keys = 100 * keyed.parts.len();
        (0..keys).for_each(|key| keyed.update(&key, 0, |_| ()));
        assert_eq!(keyed.len(), keys);
        assert!(keyed.parts.len() > 1);
        assert!(keyed.parts.iter().all(|part| (50..200).contains(&part.lock_low_contention().len())));
    }

    /// A part's storage shrinks when an eighth of it is used, to twice that; a small one does not.
    #[test]
    fn storage_follows_the_number_of_keys() {
        let mut table = HashTable::new();
        let entry = |n: u32| Entry { memory: Memory { hash: n, ..Memory::default() }, key: n };
        (0..10_000).for_each(|n| _ = table.insert_unique(widen(n), entry(n), Entry::hash));
        let mut before = table.capacity();
        for n in 0..10_000 {
            assert!(take(&mut table, &n, n).is_some_and(|entry| entry.key == n));
            let (left, now) = (table.len(), table.capacity());
            assert!(now == before || left < before / 8 && now >= 2 * left, "{before} -> {now} for {left}");
            assert!(now <= SMALL || left >= now / 8, "{now} for {left}");
            before = now;
        }
        assert!(before > 0 && before <= SMALL);
    }
}
