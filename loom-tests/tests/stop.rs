//! The stop signal of `backoff`, and `until_shutting_down`: no thread or task that waits for either misses it.

use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until};
use keyqueue::{Clock, WorkQueue};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{check, with};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// A thread and a task that wait for a stop, or are about to, return because of it.
#[test]
fn stop_wakes_threads_and_tasks() {
    check(|| {
        let stop = Stop::new();
        let thread = with(&stop, |stop| stop.wait());
        let task = with(&stop, |stop| block_on(stop.wait_async()));
        stop.stop();
        thread.join().unwrap();
        task.join().unwrap();
        assert!(stop.is_stopped());
    });
}

/// Writes before a stop are visible to a thread that has seen it: by `wait`, `wait_async` or `is_stopped`.
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
                        1 => block_on(stop.wait_async()),
                        _ if !stop.is_stopped() => return,
                        _ => {}
                    }
                    // SAFETY: the write comes before the stop.
                    assert_eq!(value.with(|value| unsafe { *value }), 7);
                }
            });
            // SAFETY: the read comes after the stop.
            shared.0.with_mut(|value| unsafe { *value = 7 });
            shared.1.stop();
            thread.join().unwrap();
        });
    }
}

/// A future is polled again with another waker, and dropped, while another thread stops: no waker is woken or dropped under the
/// lock.
#[test]
fn a_stop_races_poll_and_drop() {
    check(|| {
        let stop = Stop::new();
        let stopper = with(&stop, |stop| stop.stop());
        {
            let mut stopped = pin!(stop.wait_async());
            for _ in 0..2 {
                // The list has the only other clone. So the second poll drops the first waker, and the drop of the future the
                // second.
                let waker = Waker::from(std::sync::Arc::new(Looks(stop.clone())));
                let _ready = stopped.as_mut().poll(&mut Context::from_waker(&waker));
            }
        }
        stopper.join().unwrap();
        block_on(stop.wait_async());
    });
}

/// A waker that takes its signal's lock. If the thread that wakes or drops it holds the lock, the model deadlocks.
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

/// A loop waits by a mock clock, and the clock advances at any time after the start of the delay: the loop does not miss it.
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
        mover.expect("the loop has called `f`").join().unwrap();
    });
}

/// The ways in which a shut-down begins.
const SHUT_DOWNS: [fn(&WorkQueue<u64>); 3] =
    [WorkQueue::shut_down, WorkQueue::shut_down_with_drain, |queue| block_on(queue.shut_down_with_drain_async())];

/// A wait for the shut-down races it: it sees the shut-down, or the shut-down wakes it.
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

/// Writes before the shut-down are visible after a wait for it.
#[test]
fn shut_down_publishes_to_a_wait_for_it() {
    check(|| {
        let shared = Arc::new((UnsafeCell::new(0), WorkQueue::<u64>::new()));
        let other = with(&shared, |shared| {
            // SAFETY: the read comes after the shut-down.
            shared.0.with_mut(|value| unsafe { *value = 7 });
            shared.1.shut_down();
        });
        block_on(shared.1.until_shutting_down());
        // SAFETY: the write comes before the shut-down.
        assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        other.join().unwrap();
    });
}
