//! What a queue with several shards asks of each.
//!
//! ```text
//!   lock ─ verb ─ wants_stamp? ─▶ stamp(counter) ─ publish front, until ─ unlock        a getter compares the fronts under no lock
//! ```
//!
//! At the end of each critical section the caller gives a stamp, if one is wanted: most sections want none. Then it publishes the front.
//! It publishes the deadline [`until`](Machine::until) after each verb that owes [`DEADLINE`](super::Owed::DEADLINE), and after the last
//! `expire` of a turn. A queue with one shard gives no stamp, and publishes no front.

use super::{BATCH, Machine, Mode};
use crate::order::Words;

impl<K> Machine<K> {
    /// From now on the machine wants stamps.
    pub(crate) fn want_stamps(&mut self) {
        self.order.want_stamps();
    }

    #[inline(always)]
    pub(crate) fn wants_stamp(&self, mode: Mode) -> bool {
        self.order.wants_stamp(mode.is_ordered)
    }

    /// `now`: grows with time, also from shard to shard.
    pub(crate) fn stamp(&mut self, now: u64) {
        self.order.stamp(now);
    }

    /// Before an [`expire`](Self::expire), which pushes many keys.
    pub(crate) fn stamp_ahead(&mut self, stamp: fn() -> u64) {
        self.order.stamp_ahead(|| {
            let now = stamp();
            // The pushes of a batch run over into the next numbers, which nobody else may have.
            (0..BATCH / 64).for_each(|_| _ = stamp());
            now
        });
    }

    /// The highest priority of a key that may be taken, and a time that is not after the push of the first key there. With groups: the time
    /// of the last few hand-outs, or of the push of the first key.
    #[inline(always)]
    pub(crate) fn front(&self, mode: Mode) -> Option<(i8, u64)> {
        self.order.front(mode.is_ordered)
    }

    /// The levels of the keys that may be taken, and the time of the oldest but for the highest level, if this has changed: see
    /// [`AnyOrder::levels`](crate::order::AnyOrder::levels).
    #[inline(always)]
    pub(crate) fn change_of_levels(&mut self) -> Option<(Words, u64)> {
        self.order.have_levels_changed().then(|| self.order.levels())
    }

    /// A number that grows when a key is to be handed out, now or later, that was not. If it is the same in two visits of each shard, and
    /// each shard was without work in both, there was a moment at which all were.
    pub(crate) fn activity(&self) -> u64 {
        self.counts.pushed + self.counts.deferred + self.later.begun
    }
}
