//! client-go's own test cases with threads and drains, written again for this queue.
//!
//! The cases are those of `util/workqueue/queue_test.go` in kubernetes/client-go (Apache-2.0); the code is not a translation. Where the
//! original sleeps to let another goroutine make progress, these tests wait for that progress. Its cases with one thread, of the queue, the
//! delaying queue and the limiters, are among the recordings of the real client-go (`traces.rs`, `limiter_traces.rs`).
//!
//! Checks P1 to P7. Two cases are those that the original gets wrong (kubernetes#141079). A plain
//! shut-down that releases a drain is in `wait_idle.rs`.

mod support {
    pub(crate) mod manual;
    pub(crate) mod until;
}

use keyqueue::{Added, WorkQueue};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use support::until::wait_until;

/// The two ends of a queue, each of which lets the getters take what is queued.
const ENDS: [fn(&WorkQueue<usize>); 2] = [WorkQueue::shut_down, WorkQueue::shut_down_with_drain];

/// Producers and consumers run at the same time: all keys are processed, and none has two holders.
#[test]
fn basic() {
    ENDS.into_iter().for_each(produce_and_consume);
}

fn produce_and_consume(shut_down: fn(&WorkQueue<usize>)) {
    const PRODUCERS: usize = 50;
    const CONSUMERS: usize = 10;
    const ADDS: usize = 50;
    let queue = WorkQueue::<usize>::new();
    let start = Barrier::new(PRODUCERS + CONSUMERS);
    let busy: Vec<AtomicBool> = (0..PRODUCERS).map(|_| AtomicBool::new(false)).collect();
    let worked = Mutex::new(HashMap::<usize, usize>::new());
    thread::scope(|s| {
        for _ in 0..CONSUMERS {
            s.spawn(|| {
                start.wait();
                while let Some(item) = queue.get() {
                    assert!(!busy[*item].swap(true, Ordering::Relaxed), "key {} has two holders", *item);
                    *worked.lock().unwrap().entry(*item).or_default() += 1;
                    thread::yield_now();
                    assert!(busy[*item].swap(false, Ordering::Relaxed));
                }
            });
        }
        let producer = |key| {
            start.wait();
            for _ in 0..ADDS {
                assert!(queue.add(key).is_accepted());
                thread::yield_now();
            }
        };
        let producers: Vec<_> = (0..PRODUCERS).map(|key| s.spawn(move || producer(key))).collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        shut_down(&queue);
        assert_eq!(queue.add(0), Added::Rejected);
    });
    assert!(queue.is_empty());
    let worked = worked.into_inner().unwrap();
    assert_eq!(worked.len(), PRODUCERS);
    assert!(worked.values().all(|&times| (1..=ADDS).contains(&times)));
}

/// client-go returns as soon as no key is processing, although keys are queued.
#[test]
fn drain_waits_for_processing_items_and_for_dirty_ones_to_be_processed_again() {
    let queue = WorkQueue::new();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    queue.add("foo");
    queue.add("bar");
    thread::scope(|s| {
        let drain = s.spawn(|| queue.shut_down_with_drain());
        wait_until(|| queue.stats().drainers == 1);
        first.done();
        assert_eq!(queue.stats().drainers, 1, "one is still processing");
        second.done();
        assert_eq!(queue.stats().drainers, 1, "both are queued again");
        let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
        assert_eq!((*first, *second), ("foo", "bar"));
        assert!(queue.get().is_none());
        first.done();
        assert_eq!(queue.stats().drainers, 1);
        second.done();
        drain.join().unwrap();
    });
}

#[test]
fn two_drainers_both_return() {
    // client-go wakes only one of them.
    for plain_shut_down in [false, true] {
        let queue = WorkQueue::new();
        queue.add(1);
        let item = queue.get().unwrap();
        thread::scope(|s| {
            let drainers = [s.spawn(|| queue.shut_down_with_drain()), s.spawn(|| queue.shut_down_with_drain())];
            wait_until(|| queue.stats().drainers == 2);
            if plain_shut_down {
                queue.shut_down();
            } else {
                item.done();
            }
            drainers.into_iter().for_each(|drainer| drainer.join().unwrap());
        });
        assert_eq!(queue.stats().drainers, 0);
    }
}
