//! The pace of all hand-outs, with a driver thread that is armed for the next token: P31, W2, W3.
//!
//! With the mock clock, a move of the time wakes the driver whatever it waits for, so the model decides when the token comes. With the real
//! clock, which goes on by a microsecond with each look, only a call that arms the driver wakes it from a longer park.

use keyqueue::{Clock, MockClock, WorkQueue};
use loom::thread::JoinHandle;
use loom_tests::{check, with};
use std::future::Future;
use std::task::{Context, Waker};
use std::time::Duration;

const TOKEN: Duration = Duration::from_millis(1);

/// A queue with these keys, whose only token is spent. The model must [end] it, because the driver does not end otherwise.
fn without_token(keys: &[u64]) -> (WorkQueue<u64>, MockClock) {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).pace(1000.0, 1).build();
    queue.add(0);
    queue.get().unwrap().done();
    keys.iter().for_each(|key| _ = queue.add(*key));
    (queue, time)
}

/// Ends the driver. It may still be armed for a token for which nobody waits, if it has seen a getter that was about to leave with its key.
fn end(queue: &WorkQueue<u64>, time: &MockClock) {
    queue.shut_down();
    time.advance(TOKEN);
}

fn getter(queue: &WorkQueue<u64>) -> JoinHandle<Option<u64>> {
    with(queue, |queue| queue.get().map(|item| *item))
}

/// A getter arms the driver and parks, and the token comes. Another getter may take it first, and then the next token is for the one that
/// waits (W2).
#[test]
fn the_token_of_a_parked_getter_is_taken_by_another() {
    check(|| {
        let (queue, time) = without_token(&[1, 2]);
        let parked = getter(&queue);
        time.advance(TOKEN);
        let mut taken = queue.try_get().map_or(0, |item| *item);
        if taken > 0 {
            time.advance(TOKEN);
        }
        taken += parked.join().unwrap().unwrap();
        assert!([1, 3].contains(&taken));
        end(&queue, &time);
    });
}

/// A task has armed the driver, and is dropped while the driver wakes it for the token. The getter behind it gets the key (W3).
#[test]
fn a_task_that_has_armed_the_driver_is_dropped() {
    check(|| {
        let (queue, time) = without_token(&[1]);
        let mut task = Box::pin(queue.get_async());
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let parked = getter(&queue);
        time.advance(TOKEN);
        drop(task);
        assert_eq!(parked.join().unwrap(), Some(1));
        end(&queue, &time);
    });
}

/// The queue is shut down while the driver is armed, or before. The getter gets the key when the token comes, and the driver ends after that
/// (P6).
#[test]
fn a_shut_down_meets_an_armed_driver() {
    check(|| {
        let (queue, time) = without_token(&[1]);
        let parked = with(&queue, |queue| {
            let key = queue.get().map(|item| *item);
            (key, queue.get().is_some())
        });
        queue.shut_down();
        time.advance(TOKEN);
        assert_eq!(parked.join().unwrap(), (Some(1), false));
        end(&queue, &time);
    });
}

/// The same, but the key is removed. The getter learns of the end without a token (P6).
#[test]
fn the_last_key_that_waits_for_a_token_is_removed() {
    check(|| {
        let (queue, time) = without_token(&[1]);
        queue.shut_down();
        let parked = getter(&queue);
        assert!(queue.remove(&1));
        assert_eq!(parked.join().unwrap(), None);
        end(&queue, &time);
    });
}

/// The driver is parked for a delay that expires much later, or is about to. The getter arms it for the token, which comes earlier (I8).
#[test]
fn a_token_rearms_the_driver() {
    check(|| {
        let queue = WorkQueue::builder().capacity(8).pace(200_000.0, 1).build();
        queue.add(0);
        queue.get().unwrap().done();
        queue.add(1);
        queue.add_after(2, Duration::from_secs(3600));
        assert_eq!(queue.get().as_deref(), Some(&1));
        queue.shut_down();
    });
}
