//! Adds that need more than one line: of several keys, with the limiter, by expiry.

use super::Run;
use crate::reference::key::{Fault, Key, strike};
use crate::reference::op::How;
use keyqueue::Added;
use std::cell::Cell;

impl Run<'_> {
    pub(super) fn add_all(&mut self, ns: &[u8]) {
        let queue = self.queue;
        let yielded = Cell::new(0);
        let keys = ns.iter().map(|n| {
            strike(Fault::Iterator);
            yielded.set(yielded.get() + 1);
            Key::new(*n)
        });
        let added = self.call(|| queue.add_all(keys));
        // The keys that the iterator has yielded stay added, the last one if a panic in its add comes after its step.
        let stay = match added {
            Ok(_) => {
                self.returned();
                ns.len()
            }
            Err(Fault::Iterator) => {
                self.struck = None;
                yielded.get()
            }
            Err(fault) => yielded.get() - usize::from(!self.took_effect(fault)),
        };
        let expected = ns[..stay].iter().map(|n| self.reference.add(*n, 0));
        let expected = expected.filter(|added| matches!(added, Added::Queued | Added::Deferred)).count();
        assert!(added.is_err() || added == Ok(expected));
    }

    /// Compares the answer of an `add_with`.
    pub(super) fn add_with(&mut self, n: u8, added: Result<Added, Fault>, how: &How, delay: Option<u64>) {
        let is_early = matches!(added, Err(Fault::Eq | Fault::Hash | Fault::Group | Fault::Weight));
        if is_early && how.rate_limited && self.plan.has_own_counts() {
            self.reference.limits.when(&n); // the limiter comes first
        }
        self.expect(added, |reference| reference.add_with(n, how, delay, how.priority.unwrap_or(0)));
    }

    /// Compares the answer of `turn`.
    pub(super) fn turn(&mut self, turned: Result<usize, Fault>) {
        if turned != Err(Fault::Observer) {
            return self.expect(turned, |reference| reference.turn());
        }
        // The keys of its events are added; later calls add those of other shards.
        self.took_effect(Fault::Observer);
        let late: Vec<u8> = self.queue.inspect().delayed_keys().iter().map(|delayed| delayed.key.number()).collect();
        self.reference.turn_if(|key| !late.contains(&key));
    }
}
