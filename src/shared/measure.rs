//! How long keys wait and are worked on: kept for who asks, by a queue that is told to.
//!
//! ```text
//!   add ──── waited ────▶ get ──── worked ────▶ done
//!    ▲                     │
//!    │ stamp.added         │ stamp.taken, and to the end of the list of keys in work:
//!                                  oldest ⇄ … ⇄ newest
//! ```
//!
//! A [`Stamp`] beside each key's slot, two histograms, and a list through the stamps, all of them plain numbers that change in the
//! critical sections there are anyway. So nobody has to walk over the keys in work to know the oldest of them, or how long all
//! of them together have been worked on: that is their number times now, less the sum of their beginnings. What is left to pay
//! is a reading of the clock per call, before the lock: the rough one, as these times are for the eye.
//!
//! The times of two threads may be a tenth of a microsecond apart, so differences stop at zero.

use super::{Core, Shared};
use crate::histogram::Histogram;
use crate::key::slab::{SlotRef, Stamp};
use crate::line::Line;
use crate::stats::{Metrics, Stats};
use crate::time::rest;
use std::time::Duration;

/// No key.
const NIL: u32 = u32::MAX;

/// What a queue that measures keeps beside its keys' stamps.
pub(super) struct Measures {
    waited: Histogram,
    worked: Histogram,
    /// The ends of the list of keys in work.
    oldest: u32,
    newest: u32,
    /// The sum of the times at which the keys in work were handed out.
    beginnings: u128,
}

impl Measures {
    pub(super) fn new() -> Self {
        Self { waited: Histogram::default(), worked: Histogram::default(), oldest: NIL, newest: NIL, beginnings: 0 }
    }
}

impl<K> Shared<K> {
    /// The time, if times are kept. Before the lock, so that it is not held for longer.
    #[inline]
    pub(super) fn stamp(&self) -> u64 {
        if self.measured { self.clock.rough() } else { 0 }
    }

    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        let now = self.clock.now();
        // Room beforehand, so that nothing is allocated under the lock.
        let mut metrics = Metrics::default();
        let core = &mut *self.core.lock();
        metrics.stats = core.stats(now);
        if let Some(measures) = &core.measures {
            metrics.queue_duration.copy_from(&measures.waited);
            metrics.work_duration.copy_from(&measures.worked);
        }
        metrics
    }

    pub(crate) fn stats(&self) -> Stats {
        let now = self.clock.now();
        self.core.lock().stats(now)
    }

    /// How long a key waited that is held.
    pub(crate) fn waited(&self, slot: SlotRef<K>) -> Option<Duration> {
        if !self.measured {
            return None;
        }
        let core = &mut *self.core.lock();
        Some(Duration::from_nanos(core.stamp(slot).waited))
    }
}

impl<K: Clone> Shared<K> {
    /// `in_work`.
    pub(crate) fn in_work(&self) -> Vec<(K, Option<Duration>)> {
        let now = self.clock.now();
        let mut keys = Vec::with_capacity(self.core.lock().processing);
        let core = &mut *self.core.lock();
        let copy = |slot: SlotRef<K>| {
            // SAFETY: in work, so taken (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            // SAFETY: as above.
            unsafe { inside.key() }.clone()
        };
        let Some(mut next) = core.measures.as_ref().map(|measures| measures.oldest) else {
            // SAFETY: `iter` has taken slots only, and we hold the lock.
            let in_work = core.table.iter().filter(|slot| unsafe { slot.get() }.state.is_processing());
            keys.extend(in_work.map(|slot| (copy(slot), None)));
            return keys;
        };
        while next != NIL {
            let Stamp { taken, newer, .. } = *core.table.stamp(next);
            keys.push((copy(core.table.slot(next)), Some(rest(now, taken))));
            next = newer;
        }
        keys
    }
}

impl<K> Core<K> {
    #[inline]
    fn stamp(&mut self, slot: SlotRef<K>) -> &mut Stamp {
        let number = self.table.number(slot);
        self.table.stamp(number)
    }

    /// A key was made dirty.
    #[inline]
    pub(super) fn note_added(&mut self, slot: SlotRef<K>, now: u64) {
        if self.measures.is_some() {
            self.stamp(slot).added = now;
        }
    }

    /// A key was handed out. Says how long it waited.
    #[inline]
    pub(super) fn note_taken(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        let Some(measures) = &mut self.measures else { return 0 };
        let number = self.table.number(slot);
        let older = std::mem::replace(&mut measures.newest, number);
        match older {
            NIL => measures.oldest = number,
            older => self.table.stamp(older).newer = number,
        }
        let stamp = self.table.stamp(number);
        let waited = now.saturating_sub(stamp.added);
        *stamp = Stamp { taken: now, waited, older, newer: NIL, ..*stamp };
        measures.beginnings += u128::from(now);
        measures.waited.record(waited);
        waited
    }

    /// A key is done. Says how long it was worked on.
    #[inline]
    pub(super) fn note_done(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        let Some(measures) = &mut self.measures else { return 0 };
        let number = self.table.number(slot);
        let Stamp { taken, older, newer, .. } = *self.table.stamp(number);
        match older {
            NIL => measures.oldest = newer,
            older => self.table.stamp(older).newer = newer,
        }
        match newer {
            NIL => measures.newest = older,
            newer => self.table.stamp(newer).older = older,
        }
        let worked = now.saturating_sub(taken);
        measures.beginnings -= u128::from(taken);
        measures.worked.record(worked);
        worked
    }

    fn stats(&mut self, now: u64) -> Stats {
        let since = |time: u64| Duration::from_nanos(now.saturating_sub(time));
        let (mut oldest_in_line, mut longest_running, mut unfinished_work) = (None, None, None);
        if let Some(measures) = &self.measures {
            let ages = (u128::from(now) * self.processing as u128).saturating_sub(measures.beginnings);
            unfinished_work = Some(Duration::from_nanos(u64::try_from(ages).unwrap_or(u64::MAX)));
            longest_running = Some(match measures.oldest {
                NIL => Duration::ZERO,
                oldest => since(self.table.stamp(oldest).taken),
            });
            oldest_in_line = Some(match self.line.peek(0) {
                None => Duration::ZERO,
                Some(&slot) => since(self.stamp(slot).added),
            });
        }
        let next_deadline = self.wheel.as_ref().and_then(|wheel| wheel.earliest()).map(|at| rest(at, now));
        Stats {
            len: self.line.len(),
            processing: self.processing,
            delayed: self.delayed,
            failing: self.failing,
            waiters: self.waiters.len(),
            drainers: self.drainers.len(),
            queued: self.counts.queued,
            coalesced: self.counts.coalesced,
            deferred: self.counts.deferred,
            rejected: self.counts.rejected,
            handed_out: self.counts.handed_out,
            delays: self.counts.delays,
            expired: self.counts.expired,
            retries: self.counts.retries,
            dropped: self.counts.dropped,
            panics: self.counts.panics,
            oldest_in_line,
            longest_running,
            unfinished_work,
            next_deadline,
            shutting_down: self.shutting_down,
        }
    }
}
