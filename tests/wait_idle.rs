//! Waiting until nothing is left to do: `wait_idle` and its variants, and drains, where threads block, and what their errors say. When
//! futures resolve, and that whatever ends the last key or delay wakes them, is judged by the reference (`tests/reference/run/waiters.rs`).
//!
//! Checks: a queue is idle when no key is queued, processing or delayed, and not before; the end of the last of these states wakes the
//! waiters; a later plain shut-down releases a drain (P7); threads and tasks wait in one list, and only the latest waker of a future is woken.

mod support {
    pub(crate) mod manual;
    pub(crate) mod tasks;
}

use futures_executor::block_on;
use keyqueue::{Item, WorkQueue};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use support::manual::manual;
use support::tasks::{Calls, poll};

const MS: Duration = Duration::from_millis(1);

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
fn a_timeout_says_how_many_keys_are_queued_processing_and_delayed() {
    let queue = manual(WorkQueue::builder()).0.build();
    queue.add_all([1, 2, 3]);
    let _item = queue.get();
    queue.add_after(4, Duration::MAX);
    for timeout in [Duration::ZERO, MS] {
        let error = queue.wait_idle_timeout(timeout).unwrap_err();
        assert_eq!([error.queued, error.processing, error.delayed], [2, 1, 1]);
        assert_eq!(error.to_string(), "not idle in time: 2 queued, 1 processing, 1 delayed");
        assert_eq!(queue.stats().drainers, 0, "the waiter has left the list");
    }
}

/// Two tasks and a thread wait. Each is woken once.
#[test]
fn the_end_of_the_last_key_or_delay_ends_the_wait_of_threads_and_tasks() {
    const MANY: usize = if cfg!(miri) { 100 } else { 2_000 };
    type End = fn(&WorkQueue<u32>, Item<'_, u32>);
    let ends: [(&str, End); 6] = [
        ("done", |_, item| item.done()),
        ("a panic of the holder", |_, item| {
            let unwinds = AssertUnwindSafe(|| -> () {
                let _item = item;
                resume_unwind(Box::new("its holder"))
            });
            assert!(catch_unwind(unwinds).is_err());
        }),
        ("cancel", |queue, item| {
            queue.add_after(1, MS);
            item.done();
            assert!(queue.cancel(&1));
        }),
        // More delays than a batch takes.
        ("take_delayed", |queue, item| {
            (0..).take(MANY).for_each(|key| _ = queue.add_after(key, MS));
            item.done();
            assert_eq!(queue.take_delayed().len(), MANY);
        }),
        ("a shut-down, which cuts delays off", |queue, item| {
            queue.add_after(1, MS);
            item.done();
            queue.shut_down();
        }),
        ("a drain, too", |queue, item| {
            queue.add_after(1, MS);
            item.done();
            queue.shut_down_with_drain();
        }),
    ];
    for (name, end) in ends {
        let queue = manual(WorkQueue::builder()).0.build();
        queue.add(1);
        let item = queue.get().unwrap();
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
            end(&queue, item);
            assert!(calls.iter().all(|calls| calls.count() == 1), "{name}: both were woken");
            thread.join().unwrap();
        });
        assert!(futures.iter_mut().zip(&calls).all(|(future, calls)| poll(future.as_mut(), calls).is_ready()));
        assert_eq!(queue.stats().drainers, 0, "{name}");
    }
}

// ---- drains ----

#[test]
fn a_plain_shut_down_releases_drains_of_threads_and_tasks_that_have_begun() {
    let queue = WorkQueue::new();
    queue.add(1);
    let _item = queue.get().unwrap();
    queue.shut_down(); // before the drains, so it releases none
    let calls: [Arc<Calls>; 2] = Default::default();
    let mut begun = pin!(queue.shut_down_with_drain_async());
    assert!(poll(begun.as_mut(), &calls[0]).is_pending());
    let mut late = pin!(queue.shut_down_with_drain_async()); // not polled yet
    thread::scope(|scope| {
        let thread = scope.spawn(|| queue.shut_down_with_drain());
        while queue.stats().drainers < 2 {
            thread::yield_now();
        }
        queue.shut_down();
        thread.join().unwrap();
    });
    assert!(calls[0].count() == 1 && poll(begun, &calls[0]).is_ready());
    assert!(poll(late.as_mut(), &calls[1]).is_pending(), "it began after the shut-down");
}

#[test]
fn a_dropped_future_leaves_the_list_and_only_the_latest_waker_is_woken() {
    let queue = WorkQueue::new();
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

/// The drop of a waker is foreign code.
#[test]
fn a_waker_that_panics_when_it_is_dropped_is_contained() {
    struct Fragile;
    impl std::task::Wake for Fragile {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Fragile {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a waker"));
        }
    }
    let queue = WorkQueue::new();
    queue.add(1);
    let mut idle = Box::pin(queue.wait_idle_async());
    let waker = Waker::from(Arc::new(Fragile));
    assert!(idle.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    drop(idle);
    assert_eq!(queue.stats().caught_panics, 1);
}
