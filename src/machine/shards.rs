//! What a queue with several shards asks of each.
//!
//! At the end of each critical section the caller gives a stamp if one is wanted, which is rare, and publishes the front, which getters
//! compare without a lock. It publishes [`until`](Machine::until) after each verb that owes [`DEADLINE`](super::Owed::DEADLINE), and after
//! the last `expire` of a turn.

use super::{BATCH, Machine, Mode};
use crate::key::KeyHash;
use crate::order::Words;

impl<K> Machine<K> {
    pub(crate) fn want_stamps(&mut self) {
        self.order.want_stamps();
    }

    #[inline(always)]
    pub(crate) fn wants_stamp(&self, mode: Mode) -> bool {
        self.order.wants_stamp(mode.is_ordered)
    }

    /// `now` grows with time, also from shard to shard.
    pub(crate) fn stamp(&mut self, now: u64) {
        self.order.stamp(now);
    }

    /// To be called before an [`expire`](Self::expire), which pushes many keys. Only groups need the stamp ahead.
    pub(crate) fn stamp_ahead(&mut self, stamp: fn() -> u64) {
        if let Some(groups) = self.order.groups_mut() {
            groups.stamp_ahead(stamp());
            // The pushes of a batch use the next numbers, too, so nobody else may get those.
            (0..BATCH / 64).for_each(|_| _ = stamp());
        }
    }

    /// The highest priority of a key that may be taken, and a time that is not after the push of the first key there. With groups it is the
    /// round of that level.
    #[inline(always)]
    pub(crate) fn front(&self, mode: Mode) -> Option<(i8, u64)> {
        self.order.front(mode.is_ordered)
    }

    /// Lets levels that had no groups with keys join the round in which other shards are: see
    /// [`AnyOrder::join`](crate::order::AnyOrder::join).
    #[inline(always)]
    pub(crate) fn join(&mut self, mode: Mode, front: impl Fn(i8) -> u64) {
        if mode.is_ordered && self.order.wants_front() {
            self.order.join(front);
        }
    }

    /// What [`AnyOrder::levels`](crate::order::AnyOrder::levels) says, if this has changed.
    #[inline(always)]
    pub(crate) fn change_of_levels(&mut self) -> Option<(Words, u64)> {
        self.order.have_levels_changed().then(|| self.order.levels())
    }

    /// From now on the caller takes the hashes of forgotten keys. Only with groups.
    pub(crate) fn want_forgotten(&mut self) {
        self.news.wants_forgotten = true;
    }

    /// Whether keys were forgotten whose hashes the caller wants.
    #[inline(always)]
    pub(crate) fn has_forgotten(&self) -> bool {
        !self.news.forgotten.is_empty()
    }

    /// Takes the hashes of the keys that were forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> impl Iterator<Item = KeyHash> {
        self.news.forgotten.drain(..)
    }

    /// A number that grows when a key becomes dirty or delayed. If it is the same in two visits of each shard, and each shard was without
    /// work in both, there was a moment at which all were without.
    pub(crate) fn activity(&self) -> u64 {
        self.counts.pushed + self.counts.deferred + self.later.begun
    }
}
