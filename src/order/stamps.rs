//! Stamps of groups, in a queue with several shards.
//!
//! A push has a stamp in the high bits of its number, so that keys of several shards can be compared by age. The front says in which round
//! the highest level is, because the groups of all shards have their turns in the same rounds (P20). If the front were the age of its first
//! key, a group that has just got keys would wait for all older ones of large groups in other shards. A level that had no groups with keys
//! has missed rounds, and [joins](Groups::join) the present one.

use super::Groups;
use super::bits::Words;

/// This number of pushes shares one stamp.
const STAMPED: u64 = 1 << STAMPED_BITS;
const STAMPED_BITS: u32 = 6;

#[derive(Default)]
pub(super) struct Stamps {
    pub(super) are_wanted: bool,
    /// The push of the key in this place wants a stamp.
    pushed: Option<u32>,
    /// Levels that have just got the first group with keys.
    pub(super) joining: Words,
}

pub(super) fn stamp_of_push(number: u64) -> u64 {
    number >> STAMPED_BITS
}

impl<T: Copy> Groups<T> {
    /// Notes a push, which [`pushes`](Self::pushes) has counted already, of a key that gets the place `key`.
    #[inline]
    pub(super) fn note_push(&mut self, key: u32, level: u8) {
        if self.levels[usize::from(level)].len == 0 || self.pushes % STAMPED == 0 {
            self.stamps.pushed = Some(key);
        }
    }

    #[inline]
    pub(super) fn wants_stamp(&self) -> bool {
        self.stamps.pushed.is_some()
    }

    /// A batch of keys is about to be pushed, all of them after this time. A stamp that came in the middle of the batch would be too late
    /// for those that were pushed before.
    pub(crate) fn stamp_ahead(&mut self, now: u64) {
        self.pushes = self.pushes.max(now << STAMPED_BITS);
    }

    pub(super) fn stamp(&mut self, now: u64) {
        let Some(key) = self.stamps.pushed.take() else { return };
        let last = self.pushes;
        self.pushes = last.max(now << STAMPED_BITS);
        // Only if it is still the last push. Otherwise it keeps its number, with an earlier stamp.
        if self.keys.get(key).is_some_and(|(_, queued)| queued.push == last) {
            self.keys[key].push = self.pushes;
        }
    }
}
