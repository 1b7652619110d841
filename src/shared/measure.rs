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
//! of them together have been worked on: that is their number times now, less the sum of their beginnings.
//!
//! **What costs most is the clock**: three readings for a key, of which even the processor's counter takes 10 ns each, where all
//! the rest takes 55. So if keys become dirty faster than a million a second, one in eight is measured, until a getter finds nothing
//! and sleeps; its wait and its work stand for those since the last that was. What is counted stays exact. A key in work that was
//! not measured has the time of the next that was, or of when somebody asks, if that is sooner; so its age is too low, not too high.
//!
//! The times of two threads may be a tenth of a microsecond apart, so differences stop at zero.

use super::{Core, Shared};
use crate::Added;
use crate::key::slab::{SlotRef, Stamp};
use crate::observe::{Histogram, Metrics};
use crate::stats::Stats;
use crate::sync::{give_way, sized};
use crate::time::clock::Clock;
use crate::time::time_left;
use std::ops::Range;
use std::time::Duration;

/// No key.
const NIL: u32 = u32::MAX;

/// Not measured. The clock gets there in 584 years, and stops a nanosecond before.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The time is to be read, if it is needed.
pub(crate) const UNREAD: u64 = 0;

/// One in so many adds is measured at most, ...
const STRIDE: u32 = 8;
/// ... if so many nanoseconds lie between two.
const GAP: u64 = 1000;

/// What a queue that measures keeps beside its keys' stamps.
pub(super) struct Measures {
    clock: Clock,
    /// One in so many adds is measured.
    stride: u32,
    /// So many are to come that are not.
    skip: u32,
    /// When the last was that is.
    last: u64,
    waited: Sampled,
    worked: Sampled,
    /// The ends of the list of keys in work.
    oldest: u32,
    newest: u32,
    /// How many of them have a time (all but the newest few), and the sum of these.
    timed: u64,
    beginnings: u128,
}

/// Durations, of which some are known.
#[derive(Default)]
struct Sampled {
    known: Histogram,
    /// How many there were since the last that was known: the next stands for them too.
    unknown: u64,
    last: u64,
}

impl Sampled {
    #[inline]
    fn record(&mut self, nanos: u64) {
        if nanos == UNKNOWN {
            self.unknown += 1;
        } else {
            self.known.record(nanos, 1 + std::mem::take(&mut self.unknown));
            self.last = nanos;
        }
    }

    /// Those since the last that was known are taken to be as long as that: what was counted once stays counted.
    fn copy_to(&mut self, histogram: &mut Histogram) {
        if self.known.count() > 0 && self.unknown > 0 {
            self.known.record(self.last, std::mem::take(&mut self.unknown));
        }
        histogram.copy_from(&self.known);
    }
}

impl Measures {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            stride: 1,
            skip: 0,
            last: 0,
            waited: Sampled::default(),
            worked: Sampled::default(),
            oldest: NIL,
            newest: NIL,
            timed: 0,
            beginnings: 0,
        }
    }

    /// The time, if the caller has not read it.
    #[inline]
    fn time(&self, now: u64) -> u64 {
        let now = if now == UNREAD { self.clock.now_coarse() } else { now };
        now.min(UNKNOWN - 1)
    }

    /// The time of an add, if it is one that is measured.
    #[inline]
    fn sample(&mut self, now: u64) -> u64 {
        if self.skip > 0 {
            self.skip -= 1;
            return UNKNOWN;
        }
        let now = self.time(now);
        if !self.clock.is_mock() {
            let dense = now.saturating_sub(self.last) < GAP * u64::from(self.stride);
            self.stride = if dense { STRIDE.min(self.stride * 2) } else { 1 };
            self.skip = self.stride - 1;
            self.last = now;
        }
        now
    }
}

impl<K> Shared<K> {
    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        // Room beforehand, so that nothing is allocated under the lock.
        let mut metrics = Metrics::default();
        let core = &mut *self.core.lock();
        metrics.stats = core.stats(&self.clock);
        if let Some(measures) = &mut core.measures {
            measures.waited.copy_to(&mut metrics.queue_duration);
            measures.worked.copy_to(&mut metrics.work_duration);
        }
        metrics
    }

    pub(crate) fn stats(&self) -> Stats {
        self.core.lock().stats(&self.clock)
    }

    /// How long a key waited that is held.
    pub(crate) fn waited(&self, slot: SlotRef<K>) -> Option<Duration> {
        if !self.measured {
            return None;
        }
        let waited = self.core.lock().stamp(slot).waited;
        known(waited)
    }
}

impl<K: Clone> Shared<K> {
    /// `processing_keys`: goes through the slots, some hundred at a time.
    pub(crate) fn processing_keys(&self) -> Vec<(K, Option<Duration>)> {
        const CHUNKS: usize = sized(8, 1);
        let mut keys = Vec::with_capacity(self.core.lock().processing);
        let (mut chunk, now) = (0, self.core.lock().ask(&self.clock));
        loop {
            // Room beforehand, so that little is allocated under the lock.
            keys.reserve(64 * CHUNKS);
            if !self.core.lock().copy_processing(chunk..chunk + CHUNKS, now, &mut keys) {
                break;
            }
            chunk += CHUNKS;
            give_way();
        }
        keys.sort_by_key(|&(_, age)| std::cmp::Reverse(age)); // stable
        keys
    }
}

impl<K: Clone> Core<K> {
    /// Copies the keys in these chunks that are processing, and for how long they have been. `false`: there are no such chunks.
    fn copy_processing(&self, chunks: Range<usize>, now: u64, keys: &mut Vec<(K, Option<Duration>)>) -> bool {
        if chunks.start >= self.table.chunks() {
            return false;
        }
        for slot in self.table.iter_chunks(chunks) {
            // SAFETY: `iter_chunks` has taken slots only (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            if inside.state.is_processing() {
                let taken = self.measures.as_ref().map(|_| self.table.stamp_of(slot).taken.min(now));
                // SAFETY: as above.
                keys.push((unsafe { inside.key() }.clone(), taken.map(|taken| since(taken, now))));
            }
        }
        true
    }
}

impl<K> Core<K> {
    #[inline]
    fn stamp(&mut self, slot: SlotRef<K>) -> &mut Stamp {
        let number = self.table.number(slot);
        self.table.stamp(number)
    }

    /// An add may have made a key dirty.
    #[inline]
    pub(super) fn note_add(&mut self, slot: SlotRef<K>, added: Added, now: u64) {
        if self.measures.is_some() && matches!(added, Added::Queued | Added::Deferred) {
            self.measure_added(slot, now);
        }
    }

    /// A key was taken out of the line: what was measured of its wait is forgotten.
    pub(super) fn note_taken_back(&mut self, slot: SlotRef<K>) {
        if self.measures.is_some() {
            self.stamp(slot).added = UNKNOWN;
        }
    }

    /// A key was handed out. Says how long it waited.
    #[inline]
    pub(super) fn note_taken(&mut self, slot: SlotRef<K>) -> u64 {
        if self.measures.is_some() { self.measure_taken(slot) } else { UNKNOWN }
    }

    /// A key is done. Says how long it was worked on.
    #[inline]
    pub(super) fn note_done(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        if self.measures.is_some() { self.measure_done(slot, now) } else { UNKNOWN }
    }

    // By themselves, so that they take no room in the calls of a queue that does not measure.
    #[inline(never)]
    fn measure_added(&mut self, slot: SlotRef<K>, now: u64) {
        let Some(measures) = &mut self.measures else { return };
        let added = measures.sample(now);
        // Else it says so already, and its line of the cache is left alone.
        if added != UNKNOWN {
            self.stamp(slot).added = added;
        }
    }

    #[inline(never)]
    fn measure_taken(&mut self, slot: SlotRef<K>) -> u64 {
        let Some(measures) = &mut self.measures else { return UNKNOWN };
        let number = self.table.number(slot);
        let older = std::mem::replace(&mut measures.newest, number);
        match older {
            NIL => measures.oldest = number,
            older => self.table.stamp(older).newer = number,
        }
        let stamp = self.table.stamp(number);
        let added = stamp.added;
        *stamp = Stamp { added: UNKNOWN, taken: UNKNOWN, waited: UNKNOWN, older, newer: NIL };
        if added == UNKNOWN {
            measures.waited.record(UNKNOWN);
            return UNKNOWN;
        }
        let now = measures.time(UNREAD);
        stamp.waited = now.saturating_sub(added);
        let waited = stamp.waited;
        measures.waited.record(waited);
        self.time_newest(now);
        waited
    }

    #[inline(never)]
    fn measure_done(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        let Some(measures) = &mut self.measures else { return UNKNOWN };
        let number = self.table.number(slot);
        let Stamp { taken, waited, older, newer, .. } = *self.table.stamp(number);
        match older {
            NIL => measures.oldest = newer,
            older => self.table.stamp(older).newer = newer,
        }
        match newer {
            NIL => measures.newest = older,
            newer => self.table.stamp(newer).older = older,
        }
        if taken != UNKNOWN {
            measures.timed -= 1;
            measures.beginnings -= u128::from(taken);
        }
        // Its time may also be from who asked, which was later than its beginning.
        let worked = if waited == UNKNOWN { UNKNOWN } else { measures.time(now).saturating_sub(taken) };
        measures.worked.record(worked);
        worked
    }

    /// A getter goes to sleep, so keys do not come fast: the next one is measured.
    pub(super) fn note_calm(&mut self) {
        if let Some(measures) = &mut self.measures {
            (measures.stride, measures.skip) = (1, 0);
        }
    }

    /// Gives this time to the keys in work that have none: the newest few, and so the list is in the order of times.
    #[inline]
    fn time_newest(&mut self, now: u64) {
        let Some(measures) = &mut self.measures else { return };
        let mut next = measures.newest;
        while next != NIL {
            let stamp = self.table.stamp(next);
            if stamp.taken != UNKNOWN {
                break;
            }
            stamp.taken = now;
            measures.timed += 1;
            measures.beginnings += u128::from(now);
            next = stamp.older;
        }
    }

    /// Somebody asks for ages: what time it is. Read under the lock, so that nothing has happened later.
    fn ask(&mut self, clock: &Clock) -> u64 {
        let now = clock.now().min(UNKNOWN - 1);
        self.time_newest(now);
        now
    }

    fn stats(&mut self, clock: &Clock) -> Stats {
        let now = self.ask(clock);
        let (mut oldest_in_line, mut longest_running, mut unfinished_work) = (None, None, None);
        if let Some(measures) = &self.measures {
            let ages = (u128::from(now) * u128::from(measures.timed)).saturating_sub(measures.beginnings);
            unfinished_work = Some(Duration::from_nanos(u64::try_from(ages).unwrap_or(u64::MAX)));
            longest_running = Some(match measures.oldest {
                NIL => Duration::ZERO,
                oldest => since(self.table.stamp(oldest).taken, now),
            });
            // Of the first few, one is measured as a rule.
            let mut first = self.line.first(2 * STRIDE as usize);
            let added = first
                .find_map(|slot| Some(self.table.stamp(self.table.number(slot)).added).filter(|&at| at != UNKNOWN));
            oldest_in_line = Some(added.map_or(Duration::ZERO, |added| since(added, now)));
        }
        let next_deadline = self.wheel.as_ref().and_then(|wheel| wheel.earliest()).map(|at| time_left(at, now));
        Stats {
            len: self.line.len(),
            processing: self.processing,
            delayed: self.delayed,
            failing: self.failing,
            waiters: self.waiters.len(),
            drainers: self.drainers.len(),
            pushed: self.counts.pushed,
            coalesced: self.counts.coalesced,
            deferred: self.counts.deferred,
            rejected: self.counts.rejected,
            handed_out: self.counts.handed_out,
            delays: self.counts.delays,
            expired: self.counts.expired,
            retries: self.counts.retries,
            failures: self.counts.failures,
            given_up: self.counts.given_up,
            panics: self.counts.panics,
            caught_panics: self.counts.caught_panics,
            driver_failures: self.counts.driver_failures,
            taken: self.counts.taken,
            oldest_in_line,
            longest_running,
            unfinished_work,
            next_deadline,
            shutting_down: self.is_shutting_down(),
        }
    }
}

fn since(time: u64, now: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(time))
}

/// A number of nanoseconds that was measured.
pub(crate) fn known(nanos: u64) -> Option<Duration> {
    (nanos != UNKNOWN).then(|| Duration::from_nanos(nanos))
}
