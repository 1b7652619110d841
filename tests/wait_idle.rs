//! Waiting until nothing is left to do: `wait_idle` and its variants, and the drain for tasks.
//!
//! Checks: a queue is idle when no key is queued, processing or delayed, and not before; whatever ends the last of these states
//! wakes the waiters (a `done`, a `cancel`, `take_delayed`, a shut-down); a drain waits for queued and processing keys, and a
//! later plain shut-down releases it (P7); futures wait from their first poll to their drop, in one list with threads.

mod support {
    pub(crate) mod tasks;
}

use futures_executor::block_on;
use keyqueue::{AddOptions, Clock, DelayConflict, DelayedAdd, Driver, Item, MockClock, WorkQueue};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use support::tasks::{Calls, panicking_waker, poll};

const MS: Duration = Duration::from_millis(1);

fn manual_queue(policy: DelayedAdd) -> (WorkQueue<u32>, MockClock) {
    let (clock, mock) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(policy).build(), mock)
}

// ---- idle ----

#[test]
fn an_empty_queue_is_idle_at_once_and_again() {
    let queue = WorkQueue::<u32>::new();
    for _ in 0..2 {
        queue.wait_idle();
        assert_eq!([Duration::ZERO, Duration::MAX].map(|timeout| queue.wait_idle_timeout(timeout)), [Ok(()); 2]);
        block_on(queue.wait_idle_async());
        queue.add(1);
        drop(queue.get());
    }
    queue.shut_down();
    queue.wait_idle();
    block_on(queue.wait_idle_async());
}

#[test]
fn a_queue_with_queued_processing_or_delayed_keys_is_not_idle() {
    type Busy = for<'q> fn(&'q WorkQueue<u32>) -> Option<Item<'q, u32>>;
    fn add_two(queue: &WorkQueue<u32>) -> Option<Item<'_, u32>> {
        queue.add_all([1, 2]);
        None
    }
    fn delay(queue: &WorkQueue<u32>, delay: Duration) -> Option<Item<'_, u32>> {
        queue.add_after(1, delay);
        None
    }
    let ways: [(Busy, [usize; 3]); 5] = [
        (add_two, [2, 0, 0]),
        (|queue| add_two(queue).or_else(|| queue.get()), [1, 1, 0]),
        (|queue| delay(queue, MS), [0, 0, 1]),
        (|queue| delay(queue, Duration::MAX), [0, 0, 1]),
        (
            |queue| {
                queue.add(1);
                queue.get().unwrap().retry();
                None
            },
            [0, 0, 1],
        ),
    ];
    for (n, (busy, [queued, processing, delayed])) in ways.into_iter().enumerate() {
        let (queue, _clock) = manual_queue(DelayedAdd::Independent);
        let _item = busy(&queue);
        for timeout in [Duration::ZERO, MS] {
            let error = queue.wait_idle_timeout(timeout).unwrap_err();
            assert_eq!([error.queued, error.processing, error.delayed], [queued, processing, delayed], "way {n}");
            let shown = format!("not idle in time: {queued} queued, {processing} processing, {delayed} delayed");
            assert_eq!(error.to_string(), shown);
        }
        assert!(poll(pin!(queue.wait_idle_async()), &Arc::default()).is_pending(), "way {n}");
        assert_eq!(queue.stats().drainers, 0, "a waiter that timed out has left the list");
    }
    // A key that has failed, and is in no other state, is not work.
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add_rate_limited(1);
    assert!(queue.cancel(&1) && queue.stats().failing == 1);
    assert_eq!(queue.wait_idle_timeout(Duration::ZERO), Ok(()));
}

/// A thread and two tasks wait until the queue is idle; then `last` makes it idle.
fn ends_the_wait(queue: &WorkQueue<u32>, last: impl FnOnce()) {
    let calls: [Arc<Calls>; 2] = Default::default();
    let mut futures = [Box::pin(queue.wait_idle_async()), Box::pin(queue.wait_idle_async())];
    for (future, calls) in futures.iter_mut().zip(&calls) {
        assert!(poll(future.as_mut(), calls).is_pending());
    }
    thread::scope(|scope| {
        let thread = scope.spawn(|| queue.wait_idle());
        while queue.stats().drainers < 3 {
            thread::yield_now();
        }
        assert!(calls.iter().all(|calls| calls.count() == 0) && !thread.is_finished());
        last();
        assert!(calls.iter().all(|calls| calls.count() == 1), "both were woken");
        thread.join().unwrap();
    });
    assert!(futures.iter_mut().zip(&calls).all(|(future, calls)| poll(future.as_mut(), calls).is_ready()));
    assert_eq!(queue.stats().drainers, 0);
}

#[test]
fn the_last_done_ends_the_wait() {
    type End = for<'q> fn(Item<'q, u32>);
    let ends: [End; 5] = [
        |item| item.done(),
        |item| drop(item.into_owned()),
        |item| item.succeed(),
        |item| item.give_up(),
        |item| {
            _ = catch_unwind(AssertUnwindSafe(|| -> () {
                let _item = item;
                resume_unwind(Box::new(()))
            }));
        },
    ];
    for end in ends {
        let (queue, _clock) = manual_queue(DelayedAdd::Independent);
        queue.add(1);
        let item = queue.get().unwrap();
        ends_the_wait(&queue, || end(item));
    }
}

#[test]
fn a_done_that_leaves_keys_does_not_end_the_wait() {
    let (queue, clock) = manual_queue(DelayedAdd::Independent);
    let calls = Arc::new(Calls::default());
    let mut idle = pin!(queue.wait_idle_async());
    queue.add_all([1, 2]);
    assert!(poll(idle.as_mut(), &calls).is_pending());
    let item = queue.get().unwrap();
    queue.add(1);
    item.done(); // dirty
    assert!(calls.count() == 0 && poll(idle.as_mut(), &calls).is_pending());
    queue.get().unwrap().requeue_after(MS);
    assert!(poll(idle.as_mut(), &calls).is_pending());
    queue.get().unwrap().done();
    assert!(poll(idle.as_mut(), &calls).is_pending(), "a key is delayed");
    clock.advance(MS);
    assert!(queue.turn() == 1 && poll(idle.as_mut(), &calls).is_pending(), "the key is queued now");
    let before = calls.count();
    queue.get().unwrap().done();
    assert!(calls.count() > before && poll(idle.as_mut(), &calls).is_ready());
}

#[test]
fn the_end_of_the_last_delay_ends_the_wait() {
    let two_delays = || {
        let (queue, clock) = manual_queue(DelayedAdd::Independent);
        queue.add_after(1, MS);
        queue.add_after(2, Duration::MAX);
        (queue, clock)
    };
    let (queue, _clock) = two_delays();
    assert!(queue.cancel(&1));
    ends_the_wait(&queue, || assert!(queue.cancel(&2)));

    let (queue, _clock) = two_delays();
    ends_the_wait(&queue, || assert_eq!(queue.take_delayed().len(), 2));

    let (queue, clock) = two_delays();
    assert!(queue.cancel(&2));
    ends_the_wait(&queue, || {
        clock.advance(MS);
        assert_eq!(queue.turn(), 1);
        queue.get().unwrap().done();
    });

    // More delays than a batch takes.
    let (queue, _clock) = two_delays();
    for key in 0..2_000 {
        queue.add_after(key, MS);
    }
    ends_the_wait(&queue, || assert_eq!(queue.take_delayed().len(), 2_000));
}

#[test]
fn the_end_of_a_delay_does_not_end_the_wait_while_others_stay() {
    let (queue, _clock) = manual_queue(DelayedAdd::Strict);
    queue.add_after(1, MS);
    queue.add_after(2, MS);
    let calls = Arc::new(Calls::default());
    let mut idle = pin!(queue.wait_idle_async());
    assert!(poll(idle.as_mut(), &calls).is_pending());
    queue.cancel(&1);
    assert!(poll(idle.as_mut(), &calls).is_pending());
    // An add waits for this delay: the cancel queues the key.
    queue.add(2);
    queue.cancel(&2);
    assert!(queue.len() == 1 && poll(idle.as_mut(), &calls).is_pending());
    drop(queue.get());
    assert!(poll(idle.as_mut(), &calls).is_ready());
    // The delay is replaced by an add without one.
    queue.add_after(3, MS);
    queue.add_with(3, AddOptions::new().conflict(DelayConflict::Replace));
    assert!(queue.wait_idle_timeout(Duration::ZERO).is_err());
    drop(queue.get());
    assert_eq!(queue.wait_idle_timeout(Duration::ZERO), Ok(()));
}

#[test]
fn after_a_shutdown_delays_do_not_count() {
    type ShutDown = fn(&WorkQueue<u32>);
    let ways: [ShutDown; 4] = [
        |queue| queue.shut_down(),
        |queue| queue.shut_down_with_drain(),
        |queue| queue.shut_down_with_drain_timeout(Duration::ZERO).unwrap(),
        |queue| block_on(queue.shut_down_with_drain_async()),
    ];
    for shut_down in ways {
        let (queue, _clock) = manual_queue(DelayedAdd::Independent);
        queue.add_after(1, MS);
        ends_the_wait(&queue, || shut_down(&queue));
        assert_eq!(queue.delayed_len(), 1);
        assert!(queue.wait_idle_timeout(Duration::ZERO).is_ok(), "the queue is still idle");
    }
}

#[test]
fn a_shutdown_does_not_end_the_wait_for_queued_or_processing_keys() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add_all([1, 2]);
    queue.add_after(3, MS);
    let item = queue.get().unwrap();
    let calls = Arc::new(Calls::default());
    let mut idle = pin!(queue.wait_idle_async());
    assert!(poll(idle.as_mut(), &calls).is_pending());
    queue.shut_down();
    queue.shut_down();
    assert!(poll(idle.as_mut(), &calls).is_pending(), "only a drain is released by a shut-down");
    drop(queue.get());
    assert!(poll(idle.as_mut(), &calls).is_pending());
    let before = calls.count();
    drop(item);
    assert!(calls.count() > before && poll(idle.as_mut(), &calls).is_ready());
}

#[test]
fn an_idle_wait_includes_keys_that_handlers_add() {
    for tasks in [false, true] {
        let queue = WorkQueue::<u32>::new();
        let own = queue.clone();
        let handler = move |item: &Item<'_, u32>| {
            if **item > 1 {
                own.add_after(**item / 2, Duration::from_micros(100));
                own.add(**item - 1);
            }
        };
        let workers = if tasks { queue.workers().build() } else { queue.workers().spawn(2, handler.clone()).unwrap() };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        if tasks {
            for _ in 0..2 {
                let handler = handler.clone();
                runtime.spawn(workers.run_async(async move |item: &Item<'_, u32>| handler(item)));
            }
        }
        queue.add(50);
        if tasks {
            runtime.block_on(queue.wait_idle_async());
        } else {
            queue.wait_idle();
        }
        let stats = queue.stats();
        assert_eq!((stats.len, stats.processing, stats.delayed), (0, 0, 0));
        assert!(stats.handed_out >= 50 && stats.rejected == 0, "every key from 50 to 1");
        assert!(workers.drain().is_empty());
        assert_eq!(queue.stats().rejected, 0);
    }
}

// ---- the drain for tasks ----

#[test]
fn a_drain_begins_with_its_first_poll() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add(1);
    drop(queue.shut_down_with_drain_async());
    let mut drain = pin!(queue.shut_down_with_drain_async());
    assert!(!queue.shutting_down());
    let calls = Arc::new(Calls::default());
    assert!(poll(drain.as_mut(), &calls).is_pending() && queue.shutting_down());
    assert!(poll(drain.as_mut(), &calls).is_pending());
    assert_eq!(queue.stats().drainers, 1, "counted once, whatever the number of polls");
    let item = queue.get().unwrap();
    assert_eq!(calls.count(), 0);
    drop(item);
    assert_eq!(calls.count(), 1);
    assert!(poll(drain, &calls).is_ready());
}

#[test]
fn a_drain_does_not_wait_for_delays() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add_after(1, MS);
    block_on(queue.shut_down_with_drain_async());
    assert_eq!(queue.delayed_len(), 1);
}

#[test]
fn a_plain_shutdown_releases_drains_that_have_begun() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add(1);
    let _item = queue.get().unwrap();
    queue.shut_down(); // before the drains, so it releases none
    let calls: [Arc<Calls>; 3] = Default::default();
    let mut first = pin!(queue.shut_down_with_drain_async());
    let mut second = pin!(queue.shut_down_with_drain_async());
    assert!(poll(first.as_mut(), &calls[0]).is_pending() && poll(second.as_mut(), &calls[1]).is_pending());
    let mut late = pin!(queue.shut_down_with_drain_async()); // not polled yet
    thread::scope(|scope| {
        let thread = scope.spawn(|| queue.shut_down_with_drain());
        while queue.stats().drainers < 3 {
            thread::yield_now();
        }
        queue.shut_down();
        thread.join().unwrap();
    });
    assert_eq!(calls.each_ref().map(|calls| calls.count()), [1, 1, 0]);
    assert!(poll(first, &calls[0]).is_ready() && poll(second, &calls[1]).is_ready());
    assert!(poll(late.as_mut(), &calls[2]).is_pending(), "it began after the shut-down");
    // The next shut-down releases it.
    queue.shut_down();
    assert!(poll(late, &calls[2]).is_ready());
    assert_eq!(queue.stats().drainers, 0);
}

#[test]
fn another_drain_releases_no_drain() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add(1);
    let item = queue.get().unwrap();
    let calls = Arc::new(Calls::default());
    let mut drain = pin!(queue.shut_down_with_drain_async());
    assert!(poll(drain.as_mut(), &calls).is_pending());
    assert!(queue.shut_down_with_drain_timeout(Duration::ZERO).is_err());
    assert!(poll(pin!(queue.shut_down_with_drain_async()), &calls).is_pending());
    assert!(calls.count() == 0 && poll(drain.as_mut(), &calls).is_pending());
    drop(item);
    assert!(calls.count() == 1 && poll(drain, &calls).is_ready());
}

#[test]
fn a_dropped_future_leaves_the_list_and_only_the_latest_waker_is_woken() {
    let (queue, _clock) = manual_queue(DelayedAdd::Independent);
    queue.add(1);
    let item = queue.get().unwrap();
    let (old, new) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let mut idle = Box::pin(queue.wait_idle_async());
    let mut gone = Box::pin(queue.wait_idle_async());
    let mut drain = Box::pin(queue.shut_down_with_drain_async());
    assert!(poll(idle.as_mut(), &old).is_pending() && poll(gone.as_mut(), &old).is_pending());
    assert!(poll(drain.as_mut(), &old).is_pending() && poll(idle.as_mut(), &new).is_pending());
    assert_eq!(queue.stats().drainers, 3);
    drop((gone, drain));
    assert_eq!((queue.stats().drainers, Arc::strong_count(&old)), (1, 1));
    drop(item);
    assert_eq!((old.count(), new.count()), (0, 1));
    // Dropped after it was woken.
    drop(idle);
    assert!(queue.shutting_down());
}

// ---- foreign code that panics ----

#[test]
fn a_waker_that_panics_does_not_keep_a_shutdown_from_waking_getters() {
    type ShutDown = fn(&WorkQueue<u32>);
    let ways: [ShutDown; 2] = [|queue| queue.shut_down(), |queue| queue.shut_down_with_drain()];
    for shut_down in ways {
        let (queue, _clock) = manual_queue(DelayedAdd::Independent);
        queue.add_after(1, MS);
        let calls = Arc::new(Calls::default());
        let mut get = pin!(queue.get_async());
        assert!(poll(get.as_mut(), &calls).is_pending());
        let mut idle = pin!(queue.wait_idle_async());
        assert!(idle.as_mut().poll(&mut Context::from_waker(&panicking_waker())).is_pending());
        shut_down(&queue);
        assert_eq!(queue.stats().caught_panics, 1);
        assert_eq!(calls.count(), 1, "the getter was woken");
        assert!(matches!(poll(get, &calls), Poll::Ready(None)));
    }
}

/// The clone panics in `take_delayed`, which may have removed the last delay.
#[test]
fn a_clone_that_panics_in_take_delayed_loses_no_idle_wake_up() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key;
    impl Clone for Key {
        fn clone(&self) -> Self {
            resume_unwind(Box::new("a clone"));
        }
    }
    let (clock, _) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    queue.add_rate_limited(Key); // has failed, so the queue keeps the key and returns a clone
    let calls = Arc::new(Calls::default());
    let mut idle = pin!(queue.wait_idle_async());
    assert!(poll(idle.as_mut(), &calls).is_pending());
    _ = catch_unwind(AssertUnwindSafe(|| queue.take_delayed()));
    assert!(queue.delayed_len() > 0 || calls.count() == 1);
}

/// The shut-down wakes getters first, then the tasks that wait for it, and then those that wait for the end of the work.
#[test]
fn the_shut_down_wakes_getters_first_and_idle_waits_last() {
    struct Names(&'static str, Arc<Mutex<Vec<&'static str>>>);
    impl Wake for Names {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }
    let woken = Arc::default();
    let waker = |name| Waker::from(Arc::new(Names(name, Arc::clone(&woken))));
    let queue = WorkQueue::<u8>::new();
    queue.add(1);
    let item = queue.get();
    let (mut idle, mut until, mut get) =
        (pin!(queue.wait_idle_async()), pin!(queue.until_shutting_down()), pin!(queue.get_async()));
    assert!(idle.as_mut().poll(&mut Context::from_waker(&waker("idle"))).is_pending());
    assert!(until.as_mut().poll(&mut Context::from_waker(&waker("until"))).is_pending());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker("get"))).is_pending());
    queue.shut_down();
    assert_eq!(*woken.lock().unwrap(), ["get", "until", "idle"]);
    drop(item);
}
