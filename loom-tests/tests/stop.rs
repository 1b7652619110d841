//! The stop signal of `backoff`: nobody who waits for it can miss it.
#![cfg(loom)]

use keyqueue::Clock;
use keyqueue::backoff::{Backoff, BackoffManager, Stop, Timing, backoff_until};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;
use loom_tests::check;
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
fn a_move_of_the_clock_ends_the_delay() {
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
