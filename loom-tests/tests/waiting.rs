//! Getters that wait, as threads and as tasks, and which of them an add wakes: I6, W1 to W4.

use futures_core::Stream;
use keyqueue::{Clock, Driver, GetTimeoutError, WorkQueue};
use loom::future::block_on;
use loom::thread;
use loom_tests::{Tally, check, with};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn getter(queue: &WorkQueue<u64>) -> thread::JoinHandle<u64> {
    let queue = queue.clone();
    thread::spawn(move || *queue.get().unwrap())
}

/// With n getters and n adds each getter gets a key, whether it is parked or not (W1, W2). The second add wakes no getter while the first
/// woken one has not arrived.
#[test]
fn n_adds_wake_n_getters() {
    check(|| {
        let queue = WorkQueue::new();
        let getters = [getter(&queue), getter(&queue)];
        queue.add(1);
        queue.add(2);
        let mut keys = getters.map(|getter| getter.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

/// A thread that was woken may be overdue at any time (W2). The next add then wakes another getter, and no getter waits without end.
#[test]
fn an_overdue_getter_is_passed_over() {
    check(|| {
        keyqueue::let_time_pass(true);
        let queue = WorkQueue::new();
        let getters = [getter(&queue), getter(&queue)];
        queue.add(1);
        queue.add(2);
        let mut keys = getters.map(|getter| getter.join().unwrap());
        keyqueue::let_time_pass(false);
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

/// A burst wakes one getter, and that one wakes the next (W2).
#[test]
fn a_burst_wakes_every_getter_needed() {
    check(|| {
        let queue = WorkQueue::new();
        let getters = [getter(&queue), getter(&queue)];
        assert_eq!(queue.add_all([1, 2]), 2);
        let mut keys = getters.map(|getter| getter.join().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

/// Another thread takes the key for which a parked getter was woken (W2). The getter parks again, and the next add wakes it.
#[test]
fn overtaken_getter_is_woken_again() {
    check(|| {
        let queue = WorkQueue::new();
        let parked = getter(&queue);
        queue.add(1);
        let overtook = queue.try_get().is_ok();
        queue.add(2);
        let got = parked.join().unwrap();
        assert_eq!(got, if overtook { 2 } else { 1 });
    });
}

/// A future that is first in the wait list is dropped while an add wakes it; the wake-up goes on to the next getter (W3).
#[test]
fn cancelled_getter_forwards_wakeup() {
    check(|| {
        let queue = WorkQueue::new();
        let mut future = Box::pin(queue.get_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let parked = getter(&queue);
        let adder = with(&queue, |queue| queue.add(1));
        drop(future);
        assert_eq!(parked.join().unwrap(), 1);
        adder.join().unwrap();
    });
}

/// The same when the token of a pace wakes it: the other getter, which waits for the token as well, gets the key (W3).
#[test]
fn a_token_goes_on_to_the_next_getter() {
    check(|| {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).pace(1000.0, 1).build();
        queue.add(0);
        queue.add(1);
        drop(queue.try_get().unwrap());
        let mut future = Box::pin(queue.get_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let parked = getter(&queue);
        let turns = with(&queue, move |queue| {
            time.advance(Duration::from_millis(1));
            queue.turn();
        });
        drop(future);
        assert_eq!(parked.join().unwrap(), 1);
        turns.join().unwrap();
    });
}

/// A stream, which goes on the list again after each item, is dropped while an add wakes it (W3).
#[test]
fn a_dropped_stream_forwards_its_wake_up() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1);
        let mut stream = queue.stream();
        let mut poll = || Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll(), Poll::Ready(Some(item)) if *item == 1));
        assert!(poll().is_pending());
        let parked = getter(&queue);
        let adder = with(&queue, |queue| queue.add(2));
        drop(stream);
        assert_eq!(parked.join().unwrap(), 2);
        adder.join().unwrap();
    });
}

/// A stream takes two keys, waits between them or not, and ends beside a drain and a `remove` of the first key (P2, P6, P7).
#[test]
fn a_stream_ends_beside_a_drain_and_a_remove() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1);
        let streaming = with(&queue, |queue| {
            let mut stream = queue.stream();
            let mut keys = Vec::new();
            while let Some(item) = block_on(poll_fn(|cx| Pin::new(&mut stream).poll_next(cx))) {
                keys.push(*item);
            }
            keys
        });
        queue.add(2);
        let remover = with(&queue, |queue| queue.remove(&1));
        queue.shut_down_with_drain();
        let expected: &[_] = if remover.join().unwrap() { &[2] } else { &[1, 2] };
        assert_eq!(streaming.join().unwrap(), expected);
    });
}

/// A getter whose timeout has expired races a burst (W3). It returns with a key or without, and the other getter gets one.
#[test]
fn timed_out_getter_forwards_wakeup() {
    check(|| {
        let queue = WorkQueue::new();
        let parked = getter(&queue);
        let adder = with(&queue, |queue| queue.add_all([1, 2]));
        match queue.get_timeout(Duration::ZERO) {
            Ok(item) => item.done(),
            Err(error) => assert_eq!(error, GetTimeoutError::Timeout),
        }
        assert!([1, 2].contains(&parked.join().unwrap()));
        adder.join().unwrap();
    });
}

/// A future that is polled again is woken through the waker of its last poll.
#[test]
fn repolled_future_wakes_its_last_waker() {
    check(|| {
        let queue = WorkQueue::new();
        let mut future = pin!(queue.get_async());
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let adder = with(&queue, |queue| queue.add(1));
        let (tally, waker) = Tally::new();
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        adder.join().unwrap();
        if poll.is_pending() {
            assert_eq!(tally.count(), 1, "the add came after the second poll");
            let Poll::Ready(Some(item)) = future.poll(&mut Context::from_waker(&waker)) else {
                panic!("woken without a key")
            };
            assert_eq!(*item, 1);
        }
    });
}

/// When more keys are queued than one woken getter is expected to take, an add wakes a second getter at once (W2). A getter that is not
/// needed stays parked until the shut-down wakes it.
#[test]
fn a_long_queue_wakes_a_second_getter() {
    check(|| {
        let queue = WorkQueue::new();
        let getters = [0, 1].map(|_| {
            let queue = queue.clone();
            thread::spawn(move || std::iter::from_fn(|| queue.get()).count())
        });
        queue.add(1);
        queue.add(2);
        queue.add(3);
        queue.shut_down();
        assert_eq!(getters.map(|getter| getter.join().unwrap()).iter().sum::<usize>(), 3);
        let stats = queue.stats();
        assert_eq!((stats.waiters, stats.processing, stats.len), (0, 0, 0));
    });
}

/// A task that was woken and is not polled holds up no getter: the next add wakes the thread behind it in the list (W2).
#[test]
fn an_unpolled_task_holds_up_no_getter() {
    check(|| {
        let queue = WorkQueue::new();
        let mut late = Box::pin(queue.get_async());
        assert!(late.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let parked = getter(&queue);
        queue.add(1);
        queue.add(2);
        assert!([1, 2].contains(&parked.join().unwrap()));
        let Poll::Ready(Some(_)) = late.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the other key is left for this task");
        };
    });
}

/// A getter that was woken and finds no key returns to its position in the wait list, not to the end.
#[test]
fn a_getter_woken_in_vain_keeps_its_position() {
    check(|| {
        let queue = WorkQueue::new();
        let [(first, first_waker), (second, second_waker)] = [Tally::new(), Tally::new()];
        let mut futures = [(); 2].map(|()| Box::pin(queue.get_async()));
        assert!(futures[0].as_mut().poll(&mut Context::from_waker(&first_waker)).is_pending());
        assert!(futures[1].as_mut().poll(&mut Context::from_waker(&second_waker)).is_pending());
        let overtaker = with(&queue, |queue| drop(queue.try_get()));
        queue.add(1);
        assert_eq!((first.count(), second.count()), (1, 0), "the add wakes the oldest getter");
        if futures[0].as_mut().poll(&mut Context::from_waker(&first_waker)).is_pending() {
            queue.add(2);
            assert_eq!((first.count(), second.count()), (2, 0), "it is still the oldest");
        }
        drop(futures);
        overtaker.join().unwrap();
    });
}
