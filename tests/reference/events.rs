//! What an observer and the hooks of workers are told.

use super::key::{Fault, strike_at};
use keyqueue::Added;
use keyqueue::observe::{Metrics, Observer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Queued,
    Coalesced,
    Deferred,
    Rejected,
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
pub(crate) const EVENTS: usize = 12;

/// An observer that counts; its clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<[AtomicU64; EVENTS]>);

impl Events {
    fn count(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
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
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

impl Observer for Events {
    fn added(&self, added: Added) {
        self.tell(match added {
            Added::Queued => Event::Queued,
            Added::Coalesced => Event::Coalesced,
            Added::Deferred => Event::Deferred,
            Added::Rejected => Event::Rejected,
            _ => Event::Delayed,
        });
    }

    fn handed_out(&self, _: Option<Duration>) {
        self.tell(Event::HandedOut);
    }

    fn done(&self, _: Option<Duration>) {
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
