//! Replays recorded calls of the real client-go (`data/fifo.jsonl`, `data/delaying.jsonl` and `data/rate_limiting.jsonl`, 200
//! traces each, and 40 of `data/rate_limiting_bucket.jsonl`, all of `util/workqueue`), and compares every result.
//!
//! Checks: P1 (a key is queued once and processed once at a time), P3 (an add while processing queues the key again at `done`,
//! at the back), P4 (first in, first out) and P6 (a shut-down rejects adds, hands out the rest, and queues dirty keys again).
//! Of delays: never early, in order of deadline, one per key, the earliest, independent of plain adds, none after a shut-down.
//! Of rate-limited adds: each calls the limiter once, even if it is rejected, and `forget` changes the count alone.
//!
//! The plain queue of `reference/` replays the same traces (but for the bucket). So what the crate is compared with everywhere else does
//! what client-go did. What the files are recordings of, and how to record them anew: `data/README.md`.

mod reference;
mod support {
    pub(crate) mod client_go;
}

use reference::limits::{self, Limits, Schedule};
use reference::op::How;
use reference::plan::Plan;
use reference::queue::Reference;
use serde_json::Value;
use std::time::Duration;
use support::client_go::{Crate, Replay, call, limits_of};

const FIFO: &str = include_str!("data/fifo.jsonl");
const DELAYING: &str = include_str!("data/delaying.jsonl");
const RATE_LIMITING: &str = include_str!("data/rate_limiting.jsonl");
const RATE_LIMITING_BUCKET: &str = include_str!("data/rate_limiting_bucket.jsonl");

/// The number of traces, and of calls in them.
const FIFO_COUNT: (usize, usize) = (200, 33_315);
const DELAYING_COUNT: (usize, usize) = (200, 28_500);
const RATE_LIMITING_COUNT: (usize, usize) = (200, 31_890);
const RATE_LIMITING_BUCKET_COUNT: (usize, usize) = (40, 6_088);

/// The plain queue.
fn plain(config: &Value) -> Reference {
    let exponential = Schedule::Exponential { base: 5_000_000, max: 1_000_000_000_000 };
    let limits = config.get("limiter").map_or_else(|| Limits::new(exponential), limits_of);
    let mut plain = Reference::new(Plan::plain(), vec![0; 256], limits);
    plain.crowd(100); // the keys of the traces
    plain
}

impl Replay for Reference {
    fn add(&mut self, key: u64) {
        assert_eq!(Self::add(self, key as u8, 0).is_accepted(), !self.shut_down);
    }

    fn get(&mut self) -> Option<u64> {
        let key = self.next_keys().first().copied();
        assert!(key.is_some() || self.shut_down, "a recorded get never waits");
        key.into_iter().for_each(|key| _ = self.hand_out(key));
        key.map(u64::from)
    }

    fn done(&mut self, key: u64) {
        Self::done(self, key as u8);
    }

    fn len(&self) -> usize {
        self.queued()
    }

    fn shutting_down(&self) -> bool {
        self.shut_down
    }

    fn shut_down(&mut self) {
        self.shut_down = true;
    }

    fn add_after(&mut self, key: u64, delay: Duration) {
        let delay = u64::try_from(delay.as_nanos()).expect("a recorded delay");
        let added = self.add_with(key as u8, &How::new(), Some(delay), 0);
        assert_eq!(added.is_accepted(), !self.shut_down);
    }

    fn step(&mut self, by: Duration) {
        self.advance(by.as_nanos() as u64);
        self.turn();
    }

    fn add_rate_limited(&mut self, key: u64) {
        let added = self.add_with(key as u8, &How { rate_limited: true, ..How::new() }, None, 0);
        assert_eq!(added.is_accepted(), !self.shut_down);
    }

    fn forget(&mut self, key: u64) {
        self.limits.forget(&(key as u8));
    }

    fn num_requeues(&self, key: u64) -> usize {
        self.limits.num_requeues(&(key as u8))
    }
}

/// Replays all traces, each on a queue of its own, and checks the number of traces and of calls.
fn replay<Q: Replay>(traces: &str, count: (usize, usize), new: impl Fn(&Value) -> Q) {
    let mut calls = 0;
    for line in traces.lines() {
        let trace: Value = serde_json::from_str(line).expect("one JSON object per line");
        let mut queue = new(&trace["config"]);
        for (at, op) in trace["ops"].as_array().expect("a list of calls").iter().enumerate() {
            let [name, arguments @ .., result] = op.as_array().expect("a call is a list").as_slice() else {
                panic!("a call has a name and a result: {op:?}");
            };
            let name = name.as_str().expect("its name comes first");
            assert_eq!(&call(&mut queue, name, arguments), result, "{}, call {at}: {op:?}", trace["id"]);
            calls += 1;
        }
    }
    assert_eq!((traces.lines().count(), calls), count);
}

#[test]
fn the_crate_does_what_client_go_did() {
    replay(FIFO, FIFO_COUNT, Crate::new);
    replay(DELAYING, DELAYING_COUNT, Crate::new);
    replay(RATE_LIMITING, RATE_LIMITING_COUNT, Crate::new);
    replay(RATE_LIMITING_BUCKET, RATE_LIMITING_BUCKET_COUNT, Crate::new);
}

#[test]
fn the_reference_does_what_client_go_did() {
    replay(FIFO, FIFO_COUNT, plain);
    replay(DELAYING, DELAYING_COUNT, plain);
    replay(RATE_LIMITING, RATE_LIMITING_COUNT, plain);
}
