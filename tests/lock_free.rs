//! The lock-free engine.
#![cfg(feature = "lock-free")]

use keyqueue::{Added, WorkQueue};
use std::time::Duration;

#[test]
fn smoke() {
    let queue = WorkQueue::builder().lock_free().build();
    assert_eq!(queue.add("a"), Added::Queued);
    assert_eq!(queue.add("a"), Added::Coalesced);
    assert_eq!(queue.len(), 1);
    let item = queue.get().unwrap();
    assert_eq!(*item, "a");
    assert_eq!(queue.processing_len(), 1);
    assert_eq!(queue.add("a"), Added::Deferred);
    assert!(item.is_dirty());
    item.done();
    let item = queue.get().unwrap();
    assert_eq!(item.retry(), Added::Delayed);
    assert_eq!(queue.delayed_len(), 1);
    let item = queue.get().unwrap();
    assert_eq!(item.num_requeues(), 1);
    item.succeed();
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(queue.add_after("b", Duration::from_millis(2)), Added::Delayed);
    assert_eq!(*queue.get().unwrap(), "b");
    queue.add("c");
    println!("{:?}", queue.stats());
    let waits = queue.clone();
    let thread = std::thread::spawn(move || waits.shut_down_with_drain());
    while let Some(item) = queue.get() {
        assert_eq!(*item, "c");
    }
    thread.join().unwrap();
    println!("{:?}", queue.stats());
}
