//! Calls that take keys out.

use super::{Run, numbers, sorted, triples};
use crate::reference::key::{Fault, Key, strike};
use crate::reference::queue::Delayed;
use keyqueue::Leftover;

impl Run<'_> {
    pub(super) fn take_where(&mut self, bits: u16) {
        let queue = self.queue;
        let matches = |key: u8| bits & 1 << (key % 16) != 0;
        let taken = self.call(|| {
            queue.take_where(|key| {
                strike(Fault::Predicate);
                matches(key.number())
            })
        });
        let Some(taken) = self.taken(taken) else { return };
        let processing = self.reference.processing().into_iter().filter(|key| matches(*key)).collect();
        assert_eq!((sorted(numbers(&taken.processing)), taken.refused.len()), (processing, 0));
        let but = self.key_that_stays(&taken, matches);
        self.reference.judge_list(&numbers(&taken.queued), false);
        let (queued, delayed) = self.reference.take_where(matches, but);
        self.compare_lists(&taken, queued, delayed);
    }

    /// Deals with a panic in a call that takes keys. `None`: the call has taken nothing.
    pub(super) fn taken<T>(&mut self, taken: Result<T, Fault>) -> Option<T> {
        let strike = self.struck.take();
        match (taken, strike) {
            (Ok(taken), None) => Some(taken),
            // Caught: the keys that are out of the queue must reach the caller.
            (Ok(taken), Some(strike)) => {
                assert!(
                    matches!(strike.fault, Fault::Waker | Fault::Drop | Fault::Eq),
                    "the call has swallowed {strike:?}"
                );
                self.caught();
                self.eq_was_caught = strike.fault == Fault::Eq;
                Some(taken)
            }
            (Err(Fault::Clone | Fault::Hash | Fault::Predicate | Fault::Drop), _) => None,
            (Err(fault), _) => panic!("the call has passed on a panic of {fault:?}"),
        }
    }

    /// If `Eq` has panicked, the delay of the key stays.
    pub(super) fn key_that_stays(&mut self, taken: &Leftover<Key>, matches: impl Fn(u8) -> bool) -> Option<u8> {
        if !std::mem::take(&mut self.eq_was_caught) {
            return None;
        }
        let taken: Vec<u8> = taken.delayed.iter().map(|delayed| delayed.key.number()).collect();
        let delayed = self.reference.delayed();
        delayed.into_iter().map(|(key, ..)| key).find(|key| matches(*key) && !taken.contains(key))
    }

    pub(super) fn take_delayed(&mut self) {
        let queue = self.queue;
        let taken = self.call(|| queue.take_delayed());
        let Some(taken) = self.taken(taken) else { return };
        let delayed = self.reference.delayed();
        delayed.iter().for_each(|(key, ..)| self.reference.drop_delay(*key));
        let taken = triples(&taken);
        assert!(taken.is_sorted_by_key(|(_, left, _)| *left));
        assert_eq!(sorted(taken), sorted(delayed));
    }

    /// Compares what a stop has returned.
    pub(super) fn stop(&mut self, left: Result<Leftover<Key>, Fault>) {
        self.shut_down();
        self.stopped = true;
        let Some(left) = self.taken(left) else { return };
        let refused = std::mem::take(&mut self.refused);
        assert_eq!(sorted(numbers(&left.refused)), sorted(refused), "refused");
        assert_eq!(sorted(numbers(&left.processing)), self.reference.processing(), "processing");
        let but = self.key_that_stays(&left, |_| true);
        self.reference.judge_list(&numbers(&left.queued), self.plan.groups.is_some());
        let (queued, delayed) = self.reference.take_where(|_| true, but);
        self.compare_lists(&left, queued, delayed);
    }

    /// Compares all but the order of the queued keys.
    pub(super) fn compare_lists(&self, left: &Leftover<Key>, queued: Vec<u8>, delayed: Vec<Delayed>) {
        assert_eq!(sorted(numbers(&left.queued)), sorted(queued), "queued");
        let listed = triples(&left.delayed);
        assert!(listed.is_sorted_by_key(|(_, left, _)| *left), "delayed, earliest first");
        assert_eq!(sorted(listed), sorted(delayed), "delayed");
    }
}
