//! The stop signal of `backoff`, and the beginning of a queue's shut-down: nobody who waits for it can miss it.
#![cfg(loom)]

use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until};
use keyqueue::{Clock, WorkQueue};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Nosy, Tally, check, with};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

#[test]
fn stop_wakes_threads_and_tasks() {
    check(|| {
        let stop = Stop::new();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || stop.wait()
        });
        let task = thread::spawn({
            let stop = stop.clone();
            move || block_on(stop.stopped())
        });
        stop.stop();
        thread.join().unwrap();
        task.join().unwrap();
        assert!(stop.is_stopped());
    });
}

/// What happened before a stop is visible to who has learned of it, in each way in which one can.
#[test]
fn stop_publishes() {
    for way in 0..3 {
        check(move || {
            let shared = Arc::new((UnsafeCell::new(0), Stop::new()));
            let thread = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (value, stop) = &*shared;
                    match way {
                        0 => stop.wait(),
                        1 => block_on(stop.stopped()),
                        _ if !stop.is_stopped() => return,
                        _ => {}
                    }
                    // SAFETY: written before the stop.
                    assert_eq!(value.with(|value| unsafe { *value }), 7);
                }
            });
            // SAFETY: read after the stop.
            shared.0.with_mut(|value| unsafe { *value = 7 });
            shared.1.stop();
            thread.join().unwrap();
        });
    }
}

/// A future that is polled again with another waker, and dropped, while there is a stop.
#[test]
fn a_stop_races_poll_and_drop() {
    check(|| {
        let stop = Stop::new();
        let stopper = thread::spawn({
            let stop = stop.clone();
            move || stop.stop()
        });
        {
            let mut stopped = pin!(stop.stopped());
            for _ in 0..2 {
                // The list has the only other one, so the second poll drops that of the first, and the end that of the second.
                let waker = Waker::from(std::sync::Arc::new(Looks(stop.clone())));
                let _ready = stopped.as_mut().poll(&mut Context::from_waker(&waker));
            }
        }
        stopper.join().unwrap();
        block_on(stop.stopped());
    });
}

/// A waker that looks at its signal: it finds out who wakes, and who drops it, under the lock.
struct Looks(Stop);

impl Wake for Looks {
    fn wake(self: std::sync::Arc<Self>) {
        let _lock_is_free = self.0.is_stopped();
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        let _lock_is_free = self.0.is_stopped();
    }
}

/// A loop waits by a clock that is moved by hand: the move is not missed. It comes at any time after the delay has begun.
#[test]
fn advancing_the_clock_ends_the_delay() {
    check(|| {
        let (clock, time) = Clock::mock();
        let stop = Stop::new();
        let every = Backoff { duration: Duration::from_nanos(10), ..Backoff::default() };
        let manager = BackoffManager::new(every, Duration::from_secs(1)).clock(clock);
        let (mut calls, mut mover) = (0, None);
        let f = || {
            calls += 1;
            if calls == 1 {
                let time = time.clone();
                mover = Some(thread::spawn(move || time.advance(Duration::from_nanos(10))));
            } else {
                stop.stop();
            }
        };
        backoff_until(f, manager, Timing::NonSliding, &stop);
        assert_eq!(calls, 2);
        mover.expect("called").join().unwrap();
    });
}

/// Each way in which a shut-down begins.
const SHUT_DOWNS: [fn(&WorkQueue<u64>); 3] =
    [WorkQueue::shut_down, WorkQueue::shut_down_with_drain, |queue| block_on(queue.shut_down_with_drain_async())];

/// The shut-down is seen, or it wakes.
#[test]
fn shut_down_races_a_wait_for_it() {
    for shut_down in SHUT_DOWNS {
        check(move || {
            let queue = WorkQueue::new();
            let other = with(&queue, shut_down);
            block_on(queue.until_shutting_down());
            assert!(queue.shutting_down());
            other.join().unwrap();
        });
    }
}

/// Two that wait, and one shut-down.
#[test]
fn shut_down_wakes_every_wait_for_it() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        let other = with(&queue, |queue| block_on(queue.until_shutting_down()));
        let ender = with(&queue, WorkQueue::shut_down);
        block_on(queue.until_shutting_down());
        other.join().unwrap();
        ender.join().unwrap();
    });
}

/// What came before the shut-down is seen by who was told of it.
#[test]
fn shut_down_publishes_to_a_wait_for_it() {
    check(|| {
        let shared = Arc::new((UnsafeCell::new(0), WorkQueue::<u64>::new()));
        let other = with(&shared, |shared| {
            // SAFETY: read after the shut-down.
            shared.0.with_mut(|value| unsafe { *value = 7 });
            shared.1.shut_down();
        });
        block_on(shared.1.until_shutting_down());
        // SAFETY: written before the shut-down.
        assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        other.join().unwrap();
    });
}

/// A future that is polled again waits with the waker it was polled with last; one that was dropped waits no more.
#[test]
fn repolled_wait_for_the_shut_down_wakes_its_last_waker() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        let [(first, first_waker), (last, last_waker), (dropped, dropped_waker)] = [(); 3].map(|()| Tally::new());
        let mut wait = pin!(queue.until_shutting_down());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&first_waker)).is_pending());
        {
            let other = pin!(queue.until_shutting_down());
            assert!(other.poll(&mut Context::from_waker(&dropped_waker)).is_pending());
        }
        let ender = with(&queue, WorkQueue::shut_down);
        let poll = wait.as_mut().poll(&mut Context::from_waker(&last_waker));
        ender.join().unwrap();
        assert_eq!(dropped.count(), 0);
        if poll.is_pending() {
            assert_eq!((first.count(), last.count()), (0, 1), "the shut-down came after the second poll");
            assert!(wait.poll(&mut Context::from_waker(&last_waker)).is_ready());
        }
    });
}

/// A shut-down races the drop of a future that waits for it: the other one is woken.
#[test]
fn shut_down_races_the_drop_of_a_wait_for_it() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        let [(_, dropped_waker), (other, other_waker)] = [(); 2].map(|()| Tally::new());
        let mut waits = [(); 2].map(|()| Box::pin(queue.until_shutting_down()));
        for (wait, waker) in waits.iter_mut().zip([&dropped_waker, &other_waker]) {
            assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        let ender = with(&queue, WorkQueue::shut_down);
        let [dropped, _waits] = waits;
        drop(dropped);
        ender.join().unwrap();
        assert_eq!(other.count(), 1);
    });
}

/// W4 for these wakers: woken and dropped without the lock, by the shut-down, by a second poll, by a future that is dropped.
#[test]
fn waits_for_the_shut_down_wake_and_drop_without_the_lock() {
    check(|| {
        let queue = WorkQueue::<Nosy>::new();
        let mut waits = [(); 2].map(|()| Box::pin(queue.until_shutting_down()));
        let mut poll = |at: usize| {
            // The list has the only other one.
            let waker = Waker::from(std::sync::Arc::new(Nosy(0, queue.clone())));
            _ = waits[at].as_mut().poll(&mut Context::from_waker(&waker));
        };
        poll(0);
        poll(1);
        let ender = with(&queue, WorkQueue::shut_down);
        poll(0);
        drop(waits);
        ender.join().unwrap();
    });
}
