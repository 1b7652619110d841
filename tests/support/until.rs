//! Waits for what other threads do. (Under miri the clock goes on with the steps of the program: there the limit is longer.)

use std::thread;
use std::time::{Duration, Instant};

/// Returns when `condition` holds, and panics after 30 seconds.
#[track_caller]
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        let limit = Duration::from_secs(if cfg!(miri) { 3000 } else { 30 });
        assert!(start.elapsed() < limit, "the condition does not come true");
        thread::sleep(Duration::from_micros(50));
    }
}
