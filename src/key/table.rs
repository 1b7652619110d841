//! Finds a key's slot by its hash.
//!
//! ```text
//!  buckets            arena
//! ┌───┐       ┌──────────────────┐     ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ●─┼────▶│ key hash  next ─ │
//! ├───┤       └──────────────────┘     └──────────────────┘
//! │ ─ │
//! ├───┤       ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ─ │
//! └───┘       └──────────────────┘
//! ```
//!
//! Chains run through the slots, so a key takes 16 to 32 bytes here, and leaves no tombstone. There are at least two buckets for each key:
//! new keys go to the front of a chain and old keys leave first, so with one bucket for each, filling and draining a queue takes a fifth
//! longer.
//!
//! A large table grows and shrinks in many small steps, so that no call takes long: each add, and each key that comes or goes, moves some
//! chains, beginning with the last one, and the memory behind them is freed bit by bit. A table that grows moves its chains to a new array,
//! and one that shrinks moves them to the front of the same array, because the allocation of a large one may take more than a millisecond.
//! Moving a chain writes both chains of the new array that come from it, and until then calls for their keys use the old array (H1).
//!
//! All calls are made under the queue's lock. The only foreign code that runs here is the look-up's `equivalent`, as a rule `K`'s `Eq`,
//! before anything is changed.

use super::arena::{Arena, Retired};
use super::buckets::{Buckets, Chain};
use super::chunk::Chunk;
use super::hash::KeyHash;
use super::slot::EntryRef;
use crate::prefetch::prefetch_at;
use crate::sync::model_const;
use equivalent::Equivalent;
use std::ops::Range;

/// The table of a queue, with the slots of its keys.
pub(crate) struct Table<K> {
    /// Empty while chains move, so that the check of the index alone tells a call that its chain is here.
    buckets: Buckets<K>,
    /// While chains move: the array that they move to. Empty otherwise.
    new: Buckets<K>,
    /// The array that chains leave while the table grows. Empty otherwise.
    old: Buckets<K>,
    /// The place and the length of `buckets`, or of `new` while chains move: for [`prefetch_bucket`].
    place: (usize, usize),
    /// While chains move: chains from this number on have moved. 0 otherwise.
    left: usize,
    /// While chains move: the number of chains before the move, minus one. 32 bits suffice, as a hash has no more.
    old_mask: u32,
    /// While chains move: the number of chains after it, minus one.
    new_mask: u32,
    /// With this number of keys or more, an insert makes room. While chains move, every insert moves some.
    room_at: usize,
    /// With fewer keys than this, a remove gives room back. While chains move, every remove moves some.
    shrink_at: usize,
    /// The array is not shrunk below this length, which is [`MIN_BUCKETS`], or more if the user has asked for capacity.
    keep: usize,
    arena: Arena<K>,
}

/// The array is not shrunk below this length, so that a few keys that come and go do not resize it each time.
const MIN_BUCKETS: usize = model_const(4096, 4);

/// With up to this number of keys, in chunks for at most twice as many, the number of buckets changes in one step, which takes at most half
/// a millisecond.
const REHASH_AT_ONCE_MAX: usize = model_const(
    if cfg!(all(test, miri)) {
        64
    } else if cfg!(test) {
        1000
    } else {
        1 << 14
    },
    2,
);

/// The number of buckets that an array loses before it gives their memory back: half a mebibyte.
const GIVE_BACK: usize = 1 << 16;

impl<K> Table<K> {
    /// The end of the indices of a chunk's slots, for a [`SideArray`](super::SideArray).
    pub(crate) const CHUNK: usize = Chunk::<K>::END;

    #[cfg(all(test, not(loom)))]
    pub(crate) const SLOT: usize = size_of::<super::slot::Slot<K>>();

    pub(crate) fn new(capacity: usize) -> Self {
        let count = if capacity == 0 { 0 } else { (2 * capacity + 1).next_power_of_two() };
        let keep = count.max(MIN_BUCKETS);
        let mut table = Self {
            buckets: Buckets::empty(count),
            new: Buckets::unwritten(0),
            old: Buckets::unwritten(0),
            place: (0, 0),
            left: 0,
            old_mask: 0,
            new_mask: 0,
            room_at: 0,
            shrink_at: 0,
            keep,
            arena: Arena::new(),
        };
        table.note_resize();
        table
    }

    /// The slot of this key.
    #[inline]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        let Some(chain) = self.buckets.of(hash) else { return self.find_while_moving(key, hash) };
        Self::find_in(chain, key, hash)
    }

    /// The same, before an add, which moves some chains. Otherwise keys that are added again and again, with no new one among them, could
    /// leave the table in the middle of a move for ever, and look-ups take longer there.
    #[inline]
    pub(crate) fn find_to_add<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        let Some(chain) = self.buckets.of(hash) else { return self.find_and_move(key, hash) };
        Self::find_in(chain, key, hash)
    }

    #[cold]
    fn find_and_move<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        self.step();
        self.find(key, hash)
    }

    // Slow calls have a look-up of their own: with one that fast calls share, fills of a million keys take a tenth longer.
    #[cold]
    fn find_while_moving<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        Self::find_in(self.chain_while_moving(hash)?, key, hash)
    }

    #[inline]
    fn find_in<Q: Equivalent<K> + ?Sized>(chain: &Chain<K>, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        let mut next = chain.find(hash);
        while let Some(entry) = next {
            if entry.hash() == hash && key.equivalent(entry.key()) {
                return next;
            }
            next = entry.slot().next.get();
        }
        None
    }

    /// The chain of a hash while chains move, or `None` if they do not move because there are none.
    fn chain_while_moving(&self, hash: KeyHash) -> Option<&Chain<K>> {
        let old = (hash.0 & self.old_mask) as usize;
        if old >= self.left {
            self.new.chain((hash.0 & self.new_mask) as usize)
        } else if self.grows() {
            self.old.chain(old)
        } else {
            self.new.chain(old)
        }
    }

    // Each of the next two has a cold half of its own, which saves four instructions a cycle.

    #[inline]
    fn link(&self, entry: EntryRef<K>) {
        let Some(chain) = self.buckets.of(entry.hash()) else { return self.link_while_moving(entry) };
        chain.link(entry);
    }

    #[cold]
    fn link_while_moving(&self, entry: EntryRef<K>) {
        self.chain_while_moving(entry.hash()).expect("there are chains").link(entry);
    }

    #[inline]
    fn unlink(&self, entry: EntryRef<K>) {
        let Some(chain) = self.buckets.of(entry.hash()) else { return self.unlink_while_moving(entry) };
        chain.unlink(entry);
    }

    #[cold]
    fn unlink_while_moving(&self, entry: EntryRef<K>) {
        self.chain_while_moving(entry.hash()).expect("there are chains").unlink(entry);
    }

    /// Inserts a key that is not there. The verb then sets a bit of its state (I4).
    #[inline(always)]
    pub(crate) fn insert(&mut self, key: K, hash: KeyHash, group: u32) -> EntryRef<K> {
        if self.arena.taken() >= self.room_at {
            self.make_room();
        }
        let entry = self.arena.insert(key, hash, group);
        self.link(entry);
        entry
    }

    /// Called before an insert, with [`room_at`](Self::room_at) keys or more.
    #[cold]
    fn make_room(&mut self) {
        if self.left == 0 {
            self.resize((self.buckets.len() * 2).max(model_const(8, 2)));
        }
        self.step();
    }

    /// Called after a remove, with fewer keys than [`shrink_at`](Self::shrink_at).
    #[cold]
    fn give_back_room(&mut self) {
        if self.left == 0 {
            self.resize(self.keep.max(self.buckets.len() / 4));
        }
        self.step();
    }

    /// Called after each change of the number of buckets, or of what happens next.
    fn note_resize(&mut self) {
        let array = if self.left == 0 { &self.buckets } else { &self.new };
        let buckets = array.len();
        self.place = (array.address(), buckets);
        (self.room_at, self.shrink_at) = match self.left {
            0 => (buckets / 2, if buckets > self.keep { buckets / 16 } else { 0 }),
            _ => (0, usize::MAX),
        };
    }

    /// Takes out a key whose last bit the verb has cleared (I4). The verb forgets the entry, and the caller drops the key without the lock.
    #[inline(always)]
    pub(crate) fn remove(&mut self, entry: EntryRef<K>) -> K {
        self.unlink(entry);
        let key = self.arena.remove(entry);
        if self.arena.taken() < self.shrink_at {
            self.give_back_room();
        }
        key
    }

    /// Prefetches the first slot of the chain in which the look-up of this hash will search. Its bucket should be in the cache already.
    #[inline]
    pub(crate) fn prefetch_first(&self, hash: KeyHash) {
        self.buckets.of(hash).and_then(|chain| chain.find(hash)).into_iter().for_each(EntryRef::prefetch);
    }

    /// Prefetches the bucket that the `done` of this key will read.
    #[inline]
    pub(crate) fn prefetch(&self, entry: EntryRef<K>) {
        prefetch_bucket(self.place, entry.hash());
    }

    /// The place and the number of the buckets, for [`prefetch_bucket`]. The number is not a power of two while the table shrinks.
    #[inline]
    pub(crate) fn buckets(&self) -> (usize, usize) {
        self.place
    }

    /// Whether the key is in this table, and not in that of another machine.
    #[inline]
    pub(crate) fn owns(&self, entry: EntryRef<K>) -> bool {
        self.arena.owns(&entry)
    }

    /// The key in the slot of this number, if there is one.
    pub(crate) fn get(&self, number: u32) -> Option<EntryRef<K>> {
        self.arena.get(number)
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn bytes(&self) -> usize {
        self.arena.kept() * Chunk::<K>::SLOTS * Self::SLOT
            + (self.buckets.capacity() + self.new.capacity() + self.old.capacity()) * 8
    }

    #[cfg(all(test, not(loom)))]
    fn count(&self) -> usize {
        self.buckets.len() + self.new.len()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.arena.taken()
    }

    /// The keys in these chunks of slots: see [`Arena::iter_chunks`].
    pub(crate) fn iter(&self, chunks: Range<usize>) -> impl Iterator<Item = EntryRef<K>> {
        self.arena.iter_chunks(chunks)
    }

    pub(crate) fn chunks(&self) -> usize {
        self.arena.chunks()
    }

    /// Whether there are chunks or buckets to be freed without the lock.
    #[inline]
    pub(crate) fn has_retired(&self) -> bool {
        self.arena.has_retired()
    }

    /// Takes memory that is not needed any more, for the caller to free without the lock.
    pub(crate) fn take_retired(&mut self) -> Vec<Retired<K>> {
        self.arena.take_retired()
    }

    pub(crate) fn shrink_chunks(&mut self, chunks: Range<usize>) {
        self.arena.shrink(chunks);
    }

    /// One step of freeing the buckets that the keys do not need. Returns whether there is more to do.
    pub(crate) fn shrink_buckets(&mut self, chains: usize) -> bool {
        self.keep = MIN_BUCKETS;
        self.note_resize();
        if self.left == 0 {
            let fit = if self.arena.taken() == 0 { 0 } else { (2 * self.arena.taken() + 1).next_power_of_two() };
            if fit >= self.buckets.len() {
                self.arena.shrink_arrays();
                return false;
            }
            self.resize(fit);
        }
        if self.left > 0 {
            self.move_chains(chains);
        }
        true
    }

    /// While chains move: whether they move to a new array.
    #[inline]
    fn grows(&self) -> bool {
        self.old.len() > 0
    }

    /// Changes the number of buckets: in one go if there are few keys, and otherwise a few chains at a time, in [`step`](Self::step). Not
    /// called while chains move.
    ///
    /// One go is three times cheaper, because it visits the slots sequentially, so that only the buckets are random access. But it takes
    /// long if few keys are left of many, because they lie in as many chunks, each of them a cache miss.
    #[cold]
    fn resize(&mut self, count: usize) {
        debug_assert_eq!(self.left, 0);
        let (keys, slots) = (self.arena.taken(), self.arena.chunks() * Chunk::<K>::SLOTS);
        if keys == 0 || keys <= REHASH_AT_ONCE_MAX && slots <= 2 * REHASH_AT_ONCE_MAX {
            // The old array is freed before the new one is allocated, which lowers the peak of memory, unless freeing it takes long.
            let old = std::mem::replace(&mut self.buckets, Buckets::unwritten(0));
            if old.len() > GIVE_BACK {
                self.arena.retire(old);
            } else {
                drop(old);
            }
            self.buckets = Buckets::empty(count);
            if keys > 0 {
                self.arena.iter_chunks(0..self.arena.chunks()).for_each(|entry| self.link(entry));
            }
        } else {
            debug_assert!(count > 0 && self.buckets.len() > 0, "there are keys, so there are buckets");
            self.left = self.buckets.len();
            // To a quarter at most, because the keys that come meanwhile must have enough buckets at the end.
            let count = count.max(self.left / 4);
            (self.old_mask, self.new_mask) = ((self.left - 1) as u32, (count - 1) as u32);
            self.new = std::mem::replace(&mut self.buckets, Buckets::unwritten(0));
            if count > self.left {
                debug_assert_eq!(count, 2 * self.left);
                self.old = std::mem::replace(&mut self.new, Buckets::unwritten(count));
            }
        }
        self.note_resize();
    }

    /// Moves some chains. Each insert and each remove does this, so that the last chain has moved long before the next resize.
    #[inline]
    fn step(&mut self) {
        if self.left > 0 {
            // More chains while it shrinks, because there are at least 16 buckets for each key then.
            self.move_chains(model_const(if self.grows() { 32 } else { 64 }, 1));
        }
    }

    #[cold]
    fn move_chains(&mut self, count: usize) {
        let grows = self.grows();
        let end = if grows { 0 } else { self.new_mask as usize + 1 };
        let start = self.left.saturating_sub(count).max(end);
        for bucket in (start..self.left).rev() {
            self.move_chain(bucket, grows);
        }
        self.left = start;
        let leaving = if grows { &mut self.old } else { &mut self.new };
        leaving.truncate(start, if start == end { 1 } else { GIVE_BACK });
        if start == end {
            self.left = 0;
            self.buckets = std::mem::replace(&mut self.new, Buckets::unwritten(0));
        }
        self.note_resize(); // the array may be elsewhere
    }

    #[inline]
    fn move_chain(&mut self, bucket: usize, grows: bool) {
        let old = if grows {
            // The two chains that come from this one (H1).
            self.new.clear(bucket);
            self.new.clear(bucket + self.old_mask as usize + 1);
            &self.old
        } else {
            &self.new
        };
        let mut next = old.chain(bucket).and_then(Chain::first);
        while let Some(entry) = next {
            next = entry.slot().next.get(); // `link` overwrites it
            self.new.chain((entry.hash().0 & self.new_mask) as usize).expect("it is in the array").link(entry);
        }
    }
}

/// Prefetches the bucket of this hash, if the buckets are still where they were, and none of their chains is in another array.
#[inline]
pub(crate) fn prefetch_bucket((start, count): (usize, usize), hash: KeyHash) {
    let bucket = hash.0 as usize & count.wrapping_sub(1);
    prefetch_at(std::ptr::without_provenance::<usize>(start).wrapping_add(bucket));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The table grows and shrinks several times, with look-ups while chains move.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn keys_are_found_while_the_buckets_change() {
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        // Half of the keys have good hashes, and the others bad ones, which make long chains.
        let hash =
            |key: u64| KeyHash(if key % 2 == 0 { (key as u32).wrapping_mul(0x9e37_79b9) } else { key as u32 % 64 });
        let mut table = Table::new(0);
        let mut known = HashMap::new();
        for (keys, adds) in [(100, 9), (50_000, 9), (50_000, 1), (2_000, 5), (60_000, 9), (60_000, 0)] {
            for _ in 0..150_000 {
                let key = next(keys);
                let found = table.find(&key, hash(key));
                assert_eq!(found.is_some(), known.contains_key(&key));
                if let Some(slot) = found {
                    assert!(known[&key] == slot);
                    if next(10) >= adds {
                        known.remove(&key);
                        assert_eq!(table.remove(slot), key);
                    }
                } else if next(10) < adds {
                    known.insert(key, table.insert(key, hash(key), 0));
                }
            }
            assert_eq!(table.arena.taken(), known.len());
        }
        for (key, slot) in known {
            assert_eq!(table.remove(slot), key);
        }
        assert_eq!((table.count(), table.old.len()), (MIN_BUCKETS, 0), "what a burst took is given back");
        while table.shrink_buckets(100) {}
        assert_eq!(table.count(), 0);
    }

    /// The last key of many leaves between two steps of a shrink.
    #[test]
    fn a_table_that_gets_empty_while_it_shrinks_works_on() {
        const KEYS: usize = if cfg!(miri) { 400 } else { 6000 };
        let mut table = Table::new(0);
        let mut slots: Vec<_> = (0..KEYS as u32).map(|n| table.insert(n, spread(n), 0)).collect();
        let last = slots.remove(KEYS / 2);
        for slot in slots {
            table.remove(slot);
        }
        table.shrink_chunks(0..table.chunks());
        table.remove(last);
        assert!(table.chunks() * Chunk::<u32>::SLOTS > 2 * REHASH_AT_ONCE_MAX, "its chunk is a spare one, far back");
        while table.shrink_buckets(100) {}
        assert_eq!((table.count(), table.left), (0, 0));
        for n in 0..100 {
            table.insert(n, spread(n), 0);
            assert!(table.find(&n, spread(n)).is_some());
        }
    }

    /// After the first of many steps no key comes or goes, but known keys are added.
    #[test]
    fn a_move_ends_though_no_key_comes_or_goes() {
        let mut table = Table::new(0);
        let keys = (0..).find(|n| {
            table.insert(*n, spread(*n), 0);
            table.left > 0
        });
        let keys = keys.expect("the table grows in many steps");
        let adds = (0..keys).take_while(|n| {
            assert!(table.find_to_add(n, spread(*n)).is_some());
            table.left > 0
        });
        assert!(adds.count() < keys as usize / 4);
    }

    /// Keys come while the table shrinks to the length that few keys need.
    #[test]
    fn keys_that_come_while_it_shrinks_get_two_buckets_each() {
        let mut table = Table::new(1 << 14);
        let slots: Vec<_> = (0..6000_u32).map(|n| table.insert(n, spread(n), 0)).collect();
        for (_, slot) in slots.into_iter().enumerate().filter(|(n, _)| n % 100 != 99) {
            table.remove(slot);
        }
        table.shrink_buckets(100);
        assert!(table.left > 0, "it shrinks in many steps");
        for n in 6000..10_000 {
            table.insert(n, spread(n), 0);
            assert!(table.count() >= 2 * table.len(), "{} keys, {} buckets", table.len(), table.count());
        }
    }

    /// Few keys are left of many, in as many chunks, so their buckets change in many steps.
    #[test]
    fn few_keys_in_many_chunks_move_in_many_steps() {
        const KEYS: u32 = if cfg!(miri) { 800 } else { 60_000 };
        let mut table = Table::new(0);
        let slots: Vec<_> = (0..KEYS).map(|n| table.insert(n, spread(n), 0)).collect();
        for (n, slot) in slots.into_iter().enumerate().filter(|(n, _)| n % 100 != 0) {
            assert_eq!(table.remove(slot), n as u32);
        }
        while table.left > 0 {
            table.move_chains(100);
        }
        table.keep = 0;
        let (mut steps, before) = (0, table.count());
        while table.shrink_buckets(100) {
            steps += 1;
            assert!((0..KEYS).step_by(6000).all(|n| table.find(&n, spread(n)).is_some()));
        }
        let after = table.count();
        assert!(after < before && steps >= (before - after) / 100, "{steps} steps from {before} to {after}");
        assert_eq!(table.buckets.capacity(), after, "the memory of the other buckets is given back");
        assert!((0..KEYS).step_by(100).all(|n| table.find(&n, spread(n)).is_some()));
    }

    /// No call moves more than a few chains, and a resize ends before the next one begins. With few keys, a resize is one step.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn growing_and_shrinking_are_many_small_steps() {
        let mut table = Table::new(0);
        let mut slots = Vec::new();
        let (mut growing, mut shrinking, mut before) = (0, 0, 0_usize);
        for n in 0..200_000_u32 {
            slots.push(table.insert(n, spread(n), 0));
            growing = growing.max(before.saturating_sub(table.left));
            before = table.left;
            assert!(table.old.capacity() - table.left <= GIVE_BACK, "moved buckets take memory");
            assert!(table.count() >= 2 * slots.len(), "two buckets for each key");
            assert!(slots.len() > REHASH_AT_ONCE_MAX || table.old.len() == 0, "in one step");
        }
        while let Some(slot) = slots.pop() {
            table.remove(slot);
            let left = if table.left == 0 { table.count() } else { table.left };
            shrinking = shrinking.max(before.saturating_sub(left));
            before = table.left;
        }
        assert_eq!((growing, shrinking), (32, 64), "chains in one step");
    }

    /// The table shrinks to the length that its keys need, even in the middle of another resize.
    #[test]
    fn shrinking_loses_no_key() {
        const FEW: usize = if cfg!(miri) { 512 } else { 2048 };
        let mut table = Table::new(0);
        let mut slots: Vec<_> = (0..=FEW as u32).map(|n| table.insert(n, spread(n), 0)).collect();
        assert!(table.left > 0, "it is growing");
        for slot in slots.drain(FEW - FEW / 42..) {
            table.remove(slot);
        }
        assert!(table.left > 0, "it is still growing");
        while table.shrink_buckets(100) {}
        assert_eq!((table.count(), table.old.len()), (2 * FEW, 0));
        assert_eq!(table.buckets(), (table.buckets.address(), 2 * FEW));
        for (n, slot) in (0..).zip(slots) {
            assert!(table.find(&n, spread(n)) == Some(slot));
        }
    }

    fn insert(table: &mut Table<u32>, keys: std::ops::Range<u32>) -> Vec<EntryRef<u32>> {
        keys.map(|n| table.insert(n, spread(n), 0)).collect()
    }

    fn remove(table: &mut Table<u32>, slots: impl IntoIterator<Item = EntryRef<u32>>) {
        for slot in slots {
            table.remove(slot);
        }
    }

    #[test]
    fn a_capacity_is_room_for_as_many_keys() {
        for (capacity, buckets) in [(0, 0), (1, 4), (8, 32), (100, 256), (128, 512)] {
            assert_eq!(Table::<u32>::new(capacity).count(), buckets);
        }
        let mut table = Table::new(100);
        insert(&mut table, 0..128);
        assert_eq!(table.count(), 256);
        insert(&mut table, 128..129);
        assert_eq!(table.count(), 512);
    }

    /// The number of keys makes the table grow and shrink, and nothing else does.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn two_buckets_for_each_key_and_up_to_sixteen() {
        let mut table = Table::new(0);
        let mut slots = insert(&mut table, 0..10_000);
        assert_eq!((table.left, table.count()), (0, 32_768));
        remove(&mut table, slots.drain(2048..));
        assert_eq!((table.left, table.count()), (0, 32_768));
        remove(&mut table, slots.pop());
        assert_ne!((table.left, table.count()), (0, 32_768));
        remove(&mut table, slots);
        assert_eq!((table.count(), table.shrink_at), (MIN_BUCKETS, 0), "it gets no shorter");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_capacity_is_kept_until_the_table_is_shrunk() {
        let mut table = Table::new(10_000);
        let slots = insert(&mut table, 0..10_000);
        assert!(!table.shrink_buckets(100), "the keys need all");
        remove(&mut table, slots);
        assert_eq!(table.count(), MIN_BUCKETS);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn few_keys_in_few_chunks_move_in_one_step() {
        let mut table = Table::new(4096);
        insert(&mut table, 0..512);
        assert!(table.shrink_buckets(0));
        assert_eq!((table.left, table.count()), (0, 2048));
        let mut table = Table::new(4096);
        let slots = insert(&mut table, 0..1900);
        remove(&mut table, slots.into_iter().step_by(2));
        assert!(table.shrink_buckets(0));
        assert_eq!((table.left, table.count()), (0, 2048));
    }

    /// Freeing it takes long, so that is not done under the lock.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn a_large_array_is_freed_later() {
        for (capacity, buckets, retired) in [(GIVE_BACK / 4, GIVE_BACK, 0), (GIVE_BACK / 2, 2 * GIVE_BACK, 1)] {
            let mut table = Table::<u32>::new(capacity);
            assert_eq!(table.count(), buckets);
            assert!(table.shrink_buckets(100));
            assert_eq!((table.has_retired(), table.take_retired().len()), (retired > 0, retired));
        }
    }

    fn spread(n: u32) -> KeyHash {
        KeyHash(n.wrapping_mul(0x9e37_79b9))
    }
}
