//! Adds that need more than one line: of several keys, with the limiter, by expiry.

use super::Run;
use super::waiters::Flag;
use crate::reference::key::{Fault, Key, strike};
use crate::reference::op::How;
use crate::reference::queue::NEVER;
use keyqueue::{AddWait, Added, DelayedKey};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A future that adds a key when there is room.
pub(super) struct Adder<'q> {
    pub(super) key: u8,
    pub(super) future: AddWait<'q, Key>,
    pub(super) flag: Arc<Flag>,
}

impl<'q> Run<'q> {
    pub(super) fn add_all(&mut self, ns: &[u8]) {
        let queue = self.queue;
        let yielded = Cell::new(0);
        let keys = ns.iter().map(|n| {
            strike(Fault::Iterator);
            yielded.set(yielded.get() + 1);
            Key::new(*n)
        });
        let answered = || {
            let stats = queue.stats();
            (stats.pushed + stats.coalesced + stats.deferred + stats.delays + stats.rejected + stats.full) as usize
        };
        let before = answered();
        let added = self.call(|| queue.add_all(keys));
        let answers = answered() - before;
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
            // The keys behind it that the iterator has yielded, too, are not added; or if it is a drop, they may be.
            Err(fault @ (Fault::Eq | Fault::Drop)) => {
                assert!(answers + usize::from(!self.took_effect(fault)) <= yielded.get());
                answers
            }
            Err(fault) => yielded.get() - usize::from(!self.took_effect(fault)),
        };
        let expected = ns[..stay].iter().map(|n| self.reference.add_now(*n));
        let expected = expected.filter(|added| matches!(added, Added::Queued | Added::Deferred)).count();
        assert!(added.is_err() || added == Ok(expected));
    }

    /// `add_wait`, or its future if that would wait, or every other time.
    pub(super) fn add_wait(&mut self, n: u8) {
        let queue = self.queue;
        if !self.reference.is_full_for(n) && self.reference.steps & 1 == 0 {
            let added = self.call(|| queue.add_wait(Key::new(n)));
            return self.expect(added, |reference| reference.add_now(n));
        }
        self.poll_adder(Adder { key: n, future: queue.add_wait_async(Key::new(n)), flag: Arc::default() });
    }

    pub(super) fn poll_adder(&mut self, mut adder: Adder<'q>) {
        adder.flag = Arc::default();
        let waker = adder.flag.waker();
        let polled = self.call(|| Pin::new(&mut adder.future).poll(&mut Context::from_waker(&waker)));
        self.returned();
        match polled.expect("no fault is set") {
            Poll::Pending => {
                assert!(self.reference.is_full_for(adder.key), "an add waits although there is room");
                self.adders.push(adder);
            }
            Poll::Ready(added) => {
                assert!(!self.reference.is_full_for(adder.key), "an add that waits came beyond the bound");
                assert_eq!(added, self.reference.add_now(adder.key));
            }
        }
    }

    pub(super) fn drop_adder(&mut self, at: usize) {
        let adder = self.adders.remove(at);
        self.call(|| drop(adder.future)).expect("no fault is set");
        self.returned();
    }

    /// Compares the answer of an `add_with`.
    pub(super) fn add_with(&mut self, n: u8, added: Result<Added, Fault>, how: &How, delay: Option<u64>) {
        let is_early = matches!(added, Err(Fault::Eq | Fault::Hash | Fault::Group | Fault::Weight));
        if is_early && how.rate_limited && self.plan.has_own_counts() {
            self.reference.limits.when(&n); // the limiter comes first
        }
        self.expect(added, |reference| reference.add_with(n, how, delay, how.priority.unwrap_or(0)));
    }

    /// `turn`, or every other time a step of the driver thread, if the run is this thread.
    pub(super) fn turn_or_drive(&mut self) {
        self.turns += 1;
        self.tokens_have_come = false;
        let queue = self.queue;
        let turned = match self.plan.inside {
            Some(inside) if self.turns % 2 == 1 => {
                let before = self.reference.counts.expired;
                let has_driver = self.call(|| (inside.drive)(queue));
                has_driver
                    .map(|has_driver| if has_driver { (queue.stats().expired - before) as usize } else { queue.turn() })
            }
            _ => self.call(|| queue.turn()),
        };
        self.turn(turned);
    }

    /// Makes the expiries of getters that came before the next hand-out of their shard. Returns their number.
    pub(super) fn catch_up(&mut self) -> usize {
        let Some(inside) = self.plan.inside else { return 0 };
        self.by_getters.extend((inside.expired)());
        let mut count = 0;
        while let Some(by_getter) = self.by_getters.pop_front() {
            if by_getter.handed_out > self.reference.handed_out_of(by_getter.shard) {
                self.by_getters.push_front(by_getter);
                break;
            }
            self.reference.expire(by_getter.shard, by_getter.count);
            self.reference.rearranged |= by_getter.has_more;
            count += by_getter.count;
        }
        count
    }

    /// The driver parks no longer than until the first deadline (I8).
    pub(super) fn check_driver(&self) {
        let until = self.plan.inside.and_then(|inside| (inside.parked_until)(self.queue));
        let first =
            self.reference.delayed().first().map_or(NEVER, |(_, left, _)| left.saturating_add(self.reference.now));
        if let Some(until) = until.filter(|_| !self.reference.shut_down) {
            assert!(until <= first, "the driver is parked until {until}, and a delay expires at {first}");
        }
    }

    /// Compares the answer of `turn`.
    pub(super) fn turn(&mut self, turned: Result<usize, Fault>) {
        if turned != Err(Fault::Observer) {
            return self.expect(turned, |reference| reference.turn());
        }
        // The keys of its events are added; later calls add those of other shards.
        self.took_effect(Fault::Observer);
        // A key that is added can have a later delay, which has not expired.
        let due = |delayed: &DelayedKey<Key>| delayed.left.is_zero().then(|| delayed.key.number());
        let late: Vec<u8> = self.queue.inspect().delayed_keys().iter().filter_map(due).collect();
        self.reference.turn_if(|key| !late.contains(&key));
    }
}
