//! Members on tokio's paused clock: time passes when all tasks wait, so tests are fast, and the same in each run.
#![allow(dead_code, unreachable_pub)]

use keyqueue::WorkQueue;
use keyqueue_fleet::{Fleet, FleetBuilder, FleetError, LeaseClock, Store};
use std::time::Duration;
use tokio::time::Instant;

pub fn clock() -> LeaseClock {
    let start = Instant::now();
    LeaseClock::new(move || 1 + start.elapsed().as_nanos() as u64)
}

pub fn builder<S: Store + Clone>(store: &S, name: &str) -> FleetBuilder<S> {
    Fleet::builder(store.clone()).member(name).partitions(16).clock(clock())
}

pub async fn join<S: Store + Clone>(store: &S, name: &str) -> Result<Fleet<u64>, FleetError> {
    builder(store, name).build(WorkQueue::new()).await
}

/// Lets time pass until `holds`, for at most `limit`.
pub async fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
