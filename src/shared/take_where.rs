//! Takes the keys that match a predicate out of the queue.
//!
//! The predicate is foreign code, so it is not called under the lock (P17). It may panic, so no key is taken before it was called for
//! every key:
//!
//! ```text
//!   for each step of the line, and of the slots:   lock ─ clone some keys ─ unlock ─ call the predicate, keep the clones that match
//!   for each step of the clones:                   lock ─ take the key, if it is still there ─ unlock ─ drop the queue's copy
//! ```
//!
//! A queued key is found again by its place, which identifies one push: a key that was handed out meanwhile, and is queued
//! again, is not taken. A delayed key is found again by its hash.

use super::Shared;
use super::locked::Locked;
use crate::Leftover;
use crate::key::Hash as KeyHash;
use crate::panics::drop_each;
use crate::shard::{CHUNKS, Place, Rank, STEP};
use crate::sync::give_way;
use crate::time::time_left;
use std::hash::Hash;

/// The keys of one shard that match: queued ones with their positions in the line, delayed ones with their hashes.
struct Matching<K> {
    queued: Vec<(Place, K)>,
    delayed: Vec<(KeyHash, K)>,
    processing: Vec<K>,
}

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_where`.
    pub(crate) fn take_where(&self, mut matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        let found: Vec<_> = self.all().map(|locked| (locked, self.matching(locked, &mut matches))).collect();

        // From here on keys are taken, so a panic of foreign code is caught: the taken keys must reach the caller.
        let mut leftover = Leftover::nothing();
        let mut missed = Vec::new();
        let now = self.clock.now();
        for (locked, Matching { queued, delayed, processing }) in found {
            let mut taken = Vec::with_capacity(queued.len());
            for step in queued.chunks(STEP) {
                taken.extend(self.take_queued(locked, step.iter().map(|&(place, _)| place)));
                give_way();
            }
            let mut deadlines = Vec::with_capacity(delayed.len());
            for step in delayed.chunks(STEP) {
                deadlines.extend(self.take_delays_of(locked, step));
                give_way();
            }
            for ((_, key), taken) in queued.into_iter().zip(taken) {
                if taken { &mut leftover.queued } else { &mut missed }.push(key);
            }
            for ((_, key), deadline) in delayed.into_iter().zip(deadlines) {
                match deadline {
                    Some(deadline) => leftover.delayed.push((key, time_left(deadline, now))),
                    None => missed.push(key),
                }
            }
            leftover.processing.extend(processing);
        }
        leftover.delayed.sort_by_key(|&(_, left)| left);
        self.note_caught(drop_each(missed));
        leftover
    }

    /// The keys of a shard that match.
    fn matching(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> Matching<K> {
        let queued = self.matching_queued(locked, matches);
        let (delayed, processing) = self.matching_slots(locked, matches);
        Matching { queued, delayed, processing }
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

    /// The queued keys that match, with their places, in the order of the queue; with priorities or groups, by priority and then by age.
    /// Keys that are queued during the call may be missing.
    fn matching_queued(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> Vec<(Place, K)> {
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        if !self.is_ordered_and_moved(locked) {
            Self::match_in_line(locked, matches, &mut found, &mut seen);
        }
        // Also if it is ordered only now: keys may have moved before they were seen.
        if self.is_ordered_and_moved(locked) {
            Self::match_in_order(locked, matches, &mut found, &seen);
            found.sort_by_key(|&(rank, ..)| rank);
        }
        found.into_iter().map(|(_, place, key)| (place, key)).collect()
    }

    /// Keys of the line. `seen` gets the positions for which the predicate was called.
    fn match_in_line(
        locked: &Locked<K>,
        matches: &mut impl FnMut(&K) -> bool,
        found: &mut Vec<(Rank, Place, K)>,
        seen: &mut Vec<u64>,
    ) {
        let mut range = locked.lock().positions();
        while range.start < range.end {
            let mut some = Vec::with_capacity(STEP);
            range.start = locked.lock().copy_queued(range.clone(), &mut some);
            seen.extend(some.iter().map(|&((_, push), ..)| push));
            found.extend(some.into_iter().filter(|(.., key)| matches(key)));
            give_way();
        }
    }

    /// Keys of the order, but for those that were seen in the line.
    fn match_in_order(
        locked: &Locked<K>,
        matches: &mut impl FnMut(&K) -> bool,
        found: &mut Vec<(Rank, Place, K)>,
        seen: &[u64],
    ) {
        let mut chunk = 0;
        loop {
            let mut some = Vec::with_capacity(64 * CHUNKS);
            if !locked.lock().copy_in_order(chunk, &mut some) {
                return;
            }
            chunk += CHUNKS;
            some.retain(|&((_, push), ..)| seen.binary_search(&push).is_err());
            found.extend(some.into_iter().filter(|(.., key)| matches(key)));
            give_way();
        }
    }

    /// The delayed keys that match, and the processing ones.
    fn matching_slots(&self, locked: &Locked<K>, matches: &mut impl FnMut(&K) -> bool) -> (Vec<(KeyHash, K)>, Vec<K>) {
        let (mut delayed, mut processing, mut chunk) = (Vec::new(), Vec::new(), 0);
        loop {
            let mut some = Vec::with_capacity(64 * CHUNKS);
            if !locked.lock().copy_delayed_and_processing(chunk, &mut some) {
                return (delayed, processing);
            }
            chunk += CHUNKS;
            for (key, is_delayed, is_processing) in some {
                if matches(&key) {
                    if is_delayed {
                        delayed.push((self.hash(&key), key.clone()));
                    }
                    if is_processing {
                        processing.push(key);
                    }
                }
            }
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

    /// Takes the delays of these keys. Returns the deadline of each key that was still delayed.
    fn take_delays_of(&self, locked: &Locked<K>, keys: &[(KeyHash, K)]) -> Vec<Option<u64>> {
        let (mut deadlines, mut removed) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        // A panic of `Eq` is dropped after the lock: its payload is foreign code.
        let mut panics = Vec::with_capacity(keys.len());
        {
            let mut section = self.enter(locked);
            section.take_delays_of(keys, &mut deadlines, &mut removed, &mut panics);
            section.owe_drainers();
        }
        self.note_caught(drop_each(removed));
        deadlines
    }
}
