//! Drains (P7), and waits until the queue is idle: nothing queued, processing or delayed.
#![cfg(loom)]

use keyqueue::{DrainTimeoutError, WaitIdle, WorkQueue};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{Nosy, check, manual, ns, with};
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
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

fn poll<F: Future<Output = ()>>(future: &mut Pin<&mut F>, waker: &Waker) -> Poll<()> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// With one key processing and one queued, the drain returns after both are done.
#[test]
fn drain_waits_until_no_key_is_queued_or_processing() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add_all([1_u64, 2]);
        let worker = thread::spawn({
            let (queue, finished, first) = (queue.clone(), Arc::clone(&finished), queue.get().unwrap().into_owned());
            move || {
                finished.fetch_add(1, Relaxed);
                first.done();
                let second = queue.get().unwrap();
                finished.fetch_add(1, Relaxed);
                second.done();
            }
        });
        queue.shut_down_with_drain();
        assert_eq!(finished.load(Relaxed), 2);
        worker.join().unwrap();
    });
}

/// An add that races a drain is rejected, or the drain waits for its key.
#[test]
fn drain_covers_a_racing_add() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        let worker = thread::spawn({
            let (queue, finished) = (queue.clone(), Arc::clone(&finished));
            move || {
                let added = queue.add(1_u64);
                while let Some(item) = queue.get() {
                    finished.fetch_add(1, Relaxed);
                    item.done();
                }
                usize::from(added.is_accepted())
            }
        });
        queue.shut_down_with_drain();
        let finished = finished.load(Relaxed);
        assert_eq!(finished, worker.join().unwrap());
    });
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

/// A wait until idle waits for a delay to expire, and then for the key to be done.
#[test]
fn idle_wait_covers_delays() {
    for idle in IDLE {
        check(move || {
            let queue = with_delayed(1);
            let finished = counter();
            let worker = thread::spawn({
                let (queue, finished) = (queue.clone(), Arc::clone(&finished));
                move || {
                    assert_eq!(queue.turn(), 1);
                    let item = queue.get().unwrap();
                    finished.fetch_add(1, Relaxed);
                    item.done();
                }
            });
            idle(&queue);
            assert_eq!(finished.load(Relaxed), 1);
            worker.join().unwrap();
        });
    }
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

/// A plain shut-down ends drains, and does not end a wait until idle while a key is processing.
#[test]
fn shutdown_does_not_end_an_idle_wait() {
    for idle in IDLE {
        check(move || {
            let queue = WorkQueue::new();
            let finished = counter();
            queue.add(1_u64);
            let worker = thread::spawn({
                let (queue, finished) = (queue.clone(), Arc::clone(&finished));
                move || {
                    let item = queue.get().unwrap();
                    queue.shut_down();
                    finished.fetch_add(1, Relaxed);
                    item.done();
                }
            });
            idle(&queue);
            assert_eq!(finished.load(Relaxed), 1);
            worker.join().unwrap();
        });
    }
}

/// No waker of a drain or of a wait until idle is woken or dropped under the lock: not by `done`, `cancel`, `take_delayed`, a shut-down, a
/// second poll, or the drop of a future (W4).
#[test]
fn drains_wake_and_drop_without_the_lock() {
    let ends: [fn(&WorkQueue<Nosy>); 4] = [
        |queue| queue.get().unwrap().done(),
        |queue| assert!(queue.cancel(&Nosy(1, queue.clone()))),
        |queue| assert_eq!(queue.take_delayed().len(), 1),
        WorkQueue::shut_down,
    ];
    for (way, end) in ends.into_iter().enumerate() {
        check(move || {
            let queue = manual().0.build();
            let key = |key| Nosy(key, queue.clone());
            match way {
                0 => queue.add(key(1)),
                _ => queue.add_after(key(1), ns(10)),
            };
            let other = {
                let [mut first, mut second] = [(); 2].map(|()| Box::pin(queue.wait_idle_async()));
                let poll = |future: &mut Pin<Box<WaitIdle<'_, Nosy>>>| {
                    let waker = Waker::from(std::sync::Arc::new(key(0)));
                    // The wait list now has the only other clone of the waker.
                    _ = self::poll(&mut future.as_mut(), &waker);
                };
                poll(&mut first);
                poll(&mut second);
                let other = with(&queue, end);
                poll(&mut first);
                other
            };
            other.join().unwrap();
            _ = queue.take_delayed();
        });
    }
}
