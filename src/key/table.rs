//! One shard of the key table: finds a key's slot by its hash.
//!
//! ```text
//!  buckets            slab
//! ┌───┐       ┌──────────────────┐     ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ●─┼────▶│ key hash  next ─ │
//! ├───┤       └──────────────────┘     └──────────────────┘
//! │ ─ │
//! ├───┤       ┌──────────────────┐
//! │ ●─┼──────▶│ key hash  next ─ │          ◀── hand: looks at two slots per insert, and takes out what is idle
//! └───┘       └──────────────────┘
//! ```
//!
//! Chains run through the slots, so a key costs four bytes here besides its slot, is stored once, and is hashed once: the
//! part of the hash that matters stays in the slot. Everything happens under the shard's lock, and nothing is called under
//! it but `K::eq` and the ready line's push.
//!
//! **Idle keys.** A key that owns something (`needs_drop`) leaves the table at its last `done`. A plain one, such as an
//! integer, stays for a while, because finding it again is cheaper than putting it back, and because then the thread that
//! is done does not fetch the shard's lock from the thread that adds. Three things bound this:
//!
//! 1. an insert into a shard with more than its share of keys first moves the hand over two slots: in a queue with a steady
//!    backlog these are the oldest, and the new key takes the slot of one that has been done;
//! 2. one add in 64 moves the hand over one slot, so that no idle key outlives many adds to others;
//! 3. when most of the table is idle, one `done` in 64 moves the hand over 256 slots, which empties it after a burst.

use crate::key::slab::{NIL, Slab, Slot, SlotRef};
use crate::key::state::OnAdd;
use crate::sync::sized;

/// A key's hash: its highest bits choose the shard, its lowest the bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hash(pub(crate) u32);

/// One shard. All methods: under its lock.
#[derive(Debug)]
pub(crate) struct Table<K> {
    /// First slot of each chain. A power of two of them, or none yet.
    buckets: Box<[u32]>,
    slab: Slab<K>,
    /// The slot that the hand looks at next.
    hand: u32,
    /// How many keys may stay here idle.
    keep: usize,
    pub(crate) counts: Counts,
}

/// What happened to adds; plain numbers, since every add holds the lock anyway.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) coalesced: u64,
    pub(crate) deferred: u64,
    pub(crate) rejected: u64,
}

/// Never fewer buckets than this once there are so many: a small steady set of keys must not make them come and go.
const MIN_BUCKETS: usize = sized(256, 4);
/// One add in so many moves the hand.
const AGE_EVERY: u64 = sized(64, 2) as u64;

impl<K> Table<K> {
    pub(crate) fn new(capacity: usize, keep: usize) -> Self {
        let mut table = Self { buckets: Box::default(), slab: Slab::new(), hand: 0, keep, counts: Counts::default() };
        if capacity > 0 {
            table.rebuild(capacity.next_power_of_two());
        }
        table
    }
}

impl<K: Eq> Table<K> {
    /// `add`: finds or inserts the key, and says what to do. `Some` is the slot to push, under this same lock.
    #[inline]
    pub(crate) fn add(&mut self, key: K, hash: Hash) -> (OnAdd, Option<SlotRef<K>>, Option<K>) {
        if let Some(slot) = self.find(&key, hash) {
            let (todo, slot) = (slot.1.state.add(), slot.0);
            match todo {
                OnAdd::Push => self.counts.queued += 1,
                OnAdd::Coalesce => self.counts.coalesced += 1,
                OnAdd::Defer => self.counts.deferred += 1,
            }
            let total = self.counts.queued + self.counts.coalesced + self.counts.deferred;
            if total % AGE_EVERY == 0 {
                self.sweep(1);
            }
            let push = (todo == OnAdd::Push).then_some(slot);
            return (todo, push, Some(key));
        }
        self.counts.queued += 1;
        (OnAdd::Push, Some(self.insert(key, hash)), None)
    }

    #[inline]
    fn find(&self, key: &K, hash: Hash) -> Option<(SlotRef<K>, &Slot<K>)> {
        let mut at = match self.buckets.len() {
            0 => return None,
            n => self.buckets[hash.0 as usize & (n - 1)],
        };
        while at != NIL {
            let (slot_ref, slot) = self.slab.slot_ref(at);
            // SAFETY: in a chain, so taken, and we hold the shard's lock.
            if slot.hash() == hash.0 && unsafe { slot.key() } == key {
                return Some((slot_ref, slot));
            }
            at = slot.next();
        }
        None
    }
}

impl<K> Table<K> {
    #[inline]
    fn insert(&mut self, key: K, hash: Hash) -> SlotRef<K> {
        if self.slab.taken() > self.keep {
            self.sweep(2);
        }
        if self.slab.taken() >= self.buckets.len() {
            self.rebuild((self.buckets.len() * 2).max(sized(8, 2)));
        }
        let bucket = hash.0 as usize & (self.buckets.len() - 1);
        let (slot_ref, slot) = self.slab.insert(key, hash.0);
        slot.set_next(self.buckets[bucket]);
        let todo = slot.state.add();
        debug_assert_eq!(todo, OnAdd::Push);
        self.buckets[bucket] = slot.id();
        slot_ref
    }

    /// Takes an idle key out. The caller drops it after the lock.
    pub(crate) fn remove(&mut self, id: u32) -> K {
        let slot = self.slab.slot(id);
        let bucket = slot.hash() as usize & (self.buckets.len() - 1);
        let mut at = self.buckets[bucket];
        if at == id {
            self.buckets[bucket] = slot.next();
        } else {
            loop {
                let before = self.slab.slot(at);
                at = before.next();
                if at == id {
                    before.set_next(slot.next());
                    break;
                }
            }
        }
        let key = self.slab.remove(id);
        let n = self.buckets.len();
        if n > MIN_BUCKETS && self.slab.taken() < n / 8 {
            self.rebuild(n / 4);
        }
        key
    }

    /// Moves the hand over `steps` slots and takes out the idle keys there.
    ///
    /// Keys that own something are never idle here, so nothing of the user's runs when these are dropped.
    pub(crate) fn sweep(&mut self, steps: usize) {
        for _ in 0..steps {
            let end = self.slab.end() as u32;
            if self.hand >= end {
                self.hand = 0;
                if end == 0 {
                    return;
                }
            }
            let id = self.hand;
            self.hand += 1;
            if self.slab.get(id).is_some_and(|slot| slot.state.is_idle()) {
                drop(self.remove(id));
            }
        }
    }

    /// Takes out all idle keys and gives back all memory that is not needed for the others.
    pub(crate) fn shrink(&mut self) {
        self.sweep(self.slab.end());
        self.slab.shrink();
        let fit = if self.slab.taken() == 0 { 0 } else { self.slab.taken().next_power_of_two() };
        if fit < self.buckets.len() {
            self.rebuild(fit);
        }
    }

    /// The slot with this id, which has a key.
    pub(crate) fn slot(&self, id: u32) -> &Slot<K> {
        self.slab.slot(id)
    }

    /// Keys in the table, idle ones included.
    pub(crate) fn len(&self) -> usize {
        self.slab.taken()
    }

    /// All slots with a key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<K>> {
        self.slab.iter()
    }

    #[cold]
    fn rebuild(&mut self, buckets: usize) {
        debug_assert!(buckets == 0 || buckets.is_power_of_two());
        // Gone before the new ones come: the peak is what counts.
        self.buckets = Box::default();
        self.buckets = vec![NIL; buckets].into_boxed_slice();
        for slot in self.slab.iter() {
            let bucket = slot.hash() as usize & (buckets - 1);
            slot.set_next(std::mem::replace(&mut self.buckets[bucket], slot.id()));
        }
    }
}
