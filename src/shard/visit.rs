//! Steps of calls that visit many keys, a part of them in each critical section.

use super::Shard;
use super::times::since;
use crate::Priority;
use crate::key::{Hash, Queued, SlotId, State};
use crate::line::{Group, Line};
use crate::panics::Caught;
use crate::stats::GroupStats;
use crate::sync::model_const;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// The number of keys that one critical section visits, in calls that visit many: some ten microseconds.
pub(crate) const STEP: usize = model_const(128, 2);

/// In a line with more positions, no key is searched for: a microsecond.
const SEARCHED: u64 = model_const(512, 1) as u64;

/// Where a queued key was found. It stands for one push: if the key is queued again later, it is elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its position in the line, and its slot: the key may move to the order.
    InLine(u64, u32),
    /// Its slot, and the number of its push.
    InOrder(u32, u64),
}

/// The number of chunks of slots that one critical section visits.
pub(crate) const CHUNKS: usize = model_const(4, 1);

/// The same, of steps that only read the states of most slots.
pub(crate) const READ_CHUNKS: usize = model_const(64, 1);

/// A queued key, as a step has found it.
pub(crate) struct FoundQueued<K> {
    /// The higher priority first.
    pub(crate) priority: Reverse<i8>,
    in_line: bool,
    /// The number of its slot.
    number: u32,
    /// Its position in the line, or the number of its push in the order. The former are less.
    pub(crate) push: u64,
    /// A time before its push, if the queue has several shards. It is not later than the time of any later push of the shard.
    pub(crate) stamp: u64,
    pub(crate) group: Group,
    pub(crate) slot: SlotId,
    pub(crate) key: K,
}

impl<K> FoundQueued<K> {
    pub(crate) fn place(&self) -> Place {
        if self.in_line { Place::InLine(self.push, self.number) } else { Place::InOrder(self.number, self.push) }
    }
}

/// A key in any other state, as a step has found it.
pub(crate) struct FoundKey<K> {
    pub(crate) is_delayed: bool,
    pub(crate) is_processing: bool,
    pub(crate) slot: SlotId,
    pub(crate) key: K,
}

impl<K> Shard<K> {
    /// The positions of the queued keys, for [`copy_queued`](Self::copy_queued).
    pub(crate) fn positions(&self) -> Range<u64> {
        self.line.positions()
    }

    /// Takes the keys at these places out. `taken` gets whether the key of each place was still there, and `removed` the
    /// keys that are out of the queue, for the caller to drop after the lock.
    pub(crate) fn take_queued(
        &mut self,
        places: impl Iterator<Item = Place>,
        taken: &mut Vec<bool>,
        removed: &mut Vec<K>,
    ) {
        for place in places {
            let key = self.take_at(place);
            taken.push(key.is_some());
            removed.extend(key.flatten());
        }
    }

    /// Takes out the key at a place, if it is still there. **Linearization point of taking a queued key.** Returns the key if it is out of
    /// the queue.
    pub(super) fn take_at(&mut self, place: Place) -> Option<Option<K>> {
        let queued = match place {
            Place::InLine(position, number) => {
                self.line.remove(position).or_else(|| self.remove_from_order(number, position))
            }
            Place::InOrder(number, push) => self.remove_from_order(number, push),
        }?;
        self.note_taken(self.table.number(queued.view()));
        let removed = self.table.take_back(queued);
        self.note_removed();
        self.effects.pending |= self.line.has_retired();
        Some(removed)
    }

    /// No hand-out follows an add of the key in this slot.
    pub(super) fn note_taken(&mut self, number: u32) {
        self.counts.taken += 1;
        if let Some(times) = &mut self.times {
            times.taken_back(number);
        }
    }

    /// The place of a queued key. `None`: it may be anywhere in a long line.
    pub(super) fn place_of(&self, slot: SlotId, number: u32) -> Option<Place> {
        if let Some((_, push)) = self.order.as_ref().and_then(|order| order.get(number)) {
            return Some(Place::InOrder(number, push));
        }
        let mut positions = self.line.positions();
        if positions.end - positions.start > SEARCHED {
            return None;
        }
        let found =
            positions.find(|&position| self.line.get(position).is_some_and(|queued| queued.view().id() == slot))?;
        Some(Place::InLine(found, number))
    }

    fn remove_from_order(&mut self, number: u32, push: u64) -> Option<Queued<K>> {
        let order = self.order.as_mut()?;
        if order.get(number)?.1 != push {
            return None;
        }
        let removed = order.remove(number);
        self.effects.pending |= order.has_retired();
        removed
    }

    /// Adds the slots of [`READ_CHUNKS`] chunks whose keys are queued or processing. `false`: there are no such chunks.
    pub(crate) fn copy_active(&self, chunk: usize, some: &mut Vec<SlotId>) -> bool {
        let slots = self.table.iter_chunks(chunk..chunk + READ_CHUNKS);
        some.extend(slots.filter(|slot| slot.state().is_active()).map(|slot| slot.id()));
        chunk < self.table.chunks()
    }

    /// Frees memory that the keys do not need: the first step. The steps that follow are [`shrink_step`](Self::shrink_step). Returns a
    /// wheel without keys, to be dropped after the lock.
    pub(crate) fn begin_shrink(&mut self) -> Option<impl Sized + use<K>> {
        self.line.shrink();
        self.effects.pending |= self.line.has_retired();
        if self.later.delayed == 0 { self.later.wheel.take() } else { None }
    }

    /// The hand-outs of these groups since they have last begun to have queued keys.
    pub(crate) fn add_handed_out(&mut self, groups: &mut [(u32, GroupStats<K>)]) {
        for (hash, group) in groups {
            group.handed_out += self.order.as_mut().map_or(0, |order| order.handed_out(*hash));
        }
    }

    /// The number of queued keys of each priority, in ascending order of their indices.
    pub(crate) fn add_levels(&self, levels: &mut [usize; 256]) {
        let normal = (i16::from(Priority::NORMAL.0) - i16::from(i8::MIN)) as usize;
        levels[normal] += self.line.len();
        self.order.iter().for_each(|order| order.add_levels(levels));
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
                self.order.iter_mut().for_each(|order| order.shrink());
                self.times.iter_mut().for_each(|times| times.shrink());
            }
            more
        };
        self.retire();
        more
    }
}

impl<K: Eq> Shard<K> {
    /// Takes the delays of these keys. `deadlines` gets the deadline and the priority of each key that was still delayed, `removed` the keys that are out
    /// of the queue, and `panics` the panics of `Eq`: all for the caller to drop after the lock.
    pub(crate) fn take_delays_of(
        &mut self,
        keys: &[(Hash, K)],
        deadlines: &mut Vec<Option<(u64, i8)>>,
        removed: &mut Vec<K>,
        panics: &mut Vec<Caught>,
    ) {
        for (hash, key) in keys {
            let mut deadline = None;
            panics.push(Caught::call(|| {
                let Some(mut known) = self.find(key, *hash).filter(|known| known.state().is_delayed()) else { return };
                deadline = Some((known.deadline(), known.delayed_priority()));
                let _waited = known.remove_delay();
                removed.extend(known.remove_if_vacant());
            }));
            deadlines.push(deadline);
        }
    }
}

impl<K: Clone> Shard<K> {
    /// Copies the queued keys of a step of the line. Returns where the next step begins.
    pub(crate) fn copy_queued(&self, range: Range<u64>, some: &mut Vec<FoundQueued<K>>) -> u64 {
        let start = range.start.max(self.line.positions().start);
        let end = range.end.min(start + 2 * STEP as u64);
        for position in start..end {
            some.extend(self.line.get(position).map(|queued| FoundQueued {
                priority: Reverse(Priority::NORMAL.0),
                in_line: true,
                number: self.table.number(queued.view()),
                push: position,
                stamp: self.line.stamp_of(position),
                group: Group::default(),
                slot: queued.view().id(),
                key: queued.view().key().clone(),
            }));
        }
        end
    }

    /// Copies the keys of [`CHUNKS`] chunks that are queued in the order. `false`: there are no such chunks.
    pub(crate) fn copy_in_order(&self, chunk: usize, some: &mut Vec<FoundQueued<K>>) -> bool {
        let Some(order) = &self.order else { return false };
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS) {
            let number = self.table.number(slot);
            let Some(((_, push), priority)) = order.get(number).zip(order.priority(number)) else { continue };
            some.push(FoundQueued {
                priority: Reverse(priority),
                in_line: false,
                number,
                push,
                stamp: order.stamp_of(number),
                group: order.known(number).group,
                slot: slot.id(),
                key: slot.key().clone(),
            });
        }
        chunk < self.table.chunks()
    }

    /// Adds the keys of [`CHUNKS`] chunks that are queued or processing to the numbers of their groups, by the hash of the group. `false`:
    /// there are no such chunks.
    pub(crate) fn add_to_groups(&mut self, chunk: usize, now: u64, groups: &mut HashMap<u32, GroupStats<K>>) -> bool {
        let Some(order) = &mut self.order else { return false };
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS) {
            let (queued, processing) = (slot.state().is_queued(), slot.state().is_processing());
            if !queued && !processing {
                continue;
            }
            let number = self.table.number(slot);
            let hash = order.key(number).group.hash;
            let group = groups.entry(hash).or_insert_with(|| GroupStats {
                key: slot.key().clone(),
                queued: 0,
                processing: 0,
                handed_out: 0,
                oldest: None,
            });
            group.queued += usize::from(queued);
            group.processing += usize::from(processing);
            if queued {
                let queued_at = self.times.as_ref().and_then(|times| times.queued_at(number));
                group.oldest = group.oldest.max(queued_at.map(|queued_at| since(queued_at, now)));
            }
        }
        chunk < self.table.chunks()
    }

    /// Copies keys whose states are `wanted`: from `chunk` on, which it moves, until there are as many as in [`CHUNKS`] chunks, or
    /// [`READ_CHUNKS`] chunks were read. `false`: there are no such chunks.
    pub(crate) fn copy_where(
        &self,
        chunk: &mut usize,
        wanted: impl Fn(&State) -> bool,
        some: &mut Vec<FoundKey<K>>,
    ) -> bool {
        let end = self.table.chunks().min(*chunk + READ_CHUNKS);
        let more = *chunk < end;
        while *chunk < end && some.len() < 64 * CHUNKS {
            let slots = self.table.iter_chunks(*chunk..*chunk + 1);
            some.extend(slots.filter(|slot| wanted(slot.state())).map(|slot| FoundKey {
                is_delayed: slot.state().is_delayed(),
                is_processing: slot.state().is_processing(),
                slot: slot.id(),
                key: slot.key().clone(),
            }));
            *chunk += 1;
        }
        more
    }

    /// Copies the delayed keys of [`CHUNKS`] chunks, with their deadlines and the priorities that they will have. `false`: there are no
    /// such chunks.
    pub(crate) fn copy_delayed(&self, chunk: usize, keys: &mut Vec<(u64, i8, K)>) -> bool {
        for slot in self.table.iter_chunks(chunk..chunk + CHUNKS).filter(|slot| slot.state().is_delayed()) {
            let number = self.table.number(slot);
            let priority = self.order.as_ref().map_or(Priority::NORMAL.0, |order| order.known(number).delayed);
            keys.push((self.later.deadline(number), priority, slot.key().clone()));
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
