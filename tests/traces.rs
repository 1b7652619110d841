//! Replays what the real client-go did (`data/fifo.jsonl`, 200 traces recorded from `util/workqueue`), result by result.
//!
//! Checks: P1 (a key is in line once and in work once), P3 (an add while in work comes back at `done`, at the back), P4
//! (first in, first out) and P6 (shut-down refuses adds, hands out the rest, and lets dirty keys back in).
//!
//! The plain reference queue of `support/` replays the same traces, which is what makes it fit to be an oracle elsewhere.

mod support {
    pub(crate) mod reference;
}

use keyqueue::{Item, OwnedItem, TryGetError, WorkQueue};
use serde_json::Value;
use std::collections::HashMap;
use support::reference::Reference;

const TRACES: &str = include_str!("data/fifo.jsonl");

/// The calls that occur in a trace.
trait Replay {
    fn add(&mut self, key: u64);
    /// `None`: shut down, and nothing is in line.
    fn get(&mut self) -> Option<u64>;
    fn done(&mut self, key: u64);
    fn len(&self) -> usize;
    fn shutting_down(&self) -> bool;
    fn shut_down(&mut self);
}

/// The crate, with the items that are held, by key.
struct Crate {
    queue: WorkQueue<u64>,
    held: HashMap<u64, OwnedItem<u64>>,
}

impl Replay for Crate {
    fn add(&mut self, key: u64) {
        assert_eq!(self.queue.add(key).is_accepted(), !self.queue.shutting_down());
    }

    fn get(&mut self) -> Option<u64> {
        match self.queue.try_get().map(Item::into_owned) {
            Ok(item) => {
                let key = *item;
                assert!(self.held.insert(key, item).is_none(), "key {key} has two holders");
                Some(key)
            }
            Err(TryGetError::ShutDown) => None,
            Err(error) => panic!("a recorded get never waits: {error}"),
        }
    }

    fn done(&mut self, key: u64) {
        self.held.remove(&key).expect("the trace holds this key").done();
    }

    fn len(&self) -> usize {
        assert_eq!(self.queue.processing_len(), self.held.len());
        assert_eq!(self.queue.is_empty(), matches!(self.queue.len(), 0));
        self.queue.len()
    }

    fn shutting_down(&self) -> bool {
        self.queue.shutting_down()
    }

    fn shut_down(&mut self) {
        self.queue.shut_down();
    }
}

impl Replay for Reference<u64> {
    fn add(&mut self, key: u64) {
        assert_eq!(Self::add(self, key).is_accepted(), !Self::shutting_down(self));
    }

    fn get(&mut self) -> Option<u64> {
        assert!(!self.is_empty() || Self::shutting_down(self), "a recorded get never waits");
        Self::get(self)
    }

    fn done(&mut self, key: u64) {
        Self::done(self, &key);
    }

    fn len(&self) -> usize {
        Self::len(self)
    }

    fn shutting_down(&self) -> bool {
        Self::shutting_down(self)
    }

    fn shut_down(&mut self) {
        Self::shut_down(self);
    }
}

/// Runs one call and returns its result in the form in which the trace has it.
fn call(queue: &mut impl Replay, name: &str, key: Option<u64>) -> Value {
    let key = || key.expect("a key among the arguments");
    match name {
        "add" => queue.add(key()),
        "get" => return queue.get().into(),
        "done" => queue.done(key()),
        "len" => {}
        "shutting_down" => return queue.shutting_down().into(),
        "shut_down" => queue.shut_down(),
        other => panic!("no such call in a fifo trace: {other}"),
    }
    queue.len().into()
}

/// Replays all traces, each on a queue of its own, and returns how many there were, and of how many calls.
fn replay<Q: Replay>(new: impl Fn() -> Q) -> (usize, usize) {
    let (mut traces, mut calls) = (0, 0);
    for line in TRACES.lines() {
        let trace: Value = serde_json::from_str(line).expect("one JSON object per line");
        let mut queue = new();
        for (at, op) in trace["ops"].as_array().expect("a list of calls").iter().enumerate() {
            let op = op.as_array().expect("a call is a list");
            let (name, result) = (op[0].as_str().expect("its name comes first"), &op[op.len() - 1]);
            let key = (op.len() > 2).then(|| op[1].as_u64().expect("keys are numbers"));
            assert_eq!(&call(&mut queue, name, key), result, "{}, call {at}: {op:?}", trace["id"]);
            calls += 1;
        }
        traces += 1;
    }
    (traces, calls)
}

#[test]
fn the_crate_does_what_client_go_did() {
    let (traces, calls) = replay(|| Crate { queue: WorkQueue::new(), held: HashMap::new() });
    assert_eq!(traces, 200);
    assert!(calls > 20_000, "only {calls} calls");
}

#[test]
fn the_reference_does_what_client_go_did() {
    let (traces, calls) = replay(Reference::new);
    assert_eq!(traces, 200);
    assert!(calls > 20_000, "only {calls} calls");
}
