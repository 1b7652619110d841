//! How long keys are queued and processed, if the queue measures.
//!
//! ```text
//!   add ──── waited ────▶ get ──── worked ────▶ done
//!    ▲                     ▲
//!    │ times.queued_at     │ times.started_at; the key goes to the end of the list of processing keys:
//!                                  oldest ⇄ … ⇄ newest
//! ```
//!
//! Each slot has a [`Times`], through which the list of processing keys runs, and the queue has two histograms. All of these are plain
//! numbers that change in the critical sections of `add`, `get` and `done`. So the oldest processing key is known without a walk over the
//! keys, and so is the sum of their ages: their number times the present time, less the sum of the times at which they started.
//!
//! **The clock costs most**: a key needs three readings, and a reading takes 10 ns even with the processor's counter, where all the
//! other work for a key takes 55. So if keys become dirty faster than a million a second, one key in eight is measured, until a getter
//! finds no key and parks. A measured key stands in the histograms for the unmeasured keys before it, so their counts stay exact. An
//! unmeasured key that is processing gets the time at which the next measured key starts, or at which a call asks for ages, whichever
//! is earlier. So its age is too low, never too high.
//!
//! The clock readings of two threads may differ by a tenth of a microsecond, so differences saturate at zero.

use super::{Core, Shared};
use crate::Added;
use crate::key::slab::{SlotRef, Times};
use crate::observe::{Histogram, Metrics};
use crate::stats::Stats;
use crate::sync::{give_way, model_const};
use crate::time::clock::Clock;
use crate::time::time_left;
use std::ops::Range;
use std::time::Duration;

/// No key.
const NIL: u32 = u32::MAX;

/// Not measured. The clock would get there in 584 years; a reading is at most one nanosecond less.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The caller has not read the clock: the callee does, if it needs the time.
pub(crate) const UNREAD: u64 = 0;

/// The largest stride, which dense adds reach: one add in this number is measured.
const SAMPLE_STRIDE: u32 = 8;
/// Adds are dense if they follow each other in less than this.
const DENSE_GAP_NS: u64 = 1000;

/// What a queue that measures keeps in addition to the times of its keys.
pub(super) struct Measures {
    clock: Clock,
    /// One add in this number is measured: 1 to [`SAMPLE_STRIDE`].
    stride: u32,
    /// The number of adds to skip until the next one is measured.
    skip: u32,
    /// The time of the last measured add.
    last: u64,
    waited: Sampled,
    worked: Sampled,
    /// The ends of the list of processing keys, or [`NIL`].
    oldest: u32,
    newest: u32,
    /// The number of processing keys whose start is known (all but the newest few), and the sum of these starts.
    timed_count: u64,
    start_sum: u128,
}

/// Durations, of which some are known.
#[derive(Default)]
struct Sampled {
    known: Histogram,
    /// The number of unknown ones since the last known one: the next known one stands for them too.
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

    /// Records the unknown ones since the last known one as equal to it: a count never goes back.
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
            timed_count: 0,
            start_sum: 0,
        }
    }

    /// The time, if the caller has not read it.
    #[inline]
    fn time(&self, now: u64) -> u64 {
        let now = if now == UNREAD { self.clock.now_coarse() } else { now };
        now.min(UNKNOWN - 1)
    }

    /// The time of an add, or [`UNKNOWN`] if this add is skipped.
    #[inline]
    fn sample(&mut self, now: u64) -> u64 {
        if self.skip > 0 {
            self.skip -= 1;
            return UNKNOWN;
        }
        let now = self.time(now);
        if !self.clock.is_mock() {
            let dense = now.saturating_sub(self.last) < DENSE_GAP_NS * u64::from(self.stride);
            self.stride = if dense { SAMPLE_STRIDE.min(self.stride * 2) } else { 1 };
            self.skip = self.stride - 1;
            self.last = now;
        }
        now
    }
}

impl<K> Shared<K> {
    /// `metrics`.
    pub(crate) fn metrics(&self) -> Metrics {
        // Allocates here, not under the lock.
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

    /// How long the key that the caller holds was queued.
    pub(crate) fn waited(&self, slot: SlotRef<K>) -> Option<Duration> {
        if !self.measured {
            return None;
        }
        let waited = self.core.lock().times(slot).waited;
        known(waited)
    }
}

impl<K: Clone> Shared<K> {
    /// `processing_keys`: visits the slots, some hundred at a time.
    pub(crate) fn processing_keys(&self) -> Vec<(K, Option<Duration>)> {
        const CHUNKS: usize = model_const(8, 1);
        let mut keys = Vec::with_capacity(self.core.lock().processing);
        let (mut chunk, now) = (0, self.core.lock().now_for_ages(&self.clock));
        loop {
            // Allocates here, so that the critical section allocates little.
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
    /// Copies the processing keys in these chunks, with their ages. `false`: there are no such chunks.
    fn copy_processing(&self, chunks: Range<usize>, now: u64, keys: &mut Vec<(K, Option<Duration>)>) -> bool {
        if chunks.start >= self.table.chunks() {
            return false;
        }
        for slot in self.table.iter_chunks(chunks) {
            // SAFETY: `iter_chunks` yields taken slots only (S2), and we hold the lock.
            let inside = unsafe { slot.get() };
            if inside.state.is_processing() {
                let started_at = self.measures.as_ref().map(|_| self.table.times_of(slot).started_at.min(now));
                // SAFETY: the slot is taken, so its key is initialised (S1), and we hold the lock.
                keys.push((unsafe { inside.key() }.clone(), started_at.map(|started_at| since(started_at, now))));
            }
        }
        true
    }
}

impl<K> Core<K> {
    #[inline]
    fn times(&mut self, slot: SlotRef<K>) -> &mut Times {
        let number = self.table.number(slot);
        self.table.times(number)
    }

    /// After an add: notes the time, if the add made the key dirty.
    #[inline]
    pub(super) fn note_add(&mut self, slot: SlotRef<K>, added: Added, now: u64) {
        if self.measures.is_some() && matches!(added, Added::Queued | Added::Deferred) {
            self.measure_added(slot, now);
        }
    }

    /// A key was taken out of the line and is not handed out: forgets when it was queued.
    pub(super) fn note_taken_back(&mut self, slot: SlotRef<K>) {
        if self.measures.is_some() {
            self.times(slot).queued_at = UNKNOWN;
        }
    }

    /// A key is handed out. Returns how long it was queued.
    #[inline]
    pub(super) fn note_taken(&mut self, slot: SlotRef<K>) -> u64 {
        if self.measures.is_some() { self.measure_taken(slot) } else { UNKNOWN }
    }

    /// A key is done. Returns how long it was processing.
    #[inline]
    pub(super) fn note_done(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        if self.measures.is_some() { self.measure_done(slot, now) } else { UNKNOWN }
    }

    // Not inlined, so that the calls of a queue that does not measure stay small.
    #[inline(never)]
    fn measure_added(&mut self, slot: SlotRef<K>, now: u64) {
        let Some(measures) = &mut self.measures else { return };
        let queued_at = measures.sample(now);
        // If it is unknown, `times` says so already: not writing it avoids dirtying the cache line.
        if queued_at != UNKNOWN {
            self.times(slot).queued_at = queued_at;
        }
    }

    #[inline(never)]
    fn measure_taken(&mut self, slot: SlotRef<K>) -> u64 {
        let Some(measures) = &mut self.measures else { return UNKNOWN };
        let number = self.table.number(slot);
        let prev = std::mem::replace(&mut measures.newest, number);
        match prev {
            NIL => measures.oldest = number,
            prev => self.table.times(prev).next = number,
        }
        let times = self.table.times(number);
        let queued_at = times.queued_at;
        *times = Times { queued_at: UNKNOWN, started_at: UNKNOWN, waited: UNKNOWN, prev, next: NIL };
        if queued_at == UNKNOWN {
            measures.waited.record(UNKNOWN);
            return UNKNOWN;
        }
        let now = measures.time(UNREAD);
        times.waited = now.saturating_sub(queued_at);
        let waited = times.waited;
        measures.waited.record(waited);
        self.time_newest(now);
        waited
    }

    #[inline(never)]
    fn measure_done(&mut self, slot: SlotRef<K>, now: u64) -> u64 {
        let Some(measures) = &mut self.measures else { return UNKNOWN };
        let number = self.table.number(slot);
        let Times { started_at, waited, prev, next, .. } = *self.table.times(number);
        match prev {
            NIL => measures.oldest = next,
            prev => self.table.times(prev).next = next,
        }
        match next {
            NIL => measures.newest = prev,
            next => self.table.times(next).prev = prev,
        }
        if started_at != UNKNOWN {
            measures.timed_count -= 1;
            measures.start_sum -= u128::from(started_at);
        }
        // Of an unmeasured key, `started_at` is later than its start: it is for ages only.
        let worked = if waited == UNKNOWN { UNKNOWN } else { measures.time(now).saturating_sub(started_at) };
        measures.worked.record(worked);
        worked
    }

    /// A getter is about to park, so keys do not come fast: the next add is measured.
    pub(super) fn reset_sampling(&mut self) {
        if let Some(measures) = &mut self.measures {
            (measures.stride, measures.skip) = (1, 0);
        }
    }

    /// Sets the start of the processing keys that have none. They are the newest few, so the list stays in the order of starts.
    #[inline]
    fn time_newest(&mut self, now: u64) {
        let Some(measures) = &mut self.measures else { return };
        let mut number = measures.newest;
        while number != NIL {
            let times = self.table.times(number);
            if times.started_at != UNKNOWN {
                break;
            }
            times.started_at = now;
            measures.timed_count += 1;
            measures.start_sum += u128::from(now);
            number = times.prev;
        }
    }

    /// The time, for a caller that computes ages. Read under the lock, so that no key has started later.
    fn now_for_ages(&mut self, clock: &Clock) -> u64 {
        let now = clock.now().min(UNKNOWN - 1);
        self.time_newest(now);
        now
    }

    fn stats(&mut self, clock: &Clock) -> Stats {
        let now = self.now_for_ages(clock);
        let (mut oldest_in_line, mut longest_running, mut unfinished_work) = (None, None, None);
        if let Some(measures) = &self.measures {
            let ages = (u128::from(now) * u128::from(measures.timed_count)).saturating_sub(measures.start_sum);
            unfinished_work = Some(Duration::from_nanos(u64::try_from(ages).unwrap_or(u64::MAX)));
            longest_running = Some(match measures.oldest {
                NIL => Duration::ZERO,
                oldest => since(self.table.times(oldest).started_at, now),
            });
            // One of the first few is usually measured.
            let mut first = self.line.first(2 * SAMPLE_STRIDE as usize);
            let queued_at = first
                .find_map(|slot| Some(self.table.times(self.table.number(slot)).queued_at).filter(|&at| at != UNKNOWN));
            oldest_in_line = Some(queued_at.map_or(Duration::ZERO, |queued_at| since(queued_at, now)));
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

/// A number of nanoseconds, or `None` for [`UNKNOWN`].
pub(crate) fn known(nanos: u64) -> Option<Duration> {
    (nanos != UNKNOWN).then(|| Duration::from_nanos(nanos))
}
