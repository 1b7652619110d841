//! Steps of calls that visit many keys, a part of them in each critical section.

use super::Shard;
use super::times::since;
use crate::key::Hash;
use crate::line::Line;
use crate::panics::Caught;
use crate::sync::model_const;
use std::ops::Range;
use std::time::Duration;

/// The number of keys that one critical section visits, in calls that visit many: some ten microseconds.
pub(crate) const STEP: usize = model_const(128, 2);

/// The number of chunks of slots that one critical section visits.
pub(crate) const CHUNKS: usize = model_const(4, 1);

impl<K> Shard<K> {
    /// The positions of the queued keys, for [`copy_queued`](Self::copy_queued).
    pub(crate) fn positions(&self) -> Range<u64> {
        self.line.positions()
    }

    /// Takes the keys at these positions out of the line. `taken` gets whether the key of each position was still there, and `removed` the
    /// keys that are out of the queue, for the caller to drop after the lock. **Linearization point of taking a queued key.**
    pub(crate) fn take_queued(
        &mut self,
        positions: impl Iterator<Item = u64>,
        taken: &mut Vec<bool>,
        removed: &mut Vec<K>,
    ) {
        for position in positions {
            let queued = self.line.remove(position);
            taken.push(queued.is_some());
            let Some(queued) = queued else { continue };
            self.counts.taken += 1;
            if let Some(times) = &mut self.times {
                times.taken_back(self.table.number(queued.view()));
            }
            removed.extend(self.table.take_back(queued));
        }
        self.note_removed();
        self.effects.pending |= self.line.has_retired();
    }

    /// Frees memory that the keys do not need: the first step. The steps that follow are [`shrink_step`](Self::shrink_step). Returns a
    /// wheel without keys, to be dropped after the lock.
    pub(crate) fn begin_shrink(&mut self) -> Option<impl Sized + use<K>> {
        self.line.shrink();
        self.effects.pending |= self.line.has_retired();
        if self.later.delayed == 0 { self.later.wheel.take() } else { None }
    }

    /// One more step: frees chunks from `*chunk` on, and then buckets. `false`: that was the last.
    pub(crate) fn shrink_step(&mut self, chunk: &mut usize) -> bool {
        // The number of chunks is read in each step: freeing the last chunk makes the array shorter.
        let more = if *chunk < self.table.chunks() {
            self.table.shrink_chunks(*chunk..*chunk + STEP);
            *chunk += STEP;
            true
        } else {
            let more = self.table.shrink_buckets(2 * STEP);
            if !more {
                self.later.records.shrink();
                self.times.iter_mut().for_each(|times| times.shrink());
            }
            more
        };
        self.retire();
        more
    }
}

impl<K: Eq> Shard<K> {
    /// Takes the delays of these keys. `deadlines` gets the deadline of each key that was still delayed, `removed` the keys that are out
    /// of the queue, and `panics` the panics of `Eq`: all for the caller to drop after the lock.
    pub(crate) fn take_delays_of(
        &mut self,
        keys: &[(Hash, K)],
        deadlines: &mut Vec<Option<u64>>,
        removed: &mut Vec<K>,
        panics: &mut Vec<Caught>,
    ) {
        for (hash, key) in keys {
            let mut deadline = None;
            panics.push(Caught::call(|| {
                let Some(mut known) = self.find(key, *hash).filter(|known| known.state().is_delayed()) else { return };
                deadline = Some(known.deadline());
                let _waited = known.remove_delay();
                removed.extend(known.remove_if_vacant());
            }));
            deadlines.push(deadline);
        }
    }
}

impl<K: Clone> Shard<K> {
    /// Copies the queued keys of a step of the line, with their positions. Returns where the next step begins.
    pub(crate) fn copy_queued(&self, range: Range<u64>, some: &mut Vec<(u64, K)>) -> u64 {
        let start = range.start.max(self.line.positions().start);
        let end = range.end.min(start + STEP as u64);
        for position in start..end {
            some.extend(self.line.get(position).map(|queued| (position, queued.view().key().clone())));
        }
        end
    }

    /// Copies the delayed and the processing keys of [`CHUNKS`] chunks, each with whether it is delayed and whether it is processing.
    /// `false`: there are no such chunks.
    pub(crate) fn copy_delayed_and_processing(&self, chunk: usize, some: &mut Vec<(K, bool, bool)>) -> bool {
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS) {
            let (delayed, processing) = (slot.state().is_delayed(), slot.state().is_processing());
            if delayed || processing {
                some.push((slot.key().clone(), delayed, processing));
            }
        }
        chunk < self.table.chunks()
    }

    /// Copies the processing keys of [`CHUNKS`] chunks, with their ages. `false`: there are no such chunks.
    pub(crate) fn copy_processing(&self, chunk: usize, now: u64, keys: &mut Vec<(K, Option<Duration>)>) -> bool {
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS).filter(|slot| slot.state().is_processing()) {
            let times = self.times.as_ref();
            let started_at = times.map(|times| times.started_at(self.table.number(slot)).min(now));
            keys.push((slot.key().clone(), started_at.map(|started_at| since(started_at, now))));
        }
        chunk < self.table.chunks()
    }
}
