//! What a queue that measures does beside the verbs, in their critical sections.
//!
//! ```text
//!   add, requeue, cancel ─▶ wants_time? ─▶ dirty_at
//!   get ─▶ started         ended ─▶ done, requeue
//! ```
//!
//! [`times`](super::times) says what is kept.

use super::durations::MaybeNanos;
use super::times::Times;
use super::{Claimed, EntryRef, Machine};

/// Ages, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ages {
    /// The sum of how long each processing key has been processing.
    pub(crate) unfinished_work: u64,
    /// The longest of these.
    pub(crate) longest_running: Option<u64>,
    /// How long the oldest of the first queued keys has waited, among those that are measured: see `AnyOrder::firsts`.
    pub(crate) oldest_queued: Option<u64>,
}

const MEASURED: &str = "the queue measures";

impl<K> Machine<K> {
    /// Makes the machine measure. `all`: each key, however dense the adds are.
    pub(crate) fn measure(&mut self, all: bool) {
        self.times = Some(Box::new(Times::new(super::Table::<K>::CHUNK, all)));
    }

    /// For what needs no key: `dirty_at`, `reset_sampling`, and the histograms.
    #[inline]
    pub(crate) fn times(&mut self) -> Option<&mut Times> {
        self.times.as_deref_mut()
    }

    /// Whether the verb before has made a key dirty and wants the time of that, by [`dirty_at`](Times::dirty_at).
    #[inline]
    pub(crate) fn wants_time(&self) -> bool {
        self.times.as_ref().is_some_and(|times| times.wants_time())
    }

    #[inline]
    pub(super) fn note_dirty(&mut self, entry: EntryRef<K>) {
        let key = entry.number();
        self.times.as_mut().expect(MEASURED).dirty(key);
    }

    /// Measures each key from now on, because keys have priorities. If some were skipped, a key of a rare priority would stand for others
    /// of that priority that came long ago.
    #[cold]
    pub(super) fn measure_all(&mut self) {
        self.times.iter_mut().for_each(|times| times.measure_all());
    }

    /// To be called after a `get`. Calls `now` if the time is wanted. Returns how long the key was queued.
    #[inline(never)]
    pub(crate) fn started(&mut self, claimed: &Claimed<K>, now: impl FnOnce() -> u64) -> MaybeNanos {
        let entry = self.just_held(claimed);
        let (key, priority) = (entry.number(), entry.priority());
        self.times.as_mut().map_or(MaybeNanos::UNKNOWN, |times| times.start(key, priority, now))
    }

    #[inline]
    pub(crate) fn waited(&self, claimed: &Claimed<K>) -> MaybeNanos {
        let key = self.just_held(claimed).number();
        self.times.as_ref().map_or(MaybeNanos::UNKNOWN, |times| times.waited(key))
    }

    /// To be called before a `done`, or a requeue that is not refused. Calls `now` if the time is wanted. Returns how long the key was
    /// processing.
    #[inline]
    pub(crate) fn ended(&mut self, claimed: &Claimed<K>, now: impl FnOnce() -> u64) -> MaybeNanos {
        let key = self.just_held(claimed).number();
        self.times.as_mut().map_or(MaybeNanos::UNKNOWN, |times| times.end(key, now))
    }

    /// Gives each processing key a start, for a caller that asks for ages and has read the time under the lock.
    pub(crate) fn begin_ages(&mut self, now: u64) {
        self.times.iter_mut().for_each(|times| times.start_all(now));
    }

    /// The ages of keys, if the queue measures. `now`: as for [`begin_ages`](Self::begin_ages).
    pub(crate) fn ages(&mut self, now: u64) -> Option<Ages> {
        self.begin_ages(now);
        let (unfinished_work, longest_running) = self.times.as_ref()?.working(now);
        let mut oldest: Option<u64> = None;
        self.order.firsts(|entry| {
            let queued_at = self.queued_at(entry);
            oldest = [oldest, queued_at].into_iter().flatten().min();
            queued_at.is_some()
        });
        let oldest_queued = oldest.map(|queued_at| now.saturating_sub(queued_at));
        Some(Ages { unfinished_work, longest_running, oldest_queued })
    }

    #[inline]
    pub(super) fn queued_at(&self, entry: EntryRef<K>) -> Option<u64> {
        self.times.as_ref()?.queued_at(entry.number())
    }

    /// When a processing key was handed out, if it is measured.
    pub(super) fn measured_start(&self, entry: EntryRef<K>) -> Option<u64> {
        self.times.as_ref()?.measured_start(entry.number())
    }

    /// When a processing key was handed out. To be called after [`begin_ages`](Self::begin_ages).
    pub(super) fn started_at(&self, entry: EntryRef<K>) -> Option<u64> {
        self.times.as_ref()?.started_at(entry.number())
    }
}
