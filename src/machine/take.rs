//! Keys are taken out: one that the caller names, or those that it has [seen](super::look) and chosen.
//!
//! A caller has seen one push and one delay: a key that was handed out and queued again since is not taken out.

use super::{Delay, EntryRef, Machine, Mode, Owed, Seen};
use crate::key::KeyHash;
use equivalent::Equivalent;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenOut {
    /// Whether the key was still queued by the push that was seen.
    pub(crate) was_queued: bool,
    /// The delay that was seen. Its deadline may have moved since.
    pub(crate) delay: Option<Delay>,
    /// Whether the slot has a key that is queued or processing. After a shut-down that is the same key, because no other becomes dirty.
    pub(crate) is_active: bool,
}

impl<K> Machine<K> {
    /// Takes out what is still there of a key that was seen: its push, its delay, or both.
    pub(crate) fn take_out(&mut self, hand: &mut Option<K>, seen: Seen, mode: Mode) -> (TakenOut, Owed) {
        let Some(entry) = self.keys.get(seen.number) else {
            return (TakenOut { was_queued: false, delay: None, is_active: false }, Owed::NOTHING);
        };
        let is_it = entry.state().is_queued() && entry.priority() == seen.priority;
        let was_queued = is_it && Some(self.order.age(entry.place())) == seen.push;
        let was_delayed = entry.state().is_delayed() && Some(self.later.began(seen.number)) == seen.began;
        let is_active = entry.state().is_active() && !was_queued;
        let (delay, owed) = self.take(hand, entry, was_queued, was_delayed, mode);
        (TakenOut { was_queued, delay, is_active }, owed)
    }

    /// Prefetches what [`take_out`](Self::take_out) of these will read.
    pub(crate) fn prefetch_seen(&self, seen: impl Iterator<Item = Seen> + Clone) {
        let entries = seen.filter_map(|seen| self.keys.get(seen.number));
        entries.clone().for_each(EntryRef::prefetch);
        entries.for_each(|entry| self.keys.prefetch(entry));
    }

    /// Takes a key back, so that it is not handed out, now or later. Returns whether it was dirty or delayed.
    pub(crate) fn remove<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: KeyHash, mode: Mode) -> (bool, Owed)
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.keys.find(key, hash) else { return (false, Owed::NOTHING) };
        let (was_dirty, was_delayed) = (entry.state().is_dirty(), entry.state().is_delayed());
        let (_delay, owed) = self.take(hand, entry, was_dirty, was_delayed, mode);
        (was_dirty || was_delayed, owed)
    }

    /// Takes a dirty key back, and drops a delay, which is returned.
    fn take(
        &mut self,
        hand: &mut Option<K>,
        entry: EntryRef<K>,
        is_dirty: bool,
        is_delayed: bool,
        mode: Mode,
    ) -> (Option<Delay>, Owed) {
        if !is_dirty && !is_delayed {
            return (None, Owed::NOTHING);
        }
        let delay = is_delayed.then(|| self.first_delay(entry));
        if is_delayed {
            self.drop_delays(entry);
        }
        if is_dirty {
            self.counts.taken += 1;
            self.times.iter_mut().for_each(|times| times.forget(entry.number()));
            if entry.state().is_queued() {
                self.unpush(entry);
            }
            entry.state().take_back();
        }
        let room = self.room_of(entry, mode);
        let _garbage_below = self.forget_if_vacant(hand, entry, mode);
        let over = if is_dirty { self.over(mode) } else { Owed::NOTHING };
        (delay, self.drained(mode).and(over).and(room).and(self.garbage()))
    }
}
