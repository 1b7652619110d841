//! The workloads with limiters. Each function runs one of them once, checks the result, and returns how long each of the timed parts
//! took.

use super::{Limit, PLENTY, Tokens};
use crate::delays::Manual;
use common::limiter::orders;
use common::threads::span;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Takes tokens; for keys, if there are some, each thread in an order of its own.
pub fn tokens<T: Tokens>(keys: u64, limit: Limit, threads: u64, calls: u64) -> Vec<Duration> {
    let orders = orders::<u64>(keys, threads);
    let made = Instant::now();
    let tokens = T::make(limit);
    let calls = calls / threads;
    let admitted = AtomicU64::new(0);
    let (start, end) = span(threads, |thread| {
        let mine = match &orders[thread as usize][..] {
            [] => (0..calls).filter(|_| tokens.take(&0)).count(),
            order => order.iter().cycle().take(calls as usize).filter(|key| tokens.take(key)).count(),
        };
        admitted.fetch_add(mine as u64, Ordering::Relaxed);
    });
    check_admitted(limit, admitted.into_inner(), calls * threads, keys.max(1), made);
    vec![end - start]
}

/// Checks how many calls were admitted since the buckets were made. There is one bucket for all keys, or one for each.
fn check_admitted(limit: Limit, admitted: u64, calls: u64, keys: u64, made: Instant) {
    if limit == PLENTY {
        // A thread that is descheduled after it has read the clock is behind threads that have read a later time.
        assert!(admitted >= calls - calls / 100, "{admitted} were admitted of {calls}");
        return;
    }
    let most = keys * (u64::from(limit.burst) + (made.elapsed().as_secs_f64() * f64::from(limit.rate)) as u64 + 1);
    assert!((u64::from(limit.burst)..=most).contains(&admitted), "{admitted} were admitted of {calls}");
}

/// The number of failures of a key before it succeeds.
const FAILURES: u8 = 3;

/// Keys are added, fail three times, and succeed. Either the clock advances by a microsecond per key, and the delays expire one by one,
/// or it stands still until no key is queued, and then all delays expire at one moment.
pub fn retry<Q: Manual>(keys: u64, waves: bool) -> Vec<Duration> {
    // This number of keys is processed before the clock moves.
    const STEP: u64 = 64;
    let step = if waves { keys } else { STEP };
    let mut queue = Q::make();
    let mut failures = vec![0_u8; keys as usize];
    let mut succeeded = 0;
    let mut work = |key: &u64| {
        let failures = &mut failures[*key as usize];
        *failures += 1;
        succeeded += u64::from(*failures > FAILURES);
        *failures > FAILURES
    };
    let start = Instant::now();
    for key in 0..keys {
        queue.add(key);
    }
    let (mut line, mut idle) = (keys, 0);
    // Runs until the queue has been empty for longer than the longest delay.
    while idle < 100 {
        let now = line.min(step);
        for _ in 0..now {
            queue.process_or_retry(&mut work);
        }
        let by = if now == STEP { Duration::from_micros(STEP) } else { Duration::from_millis(1) };
        let due = queue.advance(by) as u64;
        line = line - now + due;
        idle = if line == 0 { idle + 1 } else { 0 };
    }
    let time = start.elapsed();
    assert_eq!(succeeded, keys);
    assert!(failures.into_iter().all(|times| times == FAILURES + 1), "a key was lost or came too often");
    vec![time]
}
