//! client-go's own tests of its queue, written anew for this one.
//!
//! The cases are those of `util/workqueue/queue_test.go` in kubernetes/client-go (Apache-2.0); the code is not a translation.
//! Where the original sleeps to let the other side get somewhere, these wait until it has got there.
//!
//! Checks P1 to P7, and P15 for keys that are done. Two cases that the original gets wrong are at the end
//! (kubernetes#141079).

use keyqueue::{Added, WorkQueue};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

/// Returns when `condition` holds. A condition that never does is a hang, which the test's runner reports.
fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Producers add and consumers work at the same time, all keys are worked on, and never one by two.
fn basic(shut_down: impl Fn(&WorkQueue<usize>)) {
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

#[test]
fn basic_with_shut_down() {
    basic(WorkQueue::shut_down);
}

#[test]
fn basic_with_drain() {
    basic(WorkQueue::shut_down_with_drain);
}

/// Every consumer adds the key that it holds: it comes back, and only after `done`.
fn add_while_processing(shut_down: impl Fn(&WorkQueue<usize>)) {
    const KEYS: usize = 50;
    let queue = WorkQueue::<usize>::new();
    let worked = Mutex::new(HashMap::<usize, usize>::new());
    thread::scope(|s| {
        for _ in 0..10 {
            s.spawn(|| {
                while let Some(item) = queue.get() {
                    let first_time = {
                        let mut worked = worked.lock().unwrap();
                        let times = worked.entry(*item).or_default();
                        *times += 1;
                        *times == 1
                    };
                    if first_time {
                        assert_eq!(queue.add(*item), Added::Deferred);
                    }
                }
            });
        }
        let producers: Vec<_> = (0..KEYS)
            .map(|key| {
                s.spawn({
                    let queue = &queue;
                    move || queue.add(key)
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| assert_eq!(producer.join().unwrap(), Added::Queued));
        // Only keys that were added before the shut-down come back after it.
        wait_until(|| worked.lock().unwrap().len() == KEYS && queue.stats().deferred == KEYS as u64);
        shut_down(&queue);
    });
    assert!(queue.is_empty());
    assert_eq!(*worked.lock().unwrap(), (0..KEYS).map(|key| (key, 2)).collect());
}

#[test]
fn add_while_processing_with_shut_down() {
    add_while_processing(WorkQueue::shut_down);
}

#[test]
fn add_while_processing_with_drain() {
    add_while_processing(WorkQueue::shut_down_with_drain);
}

#[test]
fn len_counts_what_is_in_line() {
    let queue = WorkQueue::new();
    queue.add("foo");
    assert_eq!(queue.len(), 1);
    queue.add("bar");
    assert_eq!(queue.len(), 2);
    queue.add("foo");
    assert_eq!(queue.len(), 2, "it should not have been added again");
}

#[test]
fn reinsert_while_in_work() {
    let queue = WorkQueue::new();
    queue.add("foo");
    let first = queue.get().unwrap();
    queue.add(*first);
    assert_eq!(queue.len(), 0, "not before it is done");
    first.done();
    let second = queue.get().unwrap();
    assert_eq!(*second, "foo");
    second.done();
    assert_eq!(queue.len(), 0);
}

#[test]
fn adds_collapse() {
    let queue = WorkQueue::new();
    assert_eq!(queue.add("bar"), Added::Queued);
    assert_eq!(queue.add("bar"), Added::Coalesced);
    assert_eq!(queue.len(), 1);
    let item = queue.get().unwrap();
    assert_eq!(*item, "bar");
    item.done();
    assert_eq!(queue.len(), 0);
}

#[test]
fn adds_collapse_while_in_work() {
    let queue = WorkQueue::new();
    queue.add("bar");
    let item = queue.get().unwrap();
    assert_eq!(queue.add("bar"), Added::Deferred);
    assert_eq!(queue.add("bar"), Added::Coalesced);
    assert_eq!(queue.len(), 0);
    thread::scope(|s| {
        let other = s.spawn(|| *queue.get().unwrap());
        item.done();
        assert_eq!(other.join().unwrap(), "bar");
    });
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

#[test]
fn drain_waits_for_the_items_in_work() {
    let queue = WorkQueue::new();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    let drained = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            queue.shut_down_with_drain();
            drained.store(true, Ordering::Release);
        });
        wait_until(|| queue.stats().drainers == 1);
        first.done();
        assert!(!drained.load(Ordering::Acquire), "one is still in work");
        second.done();
    });
    assert!(drained.into_inner());
}

#[test]
fn a_drain_without_work_returns_at_once() {
    WorkQueue::<u8>::new().shut_down_with_drain();
}

#[test]
fn drain_waits_for_the_dirty_items_to_come_back() {
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
        second.done();
        assert!(!drain.is_finished(), "both are in line again");
        let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
        assert_eq!((*first, *second), ("foo", "bar"));
        assert!(queue.get().is_none());
        first.done();
        assert!(!drain.is_finished());
        second.done();
        drain.join().unwrap();
    });
}

#[test]
fn a_plain_shut_down_releases_a_drain() {
    let queue = WorkQueue::new();
    queue.add("foo");
    queue.add("bar");
    let _never_done = (queue.get().unwrap(), queue.get().unwrap());
    thread::scope(|s| {
        let drain = s.spawn(|| queue.shut_down_with_drain());
        wait_until(|| queue.stats().drainers == 1);
        queue.shut_down();
        drain.join().unwrap();
    });
    assert_eq!(queue.processing_len(), 2);
}

#[test]
fn shutting_down_twice_is_as_once() {
    let queue = WorkQueue::new();
    queue.add(1);
    queue.shut_down();
    queue.shut_down();
    assert!(queue.shutting_down());
    assert_eq!(*queue.get().unwrap(), 1);
    queue.shut_down_with_drain();
    assert!(queue.get().is_none());
}

/// Equal by number, and says by its `Arc` whether the queue still has it.
#[derive(Clone)]
struct Traced {
    number: u32,
    _trace: Arc<()>,
}

impl Traced {
    fn new(number: u32, trace: &Arc<()>) -> Self {
        Self { number, _trace: Arc::clone(trace) }
    }
}

impl PartialEq for Traced {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Traced {}

impl std::hash::Hash for Traced {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

#[test]
fn a_key_that_is_done_is_not_kept() {
    let (queue, trace) = (WorkQueue::new(), Arc::new(()));
    queue.add(Traced::new(1, &trace));
    let item = queue.get().unwrap();
    assert_eq!(Arc::strong_count(&trace), 2);
    item.done();
    assert_eq!(Arc::strong_count(&trace), 1, "done, and still somewhere in the queue");
}

#[test]
fn a_key_that_the_queue_has_already_is_not_kept_twice() {
    let (queue, trace) = (WorkQueue::new(), Arc::new(()));
    for _ in 0..3 {
        queue.add(Traced::new(1, &trace));
    }
    assert_eq!(Arc::strong_count(&trace), 2);
    let item = queue.get().unwrap();
    for _ in 0..3 {
        queue.add(Traced::new(1, &trace));
    }
    assert_eq!(Arc::strong_count(&trace), 2);
    item.done();
    queue.get().unwrap().done();
    queue.shut_down();
    queue.add(Traced::new(2, &trace));
    assert_eq!(Arc::strong_count(&trace), 1, "nor one that was refused");
}

#[test]
fn a_queue_that_is_used_for_long_keeps_no_key() {
    let (queue, trace) = (WorkQueue::new(), Arc::new(()));
    for round in 0..200 {
        for key in 0..50 {
            // Some keys return, most are new.
            queue.add(Traced::new(if key < 10 { key } else { round * 50 + key }, &trace));
        }
        let items = queue.get_many(50);
        assert_eq!((items.len(), Arc::strong_count(&trace)), (50, 51));
        drop(items);
        assert_eq!(Arc::strong_count(&trace), 1, "round {round}");
    }
}

#[test]
fn drain_waits_for_line_and_work() {
    // client-go returns as soon as nothing is in work, although keys are in line.
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let drained = AtomicBool::new(false);
    let (step, next) = mpsc::channel();
    thread::scope(|s| {
        s.spawn(|| {
            queue.shut_down_with_drain();
            drained.store(true, Ordering::Release);
        });
        s.spawn(|| {
            for () in next {
                queue.get().expect("in line before the shut-down").done();
            }
        });
        wait_until(|| queue.stats().drainers == 1);
        for left in (0..3).rev() {
            assert!(!drained.load(Ordering::Acquire), "{} keys are in line", left + 1);
            step.send(()).unwrap();
            wait_until(|| queue.len() == left && queue.processing_len() == 0);
        }
        drop(step);
    });
    assert!(drained.into_inner());
    assert!(queue.get().is_none());
}

#[test]
fn two_drainers_both_return() {
    // client-go wakes one of them.
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
