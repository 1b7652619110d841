//! How long keys are queued and processed, if the queue measures.
//!
//! ```text
//!   add ──── waited ────▶ get ──── worked ────▶ done
//!    ▲                     ▲
//!    │ times.queued_at     │ times.started_at; the key goes to the end of the list of processing keys:
//!                                  oldest ⇄ … ⇄ newest
//! ```
//!
//! Each slot has a [`KeyTimes`], through which the list of processing keys runs, and the queue has two histograms. All of these are plain
//! numbers that change in the critical sections of `add`, `get` and `done`. (Each priority but NORMAL has a histogram of its own.) So the oldest processing key is known without a walk over the
//! keys, and so is the sum of their ages: their number times the present time, less the sum of the times at which they started.
//!
//! **The clock costs most**: a key needs three readings, and a reading takes 10 ns even with the processor's counter, where all the
//! other work for a key takes 55. So if keys become dirty faster than a million a second, one key in eight is measured, until a getter
//! finds no key and parks. A measured key stands in the histograms for the unmeasured keys before it, so their counts stay exact. An
//! unmeasured key that is processing gets the time at which the next measured key starts, or at which a call asks for ages, whichever
//! is earlier. So its age is too low, never too high.
//!
//! The clock readings of two threads may differ by a tenth of a microsecond, so differences saturate at zero.

use super::Shard;
use crate::Priority;
use crate::key::SideArray;
use crate::observe::{Histogram, Metrics};
use crate::stats::Stats;
use crate::time::clock::Clock;
use std::time::Duration;

/// No key.
const NIL: u32 = u32::MAX;

/// A number of nanoseconds, if it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaybeNanos(u64);

impl MaybeNanos {
    /// Not measured. The clock would get there in 584 years; a reading is at most one nanosecond less.
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);

    fn new(nanos: u64) -> Self {
        Self(nanos.min(u64::MAX - 1))
    }

    #[inline]
    fn known(self) -> Option<u64> {
        (self != Self::UNKNOWN).then_some(self.0)
    }

    pub(crate) fn duration(self) -> Option<Duration> {
        self.known().map(Duration::from_nanos)
    }
}

/// The largest stride, which dense adds reach: one add in this number is measured.
const SAMPLE_STRIDE: u32 = 8;
/// Adds are dense if they follow each other in less than this.
const DENSE_GAP_NS: u64 = 1000;
/// Of this number of queued keys, one is usually measured.
pub(super) const FIRST_MEASURED: usize = 2 * SAMPLE_STRIDE as usize;

/// The times of the key in a slot, and its neighbours in the list of processing keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyTimes {
    /// When the key became dirty. Unknown if that was not measured, and while the key is not dirty.
    queued_at: MaybeNanos,
    /// When the key was handed out. This and the following fields are valid while the key is processing.
    started_at: MaybeNanos,
    /// How long the key was queued.
    waited: MaybeNanos,
    /// The numbers of the processing keys that were handed out before and after this one.
    prev: u32,
    next: u32,
}

impl Default for KeyTimes {
    fn default() -> Self {
        let unknown = MaybeNanos::UNKNOWN;
        Self { queued_at: unknown, started_at: unknown, waited: unknown, prev: NIL, next: NIL }
    }
}

/// What a queue that measures keeps.
pub(super) struct Times {
    clock: Clock,
    keys: SideArray<KeyTimes>,
    /// Each add is measured: see [`measure_all`](Self::measure_all).
    measures_all: bool,
    /// One add in this number is measured: 1 to [`SAMPLE_STRIDE`].
    stride: u32,
    /// The number of adds to skip until the next one is measured.
    skip: u32,
    /// The time of the last measured add.
    last: u64,
    /// Of keys of priority NORMAL.
    waited: Sampled,
    /// Of keys of other priorities, in the order of these.
    waited_by_priority: Vec<(i8, Sampled)>,
    worked: Sampled,
    /// The ends of the list of processing keys, or [`NIL`].
    oldest: u32,
    newest: u32,
    /// The number of processing keys whose start is known (all but the newest few), and the sum of these starts.
    timed_count: u64,
    start_sum: u128,
}

/// Durations. Some of them are known.
#[derive(Default)]
struct Sampled {
    known: Histogram,
    /// The number of unknown ones since the last known one: the next known one stands for them too.
    unknown: u64,
    last: u64,
}

impl Sampled {
    #[inline]
    fn record(&mut self, nanos: MaybeNanos) {
        match nanos.known() {
            None => self.unknown += 1,
            Some(nanos) => {
                self.known.record(nanos, 1 + std::mem::take(&mut self.unknown));
                self.last = nanos;
            }
        }
    }

    /// Records the unknown ones since the last known one as equal to it: a count never goes back.
    fn add_to(&mut self, histogram: &mut Histogram) {
        if self.known.count() > 0 && self.unknown > 0 {
            self.known.record(self.last, std::mem::take(&mut self.unknown));
        }
        histogram.add(&self.known);
    }
}

impl Times {
    /// `slots`: the number of slots in a chunk.
    pub(super) fn new(clock: Clock, slots: usize) -> Self {
        Self {
            clock,
            keys: SideArray::new(slots),
            measures_all: false,
            stride: 1,
            skip: 0,
            last: 0,
            waited: Sampled::default(),
            waited_by_priority: Vec::new(),
            worked: Sampled::default(),
            oldest: NIL,
            newest: NIL,
            timed_count: 0,
            start_sum: 0,
        }
    }

    /// The time, if the caller has not read it.
    #[inline]
    fn time(&self, now: Option<u64>) -> u64 {
        now.unwrap_or_else(|| self.clock.now_coarse()).min(u64::MAX - 1)
    }

    /// The time of an add; unknown if this add is skipped.
    #[inline]
    fn sample(&mut self, now: Option<u64>) -> MaybeNanos {
        if self.skip > 0 {
            self.skip -= 1;
            return MaybeNanos::UNKNOWN;
        }
        let now = self.time(now);
        if !self.clock.is_given() && !self.measures_all {
            let dense = now.saturating_sub(self.last) < DENSE_GAP_NS * u64::from(self.stride);
            self.stride = if dense { SAMPLE_STRIDE.min(self.stride * 2) } else { 1 };
            self.skip = self.stride - 1;
            self.last = now;
        }
        MaybeNanos::new(now)
    }

    /// Keys have priorities from now on: no add is skipped. A key of a rare priority would stand for others of that priority that came
    /// long ago, and they for it.
    pub(super) fn measure_all(&mut self) {
        (self.measures_all, self.stride, self.skip) = (true, 1, 0);
    }

    /// A key became dirty.
    #[inline(never)]
    pub(super) fn added(&mut self, number: u32, now: Option<u64>) {
        let queued_at = self.sample(now);
        // If it is unknown, the array says so already: not writing it avoids dirtying the cache line.
        if queued_at != MaybeNanos::UNKNOWN {
            self.keys.make(number);
            self.keys[number].queued_at = queued_at;
        }
    }

    /// A key is handed out. Returns how long it was queued.
    #[inline(never)]
    pub(super) fn started(&mut self, number: u32, priority: i8) -> MaybeNanos {
        let prev = std::mem::replace(&mut self.newest, number);
        match prev {
            NIL => self.oldest = number,
            prev => self.keys[prev].next = number,
        }
        self.keys.make(number);
        let times = &mut self.keys[number];
        let queued_at = times.queued_at;
        *times = KeyTimes { prev, ..KeyTimes::default() };
        let Some(queued_at) = queued_at.known() else {
            // It was added before `measure_all`, so with the priority NORMAL.
            self.waited.record(MaybeNanos::UNKNOWN);
            return MaybeNanos::UNKNOWN;
        };
        let now = self.time(None);
        let waited = MaybeNanos::new(now.saturating_sub(queued_at));
        self.keys[number].waited = waited;
        self.waited_at(priority).record(waited);
        self.time_newest(now);
        waited
    }

    /// How long keys of this priority were queued.
    #[inline]
    fn waited_at(&mut self, priority: i8) -> &mut Sampled {
        if priority == Priority::NORMAL.0 { &mut self.waited } else { self.waited_at_other(priority) }
    }

    #[inline(never)]
    fn waited_at_other(&mut self, priority: i8) -> &mut Sampled {
        let place = self.waited_by_priority.binary_search_by_key(&priority, |&(of, _)| of);
        let place = place.unwrap_or_else(|place| {
            self.waited_by_priority.insert(place, (priority, Sampled::default()));
            place
        });
        &mut self.waited_by_priority[place].1
    }

    /// A key is done. Returns how long it was processing.
    #[inline(never)]
    pub(super) fn ended(&mut self, number: u32, now: Option<u64>) -> MaybeNanos {
        let KeyTimes { started_at, waited, prev, next, .. } = self.keys[number];
        match prev {
            NIL => self.oldest = next,
            prev => self.keys[prev].next = next,
        }
        match next {
            NIL => self.newest = prev,
            next => self.keys[next].prev = prev,
        }
        if let Some(started_at) = started_at.known() {
            self.timed_count -= 1;
            self.start_sum -= u128::from(started_at);
        }
        // Of an unmeasured key, `started_at` is later than its start: it is for ages only.
        let worked = match waited.known() {
            None => MaybeNanos::UNKNOWN,
            Some(_) => MaybeNanos::new(self.time(now).saturating_sub(started_at.0)),
        };
        self.worked.record(worked);
        worked
    }

    /// A key was taken out of the line and is not handed out: forgets when it was queued.
    pub(super) fn taken_back(&mut self, number: u32) {
        self.keys.make(number);
        self.keys[number].queued_at = MaybeNanos::UNKNOWN;
    }

    /// Sets the start of the processing keys that have none. They are the newest few, so the list stays in the order of starts.
    #[inline]
    fn time_newest(&mut self, now: u64) {
        let mut number = self.newest;
        while number != NIL {
            let times = &mut self.keys[number];
            if times.started_at != MaybeNanos::UNKNOWN {
                break;
            }
            times.started_at = MaybeNanos::new(now);
            self.timed_count += 1;
            self.start_sum += u128::from(now);
            number = times.prev;
        }
    }

    /// When a processing key was handed out, after [`Shard::now_for_ages`].
    pub(super) fn started_at(&self, number: u32) -> u64 {
        self.keys[number].started_at.0
    }

    /// The ages of keys. `first`: the first few queued keys.
    pub(super) fn describe(&self, mut first: impl Iterator<Item = u32>, now: u64, stats: &mut Stats) {
        let ages = (u128::from(now) * u128::from(self.timed_count)).saturating_sub(self.start_sum);
        stats.unfinished_work = Some(Duration::from_nanos(u64::try_from(ages).unwrap_or(u64::MAX)));
        stats.longest_running = match self.oldest {
            NIL => None,
            oldest => Some(since(self.started_at(oldest), now)),
        };
        let queued_at = first.find_map(|number| self.queued_at(number));
        stats.oldest_queued = queued_at.map(|queued_at| since(queued_at, now));
    }

    /// The oldest of these queued keys.
    pub(super) fn describe_oldest_of(&self, numbers: impl Iterator<Item = u32>, now: u64, stats: &mut Stats) {
        self.describe(std::iter::empty(), now, stats);
        let oldest = numbers.filter_map(|number| self.queued_at(number)).min();
        stats.oldest_queued = oldest.map(|queued_at| since(queued_at, now));
    }

    /// When the key in this slot became dirty, if that was measured.
    pub(super) fn queued_at(&self, number: u32) -> Option<u64> {
        self.keys.get(number)?.queued_at.known()
    }

    /// Takes the times of a chunk that was freed.
    pub(super) fn take_chunk(&mut self, chunk: usize) -> Box<[KeyTimes]> {
        self.keys.take_chunk(chunk)
    }

    /// `chunks`: the number of chunks that are left.
    pub(super) fn truncate(&mut self, chunks: usize) {
        self.keys.truncate(chunks);
    }

    pub(super) fn shrink(&mut self) {
        self.keys.shrink();
    }
}

impl<K> Shard<K> {
    /// Adds the histograms of a queue that measures: how long keys of priority NORMAL were queued to `normal`, and of others to
    /// their levels.
    pub(crate) fn add_durations(&mut self, metrics: &mut Metrics, normal: &mut Histogram) {
        let Some(times) = &mut self.times else { return };
        times.worked.add_to(&mut metrics.work_duration);
        times.waited.add_to(normal);
        for (priority, waited) in &mut times.waited_by_priority {
            waited.add_to(&mut metrics.level(Priority(*priority)).queue_duration);
        }
    }

    /// How long a key that is processing was queued.
    pub(crate) fn waited(&self, claimed: &crate::key::Claimed<K>) -> MaybeNanos {
        let number = self.table.number(claimed.view());
        self.times.as_ref().map_or(MaybeNanos::UNKNOWN, |times| times.keys[number].waited)
    }

    /// Keys have priorities from now on.
    pub(crate) fn begin_levels(&mut self) {
        self.times.iter_mut().for_each(|times| times.measure_all());
    }

    /// The priorities other than NORMAL for which there are durations.
    pub(crate) fn measured_priorities(&self) -> Vec<i8> {
        let durations = self.times.iter().flat_map(|times| &times.waited_by_priority);
        durations.map(|(priority, _)| *priority).collect()
    }

    /// A getter is about to park, so keys do not come fast: the next add is measured.
    pub(crate) fn reset_sampling(&mut self) {
        if let Some(times) = &mut self.times {
            (times.stride, times.skip) = (1, 0);
        }
    }

    /// The time, for a caller that computes ages. Read under the lock, so that no key has started later.
    pub(crate) fn now_for_ages(&mut self, clock: &Clock) -> u64 {
        let now = clock.now().min(u64::MAX - 1);
        self.times.iter_mut().for_each(|times| times.time_newest(now));
        now
    }
}

pub(super) fn since(time: u64, now: u64) -> Duration {
    Duration::from_nanos(now.saturating_sub(time))
}
