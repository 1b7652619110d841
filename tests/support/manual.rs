//! Queues whose clock and driver the test moves by hand.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use keyqueue::{Clock, DelayedKey, Driver, MockClock, WorkQueue, WorkQueueBuilder};
use std::hash::Hash;
use std::time::Duration;

/// The builder with a mock clock and a manual driver.
pub(crate) fn manual<K: Hash + Eq + Clone + Send + Sync + 'static>(
    builder: WorkQueueBuilder<K>,
) -> (WorkQueueBuilder<K>, MockClock) {
    let (clock, time) = Clock::mock();
    (builder.clock(clock).driver(Driver::Manual), time)
}

pub(crate) fn manual_queue<K: Hash + Eq + Clone + Send + Sync + 'static>() -> (WorkQueue<K>, MockClock) {
    let (builder, time) = manual(WorkQueue::builder());
    (builder.build(), time)
}

/// The keys, and the times that were left.
pub(crate) fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}
