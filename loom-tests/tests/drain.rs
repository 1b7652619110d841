//! Drains (P7), and waits until the queue is idle: nothing queued, processing or delayed.

use keyqueue::{DrainTimeoutError, WorkQueue};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{check, manual, ns, with};
use std::hash::Hash;
use std::time::Duration;

/// Counts finished keys with relaxed accesses: a thread that drains must see the count because of the drain.
fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// A thread that takes one key, counts it as finished, and calls `done`.
fn work_off_one(queue: &WorkQueue<u64>, finished: &Arc<AtomicUsize>) -> thread::JoinHandle<()> {
    let (queue, finished) = (queue.clone(), Arc::clone(finished));
    thread::spawn(move || {
        let item = queue.get().unwrap();
        finished.fetch_add(1, Relaxed);
        item.done();
    })
}

/// Ways to wait until a queue is idle.
const IDLE: [fn(&WorkQueue<u64>); 2] = [WorkQueue::wait_idle, |queue| block_on(queue.wait_idle_async())];
/// Ways to drain one.
const DRAIN: [fn(&WorkQueue<u64>); 2] =
    [WorkQueue::shut_down_with_drain, |queue| block_on(queue.shut_down_with_drain_async())];

/// A queue without a driver, with a delayed key whose deadline is now: the next `turn` queues it.
fn with_delayed<K: Hash + Eq + Clone + Send + Sync + 'static>(key: K) -> WorkQueue<K> {
    let (queue, time) = manual();
    let queue = queue.build();
    queue.add_after(key, ns(10));
    time.advance(ns(10));
    queue
}

/// A plain shut-down that comes after the start of a drain ends the drain, even if keys are processing.
#[test]
fn plain_shutdown_releases_drain() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let drainer = with(&queue, |queue| queue.shut_down_with_drain());
        // The drain has shut the queue down, so the plain shut-down comes later.
        while !queue.shutting_down() {
            thread::yield_now();
        }
        queue.shut_down();
        drainer.join().unwrap();
        item.done();
    });
}

/// A drain whose timeout expires reports what is left at one moment: the only key is queued or processing, never both or neither.
#[test]
fn timed_out_drain_counts_once() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add(1_u64);
        let worker = work_off_one(&queue, &finished);
        match queue.shut_down_with_drain_timeout(Duration::ZERO) {
            Ok(()) => assert_eq!(finished.load(Relaxed), 1),
            Err(DrainTimeoutError { queued, processing, .. }) => {
                assert_eq!(queued + processing, 1, "{queued}, {processing}")
            }
        }
        worker.join().unwrap();
        assert_eq!(queue.stats().drainers, 0);
    });
}

/// One `done` ends a drain by a task and a drain by a thread.
#[test]
fn drain_and_async_drain_both_return() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let drainers = DRAIN.map(|drain| with(&queue, drain));
        item.done();
        _ = drainers.map(|drainer| drainer.join().unwrap());
    });
}

/// A wait until idle races the `done` of the only key: it sees that the queue is idle, or `done` wakes it.
#[test]
fn idle_wait_races_the_last_done() {
    for idle in IDLE {
        check(move || {
            let queue = WorkQueue::new();
            let finished = counter();
            queue.add(1_u64);
            let worker = work_off_one(&queue, &finished);
            idle(&queue);
            assert_eq!(finished.load(Relaxed), 1);
            assert!(!queue.shutting_down());
            worker.join().unwrap();
        });
    }
}

/// A wait until idle races `end`, which ends the last delay.
fn idle_wait_races_the_end_of_the_delay(end: fn(&WorkQueue<u64>)) {
    for idle in IDLE {
        check(move || {
            let queue = with_delayed(1);
            let other = with(&queue, end);
            idle(&queue);
            other.join().unwrap();
            assert_eq!(queue.stats().drainers, 0);
        });
    }
}

/// A shut-down, plain or of a drain, ends all delays, so a wait until idle no longer waits for them.
#[test]
fn idle_wait_races_shutdown() {
    idle_wait_races_the_end_of_the_delay(WorkQueue::shut_down);
    idle_wait_races_the_end_of_the_delay(WorkQueue::shut_down_with_drain);
}

/// `done` of the last key wakes the waiting thread while another key is delayed: it parks again, and `cancel` wakes it.
#[test]
fn idle_wait_woken_in_vain_parks_again() {
    for idle in IDLE {
        check(move || {
            let queue = with_delayed(2);
            queue.add(1);
            let item = queue.get().unwrap();
            let waits = with(&queue, idle);
            item.done();
            assert!(queue.cancel(&2));
            waits.join().unwrap();
        });
    }
}
