//! Takes keys out of the queue: those that match a predicate, or all that are left when workers stop.
//!
//! The predicate is foreign code, so it is not called under the lock (P17). It may panic, as the clones may, so no key is taken before
//! all keys were looked at:
//!
//! ```text
//!   for each step of the line, and of the slots:   lock ─ clone some keys ─ unlock ─ call the predicate, keep the clones that match
//!   for each step of the clones:                   lock ─ take the key, if it is still there ─ unlock ─ drop the queue's copy
//! ```
//!
//! A queued key is found again by its place, which identifies one push: a key that was handed out meanwhile, and is queued
//! again, is not taken. A delayed key is found again by its hash. So it makes no difference whether a getter could have the key: those of
//! full groups are taken like all others, and no step waits.

use super::Shared;
use super::locked::Locked;
use crate::key::{Hash as KeyHash, SlotId, State};
use crate::panics::drop_each;
use crate::shard::{CHUNKS, FoundKey, FoundQueued, Place, READ_CHUNKS, STEP};
use crate::sync::give_way;
use crate::{DelayedKey, Leftover};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// The keys of one shard that match.
struct Matching<K> {
    queued: Vec<FoundQueued<K>>,
    delayed: Vec<(KeyHash, K)>,
    processing: Vec<(SlotId, K)>,
}

/// What was taken, and what was not.
struct Taking<K> {
    queued: Vec<FoundQueued<K>>,
    /// With the times until their delays expire, earliest first.
    delayed: Vec<DelayedKey<K>>,
    /// Keys that were queued when the call looked, and not when it took them.
    missed: Vec<(SlotId, K)>,
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_where`.
    pub(crate) fn take_where(&self, mut matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        let mut found: Vec<_> = self.all().map(|locked| (locked, self.matching(locked, &mut matches))).collect();
        let processing = found.iter_mut().flat_map(|(_, found)| std::mem::take(&mut found.processing));
        let mut leftover = Leftover::nothing();
        leftover.processing = processing.map(|(_, key)| key).collect();
        let taken = self.take_found(found);
        leftover.queued = taken.queued.into_iter().map(|found| found.key).collect();
        leftover.delayed = taken.delayed;
        self.note_caught(drop_each(taken.missed));
        leftover
    }

    /// For `stop`, in a queue that is shut down: takes all queued and delayed keys out, and lists the processing ones. `refused` is called
    /// at the end, and returns keys of slots whose retries or requeues were refused.
    ///
    /// After a shut-down no key becomes dirty, so a key goes this way, perhaps from a later point on:
    ///
    /// ```text
    ///   processing and dirty ──▶ queued ──▶ processing ──▶ out of the queue, or refused before that
    ///            1                 2            3
    /// ```
    ///
    /// Three looks in this order therefore find each key that does not reach the end meanwhile. The last step keeps, of those that were not
    /// taken, the ones that are still on their way: held by a handler, or queued again after the second look, which
    /// the docs of `stop` mention. No slot gets another such key meanwhile, so a slot stands for its key. A refused key is put into
    /// its list before its hand-out ends, so it is in this list, or still processing, or in both and then counts as refused.
    ///
    /// If a clone panics, nothing was taken.
    pub(crate) fn take_all(&self, refused: impl FnOnce() -> Vec<(SlotId, K)>) -> Leftover<K> {
        let mut held = Vec::new();
        let found: Vec<_> = self.all().map(|locked| (locked, self.look_at_all(locked, &mut held))).collect();
        let taken = self.take_found(found);
        held.extend(taken.missed);

        let mut queued = self.in_order_of_hand_out(taken.queued);
        queued.shrink_to_fit();
        let active = self.active_slots();
        let refused = refused();
        let mut listed: HashSet<SlotId> = refused.iter().map(|&(slot, _)| slot).collect();
        let (held, dropped): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|(slot, _)| active.contains(slot) && listed.insert(*slot));
        self.note_caught(drop_each(dropped));
        Leftover {
            queued,
            processing: held.into_iter().map(|(_, key)| key).collect(),
            delayed: taken.delayed,
            refused: refused.into_iter().map(|(_, key)| key).collect(),
        }
    }

    /// The three looks of [`take_all`](Self::take_all). `held` gets the keys that were not queued.
    fn look_at_all(&self, locked: &Locked<K>, held: &mut Vec<(SlotId, K)>) -> Matching<K> {
        Self::look_at_slots(locked, State::is_processing_and_dirty, |found| held.push((found.slot, found.key)));
        let queued = self.matching_queued(locked, &mut |_| true);
        let mut found = self.matching_slots(locked, &mut |_| true);
        held.append(&mut found.processing);
        Matching { queued, ..found }
    }

    /// Takes the keys that were found out of the queue, if they are still there. A panic of foreign code is caught: the taken keys
    /// must reach the caller.
    fn take_found(&self, found: Vec<(&Locked<K>, Matching<K>)>) -> Taking<K> {
        let mut taking = Taking { queued: Vec::new(), delayed: Vec::new(), missed: Vec::new() };
        let mut missed = Vec::new();
        let now = self.clock.now();
        for (locked, Matching { queued, delayed, .. }) in found {
            let mut taken = Vec::with_capacity(queued.len());
            for step in queued.chunks(4 * STEP) {
                taken.extend(self.take_queued(locked, step.iter().map(FoundQueued::place)));
                give_way();
            }
            let mut deadlines = Vec::with_capacity(delayed.len());
            for step in delayed.chunks(STEP) {
                deadlines.extend(self.take_delays_of(locked, step));
                give_way();
            }
            // In place: there may be millions.
            let queued: Vec<_> = queued
                .into_iter()
                .zip(taken)
                .filter_map(|(found, taken)| {
                    if !taken {
                        taking.missed.push((found.slot, found.key));
                        return None;
                    }
                    Some(found)
                })
                .collect();
            if taking.queued.is_empty() {
                taking.queued = queued;
            } else {
                taking.queued.extend(queued);
            }
            for ((_, key), deadline) in delayed.into_iter().zip(deadlines) {
                match deadline {
                    Some((deadline, priority)) => taking.delayed.push(DelayedKey::new(key, deadline, priority, now)),
                    None => missed.push(key),
                }
            }
        }
        taking.delayed.sort_by_key(|delayed| delayed.left);
        self.note_caught(drop_each(missed));
        taking
    }

    /// The keys of a shard that match.
    fn matching(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> Matching<K> {
        let queued = self.matching_queued(locked, matches);
        Matching { queued, ..self.matching_slots(locked, matches) }
    }

    /// Whether the keys of a shard have priorities or groups. If so, none of them is still in the line.
    fn is_ordered_and_moved(&self, locked: &Locked<K>) -> bool {
        loop {
            self.finish_move(locked, false);
            let shard = locked.lock();
            if !shard.is_ordered() || shard.line_len() == 0 {
                return shard.is_ordered();
            }
        }
    }

    /// The queued keys that match, in the order of the queue; with priorities or groups, by priority and then by age. Keys that are queued
    /// during the call may be missing.
    fn matching_queued(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> Vec<FoundQueued<K>> {
        let (mut found, mut seen) = (Vec::with_capacity(locked.lock().len()), Vec::new());
        if !self.is_ordered_and_moved(locked) {
            Self::match_in_line(locked, matches, &mut found, &mut seen);
        }
        // Also if it is ordered only now: keys may have moved before they were seen.
        if self.is_ordered_and_moved(locked) {
            Self::match_in_order(locked, matches, &mut found, &seen);
            found.sort_by_key(|found| (found.priority, found.push));
        }
        found
    }

    /// Keys of the line. `seen` gets the positions for which the predicate was called.
    fn match_in_line(
        locked: &Locked<K>,
        matches: &mut impl FnMut(&K) -> bool,
        found: &mut Vec<FoundQueued<K>>,
        seen: &mut Vec<u64>,
    ) {
        let mut range = locked.lock().positions();
        while range.start < range.end {
            let mut some = Vec::with_capacity(2 * STEP);
            range.start = locked.lock().copy_queued(range.clone(), &mut some);
            seen.extend(some.iter().map(|found| found.push));
            found.extend(some.into_iter().filter(|found| matches(&found.key)));
            give_way();
        }
    }

    /// Keys of the order. Keys that were seen in the line do not count.
    fn match_in_order(
        locked: &Locked<K>,
        matches: &mut impl FnMut(&K) -> bool,
        found: &mut Vec<FoundQueued<K>>,
        seen: &[u64],
    ) {
        let mut chunk = 0;
        loop {
            let mut some = Vec::with_capacity(64 * CHUNKS);
            if !locked.lock().copy_in_order(chunk, &mut some) {
                return;
            }
            chunk += CHUNKS;
            some.retain(|found| seen.binary_search(&found.push).is_err());
            found.extend(some.into_iter().filter(|found| matches(&found.key)));
            give_way();
        }
    }

    /// The delayed keys that match, and the processing ones.
    fn matching_slots(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> Matching<K> {
        let mut found = Matching { queued: Vec::new(), delayed: Vec::new(), processing: Vec::new() };
        let wanted = |state: &State| state.is_delayed() || state.is_processing();
        Self::look_at_slots(locked, wanted, |FoundKey { is_delayed, is_processing, slot, key }| {
            if matches(&key) {
                if is_delayed {
                    found.delayed.push((self.hash(&key), key.clone()));
                }
                if is_processing {
                    found.processing.push((slot, key));
                }
            }
        });
        found
    }

    /// Visits the keys whose states are `wanted`. Not under the lock.
    fn look_at_slots(locked: &Locked<K>, wanted: impl Fn(&State) -> bool, mut visit: impl FnMut(FoundKey<K>)) {
        let mut chunk = 0;
        loop {
            let mut some = Vec::with_capacity(64 * CHUNKS);
            if !locked.lock().copy_where(&mut chunk, &wanted, &mut some) {
                return;
            }
            some.into_iter().for_each(&mut visit);
            give_way();
        }
    }

    /// Takes the keys at these places out. Returns, for each place, whether its key was still there.
    fn take_queued(&self, locked: &Locked<K>, places: impl ExactSizeIterator<Item = Place>) -> Vec<bool> {
        let (mut taken, mut removed) = (Vec::with_capacity(places.len()), Vec::with_capacity(places.len()));
        {
            let mut section = self.enter(locked);
            section.take_queued(places, &mut taken, &mut removed);
            section.publish();
            locked.publish_front(&section);
            section.owe_drainers();
        }
        self.end_getters();
        self.note_caught(drop_each(removed));
        taken
    }

    /// Takes the delays of these keys. Returns the deadline and the priority of each key that was still delayed.
    fn take_delays_of(&self, locked: &Locked<K>, keys: &[(KeyHash, K)]) -> Vec<Option<(u64, i8)>> {
        let (mut deadlines, mut removed) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        // A panic of `Eq` is caught: the keys that are out of the queue must reach the caller. It is dropped after the lock, as its payload is
        // foreign code.
        let mut panics = Vec::with_capacity(keys.len());
        {
            let mut section = self.enter(locked);
            section.take_delays_of(keys, &mut deadlines, &mut removed, &mut panics);
            section.owe_drainers();
        }
        self.note_caught(panics.iter().filter(|caught| caught.is_some()).count() + drop_each(removed));
        deadlines
    }

    /// The slots of all keys that are queued or processing.
    fn active_slots(&self) -> HashSet<SlotId> {
        let mut slots = Vec::new();
        for locked in self.all() {
            let mut chunk = 0;
            loop {
                slots.reserve(64 * CHUNKS); // few are left, as a rule
                if !locked.lock().copy_active(chunk, &mut slots) {
                    break;
                }
                chunk += READ_CHUNKS;
                give_way();
            }
        }
        slots.into_iter().collect()
    }

    /// The keys in the order in which getters would have been handed them, but for turns of lower priorities: by priority, groups in
    /// turn, and then by age; with several shards, approximately.
    fn in_order_of_hand_out(&self, mut queued: Vec<FoundQueued<K>>) -> Vec<K> {
        // Stable: the keys of a shard are in this order already.
        if self.shards() > 1 {
            queued.sort_by_key(|found| (found.priority, found.stamp));
        }
        if self.groups.is_none() {
            return queued.into_iter().map(|found| found.key).collect();
        }
        let mut keys_of = HashMap::<_, u32>::new();
        let mut in_turns: Vec<_> = queued
            .into_iter()
            .map(|found| {
                let before = keys_of.entry((found.priority, found.group.hash)).or_default();
                let turn = *before / u32::from(found.group.weight.max(1));
                *before += 1;
                ((found.priority, turn), found.key)
            })
            .collect();
        in_turns.sort_by_key(|&(turn, _)| turn);
        in_turns.into_iter().map(|(_, key)| key).collect()
    }
}
