//! Replays what the real client-go did (`data/fifo.jsonl` and `data/delaying.jsonl`, 200 traces each, recorded from
//! `util/workqueue`), result by result.
//!
//! Checks: P1 (a key is in line once and in work once), P3 (an add while in work comes back at `done`, at the back), P4
//! (first in, first out) and P6 (shut-down refuses adds, hands out the rest, and lets dirty keys back in). Of delays: never
//! early, in order of deadline, one per key, the earliest, independent of plain adds, none after a shut-down.
//!
//! The plain reference queues of `support/` replay the same traces, which is what makes them fit to be oracles elsewhere.

mod support {
    pub(crate) mod delays;
    pub(crate) mod reference;
}

use keyqueue::{Clock, DelayedAdd, Driver, Item, MockClock, OwnedItem, TryGetError, WorkQueue};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use support::delays::Delays;
use support::reference::Reference;

const FIFO: &str = include_str!("data/fifo.jsonl");
const DELAYING: &str = include_str!("data/delaying.jsonl");

/// The calls that occur in a trace.
trait Replay {
    fn add(&mut self, key: u64);
    /// `None`: shut down, and nothing is in line.
    fn get(&mut self) -> Option<u64>;
    fn done(&mut self, key: u64);
    fn len(&self) -> usize;
    fn shutting_down(&self) -> bool;
    fn shut_down(&mut self);
    fn add_after(&mut self, key: u64, delay: Duration);
    /// Moves the clock, and delivers what is due.
    fn step(&mut self, by: Duration);
}

/// The crate, with the items that are held, by key.
struct Crate {
    queue: WorkQueue<u64>,
    clock: MockClock,
    held: HashMap<u64, OwnedItem<u64>>,
}

impl Crate {
    fn new() -> Self {
        let (clock, mock) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
        Self { queue, clock: mock, held: HashMap::new() }
    }
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

    fn add_after(&mut self, key: u64, delay: Duration) {
        assert_eq!(self.queue.add_after(key, delay).is_accepted(), !self.queue.shutting_down());
    }

    fn step(&mut self, by: Duration) {
        self.clock.advance(by);
        let delayed = self.queue.delayed_len();
        let due = self.queue.turn();
        assert_eq!(self.queue.delayed_len() + due, delayed);
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

    fn add_after(&mut self, _: u64, _: Duration) {
        unreachable!("a fifo trace has no delays");
    }

    fn step(&mut self, _: Duration) {
        unreachable!("a fifo trace has no clock");
    }
}

impl Replay for Delays<u64> {
    fn add(&mut self, key: u64) {
        assert_eq!(Self::add(self, key).is_accepted(), !self.queue.shutting_down());
    }

    fn get(&mut self) -> Option<u64> {
        Replay::get(&mut self.queue)
    }

    fn done(&mut self, key: u64) {
        self.queue.done(&key);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn shutting_down(&self) -> bool {
        self.queue.shutting_down()
    }

    fn shut_down(&mut self) {
        Self::shut_down(self);
    }

    fn add_after(&mut self, key: u64, delay: Duration) {
        assert_eq!(Self::add_after(self, key, delay).is_accepted(), !self.queue.shutting_down());
    }

    fn step(&mut self, by: Duration) {
        self.advance(by);
        self.turn();
    }
}

/// Runs one call and returns its result in the form in which the trace has it.
fn call(queue: &mut impl Replay, name: &str, arguments: &[Value]) -> Value {
    let key = || arguments[0].as_u64().expect("keys are numbers");
    // A delay that is negative is none: a `Duration` cannot be.
    let duration = |at: usize| {
        let nanoseconds = arguments[at].as_i64().expect("durations are numbers");
        Duration::from_nanos(nanoseconds.try_into().unwrap_or(0))
    };
    match name {
        "add" => queue.add(key()),
        "get" => return queue.get().into(),
        "done" => queue.done(key()),
        "len" => {}
        "shutting_down" => return queue.shutting_down().into(),
        "shut_down" => queue.shut_down(),
        "add_after" => queue.add_after(key(), duration(1)),
        "step" => queue.step(duration(0)),
        other => panic!("no such call in these traces: {other}"),
    }
    queue.len().into()
}

/// Replays all traces, each on a queue of its own, and checks how many there were, and of how many calls.
fn replay<Q: Replay>(traces: &str, new: impl Fn() -> Q) {
    let mut calls = 0;
    for line in traces.lines() {
        let trace: Value = serde_json::from_str(line).expect("one JSON object per line");
        let mut queue = new();
        for (at, op) in trace["ops"].as_array().expect("a list of calls").iter().enumerate() {
            let [name, arguments @ .., result] = op.as_array().expect("a call is a list").as_slice() else {
                panic!("a call has a name and a result: {op:?}");
            };
            let name = name.as_str().expect("its name comes first");
            assert_eq!(&call(&mut queue, name, arguments), result, "{}, call {at}: {op:?}", trace["id"]);
            calls += 1;
        }
    }
    assert_eq!(traces.lines().count(), 200);
    assert!(calls > 20_000, "only {calls} calls");
}

#[test]
fn the_crate_does_what_client_go_did() {
    replay(FIFO, Crate::new);
}

#[test]
fn the_reference_does_what_client_go_did() {
    replay(FIFO, Reference::new);
}

#[test]
fn the_crate_does_what_client_go_did_with_delays() {
    replay(DELAYING, Crate::new);
}

#[test]
fn the_reference_does_what_client_go_did_with_delays() {
    replay(DELAYING, || Delays::new(DelayedAdd::Independent));
}
