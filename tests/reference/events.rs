//! What an observer and the hooks of workers are told.

use super::key::{Fault, strike_at};
use keyqueue::Added;
use keyqueue::observe::{Metrics, Observer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Queued,
    Coalesced,
    Deferred,
    Rejected,
    Full,
    Delayed,
    HandedOut,
    Done,
    GivenUp,
    Panicked,
    HookError,
    HookPanic,
    HookGiveUp,
}

/// In place of an [`Event`]: a report, which is not counted.
pub(crate) const REPORT: u8 = EVENTS as u8;

/// The number of kinds of events.
pub(crate) const EVENTS: usize = 13;

/// An observer that counts; its clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events {
    counts: Arc<[AtomicU64; EVENTS]>,
    /// The times for which keys had waited, and were processing, in nanoseconds.
    sums: Arc<Mutex<[u128; 2]>>,
}

impl Events {
    fn count(&self, event: Event) {
        self.counts[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts, and panics if it is to.
    fn tell(&self, event: Event) {
        self.count(event);
        strike_at(Fault::Observer, event as u8);
    }

    /// The same for a hook.
    pub(crate) fn hook(&self, event: Event) {
        self.count(event);
        strike_at(Fault::Hook, event as u8);
    }

    pub(crate) fn all(&self) -> [u64; EVENTS] {
        std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed))
    }

    /// The sums of the times that it was told.
    pub(crate) fn sums(&self) -> [u128; 2] {
        *self.sums.lock().unwrap()
    }

    fn add_time(&self, which: usize, time: Option<Duration>) {
        self.sums.lock().unwrap()[which] += time.map_or(0, |time| time.as_nanos());
    }
}

impl Observer for Events {
    fn added(&self, added: Added) {
        self.tell(match added {
            Added::Queued => Event::Queued,
            Added::Coalesced => Event::Coalesced,
            Added::Deferred => Event::Deferred,
            Added::Rejected => Event::Rejected,
            Added::Full => Event::Full,
            _ => Event::Delayed,
        });
    }

    fn handed_out(&self, waited: Option<Duration>) {
        self.add_time(0, waited);
        self.tell(Event::HandedOut);
    }

    fn done(&self, worked: Option<Duration>) {
        self.add_time(1, worked);
        self.tell(Event::Done);
    }

    fn given_up(&self) {
        self.tell(Event::GivenUp);
    }

    fn panicked(&self) {
        self.tell(Event::Panicked);
    }

    fn report(&self, _: &str, _: &Metrics) {
        strike_at(Fault::Observer, REPORT);
    }

    /// So `turn` reports now and then, which must change nothing that a run sees.
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}
