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
//! A queued key is found again by its position in the line, which identifies one push: a key that was handed out meanwhile, and is queued
//! again, is not taken. A delayed key is found again by its hash.

use super::{Core, STEP, Shared};
use crate::Leftover;
use crate::key::slab::SlotRef;
use crate::key::table;
use crate::panics::{Caught, drop_each};
use crate::sync::{Ordering, give_way, model_const};
use crate::time::time_left;
use crate::time::wheel::Placements;
use std::hash::Hash;

/// The number of chunks of slots that one critical section visits.
const CHUNKS: usize = model_const(4, 1);

impl<K: Hash + Eq + Clone> Shared<K> {
    /// `take_where`.
    pub(crate) fn take_where(&self, mut matches: impl FnMut(&K) -> bool) -> Leftover<K> {
        let queued = self.matching_queued(&mut matches);
        let (delayed, processing) = self.matching_slots(&mut matches);

        // From here on keys are taken, so a panic of foreign code is caught: the taken keys must reach the caller.
        let (mut taken, mut missed) = (Vec::with_capacity(queued.len()), Vec::new());
        for step in queued.chunks(STEP) {
            taken.extend(self.take_queued(step.iter().map(|&(position, _)| position)));
            give_way();
        }
        let mut deadlines = Vec::with_capacity(delayed.len());
        for step in delayed.chunks(STEP) {
            deadlines.extend(self.take_delayed_of(step));
            give_way();
        }
        let mut leftover = Leftover { queued: Vec::with_capacity(taken.len()), processing, delayed: Vec::new() };
        for ((_, key), taken) in queued.into_iter().zip(taken) {
            if taken { &mut leftover.queued } else { &mut missed }.push(key);
        }
        let now = self.clock.now();
        for ((_, key), deadline) in delayed.into_iter().zip(deadlines) {
            match deadline {
                Some(deadline) => leftover.delayed.push((key, time_left(deadline, now))),
                None => missed.push(key),
            }
        }
        leftover.delayed.sort_by_key(|&(_, left)| left);
        self.note_caught(drop_each(missed));
        leftover
    }

    /// The queued keys that match, with their positions in the line. Keys that are queued during the call may be missing.
    fn matching_queued(&self, matches: &mut impl FnMut(&K) -> bool) -> Vec<(u64, K)> {
        let mut found = Vec::new();
        let mut range = self.core.lock().line.positions();
        while range.start < range.end {
            let mut some = Vec::with_capacity(STEP);
            range.start = self.core.lock().copy_queued(range.clone(), &mut some);
            found.extend(some.into_iter().filter(|(_, key)| matches(key)));
            give_way();
        }
        found
    }

    /// The delayed keys that match, and the processing ones.
    fn matching_slots(&self, matches: &mut impl FnMut(&K) -> bool) -> (Vec<(table::Hash, K)>, Vec<K>) {
        let (mut delayed, mut processing, mut chunk) = (Vec::new(), Vec::new(), 0);
        loop {
            let mut some = Vec::with_capacity(64 * CHUNKS);
            if !self.core.lock().copy_delayed_and_processing(chunk, &mut some) {
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

    /// Takes the keys at these positions out of the line. Returns, for each position, whether its key was still there.
    fn take_queued(&self, positions: impl ExactSizeIterator<Item = u64>) -> Vec<bool> {
        let mut vacated = Vec::with_capacity(positions.len());
        let mut taken = Vec::with_capacity(positions.len());
        {
            let core = &mut *self.enter();
            for position in positions {
                let slot = core.line.remove(position);
                taken.push(slot.is_some());
                vacated.extend(slot.and_then(|slot| core.take_back(slot)));
            }
            self.len.store(core.line.len(), Ordering::Relaxed); // Relaxed: see `len`
            if core.line.has_retired() {
                core.owe_garbage();
            }
            core.owe_drainers();
        }
        self.note_caught(drop_each(vacated));
        taken
    }

    /// Takes the delays of these keys. Returns the deadline of each key that was still delayed.
    fn take_delayed_of(&self, keys: &[(table::Hash, K)]) -> Vec<Option<u64>> {
        let mut vacated = Vec::with_capacity(keys.len());
        let mut deadlines = Vec::with_capacity(keys.len());
        let mut panics = Vec::with_capacity(keys.len());
        {
            let core = &mut *self.enter();
            for (hash, key) in keys {
                // SAFETY: in the table, so taken (S2), and we hold the lock.
                let delayed = |slot: &SlotRef<K>| unsafe { slot.get() }.state.is_delayed();
                let mut found = None;
                // A panic of `Eq` is dropped after the lock: its payload is foreign code.
                panics.push(Caught::call(|| found = core.table.find(key, *hash)));
                let found = found.filter(delayed);
                deadlines.push(found.map(|slot| {
                    let number = core.table.number(slot);
                    let deadline = core.table.placement(number).deadline;
                    let _waited = core.remove_delay(slot);
                    vacated.extend(core.forget_if_vacant(slot));
                    deadline
                }));
            }
            core.owe_drainers();
            core.owe_wheel_garbage();
        }
        self.note_caught(drop_each(vacated));
        deadlines
    }
}

impl<K: Clone> Core<K> {
    /// Copies the queued keys of a step of the line. Returns where the next step begins.
    fn copy_queued(&self, range: std::ops::Range<u64>, some: &mut Vec<(u64, K)>) -> u64 {
        let start = range.start.max(self.line.positions().start);
        let end = range.end.min(start + STEP as u64);
        for position in start..end {
            if let Some(slot) = self.line.get(position) {
                // SAFETY: queued, so taken (S2), and we hold the lock.
                let inside = unsafe { slot.get() };
                // SAFETY: the slot is taken, so its key is initialised (S1), and we hold the lock.
                some.push((position, unsafe { inside.key() }.clone()));
            }
        }
        end
    }

    /// Copies the delayed and the processing keys of some chunks. `false`: there are no such chunks.
    fn copy_delayed_and_processing(&self, chunk: usize, some: &mut Vec<(K, bool, bool)>) -> bool {
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS) {
            // SAFETY: `iter_chunks` yields taken slots only (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            let (delayed, processing) = (inside.state.is_delayed(), inside.state.is_processing());
            if delayed || processing {
                // SAFETY: the slot is taken, so its key is initialised (S1), and we hold the lock.
                some.push((unsafe { inside.key() }.clone(), delayed, processing));
            }
        }
        chunk < self.table.chunks()
    }
}

impl<K> Core<K> {
    /// A key was taken out of the line and is not handed out. **Linearization point of taking a queued key.**
    fn take_back(&mut self, slot: SlotRef<K>) -> Option<K> {
        self.counts.taken += 1;
        self.note_taken_back(slot);
        // SAFETY: it was queued (S2), and we hold the lock.
        unsafe { slot.get() }.state.on_take_back();
        self.forget_if_vacant(slot)
    }
}
