//! The memory of a lock-free queue: a process of its own, whose size the test reads.
#![cfg(feature = "lock-free")]

use keyqueue::{Added, WorkQueue};

/// Keys are added and removed, and no getter comes. A live key stands before them, and keeps its place.
#[test]
fn dead_entries_are_bounded() {
    let queue = WorkQueue::builder().lock_free().build();
    let before = rss();
    queue.add(0);
    let rounds = if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000 };
    for n in 0..rounds {
        assert_eq!(queue.add(1 + n % 7), Added::Queued);
        assert!(queue.remove(&(1 + n % 7)));
    }
    queue.add(8);
    assert_eq!((queue.len(), queue.stats().taken), (2, rounds));
    let grown = rss().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes");
    assert_eq!([*queue.get().unwrap(), *queue.get().unwrap()], [0, 8]);
    assert!(queue.is_empty() && queue.try_get().is_err());
}

/// The bytes that the process uses, or 0 if the system does not say.
fn rss() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).map_or(0, |pages| pages.parse::<u64>().expect("a number") * 4096)
}
