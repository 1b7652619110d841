//! What all threads and tasks of the soak share.

use crate::key::Key;
use crate::ledger::{Ledger, Ticket};
use keyqueue::observe::{Metrics, Observer};
use keyqueue::{AddOptions, Added, WorkQueue};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub struct World {
    pub queue: WorkQueue<Key>,
    pub ledger: Ledger,
    pub seed: u64,
    pub counts: Counts,
    pub events: Arc<Events>,
    /// Producers hold it (shared) while they add. The main thread takes it (exclusively) so that the queue comes to rest.
    pub gate: tokio::sync::RwLock<()>,
    /// The queue may be shut down at any moment, so an add counts as accepted only when the queue has returned that.
    pub ending: AtomicBool,
    /// Producers are to end.
    pub stop: AtomicBool,
    /// All threads and tasks have ended.
    pub over: AtomicBool,
    /// Keys with delays of hours, to be cancelled before the queue can rest.
    pub far: Mutex<Vec<u32>>,
}

macro_rules! counts {
    ($($name:ident: $text:literal,)*) => {
        /// Calls of each kind, outside the loops of `Workers`; and what handlers did.
        #[derive(Default)]
        pub struct Counts {
            $(pub $name: AtomicU64,)*
        }

        impl Counts {
            pub fn table(&self) -> Vec<(&'static str, u64)> {
                vec![$(($text, self.$name.load(Relaxed)),)*]
            }
        }
    };
}

counts! {
    adds: "add",
    add_alls: "keys of add_all",
    add_afters: "add_after",
    add_withs: "add_with (earliest, replace, keep)",
    limited: "add_rate_limited, and bare retries",
    requeues: "bare requeue_after, requeue_with",
    rejected: "of these, rejected",
    cancelled: "cancel, of a delay",
    cancelled_nothing: "cancel, of nothing",
    taken: "delays taken by take_delayed",
    forgets: "forget",
    stats: "stats, metrics, processing_keys",
    timeouts: "get_timeout, timed out",
    dropped_gets: "get_async, dropped while it waits",
    aborted: "loops of tasks, aborted",
    short_threads: "short-lived threads",
    items_sent: "items sent to another thread",
    panics_in_workers: "panics in Workers",
    panics_outside: "panics of bare holders",
    give_ups: "give_up, bare",
    side_queues: "second queues, stopped at once",
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl World {
    /// Records an add in the ledger and in the counts.
    fn book(&self, ticket: Ticket, added: Added) -> Added {
        match added {
            Added::Queued | Added::Deferred => self.ledger.due(ticket),
            Added::Rejected => count(&self.counts.rejected),
            _ => self.ledger.later(ticket),
        }
        added
    }

    pub fn add(&self, id: u32) -> Added {
        count(&self.counts.adds);
        let ticket = self.ledger.ticket(id);
        let added = self.queue.add(Key::new(id));
        if added == Added::Coalesced {
            self.ledger.due(ticket); // a delay does not hold up a plain add
        }
        self.book(ticket, added)
    }

    /// Must not be called while the queue may be shut down.
    pub fn add_all(&self, ids: impl Iterator<Item = u32>) {
        self.queue.add_all(ids.map(|id| {
            count(&self.counts.add_alls);
            self.ledger.due(self.ledger.ticket(id));
            Key::new(id)
        }));
    }

    pub fn add_after(&self, id: u32, delay: Duration) -> Added {
        count(&self.counts.add_afters);
        let ticket = self.ledger.ticket(id);
        self.book(ticket, self.queue.add_after(Key::new(id), delay))
    }

    pub fn add_with(&self, id: u32, options: AddOptions) -> Added {
        count(&self.counts.add_withs);
        let ticket = self.ledger.ticket(id);
        self.book(ticket, self.queue.add_with(Key::new(id), options))
    }

    pub fn add_limited(&self, id: u32) -> Added {
        count(&self.counts.limited);
        let ticket = self.ledger.ticket(id);
        self.book(ticket, self.queue.add_rate_limited(Key::new(id)))
    }

    /// A holder outside `Workers` finishes its item in a way that adds the key.
    pub fn requeue(&self, id: u32, counter: &AtomicU64, how: impl FnOnce() -> Added) {
        count(counter);
        let ticket = self.ledger.ticket(id);
        self.book(ticket, how());
    }

    pub fn cancel(&self, id: u32) {
        if self.queue.cancel(&Key::new(id)) {
            self.ledger.excuse(id);
            count(&self.counts.cancelled);
        } else {
            count(&self.counts.cancelled_nothing);
        }
    }

    pub fn take_delayed(&self) {
        for delayed in self.queue.take_delayed() {
            self.ledger.excuse(delayed.key.id);
            count(&self.counts.taken);
        }
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// The events that the queue's observer has received.
#[derive(Default)]
pub struct Events {
    pub added: AtomicU64,
    pub handed_out: AtomicU64,
    pub done: AtomicU64,
    pub given_up: AtomicU64,
    pub panicked: AtomicU64,
    pub reports: AtomicU64,
}

/// Counts the events.
pub struct Listener(pub Arc<Events>);

impl Observer for Listener {
    fn added(&self, _: Added) {
        count(&self.0.added);
    }

    fn handed_out(&self, _: Option<Duration>) {
        count(&self.0.handed_out);
    }

    fn done(&self, _: Option<Duration>) {
        count(&self.0.done);
    }

    fn given_up(&self) {
        count(&self.0.given_up);
    }

    fn panicked(&self) {
        count(&self.0.panicked);
    }

    fn report(&self, _: &str, _: &Metrics) {
        count(&self.0.reports);
    }
}
