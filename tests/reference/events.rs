//! What an observer and the hooks of workers are told.

use keyqueue::Added;
use keyqueue::observe::Observer;
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

/// The number of kinds of events.
pub(crate) const EVENTS: usize = 12;

/// An observer that counts; its clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<[AtomicU64; EVENTS]>);

impl Events {
    pub(crate) fn count(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> [u64; EVENTS] {
        std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}

impl Observer for Events {
    fn added(&self, added: Added) {
        self.count(match added {
            Added::Queued => Event::Queued,
            Added::Coalesced => Event::Coalesced,
            Added::Deferred => Event::Deferred,
            Added::Rejected => Event::Rejected,
            _ => Event::Delayed,
        });
    }

    fn handed_out(&self, _: Option<Duration>) {
        self.count(Event::HandedOut);
    }

    fn done(&self, _: Option<Duration>) {
        self.count(Event::Done);
    }

    fn given_up(&self) {
        self.count(Event::GivenUp);
    }

    fn panicked(&self) {
        self.count(Event::Panicked);
    }

    /// So `turn` reports now and then, which must change nothing that a run sees.
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}
