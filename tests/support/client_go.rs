//! Recorded calls of client-go's queues and limiters: the crate that makes them again.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use crate::limits::{Doubles, Limits, Schedule, duration, off};
use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, WithMaxWait};
use keyqueue::{Clock, Driver, Item, MockClock, OwnedItem, TryGetError, WorkQueue};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The calls that occur in a trace.
pub(crate) trait Replay {
    fn add(&mut self, key: u64);
    /// `None`: shut down, and no key is queued.
    fn get(&mut self) -> Option<u64>;
    fn done(&mut self, key: u64);
    fn len(&self) -> usize;
    fn shutting_down(&self) -> bool;
    fn shut_down(&mut self);
    fn add_after(&mut self, key: u64, delay: Duration);
    /// Advances the clock, and queues the keys whose delays expire.
    fn step(&mut self, by: Duration);
    fn add_rate_limited(&mut self, key: u64);
    fn forget(&mut self, key: u64);
    fn num_requeues(&self, key: u64) -> usize;
}

/// The crate, with the items that are held, by key.
pub(crate) struct Crate {
    pub(crate) queue: WorkQueue<u64>,
    clock: MockClock,
    /// The time of the clock.
    now: Arc<AtomicI64>,
    held: HashMap<u64, OwnedItem<u64>>,
}

impl Crate {
    pub(crate) fn new(config: &Value) -> Self {
        let (clock, mock) = Clock::mock();
        let now = Arc::new(AtomicI64::new(0));
        let mut builder = WorkQueue::builder().clock(clock.clone()).driver(Driver::Manual);
        builder = builder.measure(config.get("exact").is_some()); // the metrics are recorded
        if let Some(limiter) = config.get("limiter") {
            builder = builder.rate_limiter(limiter_of(limiter, &clock, &now));
        }
        Self { queue: builder.build(), clock: mock, now, held: HashMap::new() }
    }
}

/// Calls the crate's bucket, compares, and returns what Go's bucket returned. Go's doubles are a nanosecond off in some
/// places, and these traces stop their clock a nanosecond before a deadline, and then at it.
struct Both {
    bucket: Bucket,
    doubles: Mutex<Doubles>,
    now: Arc<AtomicI64>,
}

impl RateLimiter<u64> for Both {
    fn when(&self, key: &u64) -> Duration {
        let (expected, granted) = self.doubles.lock().unwrap().reserve(self.now.load(Ordering::Relaxed));
        let off = off(self.bucket.when(key), expected);
        assert!(granted && off.is_some_and(|off| off <= 3), "{off:?} ns off");
        Duration::from_nanos(expected.unsigned_abs())
    }

    fn forget(&self, key: &u64) {
        self.bucket.forget(key);
    }

    fn num_requeues(&self, key: &u64) -> usize {
        self.bucket.num_requeues(key)
    }
}

fn nanos(value: &Value) -> u128 {
    value.as_u64().expect("durations in a setting are not negative").into()
}

fn list(config: &Value) -> &[Value] {
    config["limiters"].as_array().expect("a list")
}

pub(crate) fn limiter_of(config: &Value, clock: &Clock, now: &Arc<AtomicI64>) -> Box<dyn RateLimiter<u64>> {
    let delay = |field| duration(nanos(&config[field]));
    let count = |field| config[field].as_i64().expect("a number").try_into().unwrap_or(0);
    match config["kind"].as_str().expect("a limiter has a kind") {
        "exponential" => Box::new(ItemExponentialFailure::new(delay("base"), delay("max"))),
        "fast_slow" => Box::new(ItemFastSlow::new(delay("fast"), delay("slow"), count("max_fast_attempts"))),
        "max_of" => Box::new(MaxOf::new(list(config).iter().map(|inner| limiter_of(inner, clock, now)).collect())),
        "max_wait" => Box::new(WithMaxWait::new(limiter_of(&config["limiter"], clock, now), delay("max"))),
        "bucket" => {
            let (rate, burst) = (config["limit"].as_f64().expect("a number"), count("burst") as u32);
            Box::new(Both {
                bucket: Bucket::with_clock(rate, burst, clock.clone()),
                doubles: Mutex::new(Doubles::new(rate, burst)),
                now: Arc::clone(now),
            })
        }
        other => panic!("no such limiter in these traces: {other}"),
    }
}

pub(crate) fn limits_of<K: Ord + Clone>(config: &Value) -> Limits<K> {
    let delay = |field| nanos(&config[field]);
    match config["kind"].as_str().expect("a limiter has a kind") {
        "exponential" => Limits::new(Schedule::Exponential { base: delay("base"), max: delay("max") }),
        "fast_slow" => {
            let max_fast_attempts = config["max_fast_attempts"].as_i64().expect("a number").try_into().unwrap_or(0);
            Limits::new(Schedule::FastSlow { fast: delay("fast"), slow: delay("slow"), max_fast_attempts })
        }
        "max_of" => Limits::MaxOf(list(config).iter().map(limits_of).collect()),
        "max_wait" => Limits::MaxWait(Box::new(limits_of(&config["limiter"])), delay("max")),
        other => panic!("no such limiter in these traces: {other}"),
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
        self.now.fetch_add(by.as_nanos() as i64, Ordering::Relaxed);
        let delayed = self.queue.delayed_len();
        let due = self.queue.turn();
        assert_eq!(self.queue.delayed_len() + due, delayed);
    }

    fn add_rate_limited(&mut self, key: u64) {
        assert_eq!(self.queue.add_rate_limited(key).is_accepted(), !self.queue.shutting_down());
    }

    fn forget(&mut self, key: u64) {
        self.queue.forget(&key);
    }

    fn num_requeues(&self, key: u64) -> usize {
        let requeues = self.queue.num_requeues(&key);
        assert_eq!(self.held.get(&key).map_or(requeues, OwnedItem::num_requeues), requeues);
        requeues
    }
}

/// Runs one call and returns its result in the form in which the trace has it.
pub(crate) fn call(queue: &mut impl Replay, name: &str, arguments: &[Value]) -> Value {
    let key = || arguments[0].as_u64().expect("keys are numbers");
    // A negative delay means no delay: a `Duration` cannot be negative.
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
        "add_rate_limited" => queue.add_rate_limited(key()),
        "forget" => queue.forget(key()),
        "num_requeues" => return queue.num_requeues(key()).into(),
        other => panic!("no such call in these traces: {other}"),
    }
    queue.len().into()
}
