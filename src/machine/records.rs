//! What a lock-free queue asks of the machine that is its records: see [`free`](crate::free).
//!
//! The keys of this machine are nodes. Whether a key is dirty or processing is said by the word of its node, so between two critical
//! sections none is so here. A verb of a holder first [holds](Machine::hold_key) its key, and what it queues is
//! [popped](Machine::pop_dirty) in the same critical section.

use super::look::{Seen, View};
use super::{Claimed, End, Machine, Mode, Owed};
use crate::key::{KeyHash, SlotId};
use crate::order::Group;

impl<K: Eq> Machine<K> {
    /// Makes a key processing here. `is_dirty`: the `done` that follows queues it, or holds it back.
    pub(crate) fn hold_key(&mut self, key: K, hash: KeyHash, is_dirty: bool) -> Claimed<K> {
        let entry = self.find_or_insert(&mut Some(key), hash, Group::default(), Mode::PLAIN);
        entry.state().hold(is_dirty);
        self.counts.handed_out += 1;
        Claimed::new(entry)
    }

    /// Holds back the add of a key that was dirty when it was done, and still cools down.
    pub(crate) fn hold_back(&mut self, key: &K, hash: KeyHash) {
        let entry = self.keys.find(key, hash).expect("a key that rests is known");
        self.hold_dirty(entry, Mode::PLAIN);
    }

    pub(crate) fn is_known_given_up(&self, key: &K, hash: KeyHash) -> bool {
        self.keys.find(key, hash).is_some_and(|entry| self.is_given_up(entry))
    }

    pub(crate) fn seen_delay(&self, key: &K, hash: KeyHash) -> Option<Seen> {
        let entry = self.keys.find(key, hash).filter(|entry| entry.state().is_delayed())?;
        Some(View(self, &entry).seen())
    }

    /// Whether the key is here, and if so, whether it cools down, and whether it is delayed.
    pub(crate) fn is_resting(&self, key: &K, hash: KeyHash) -> Option<(bool, bool)> {
        self.keys.find(key, hash).map(|entry| (entry.state().is_resting(), entry.state().is_delayed()))
    }
}

impl<K: Copy> Machine<K> {
    /// Takes out the first key that a verb has queued, for the caller to add it by its word.
    pub(crate) fn pop_dirty(&mut self) -> Option<(K, Owed)> {
        let (claimed, owed) = self.get(0, Mode::PLAIN);
        let claimed = claimed?;
        let key = *claimed.key();
        let (_, more) = self.done(&mut None, claimed, End::Done, 0, Mode::PLAIN);
        Some((key, owed.and(more)))
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// To be called at the end of a critical section: drops what the tally of the queue counts instead.
    pub(crate) fn drop_counts(&mut self) {
        let counts = &mut self.counts;
        debug_assert!(counts.handed_out == counts.ended && self.order.len() == 0, "no key is dirty or processing here");
        (counts.pushed, counts.deferred, counts.handed_out, counts.ended) = (0, 0, 0, 0);
    }
}

impl Seen {
    /// What a node says of its key, but for the delay. `push`: the place of its push among all, and its number.
    pub(crate) fn of_node(slot: SlotId, push: Option<(u64, u64)>, is_processing: bool) -> Self {
        Self { slot, push, began: None, number: u32::MAX, priority: crate::order::NORMAL, is_processing }
    }

    /// The same with the delay that the records have seen.
    pub(crate) fn with_delay_of(self, other: &Self) -> Self {
        Self { began: other.began, number: other.number, ..self }
    }

    pub(crate) fn push_number(&self) -> Option<u32> {
        self.push.map(|(_, number)| number as u32)
    }
}
