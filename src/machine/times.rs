//! When keys became dirty and when they were handed out, and for how long they have waited and were processing.
//!
//! ```text
//!   slot of a key that is measured ──▶ KeyTimes: queued_at, and while it is processing: started_at, waited, ⇄ neighbours
//!
//!   processing keys, through their KeyTimes:   oldest ⇄ … ⇄ newest      sum of their started_at
//! ```
//!
//! So the oldest processing key is known without a walk over the keys, and so is the sum of their ages: their number times the present
//! time, less the sum of their starts.
//!
//! **The clock costs most**: a key needs three readings of 10 ns or more. So if keys become dirty faster than a million a second, one key
//! in eight is measured, until a getter finds no key and parks. A measured key stands in the histograms for the unmeasured keys before it,
//! so their counts stay exact. An unmeasured key that is processing gets the time at which the next measured key starts, or at which a call
//! asks for ages, whichever is earlier. So its age is too low, never too high.
//!
//! The clock readings of two threads may differ by a tenth of a microsecond, so differences saturate at zero.

use super::durations::{Durations, MaybeNanos};
use crate::key::SideArray;

/// No key.
const NIL: u32 = u32::MAX;
/// Dense adds reach this stride: one in this number is measured.
const STRIDE: u32 = 8;
/// Adds are dense if they follow each other in less than this: nanoseconds.
const DENSE: u64 = 1000;

/// What is kept for a slot: 32 bytes.
#[derive(Clone, Copy)]
pub(super) struct KeyTimes {
    /// When the key became dirty. Unknown if that was not measured, and while the key is not dirty.
    queued_at: MaybeNanos,
    /// When the key was handed out. This and the following fields are valid while the key is processing.
    started_at: MaybeNanos,
    /// How long the key was queued.
    waited: MaybeNanos,
    /// The slots of the processing keys that were handed out before and after this one.
    prev: u32,
    next: u32,
}

impl Default for KeyTimes {
    fn default() -> Self {
        let unknown = MaybeNanos::UNKNOWN;
        Self { queued_at: unknown, started_at: unknown, waited: unknown, prev: NIL, next: NIL }
    }
}

/// See the top of this file. Keys are the numbers of their slots here.
pub(crate) struct Times {
    pub(super) keys: SideArray<KeyTimes>,
    /// No add is skipped.
    measures_all: bool,
    /// One add in this number is measured: 1 to [`STRIDE`].
    stride: u32,
    /// The number of adds to skip until the next one is measured.
    skip: u32,
    /// The key that the last add made dirty, if the time of that is wanted.
    wanted: u32,
    /// The time of the last measured add.
    last: u64,
    pub(crate) durations: Durations,
    /// The ends of the list of processing keys.
    oldest: u32,
    newest: u32,
    /// The number of processing keys whose start is known (all but the newest few), and the sum of these starts.
    started: u64,
    start_sum: u128,
}

impl Times {
    /// `slots`: the number of slots in a chunk.
    pub(super) fn new(slots: usize, measures_all: bool) -> Self {
        Self {
            keys: SideArray::new(slots),
            measures_all,
            stride: 1,
            skip: 0,
            wanted: NIL,
            last: 0,
            durations: Durations::default(),
            oldest: NIL,
            newest: NIL,
            started: 0,
            start_sum: 0,
        }
    }

    /// No add is skipped from now on.
    pub(super) fn measure_all(&mut self) {
        (self.measures_all, self.stride, self.skip) = (true, 1, 0);
    }

    /// A getter is about to park, so keys do not come fast: the next add is measured.
    pub(crate) fn reset_sampling(&mut self) {
        (self.stride, self.skip) = (1, 0);
    }

    /// A key became dirty.
    #[inline]
    pub(super) fn dirty(&mut self, key: u32) {
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.wanted = key;
        }
    }

    #[inline]
    pub(super) fn wants_time(&self) -> bool {
        self.wanted != NIL
    }

    /// When a key became dirty, if that is wanted.
    #[inline]
    pub(crate) fn dirty_at(&mut self, now: u64) {
        let key = std::mem::replace(&mut self.wanted, NIL);
        if key == NIL {
            return;
        }
        self.keys.make(key).queued_at = MaybeNanos::new(now);
        if !self.measures_all {
            let is_dense = now.saturating_sub(self.last) < DENSE * u64::from(self.stride);
            self.stride = if is_dense { STRIDE.min(self.stride * 2) } else { 1 };
            (self.skip, self.last) = (self.stride - 1, now);
        }
    }

    /// A dirty key is not to be handed out.
    pub(super) fn forget(&mut self, key: u32) {
        if self.wanted == key {
            self.wanted = NIL;
        }
        if self.keys.get(key).is_some() {
            self.keys[key].queued_at = MaybeNanos::UNKNOWN;
        }
    }

    /// A key was handed out. Returns how long it was queued. Calls `now` if the time is known at which it became dirty.
    #[inline]
    pub(super) fn start(&mut self, key: u32, priority: i8, now: impl FnOnce() -> u64) -> MaybeNanos {
        let prev = std::mem::replace(&mut self.newest, key);
        match prev {
            NIL => self.oldest = key,
            prev => self.keys[prev].next = key,
        }
        let times = self.keys.make(key);
        let queued_at = times.queued_at.known();
        *times = KeyTimes { prev, ..KeyTimes::default() };
        let Some(queued_at) = queued_at else {
            self.durations.note_waited(priority, MaybeNanos::UNKNOWN);
            return MaybeNanos::UNKNOWN;
        };
        let now = now();
        let waited = MaybeNanos::new(now.saturating_sub(queued_at));
        times.waited = waited;
        self.durations.note_waited(priority, waited);
        self.start_all(now);
        waited
    }

    /// Sets the start of the processing keys that have none. They are the newest few, so the list stays in the order of starts.
    #[inline]
    pub(super) fn start_all(&mut self, now: u64) {
        let (mut key, now) = (self.newest, now.min(u64::MAX - 1));
        while key != NIL {
            let times = &mut self.keys[key];
            if times.started_at != MaybeNanos::UNKNOWN {
                break;
            }
            times.started_at = MaybeNanos::new(now);
            self.started += 1;
            self.start_sum += u128::from(now);
            key = times.prev;
        }
    }

    /// The processing of a key ends. Returns how long it took. Calls `now` if the key is measured.
    #[inline]
    pub(super) fn end(&mut self, key: u32, now: impl FnOnce() -> u64) -> MaybeNanos {
        let KeyTimes { started_at, waited, prev, next, .. } = self.keys[key];
        match prev {
            NIL => self.oldest = next,
            prev => self.keys[prev].next = next,
        }
        match next {
            NIL => self.newest = prev,
            next => self.keys[next].prev = prev,
        }
        if let Some(started_at) = started_at.known() {
            self.started -= 1;
            self.start_sum -= u128::from(started_at);
        }
        // Of an unmeasured key, `started_at` is later than its start: it is for ages only.
        let measured = started_at.known().filter(|_| waited != MaybeNanos::UNKNOWN);
        let worked =
            measured.map_or(MaybeNanos::UNKNOWN, |started_at| MaybeNanos::new(now().saturating_sub(started_at)));
        self.durations.note_worked(worked);
        worked
    }

    /// When a dirty key became dirty.
    #[inline]
    pub(super) fn queued_at(&self, key: u32) -> Option<u64> {
        self.keys.get(key)?.queued_at.known()
    }

    /// When a processing key was handed out.
    pub(super) fn started_at(&self, key: u32) -> Option<u64> {
        self.keys[key].started_at.known()
    }

    /// How long a processing key was queued.
    #[inline]
    pub(super) fn waited(&self, key: u32) -> MaybeNanos {
        self.keys[key].waited
    }

    /// How long all processing keys are processing, added up, and how long the oldest is. After [`start_all`](Self::start_all).
    pub(super) fn working(&self, now: u64) -> (u64, Option<u64>) {
        let sum = (u128::from(now) * u128::from(self.started)).saturating_sub(self.start_sum);
        let oldest = if self.oldest == NIL { None } else { self.started_at(self.oldest) };
        (u64::try_from(sum).unwrap_or(u64::MAX), oldest.map(|started_at| now.saturating_sub(started_at)))
    }
}
