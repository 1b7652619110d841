//! Priorities and groups: what the calls share, and the foreign functions that name groups.
//!
//! A queue is ordered by priority from the first call on that gives one: the call sets the flag `ORDERED`, which sends hot calls to their
//! slow paths, and then moves the queued keys of its shard, some at a time: see `src/shard/order.rs`, O1 to O3. A queue with
//! groups is ordered from the beginning.

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::Section;
use crate::key::Hash as KeyHash;
use crate::line::Group;
use crate::shard::{CHUNKS, OrderSettings, STEP};
use crate::stats::GroupStats;
use crate::sync::{Arc, give_way};
use std::collections::HashMap;
use std::hash::Hash;

/// The most keys that a group gives in a turn.
pub(crate) const MAX_WEIGHT: u32 = 1000;

/// How the queue orders its keys, with the functions of the user.
pub(crate) struct Order<K> {
    pub(crate) settings: OrderSettings,
    /// A hash of the group of a key.
    pub(crate) group_of: Option<HashOf<K>>,
    /// Keys a turn of the group of this key.
    pub(crate) weight_of: Option<WeightOf<K>>,
}

/// The functions of a queue with groups.
pub(super) struct Groups<K> {
    hash_of: HashOf<K>,
    weight_of: Option<WeightOf<K>>,
}

impl<K> Order<K> {
    /// The functions, for a queue with groups.
    pub(super) fn into_groups(self) -> Option<Box<Groups<K>>> {
        let weight_of = self.weight_of;
        self.group_of.map(|hash_of| Box::new(Groups { hash_of, weight_of }))
    }
}

/// The keys a turn of a key's group.
type WeightOf<K> = Box<dyn Fn(&K) -> u32 + Send + Sync>;

/// Hashes the group of a key, with the queue's hasher.
type HashOf<K> = Box<dyn Fn(&K, &ahash::RandomState) -> u32 + Send + Sync>;

impl<K> Default for Order<K> {
    fn default() -> Self {
        Self { settings: OrderSettings::default(), group_of: None, weight_of: None }
    }
}

impl<K> Shared<K> {
    /// Asks for the group of a key. Not under the lock (P17).
    #[cold]
    pub(super) fn ask_group(&self, key: &K) -> Group {
        let Some(groups) = &self.groups else { return Group::default() };
        let hash = (groups.hash_of)(key, &self.hasher);
        let weight = groups.weight_of.as_ref().map_or(1, |weight| weight(key));
        Group { hash, weight: weight.clamp(1, MAX_WEIGHT) as u16 }
    }

    /// Before a call that gives a priority: makes the shard of its key an ordered one.
    #[cold]
    pub(super) fn prepare_order(&self, locked: &Locked<K>) {
        if !self.flags().has(Flags::ORDERED) {
            self.hub().set(Flags::ORDERED, true);
        }
        self.finish_move(locked, true);
    }

    /// Moves the queued keys of a shard to its order (O3). `begin`: if it has none, makes one.
    pub(super) fn finish_move(&self, locked: &Locked<K>, begin: bool) {
        let mut count = STEP;
        loop {
            {
                let mut section = self.enter(locked);
                if begin {
                    section.begin_levels();
                } else if !section.is_ordered() {
                    return;
                }
                if section.is_ordered() && section.line_len() == 0 {
                    return locked.set_moved();
                }
                section.move_to_order(count);
                section.publish();
            }
            // More each time, so that it ends however fast keys are added: up to some hundred microseconds.
            count = (2 * count).min(64 * STEP);
            give_way();
        }
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// For an add in a queue that is ordered: asks for the group of its key if that is new. Returns a section that follows.
    #[inline]
    pub(super) fn settle_group<'s>(
        &'s self,
        section: Section<'s, K>,
        key: &K,
        hash: KeyHash,
    ) -> (Section<'s, K>, Group) {
        if self.groups.is_some() { self.settle_group_slow(section, key, hash) } else { (section, Group::default()) }
    }

    fn settle_group_slow<'s>(&'s self, mut section: Section<'s, K>, key: &K, hash: KeyHash) -> (Section<'s, K>, Group) {
        if self.is_shutting_down() || section.find(key, hash).is_some() {
            return (section, Group::default());
        }
        let locked = section.locked();
        drop(section);
        let group = self.ask_group(key);
        (self.enter(locked), group)
    }
}

impl<K: Clone> Shared<K> {
    /// `groups`: visits the slots, some hundred at a time.
    pub(crate) fn groups(this: &Arc<Self>) -> Vec<GroupStats<K>> {
        if this.groups.is_none() {
            return Vec::new();
        }
        let mut groups = HashMap::new();
        for locked in this.all() {
            let (mut chunk, now) = (0, locked.lock().now_for_ages(&this.clock));
            loop {
                groups.reserve(64 * CHUNKS);
                if !locked.lock().add_to_groups(chunk, now, &mut groups) {
                    break;
                }
                chunk += CHUNKS;
                give_way();
            }
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_unstable_by_key(|&(hash, _)| hash); // not in the order of the map, which differs each time (P27)
        for locked in this.all() {
            for step in groups.chunks_mut(STEP) {
                locked.lock().add_handed_out(step);
                give_way();
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

impl<K> Section<'_, K> {
    /// The queued keys have changed, in a queue that may be ordered.
    #[inline]
    pub(super) fn publish(&self) {
        self.locked().publish(self);
    }
}
