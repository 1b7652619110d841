//! Waits for what other threads do.

use std::thread;
use std::time::{Duration, Instant};

/// Returns when `condition` holds, and panics after 30 seconds.
#[track_caller]
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "the condition does not come true");
        thread::sleep(Duration::from_micros(50));
    }
}
