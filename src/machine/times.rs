//! When keys became dirty and when they were handed out, from which follows how long they have waited and were processing.
//!
//! Processing keys are in a list, the oldest first, and the sum of their starts is kept, so that their greatest age and the sum of their
//! ages are known without a walk over them.
//!
//! **Not every key is measured**, because a key needs three readings of the clock, of 10 ns or more. If keys become dirty faster than a
//! million a second, one in eight is measured, until a getter finds no key and parks. In the histograms it also stands for the unmeasured
//! ones before it, so that counts are exact. An unmeasured key gets as its start the time at which the next measured key starts or a call
//! asks for ages, whichever comes first, so its age may be too low, but never too high.
//!
//! The clocks of two threads may differ by a tenth of a microsecond, so differences saturate at zero.

use super::durations::{Durations, MaybeNanos};
use crate::key::SideArray;

const NIL: u32 = u32::MAX;
/// When adds are dense, one in this number is measured.
const STRIDE: u32 = 8;
/// Adds are dense if they follow each other in fewer nanoseconds.
const DENSE: u64 = 1000;

/// What is kept for a slot, in 32 bytes.
#[derive(Clone, Copy)]
pub(super) struct KeyTimes {
    /// When the key became dirty. Unknown if that was not measured, or the key is not dirty.
    queued_at: MaybeNanos,
    /// When the key was handed out. This and the next fields are valid while the key is processing.
    started_at: MaybeNanos,
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

/// See the top of this file. Here a key is the number of its slot.
pub(crate) struct Times {
    pub(super) keys: SideArray<KeyTimes>,
    measures_all: bool,
    /// One add in this number is measured, at most [`STRIDE`].
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
    /// The number of processing keys whose start is known, which are all but the newest few, and the sum of these starts.
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

    pub(super) fn measure_all(&mut self) {
        (self.measures_all, self.stride, self.skip) = (true, 1, 0);
    }

    /// Measures the next add. To be called when a getter is about to park, because keys do not come fast then.
    pub(crate) fn reset_sampling(&mut self) {
        (self.stride, self.skip) = (1, 0);
    }

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

    /// Notes when a key became dirty, if that is wanted.
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

    /// Forgets a dirty key that is taken back.
    pub(super) fn forget(&mut self, key: u32) {
        if self.wanted == key {
            self.wanted = NIL;
        }
        if self.keys.get(key).is_some() {
            self.keys[key].queued_at = MaybeNanos::UNKNOWN;
        }
    }

    /// Notes that a key was handed out. Returns how long it was queued. Calls `now` if it is known when the key became dirty.
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

    /// Sets the start of the processing keys that have none, which are the newest few.
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

    /// Notes the end of the processing of a key. Returns how long it took. Calls `now` if the key is measured.
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
        // The `started_at` of an unmeasured key is too late, and only for ages.
        let measured = started_at.known().filter(|_| waited != MaybeNanos::UNKNOWN);
        let worked =
            measured.map_or(MaybeNanos::UNKNOWN, |started_at| MaybeNanos::new(now().saturating_sub(started_at)));
        self.durations.note_worked(worked);
        worked
    }

    #[inline]
    pub(super) fn queued_at(&self, key: u32) -> Option<u64> {
        self.keys.get(key)?.queued_at.known()
    }

    pub(super) fn started_at(&self, key: u32) -> Option<u64> {
        self.keys[key].started_at.known()
    }

    /// The same, unless the key was not measured, so that the time would be too late.
    pub(super) fn measured_start(&self, key: u32) -> Option<u64> {
        self.started_at(key).filter(|_| self.waited(key) != MaybeNanos::UNKNOWN)
    }

    #[inline]
    pub(super) fn waited(&self, key: u32) -> MaybeNanos {
        self.keys[key].waited
    }

    /// The sum of how long each processing key has been processing, and the longest of these. To be called after
    /// [`start_all`](Self::start_all).
    pub(super) fn working(&self, now: u64) -> (u64, Option<u64>) {
        let sum = (u128::from(now) * u128::from(self.started)).saturating_sub(self.start_sum);
        let oldest = if self.oldest == NIL { None } else { self.started_at(self.oldest) };
        (u64::try_from(sum).unwrap_or(u64::MAX), oldest.map(|started_at| now.saturating_sub(started_at)))
    }
}
