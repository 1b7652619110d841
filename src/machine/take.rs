//! Keys are taken out: one that the caller names, or those that the caller has seen and chosen.
//!
//! ```text
//!   take_where, stop:    lock ─ look at some keys ─ unlock ─ choose: foreign code, under no lock ─ … until all were looked at
//!                        lock ─ take_out what was chosen, if it is still there ─ unlock ─ …
//! ```
//!
//! What was seen is one push, and not only a key: if the key was handed out meanwhile and is queued again, it is not taken out. Full groups
//! hold nothing back.

use super::{Delay, EntryRef, Machine, Mode, Owed};
use crate::key::Hash;
use crate::order::Order;
use equivalent::Equivalent;
use std::cmp::Reverse;

/// The number of chunks of slots, some 64 keys each, that one call looks at.
const CHUNKS: usize = 4;

/// A queued key, as [`look`](Machine::look) has seen it. In the order of the fields: the higher priority comes first, and of one priority
/// the older key, also over several shards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Seen {
    pub(crate) priority: Reverse<i8>,
    /// A time before its push, if the machine [wants stamps](Machine::want_stamps): not later than that of a later push of its priority.
    pub(crate) stamp: u64,
    /// The number of its push, of all with this priority.
    pub(crate) push: u64,
    /// The number of its slot.
    number: u32,
}

/// A delayed key, as [`look_at_delays`](Machine::look_at_delays) has seen it: the earlier deadline comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SeenDelay {
    pub(crate) deadline: u64,
    pub(crate) priority: i8,
    /// Which of the beginnings of a delay it was.
    began: u64,
    /// The number of its slot.
    number: u32,
}

impl<K> Machine<K> {
    /// Looks at some of the keys, from this place on, and calls `each` for those that are queued. Returns where to go on, or `None` at the
    /// end. A key that is queued from the first to the last of these calls is seen once.
    pub(crate) fn look(&self, from: usize, mut each: impl FnMut(&K, Seen)) -> Option<usize> {
        let end = self.keys.chunks().min(from + CHUNKS);
        for entry in self.keys.iter(from..end).filter(|entry| entry.state().is_queued()) {
            let (priority, place) = (Reverse(entry.priority()), entry.place());
            let (stamp, push) = (self.order.stamp_of(entry, place), self.order.push_number(entry, place));
            each(entry.key(), Seen { priority, stamp, push, number: self.keys.number(entry) });
        }
        (end < self.keys.chunks()).then_some(end)
    }

    /// Takes out a key that was seen, if it is still queued by that push. Returns whether it was.
    pub(crate) fn take_out(&mut self, hand: &mut Option<K>, seen: Seen, mode: Mode) -> (bool, Owed) {
        let is_it = |entry: &EntryRef<K>| {
            let is_queued = entry.state().is_queued() && entry.priority() == seen.priority.0;
            is_queued && self.order.push_number(*entry, entry.place()) == seen.push
        };
        let Some(entry) = self.keys.get(seen.number).filter(is_it) else { return (false, Owed::NOTHING) };
        self.take_back(entry);
        self.forget_if_vacant(hand, entry);
        (true, self.drained().and(self.over(mode)).and(self.garbage()))
    }

    /// [`look`](Self::look) for keys that are delayed. A key that is both is seen by both.
    pub(crate) fn look_at_delays(&self, from: usize, mut each: impl FnMut(&K, SeenDelay)) -> Option<usize> {
        let end = self.keys.chunks().min(from + CHUNKS);
        for entry in self.keys.iter(from..end).filter(|entry| entry.state().is_delayed()) {
            let number = self.keys.number(entry);
            let record = self.later.record(number);
            let (deadline, priority, began) = (record.deadline(), record.priority, self.later.began(number));
            each(entry.key(), SeenDelay { deadline, priority, began, number });
        }
        (end < self.keys.chunks()).then_some(end)
    }

    /// Drops the delay of a key that was seen, if the key has been delayed since, though its deadline may have moved.
    pub(crate) fn take_out_delay(&mut self, hand: &mut Option<K>, seen: SeenDelay) -> (Option<Delay>, Owed) {
        let is_it = |entry: &EntryRef<K>| entry.state().is_delayed() && self.later.began(seen.number) == seen.began;
        let Some(entry) = self.keys.get(seen.number).filter(is_it) else { return (None, Owed::NOTHING) };
        let delay = self.drop_delay(entry);
        self.forget_if_vacant(hand, entry);
        (Some(delay), self.drained().and(self.garbage()))
    }

    /// The key is not to be handed out, now or later. Returns whether it was dirty or delayed.
    pub(crate) fn remove<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: Hash, mode: Mode) -> (bool, Owed)
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.keys.find(key, hash) else { return (false, Owed::NOTHING) };
        let (was_dirty, was_delayed) = (entry.state().is_dirty(), entry.state().is_delayed());
        if was_delayed {
            self.drop_delay(entry);
        }
        if was_dirty {
            self.take_back(entry);
        }
        if !was_dirty && !was_delayed {
            return (false, Owed::NOTHING);
        }
        self.forget_if_vacant(hand, entry);
        (true, self.drained().and(self.over(mode)).and(self.garbage()))
    }

    /// A dirty key is not to be handed out.
    fn take_back(&mut self, entry: EntryRef<K>) {
        self.counts.taken += 1;
        if entry.state().is_processing() {
            let _was_dirty = entry.state().forget_add();
        } else {
            self.unpush(entry);
            entry.state().on_take_back();
        }
    }
}
