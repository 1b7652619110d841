//! What a limiter remembers of each key: a hash table in shards, each under a lock of its own.
//!
//! ```text
//!  hash of the key ─┬─ high half: the shard         ┌─ shard ─────────────────┐
//!                   └─ low half: the place there ─▶ │ lock │ recent │ old     │
//!                                                   └─────────────────────────┘
//! ```
//!
//! **Bounds** are off by default. A shard has two tables, its generations: a key that fails goes to `recent`, even if it was in `old`. Now
//! and then the shard *rotates*, which means that `recent` becomes `old`, and the old generation is dropped at once, so a bound costs O(1)
//! for each call, and no list is kept in order. A shard rotates
//!
//! * by number, when `recent` is full, so that it remembers at most two tables full of keys, and at least the latest table full;
//! * by age, at the end of each age, so that it remembers a key for one age after its last failure, and for two at most;
//! * when all delays of the keys in `old` have elapsed, for a limiter that need not remember such keys.
//!
//! A table grows and shrinks in one step under the lock of its shard, which no promise bounds: with a million keys in 16 shards it takes
//! two to three milliseconds. The only foreign code that runs under a lock is `Eq` of keys (P17). Memory that keys leave behind is given
//! back (P15).

use crate::sync::{Mutex, hasher, model_const, parallelism};
use crate::time::nanos;
use ahash::RandomState;
use crossbeam_utils::CachePadded;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

type Entries<K> = HashTable<Entry<K>>;

#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// The number of failures since the key was last forgotten.
    pub(super) failures: u32,
    /// The key's hash in its shard. It belongs to the entry, but here it takes the place of padding.
    hash: ShortHash,
    /// The time at which the last delay elapses.
    pub(super) until: u64,
}

/// The low half of a key's hash, which is kept so that no key is hashed under a lock (P17). The high half chooses the shard.
#[derive(Debug, Clone, Copy)]
struct ShortHash(u32);

/// Where a key is: its shard, and its hash there.
type Home<'a, K> = (&'a Mutex<Shard<K>>, ShortHash);

pub(super) struct KeyedStore<K> {
    hasher: RandomState,
    /// A power of two of shards.
    shards: Box<[CachePadded<Mutex<Shard<K>>>]>,
    bounds: Bounds,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The number of keys at which `recent` is full.
    keys: usize,
    /// The length of an age, in nanoseconds.
    age: u64,
    /// Whether a key need not be remembered once its delay has elapsed.
    drop_elapsed: bool,
}

struct Shard<K> {
    recent: Entries<K>,
    old: Entries<K>,
    /// The beginning of the age of `recent`.
    recent_since: u64,
    /// The time at which the last delay in `old` elapses, for `drop_elapsed`.
    old_elapsed_at: u64,
}

struct Entry<K> {
    record: Record,
    key: K,
}

/// A table of at most this number of buckets does not shrink.
const SHRINK_MIN: usize = 64;

/// With fewer keys, a shard also keeps those whose delays have elapsed, because they may fail again soon.
const DROP_ELAPSED_MIN: usize = model_const(256, 2);

/// With a bound, a shard has room for at least this number of keys if the bound allows it, because small shards would often be full long
/// before the others.
const SHARD_KEYS_MIN: usize = model_const(512, 4);

impl Record {
    /// Counts one more failure. Returns the number before.
    #[inline]
    pub(super) fn count(&mut self) -> u32 {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        before
    }
}

impl<K> KeyedStore<K> {
    /// Remembers all keys until they are forgotten.
    pub(super) fn new() -> Self {
        let bounds = Bounds { keys: usize::MAX, age: u64::MAX, drop_elapsed: false };
        Self::with_bounds(bounds, model_const((8 * parallelism()).next_power_of_two().min(256), 2))
    }

    fn with_bounds(bounds: Bounds, shards: usize) -> Self {
        let shard = || Shard { recent: Entries::new(), old: Entries::new(), recent_since: 0, old_elapsed_at: 0 };
        let shards = (0..shards).map(|_| CachePadded::new(Mutex::one_of_many(shard()))).collect();
        Self { hasher: hasher(), shards, bounds }
    }

    /// Remembers at most this number of keys, and at least two. Called before the first key.
    pub(super) fn max_tracked(self, keys: usize) -> Self {
        let most = 1 << (keys / SHARD_KEYS_MIN).max(1).ilog2();
        let shards = self.shards.len().min(most);
        let half = (keys / shards / 2).max(1);
        Self { hasher: self.hasher, ..Self::with_bounds(Bounds { keys: half, ..self.bounds }, shards) }
    }

    /// Hashes keys with this hasher from now on, unless there are keys already.
    pub(super) fn hash_with(&mut self, hasher: RandomState) {
        if self.len() == 0 {
            self.hasher = hasher;
        }
    }

    /// Remembers a key for `age` after its last failure, and for twice `age` at most.
    pub(super) fn retain_recent(mut self, age: Duration) -> Self {
        self.bounds.age = nanos(age).max(1);
        self
    }

    /// If keys are forgotten by their age, remembers them for this time at least.
    pub(super) fn retain_for(&mut self, time: Duration) {
        if self.bounds.age != u64::MAX {
            self.bounds.age = self.bounds.age.max(nanos(time));
        }
    }

    /// When there are many keys, forgets those whose delays have elapsed.
    pub(super) fn drop_elapsed(mut self) -> Self {
        self.bounds.drop_elapsed = true;
        self
    }

    /// Whether [`update`](Self::update) and [`get`](Self::get) need the time.
    #[inline]
    pub(super) fn needs_time(&self) -> bool {
        self.bounds.age != u64::MAX || self.bounds.drop_elapsed
    }

    /// Whether keys are forgotten without a call of [`forget`](Self::forget).
    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        self.bounds.keys != usize::MAX || self.needs_time()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Forgets what need not be remembered at `now`, and gives memory back.
    pub(super) fn shrink(&self, now: u64) {
        for shard in &self.shards {
            let (mut dropped, mut elapsed) = (Vec::new(), Vec::new());
            let shard = &mut *shard.lock();
            shard.rotate_if_due(&self.bounds, now, &mut dropped);
            for table in [&mut shard.recent, &mut shard.old] {
                elapsed.extend(table.extract_if(|entry| self.bounds.drop_elapsed && entry.record.until <= now));
                table.shrink_to_fit(Entry::hash);
            }
        }
    }
}

impl<K: Hash + Eq> KeyedStore<K> {
    #[inline]
    fn home(&self, key: &K) -> Home<'_, K> {
        let hash = self.hasher.hash_one(key);
        (&self.shards[(hash >> 32) as usize & (self.shards.len() - 1)], ShortHash::of(hash))
    }

    #[inline]
    pub(super) fn get(&self, key: &K, now: u64) -> Option<Record> {
        let (shard, hash) = self.home(key);
        let shard = &*shard.lock();
        // Computed as if the shard had rotated, because a call that only reads changes nothing.
        let ages = shard.ages(&self.bounds, now);
        shard.find(key, hash, ages).map(|entry| entry.record)
    }

    /// **Linearization point of a `forget`.**
    #[inline]
    pub(super) fn forget(&self, key: &K) {
        let (shard, hash) = self.home(key);
        // In a statement of its own, because a guard in the next one would live to its end, and the key would be dropped under the lock.
        let mut shard = shard.lock();
        let entry = shard.remove(key, hash);
        drop(shard);
        drop(entry);
    }
}

impl<K: Hash + Eq + Clone> KeyedStore<K> {
    /// Changes the record of a key, which is empty if the key is new. `change` runs under the shard's lock. **Linearization point of a
    /// `when`.**
    #[inline]
    pub(super) fn update<R>(&self, key: &K, now: u64, change: impl FnOnce(&mut Record) -> R) -> R {
        let (shard, hash) = self.home(key);
        if self.bounds.age == u64::MAX {
            // Most keys have failed before.
            let shard = &mut *shard.lock();
            if let Some(entry) = shard.recent.find_mut(hash.wide(), |entry| entry.key == *key) {
                return change(&mut entry.record);
            }
        }
        self.update_seldom(key, (shard, hash), now, change)
    }

    /// The same for a key that may be new, or too old.
    #[inline(never)]
    fn update_seldom<R>(&self, key: &K, home: Home<'_, K>, now: u64, change: impl FnOnce(&mut Record) -> R) -> R {
        let (shard, hash) = home;
        // Declared before the guards, as `new` below, so that both are dropped after them.
        let mut dropped = Vec::new();
        if self.is_bounded() {
            let shard = &mut *shard.lock();
            shard.rotate_if_due(&self.bounds, now, &mut dropped);
            if let Some(record) = shard.promote(key, hash, &self.bounds, now, &mut dropped) {
                return change(record);
            }
        }
        let new = Entry { record: Record { failures: 0, hash, until: 0 }, key: key.clone() };
        let shard = &mut *shard.lock();
        // Another thread may have inserted the key meanwhile.
        if !self.is_bounded() {
            let entry = match shard.recent.entry(hash.wide(), |entry| entry.key == *key, Entry::hash) {
                TableEntry::Occupied(entry) => entry,
                TableEntry::Vacant(place) => place.insert(new),
            };
            return change(&mut entry.into_mut().record);
        }
        if let Some(record) = shard.promote(key, hash, &self.bounds, now, &mut dropped) {
            return change(record);
        }
        change(shard.insert(new, &self.bounds, now, &mut dropped))
    }
}

impl<K> Shard<K> {
    fn len(&self) -> usize {
        self.recent.len() + self.old.len()
    }

    /// The number of ages that have ended since the age of `recent` began: 0, 1, or more.
    #[inline]
    fn ages(&self, bounds: &Bounds, now: u64) -> u64 {
        if bounds.age == u64::MAX { 0 } else { now.saturating_sub(self.recent_since) / bounds.age }
    }

    /// `since` is the beginning of the age of the keys to come.
    fn rotate(&mut self, since: u64, dropped: &mut Vec<Entries<K>>) {
        let full = mem::take(&mut self.recent);
        dropped.push(mem::replace(&mut self.old, full));
        self.recent_since = since;
    }

    fn rotate_if_due(&mut self, bounds: &Bounds, now: u64, dropped: &mut Vec<Entries<K>>) {
        match self.ages(bounds, now) {
            0 => {}
            1 => self.rotate(self.recent_since + bounds.age, dropped),
            _ => (0..2).for_each(|_| self.rotate(now, dropped)),
        }
        if bounds.drop_elapsed && self.len() >= DROP_ELAPSED_MIN && self.old_elapsed_at <= now {
            self.rotate(self.recent_since, dropped);
            self.old_elapsed_at = self.old.iter().map(|entry| entry.record.until).max().unwrap_or(0);
        }
    }

    /// Inserts a key that is in neither table.
    fn insert(&mut self, entry: Entry<K>, bounds: &Bounds, now: u64, dropped: &mut Vec<Entries<K>>) -> &mut Record {
        if self.recent.len() >= bounds.keys {
            self.rotate(now, dropped);
        }
        &mut self.recent.insert_unique(entry.hash(), entry, Entry::hash).into_mut().record
    }
}

impl<K: Eq> Shard<K> {
    /// `ages` is the number of ages that have ended.
    #[inline]
    fn find<'a>(&'a self, key: &K, hash: ShortHash, ages: u64) -> Option<&'a Entry<K>> {
        let find = |table: &'a Entries<K>| table.find(hash.wide(), |entry| entry.key == *key);
        match ages {
            0 => find(&self.recent).or_else(|| find(&self.old)),
            1 => find(&self.recent),
            _ => None,
        }
    }

    /// The record of a key that is remembered. The key is in `recent` from now on.
    fn promote(
        &mut self,
        key: &K,
        hash: ShortHash,
        bounds: &Bounds,
        now: u64,
        dropped: &mut Vec<Entries<K>>,
    ) -> Option<&mut Record> {
        if let Some(bucket) = self.recent.find_bucket_index(hash.wide(), |entry| entry.key == *key) {
            return self.recent.get_bucket_mut(bucket).map(|entry| &mut entry.record);
        }
        let entry = take(&mut self.old, key, hash)?;
        Some(self.insert(entry, bounds, now, dropped))
    }

    #[inline]
    fn remove(&mut self, key: &K, hash: ShortHash) -> Option<Entry<K>> {
        take(&mut self.recent, key, hash).or_else(|| take(&mut self.old, key, hash))
    }
}

/// Takes a key out of a table, and gives memory back that the other keys do not need.
#[inline]
fn take<K: Eq>(table: &mut Entries<K>, key: &K, hash: ShortHash) -> Option<Entry<K>> {
    let (entry, _) = table.find_entry(hash.wide(), |entry| entry.key == *key).ok()?.remove();
    // Compares the buckets, because the capacity does not count those of removed keys.
    if table.num_buckets() > SHRINK_MIN && table.len() < table.num_buckets() / 8 {
        table.shrink_to(table.len() * 2, Entry::hash);
    }
    Some(entry)
}

impl ShortHash {
    #[inline]
    fn of(hash: u64) -> Self {
        Self(hash as u32)
    }

    /// Widened for a table, which takes a bucket's number from the low bits, and its tag from the high bits.
    #[inline]
    fn wide(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.0)
    }
}

impl<K> Entry<K> {
    #[inline]
    fn hash(&self) -> u64 {
        self.record.hash.wide()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hash::Hasher;

    /// Threads that use different keys then seldom contend for a lock.
    #[test]
    fn keys_are_spread_over_all_shards() {
        let keyed = KeyedStore::new();
        let keys = 100 * keyed.shards.len();
        (0..keys).for_each(|key| keyed.update(&key, 0, |_| ()));
        assert_eq!(keyed.len(), keys);
        assert!(keyed.shards.len() > 1);
        assert!(keyed.shards.iter().all(|shard| (50..200).contains(&shard.lock().len())));
    }

    /// From 1024 keys on, each shard has its part of the bound.
    #[test]
    fn a_bound_holds_with_any_number_of_shards() {
        for (bound, shards) in [(1000, 1..2), (100_000, 2..257)] {
            let keyed = KeyedStore::new().max_tracked(bound);
            (0..3 * bound).for_each(|key| keyed.update(&key, 0, |_| ()));
            assert!(shards.contains(&keyed.shards.len()) && (bound / 4..=bound).contains(&keyed.len()), "{bound}");
        }
    }

    #[test]
    fn a_hasher_stays_and_does_not_change_while_there_are_keys() {
        let hashers = [1, 2].map(|seed| crate::random::SplitMix::new(seed).hasher());
        let [first, second] = hashers.clone().map(|hasher| hasher.hash_one(7));
        let mut keyed = KeyedStore::new();
        keyed.hash_with(hashers[0].clone());
        let mut keyed = keyed.max_tracked(10);
        assert_eq!(keyed.hasher.hash_one(7), first);
        keyed.update(&1, 0, |_| ());
        keyed.hash_with(hashers[1].clone());
        assert_eq!(keyed.hasher.hash_one(7), first, "there is a key");
        keyed.forget(&1);
        keyed.hash_with(hashers[1].clone());
        assert_eq!(keyed.hasher.hash_one(7), second);
    }

    /// A key is remembered until its delay has elapsed, and not much longer if there are many.
    #[test]
    fn a_key_is_dropped_when_its_delay_has_elapsed() {
        let keyed = KeyedStore::with_bounds(Bounds { keys: usize::MAX, age: u64::MAX, drop_elapsed: true }, 1);
        let until = |key: u64| key + 10 + key % 7 * 50;
        for now in 0..5000 {
            keyed.update(&now, now, |record| record.until = until(now));
            let waits = (now.saturating_sub(310)..=now).filter(|key| until(*key) > now);
            assert!({ waits }.all(|key| keyed.get(&key, now).is_some()), "a key that waits at {now}");
            let few = now < DROP_ELAPSED_MIN as u64 - 1;
            assert!(!few || keyed.len() as u64 == now + 1, "there is room at {now}");
            assert!(keyed.len() < 4 * DROP_ELAPSED_MIN, "{} keys at {now}", keyed.len());
        }
    }

    #[test]
    fn a_shrink_frees_both_tables() {
        for keys in [DROP_ELAPSED_MIN - 1, 10 * DROP_ELAPSED_MIN] {
            let keyed = KeyedStore::with_bounds(Bounds { keys: usize::MAX, age: u64::MAX, drop_elapsed: true }, 1);
            (0..keys).for_each(|key| keyed.update(&key, 0, |record| record.until = 1));
            keyed.shrink(1);
            let shard = keyed.shards[0].lock();
            assert_eq!([&shard.recent, &shard.old].map(|table| table.capacity()), [0, 0], "{keys} keys");
        }
    }

    /// The tags of hashes tell keys apart. Without them, a look-up would compare all keys that share its buckets.
    #[test]
    fn a_look_up_compares_few_keys() {
        thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });
        #[derive(Clone, Eq)]
        struct Key(usize);
        impl Hash for Key {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }
        impl PartialEq for Key {
            fn eq(&self, other: &Self) -> bool {
                COMPARED.set(COMPARED.get() + 1);
                self.0 == other.0
            }
        }
        let keyed = KeyedStore::new();
        let fail = || (0..10_000).for_each(|key| keyed.update(&Key(key), 0, |_| ()));
        fail();
        COMPARED.set(0);
        fail();
        assert!((10_000..12_000).contains(&COMPARED.get()), "{} comparisons of 10 000 keys", COMPARED.get());
    }

    /// A table of which less than an eighth is used shrinks to twice the length that it needs, unless it is small.
    #[test]
    fn storage_follows_the_number_of_keys() {
        let mut table = Entries::new();
        let hash = |n: u32| ShortHash::of(u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32);
        for key in 0..10_000 {
            let entry = Entry { record: Record { failures: 0, hash: hash(key), until: 0 }, key };
            table.insert_unique(entry.hash(), entry, Entry::hash);
        }
        let mut before = table.num_buckets();
        for n in 0..10_000 {
            assert!(take(&mut table, &n, hash(n)).is_some_and(|entry| entry.key == n));
            let (left, now) = (table.len(), table.num_buckets());
            assert!(now == before || left < before / 8 && table.capacity() >= 2 * left, "{before} -> {now} for {left}");
            assert!(now <= SHRINK_MIN || left >= now / 8, "{now} for {left}");
            before = now;
        }
        assert_eq!(before, SHRINK_MIN, "a small table is not shrunk");
    }
}
