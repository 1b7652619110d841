//! A hash table that finds a key it knows in one cache line: linear probing over an array of hash, count and key side by side.
//!
//! ```text
//!  hash & mask ─┐
//!               ▼
//! ┌───┬───┬───┬───┬───┬───┬───┬───┐
//! │ ─ │ A │ ─ │ B │ C │ D │ ─ │ ─ │   B, C and D: a run. A key is in the run that begins at or before its place.
//! └───┴───┴───┴───┴───┴───┴───┴───┘
//! ```
//!
//! At least a quarter of the places is free, so each probe ends. A key that is removed leaves no mark: later entries of its run move
//! back to fill its place.
//!
//! `Eq` of keys is the only foreign code that runs here, and it runs before anything is changed: a panic leaves the table as it was.

use super::{Entry, KeyHash};
use std::mem;

/// Keys with what is remembered of them. Empty tables allocate nothing.
pub(super) struct Table<K> {
    /// Their number is a power of two, or zero.
    places: Box<[Option<Entry<K>>]>,
    len: usize,
}

/// The smallest number of places.
const PLACES_MIN: usize = 4;

impl<K> Default for Table<K> {
    fn default() -> Self {
        Self { places: Box::default(), len: 0 }
    }
}

impl<K> Table<K> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of keys that it holds before it grows: three quarters of the places.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.places.len() / 4 * 3
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<K>> {
        self.places.iter().flatten()
    }

    /// The entry at a place that [`find`](Self::find) or [`insert`](Self::insert) has returned, if nothing was changed since.
    #[inline]
    pub(super) fn at(&mut self, place: usize) -> &mut Entry<K> {
        self.places[place].as_mut().expect("it is there")
    }

    /// Inserts a key that is not in the table, and returns its place.
    pub(super) fn insert(&mut self, entry: Entry<K>) -> usize {
        if self.len >= self.capacity() {
            self.resize(self.len + 1);
        }
        self.len += 1;
        self.put(entry)
    }

    /// The same, for a caller that knows the first free place of the key's probe.
    #[inline]
    pub(super) fn insert_at(&mut self, place: usize, entry: Entry<K>) -> usize {
        if self.len >= self.capacity() {
            return self.insert(entry);
        }
        self.len += 1;
        self.places[place] = Some(entry);
        place
    }

    /// Frees memory: keeps room for this number of keys, or for the present keys, if they are more.
    pub(super) fn shrink_to(&mut self, keys: usize) {
        let keys = keys.max(self.len);
        if places_for(keys) < self.places.len() {
            self.resize(keys);
        }
    }

    /// Moves an entry to `taken` if `wanted` is true for it.
    pub(super) fn extract_if(&mut self, wanted: impl Fn(&Entry<K>) -> bool, taken: &mut Vec<Entry<K>>) {
        for place in 0..self.places.len() {
            // Again at the same place: a later entry may have moved there. Entries that move past the end of the array have been
            // looked at.
            while self.places[place].as_ref().is_some_and(&wanted) {
                taken.extend(self.remove(place));
            }
        }
    }

    /// Removes the entry at a place.
    #[inline]
    fn remove(&mut self, place: usize) -> Option<Entry<K>> {
        let (mask, places) = (self.mask(), &mut *self.places);
        let removed = places[place].take()?;
        self.len -= 1;
        let (mut free, mut at) = (place, place);
        loop {
            at = (at + 1) & mask;
            let Some(entry) = &places[at] else { return Some(removed) };
            // How far the entry is from where its probe begins, and from the free place: it may not move back past the first.
            let from_home = at.wrapping_sub(entry.record.hash.place(mask)) & mask;
            if from_home >= at.wrapping_sub(free) & mask {
                places.swap(at, free);
                free = at;
            }
        }
    }

    /// Changes the number of places to what this number of keys needs: more, or fewer.
    #[cold]
    fn resize(&mut self, keys: usize) {
        let places = (0..places_for(keys)).map(|_| None).collect();
        for entry in mem::replace(&mut self.places, places).into_iter().flatten() {
            self.put(entry);
        }
    }

    /// Puts an entry into the first free place of its probe.
    #[inline]
    fn put(&mut self, entry: Entry<K>) -> usize {
        let mut place = entry.record.hash.place(self.mask());
        while self.places[place].is_some() {
            place = self.after(place);
        }
        self.places[place] = Some(entry);
        place
    }

    /// The place after this one, in a circle.
    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & self.mask()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }
}

impl<K: Eq> Table<K> {
    /// The place of a key; or, if it is not there, the first free place of its probe.
    #[inline]
    pub(super) fn find(&self, key: &K, hash: KeyHash) -> Result<usize, usize> {
        let mut place = hash.place(self.mask());
        // In a table without places, `get` returns `None` at once, and the free place is not used: the table grows first.
        while let Some(Some(entry)) = self.places.get(place) {
            if entry.record.hash == hash && entry.key == *key {
                return Ok(place);
            }
            place = self.after(place);
        }
        Err(place)
    }

    pub(super) fn get(&self, key: &K, hash: KeyHash) -> Option<&Entry<K>> {
        self.places[self.find(key, hash).ok()?].as_ref()
    }

    #[inline]
    pub(super) fn take(&mut self, key: &K, hash: KeyHash) -> Option<Entry<K>> {
        self.remove(self.find(key, hash).ok()?)
    }
}

/// The number of places for this number of keys.
fn places_for(keys: usize) -> usize {
    if keys == 0 { 0 } else { (keys + keys.div_ceil(3)).next_power_of_two().max(PLACES_MIN) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rate_limiter::keyed::Record;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    thread_local! {
        /// The number of calls of `Eq` until one panics. 0: none.
        static FUSE: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Debug, Clone, Copy)]
    struct Key(u16);

    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            let fuse = FUSE.get();
            FUSE.set(fuse.saturating_sub(1));
            if fuse == 1 {
                resume_unwind(Box::new(()));
            }
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    impl Key {
        /// Some keys have the same hash, and some others begin their probe at one of the last places, whatever the number of places.
        fn hash(self) -> KeyHash {
            KeyHash::new(match self.0 % 4 {
                0 => (self.0 / 64).into(),
                1 => u64::from(u32::MAX - u32::from(self.0 % 8)),
                _ => u64::from(self.0).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20,
            })
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        /// Counts a failure. A new key is inserted.
        Count(Key),
        Take(Key),
        Shrink(usize),
        /// Takes out every key that has this remainder.
        Extract(u16, u16),
        /// Looks for a key, or takes it, and `Eq` panics in the call of this number.
        Panic(Key, bool, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        let key = || (0..400_u16).prop_map(Key);
        prop_oneof![
            20 => key().prop_map(Op::Count),
            14 => key().prop_map(Op::Take),
            1 => (0..500_usize).prop_map(Op::Shrink),
            1 => (2..9_u16).prop_flat_map(|by| (Just(by), 0..by)).prop_map(|(by, rest)| Op::Extract(by, rest)),
            4 => (key(), any::<bool>(), 1..4_usize).prop_map(|(key, take, at)| Op::Panic(key, take, at)),
        ]
    }

    fn entry(key: Key) -> Entry<Key> {
        Entry { record: Record { failures: 1, hash: key.hash(), until: 0 }, key }
    }

    /// Each entry is found from where its probe begins, and nothing else is in the table.
    fn check(table: &Table<Key>, reference: &HashMap<u16, u32>) {
        assert_eq!((table.len(), table.entries().count()), (reference.len(), reference.len()));
        assert!(table.len() <= table.capacity());
        assert!(table.places.is_empty() || table.places.len() >= PLACES_MIN && table.places.len().is_power_of_two());
        for (&key, &failures) in reference {
            let entry = table.get(&Key(key), Key(key).hash()).expect("the key is found");
            assert_eq!((entry.key.0, entry.record.failures), (key, failures));
        }
    }

    /// The same as `std`'s map, also after a panic of `Eq`.
    fn compare(ops: Vec<Op>) {
        let (mut table, mut reference) = (Table::default(), HashMap::new());
        for op in ops {
            match op {
                Op::Count(key) => {
                    *reference.entry(key.0).or_insert(0) += 1;
                    match table.find(&key, key.hash()) {
                        Ok(place) => _ = table.at(place).record.count(),
                        Err(free) => {
                            let place = table.insert_at(free, entry(key));
                            assert_eq!(table.at(place).key.0, key.0);
                        }
                    }
                }
                Op::Take(key) => {
                    let taken = table.take(&key, key.hash()).map(|entry| (entry.key.0, entry.record.failures));
                    assert_eq!(taken, reference.remove_entry(&key.0));
                }
                Op::Shrink(keys) => {
                    let before = table.places.len();
                    table.shrink_to(keys);
                    assert_eq!(table.places.len(), before.min(places_for(keys.max(table.len()))));
                }
                Op::Extract(by, rest) => {
                    let mut taken = Vec::new();
                    table.extract_if(|entry| entry.key.0 % by == rest, &mut taken);
                    for entry in &taken {
                        assert_eq!(reference.remove(&entry.key.0), Some(entry.record.failures));
                    }
                    assert!(reference.keys().all(|key| key % by != rest));
                }
                Op::Panic(key, take, at) => {
                    FUSE.set(at);
                    let found = catch_unwind(AssertUnwindSafe(|| {
                        if take { table.take(&key, key.hash()).is_some() } else { table.find(&key, key.hash()).is_ok() }
                    }));
                    FUSE.set(0);
                    if take && found.is_ok_and(|found| found) {
                        assert!(reference.remove(&key.0).is_some());
                    }
                }
            }
            check(&table, &reference);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn it_does_as_the_map_of_std_does(ops in prop::collection::vec(op(), 0..600)) {
            compare(ops);
        }
    }

    /// A run that goes on at the first place after the last one closes up when one of its keys is removed.
    #[test]
    fn a_run_over_the_end_closes_up() {
        for removed in 0..6 {
            let (mut table, mut reference) = (Table::default(), HashMap::new());
            for n in 0..6 {
                let key = Key(n * 8 + 1); // all begin at the same place, near the end
                table.insert(entry(key));
                reference.insert(key.0, 1);
            }
            assert_eq!(table.places.len(), 8);
            let key = Key(removed * 8 + 1);
            assert!(table.take(&key, key.hash()).is_some());
            reference.remove(&key.0);
            check(&table, &reference);
        }
    }

    #[test]
    fn an_empty_table_has_no_places() {
        assert_eq!([0, 1, 3, 4, 6, 7, 12, 13].map(places_for), [0, 4, 4, 8, 8, 16, 16, 32]);
        let mut table = Table::default();
        let key = Key(7);
        assert!(table.find(&key, key.hash()).is_err() && table.places.is_empty());
        table.insert(entry(key));
        assert!(table.take(&key, key.hash()).is_some());
        table.shrink_to(0);
        assert!(table.places.is_empty() && table.take(&key, key.hash()).is_none());
    }
}
