//! Groups of keys that take turns.
//!
//! A group is known by a hash of what the user's function returns for a key. It exists while keys of it are queued, or are processing in
//! a queue with a limit. Its queued keys are in [lanes](super::ordered), one for each level; the lanes of a level take turns.

use super::{NIL, ordered};
use crate::key::Segmented;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A group. 16 bytes, and its entry in the map.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group {
    /// The first of its lanes, or [`NIL`].
    pub(super) lanes: u32,
    /// Its keys that are processing, if the queue has a limit.
    pub(super) processing: u32,
    /// Hand-outs, since it exists, and from the bit [`WEIGHT`] on the keys in a turn: 54 bits do not wrap, and 8 more bytes would not be
    /// worth it.
    turns: u64,
}

const WEIGHT: u32 = 54;

impl Group {
    /// Keys in a turn.
    #[inline]
    pub(super) fn weight(self) -> u16 {
        (self.turns >> WEIGHT) as u16
    }

    /// Hand-outs, since it exists.
    pub(super) fn handed_out(self) -> u64 {
        self.turns & ((1 << WEIGHT) - 1)
    }

    #[inline]
    pub(super) fn note_hand_out(&mut self) {
        self.turns += 1;
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn note_hand_outs(&mut self, count: u64) {
        self.turns += count;
    }
}

/// Memory of groups that are no longer there.
#[expect(dead_code, reason = "it is kept to be dropped")]
pub(super) struct Garbage(Segmented<Group>, Vec<u32>);

/// The groups by hash, and by number.
pub(super) struct Groups {
    /// The numbers by hash. Many small maps, as a map that grows moves all it has.
    numbers: Box<[HashMap<u32, u32, BuildHasherDefault<Identity>>]>,
    groups: Segmented<Group>,
    free: Vec<u32>,
    end: u32,
}

const MAPS: usize = crate::sync::model_const(64, 1);

/// The hash is the key.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed")
    }

    /// The maps use the highest and the lowest bits.
    fn write_u32(&mut self, hash: u32) {
        self.0 = u64::from(hash) << 32 | u64::from(hash);
    }
}

impl Groups {
    pub(super) fn new() -> Self {
        Self {
            numbers: (0..MAPS).map(|_| HashMap::default()).collect(),
            groups: Segmented::new(),
            free: Vec::new(),
            end: 0,
        }
    }

    fn map(&mut self, hash: u32) -> &mut HashMap<u32, u32, BuildHasherDefault<Identity>> {
        // Neither the highest bits nor the lowest: within a map these say where an entry is.
        &mut self.numbers[hash as usize >> 19 & (MAPS - 1)]
    }

    /// The number of a group that exists.
    pub(super) fn find(&mut self, hash: u32) -> Option<u32> {
        self.map(hash).get(&hash).copied()
    }

    /// The number of a group, which begins to exist if it does not.
    pub(super) fn find_or_make(&mut self, group: ordered::Group) -> u32 {
        let ordered::Group { hash, weight } = group;
        if let Some(number) = self.map(hash).get(&hash) {
            return *number;
        }
        let number = self.free.pop().unwrap_or(self.end);
        self.end = self.end.max(number + 1);
        debug_assert!(weight < 1 << (u64::BITS - WEIGHT), "a weight is 1000 at most");
        let turns = u64::from(weight.max(1)) << WEIGHT;
        *self.groups.get_or_make(number as usize) = Group { lanes: NIL, processing: 0, turns };
        self.map(hash).insert(hash, number);
        number
    }

    /// A group that has no lanes and no processing keys ends to exist.
    pub(super) fn remove_if_unused(&mut self, number: u32, hash: u32) {
        let Group { lanes, processing, .. } = self[number];
        if lanes != NIL || processing > 0 {
            return;
        }
        let map = self.map(hash);
        map.remove(&hash);
        if map.len() < map.capacity() / 8 {
            map.shrink_to(map.len() * 2);
        }
        self.free.push(number);
    }

    /// Takes the memory of groups. No group exists.
    pub(super) fn take_retired(&mut self) -> Garbage {
        self.end = 0;
        Garbage(std::mem::replace(&mut self.groups, Segmented::new()), std::mem::take(&mut self.free))
    }

    /// No group exists, and there is memory for many.
    pub(super) fn has_retired(&self) -> bool {
        self.end > 64 && self.len() == 0
    }

    /// Gives spare capacity back.
    pub(super) fn shrink(&mut self) {
        self.numbers.iter_mut().for_each(HashMap::shrink_to_fit);
        self.groups.shrink_to_fit();
        self.free.shrink_to_fit();
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.end as usize - self.free.len()
    }
}

impl std::ops::Index<u32> for Groups {
    type Output = Group;

    #[inline]
    fn index(&self, number: u32) -> &Group {
        &self.groups[number as usize]
    }
}

impl std::ops::IndexMut<u32> for Groups {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Group {
        self.groups.get_mut(number as usize).expect("a group of this number exists")
    }
}
