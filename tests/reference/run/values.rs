//! The layer of values. Each add that goes through it has a number of its own as its value, and merged values are lists of numbers. The plain
//! layer has such a list for each key, which is compared at each read. So a number leaves it with one successful run, or with the call that
//! has taken it out, and what is left at the end are the others (P26).

use super::Run;
use super::hand_outs::{Held, each};
use crate::reference::key::{Fault, Key, Name, look};
use keyqueue::values::{Refused, Value, ValueQueue};
use keyqueue::{Added, WorkQueue};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value: the numbers of the adds that are in it, the oldest first. The call that adds a number shares it, and so sees whether it was kept.
pub(super) type Numbers = Vec<Arc<u32>>;

pub(super) type Layer = ValueQueue<Key, Numbers>;

pub(super) fn layer(queue: &WorkQueue<Key>) -> Layer {
    ValueQueue::with_merge(queue.clone(), |older: &Numbers, newer: &Numbers| {
        look();
        [&older[..], newer].concat()
    })
}

/// The plain layer.
#[derive(Default)]
pub(super) struct Values {
    /// The numbers of each key that has any: those that no run has succeeded with, and no call has taken out.
    pub(super) kept: BTreeMap<u8, Numbers>,
    /// The number of the last add.
    last: u32,
}

impl Values {
    /// A run that has read these numbers has succeeded. Returns whether no call had taken them out.
    pub(super) fn succeed(&mut self, key: u8, read: &[Arc<u32>]) -> bool {
        let Some(kept) = self.kept.get_mut(&key).filter(|kept| kept.starts_with(read)) else { return false };
        kept.drain(..read.len());
        self.kept.retain(|_, kept| !kept.is_empty());
        true
    }
}

impl<'q> Run<'q> {
    /// Adds a key, by the first of these calls, or through the layer by the second one.
    pub(super) fn add_one(
        &mut self,
        n: u8,
        alone: impl FnOnce(&'q WorkQueue<Key>, Key) -> Added,
        with_value: impl FnOnce(&'q Layer, Key, Numbers) -> Result<Added, Refused<Numbers>>,
    ) -> Result<Added, Fault> {
        let queue = self.queue;
        let Some(layer) = self.layer else { return self.call(|| alone(queue, Key::new(n))) };
        self.values.last += 1;
        let number = Arc::new(self.values.last);
        let value = vec![Arc::clone(&number)];
        let added = self.call(|| with_value(layer, Key::new(n), value));
        let refused = if self.reference.shut_down { Added::Rejected } else { Added::Full };
        let added = added.map(|added| {
            added.unwrap_or_else(|Refused(value)| {
                assert_eq!(value, [Arc::clone(&number)], "the value of a refused add");
                refused
            })
        });
        let is_kept = Arc::strong_count(&number) > 1;
        if is_kept {
            self.values.kept.entry(n).or_default().push(number);
        }
        match added {
            Ok(added) => {
                assert_eq!(is_kept, added.is_accepted(), "the value of an add that was {added:?} is kept");
                self.layer_returned(added == refused);
            }
            // The layer came before the queue and its limiter. Nothing has changed, as after the panic of a clone.
            Err(Fault::Eq | Fault::Hash) if !is_kept => return Err(Fault::Clone),
            Err(fault) => assert!(is_kept || fault == Fault::Clone, "a panic of {fault:?} has lost a value"),
        }
        added
    }

    /// A call of the layer has returned. If it drops a key of its own, it catches the panic of that.
    fn layer_returned(&mut self, drops_a_key: bool) {
        self.struck.take_if(|strike| drops_a_key && strike.fault == Fault::Drop);
    }

    /// Compares the value that the holder of a key has read.
    pub(super) fn check_value(&self, key: u8, value: Option<&Numbers>) {
        assert_eq!(value, self.values.kept.get(&key), "the value of key {key}");
    }

    /// A run has succeeded with its value.
    pub(super) fn succeed(&mut self, key: u8, value: Value<'_, Key, Numbers>) {
        let read = (*value).clone();
        let succeeded = self.call(|| value.succeed());
        self.layer_returned(true);
        assert_eq!(succeeded, Ok(self.values.succeed(key, &read)), "the value is there at the success");
    }

    /// The holder of a key reads its value. The key is added so often, and then the run has succeeded with the value, or has not.
    pub(super) fn read(&mut self, held: &Held<'q>, adds: u8, succeeds: bool) {
        let (Some(layer), key) = (self.layer, held.key()) else { return };
        let value = match self.call(|| each!(held, item => layer.value(item))) {
            Ok(value) => value,
            Err(fault) => return assert!(!self.took_effect(fault)),
        };
        self.check_value(key, value.as_deref());
        let aside = self.fault.take();
        for _ in 0..adds {
            let added = self.add_one(key, WorkQueue::add, ValueQueue::add);
            self.expect(added, |reference| reference.add_now(key));
        }
        self.fault = aside;
        if let Some(value) = value.filter(|_| succeeds) {
            self.succeed(key, value);
        }
    }

    /// `ValueQueue::remove`, which takes the key out of the queue first.
    pub(super) fn remove_value(&mut self, n: u8) {
        let (Some(layer), before) = (self.layer, self.queue.stats()) else { return };
        match self.call(|| layer.remove(&Name::new(n))) {
            Ok(value) => {
                self.layer_returned(value.is_some());
                self.returned();
                self.check_value(n, value.as_deref());
                self.values.kept.remove(&n);
                self.reference.remove(n);
            }
            Err(fault) => {
                if self.took_effect(fault) || self.queue.stats() != before {
                    self.reference.remove(n);
                }
            }
        }
    }

    /// `ValueQueue::take_all`.
    pub(super) fn take_values(&mut self) {
        let Some(layer) = self.layer else { return };
        let taken = self.call(|| layer.take_all()).expect("it calls no code that panics");
        let taken: Vec<_> = taken.into_iter().map(|(key, value)| (key.number(), (*value).clone())).collect();
        let kept = std::mem::take(&mut self.values.kept);
        assert_eq!(super::sorted(taken), Vec::from_iter(kept), "what is left");
    }

    pub(super) fn check_values(&self) {
        if let Some(layer) = self.layer {
            let kept = self.values.kept.len();
            assert_eq!((layer.len(), layer.is_empty()), (kept, kept == 0), "keys that have values");
        }
    }
}
