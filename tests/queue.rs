//! What the queue does beyond client-go's test cases: every way to get, items, futures, forwarded wake-ups, shut-downs, and
//! keys and wakers whose code panics or uses the queue.
//!
//! Checks P1, P2, P4 to P7 and P13 from outside, the cancel safety that `get_async` promises, and that no foreign code that
//! runs under the lock (`K::eq`) or after it (`K::drop`) can break the queue.

mod support {
    pub(crate) mod tasks;
}

use futures_executor::block_on;
use keyqueue::{Added, DrainTimeoutError, GetTimeoutError, TryGetError, WorkQueue};
use std::collections::HashSet;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use support::tasks::{Calls, panicking_waker, poll};

/// Returns when `condition` holds. If it never does, the test hangs, which the test runner reports.
fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Runs `f`, which panics, and swallows the panic.
fn panics<R>(f: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "should have panicked");
}

/// Panics without printing a message.
fn quiet_panic() -> ! {
    resume_unwind(Box::new(()))
}

// ---- getting ----

#[test]
fn try_get_distinguishes_empty_from_shut_down() {
    let queue = WorkQueue::new();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    queue.add(1);
    let item = queue.try_get().unwrap();
    assert_eq!(queue.add(1), Added::Deferred);
    assert!(queue.try_get().unwrap_err().is_empty(), "the key is processing");
    queue.shut_down();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    item.done();
    assert_eq!(*queue.try_get().unwrap(), 1, "dirty keys are queued again even after a shut-down");
    assert!(queue.try_get().unwrap_err().is_shut_down());
}

#[test]
fn get_timeout_of_zero_takes_a_queued_key_and_does_not_wait() {
    let queue = WorkQueue::new();
    assert_eq!(queue.get_timeout(Duration::ZERO).unwrap_err(), GetTimeoutError::Timeout);
    queue.add(1);
    assert_eq!(*queue.get_timeout(Duration::ZERO).unwrap(), 1);
    assert_eq!(queue.stats().waiters, 0);
    queue.shut_down();
    assert_eq!(queue.get_timeout(Duration::ZERO).unwrap_err(), GetTimeoutError::ShutDown);
}

#[test]
fn get_timeout_waits_at_least_its_timeout() {
    let queue = WorkQueue::<u8>::new();
    let timeout = Duration::from_millis(20);
    let begin = Instant::now();
    assert!(queue.get_timeout(timeout).unwrap_err().is_timeout());
    assert!(begin.elapsed() >= timeout);
    assert_eq!(queue.stats().waiters, 0, "it left the wait list");
}

#[test]
fn get_timeout_with_a_huge_timeout_waits_for_a_key() {
    let queue = WorkQueue::new();
    for timeout in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_secs(3600)] {
        thread::scope(|s| {
            let getter = s.spawn(|| *queue.get_timeout(timeout).unwrap());
            wait_until(|| queue.stats().waiters == 1);
            queue.add(1);
            assert_eq!(getter.join().unwrap(), 1);
        });
    }
    thread::scope(|s| {
        let getter = s.spawn(|| queue.get_timeout(Duration::MAX).err());
        wait_until(|| queue.stats().waiters == 1);
        queue.shut_down();
        assert_eq!(getter.join().unwrap(), Some(GetTimeoutError::ShutDown));
    });
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn a_getter_that_times_out_loses_no_key() {
    // The time-out and the add race: whichever wins, the key is handed out, to this getter or to the next.
    let queue = WorkQueue::new();
    for round in 0..2000_u32 {
        thread::scope(|s| {
            let impatient = s.spawn(|| queue.get_timeout(Duration::from_micros(u64::from(round % 60))).is_ok());
            queue.add(round);
            if !impatient.join().unwrap() {
                assert_eq!(*queue.get().unwrap(), round);
            }
        });
    }
    let stats = queue.stats();
    assert_eq!((stats.handed_out, stats.len, stats.processing, stats.waiters), (2000, 0, 0, 0));
}

#[test]
fn get_many_takes_queued_keys_in_order_up_to_its_limit() {
    let queue = WorkQueue::new();
    queue.add_all(0..10);
    assert!(queue.get_many(0).is_empty());
    let keys = |items: Vec<keyqueue::Item<'_, i32>>| items.iter().map(|item| **item).collect::<Vec<_>>();
    assert_eq!(keys(queue.get_many(1)), [0]);
    assert_eq!(keys(queue.get_many(4)), [1, 2, 3, 4]);
    assert_eq!(keys(queue.get_many(usize::MAX)), [5, 6, 7, 8, 9]);
    queue.shut_down();
    assert!(queue.get_many(3).is_empty());
}

#[test]
fn get_many_waits_for_the_first_key() {
    let queue = WorkQueue::new();
    thread::scope(|s| {
        let getter = s.spawn(|| queue.get_many(3).len());
        wait_until(|| queue.stats().waiters == 1);
        queue.add_all(0..3);
        assert!((1..=3).contains(&getter.join().unwrap()));
        let getter = s.spawn(|| queue.get_many(100).len());
        queue.shut_down();
        assert!(getter.join().unwrap() <= 2);
    });
}

// ---- adding ----

#[test]
fn add_returns_what_it_did() {
    let queue = WorkQueue::new();
    assert_eq!(queue.add(1), Added::Queued);
    assert_eq!(queue.add(1), Added::Coalesced);
    let item = queue.get().unwrap();
    assert!(!item.is_dirty());
    assert_eq!(queue.add(1), Added::Deferred);
    assert_eq!(queue.add(1), Added::Coalesced);
    assert!(item.is_dirty(), "added again while the item is held");
    queue.shut_down();
    assert_eq!(queue.add(1), Added::Rejected);
    assert!(!Added::Rejected.is_accepted() && Added::Coalesced.is_accepted());
}

#[test]
fn a_readded_key_goes_to_the_back_at_done_and_not_before() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2]);
    let first = queue.get().unwrap();
    queue.add(1);
    queue.add(3);
    first.done();
    queue.add(4);
    let order: Vec<i32> = queue.get_many(9).iter().map(|item| **item).collect();
    assert_eq!(order, [2, 3, 1, 4]);
}

#[test]
fn add_all_counts_keys_that_became_dirty() {
    let mut queue = WorkQueue::new();
    queue.add(1);
    let _item = queue.get().unwrap().into_owned();
    assert_eq!(queue.add_all([1, 1, 2, 2, 3]), 3);
    queue.extend([3, 4]);
    assert_eq!(queue.len(), 3);
    queue.shut_down();
    assert_eq!(queue.add_all([5, 6]), 0);
    assert_eq!(queue.stats().rejected, 2);
}

#[test]
fn add_all_wakes_one_getter_for_each_key() {
    let queue = WorkQueue::<i32>::new();
    // Each getter holds its key until the end, so four wake-ups are needed.
    let held = Mutex::new(Vec::new());
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let item = queue.get().unwrap();
                held.lock().unwrap().push(item.into_owned());
            });
        }
        wait_until(|| queue.stats().waiters == 4);
        assert_eq!(queue.add_all(0..4), 4);
        wait_until(|| held.lock().unwrap().len() == 4);
    });
}

#[test]
fn a_woken_task_that_is_not_polled_does_not_keep_a_batch_from_the_threads() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    let mut waiting = pin!(queue.get_async());
    assert!(poll(waiting.as_mut(), &calls).is_pending());
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| while queue.get().is_some() {});
        }
        wait_until(|| queue.stats().waiters == 3);
        assert_eq!(queue.add_all(0..100), 100);
        wait_until(|| queue.is_empty());
        assert_eq!(calls.count(), 1, "it was woken, but is not polled");
        queue.shut_down_with_drain();
    });
}

#[test]
fn add_all_keeps_the_keys_yielded_before_its_iterator_panics() {
    let queue = WorkQueue::new();
    thread::scope(|s| {
        let getter = s.spawn(|| *queue.get().unwrap());
        wait_until(|| queue.stats().waiters == 1);
        let keys = [1, 2].into_iter().chain(std::iter::once_with(|| quiet_panic()));
        panics(|| queue.add_all(keys));
        assert_eq!(getter.join().unwrap(), 1, "the parked getter is woken nevertheless");
    });
    assert_eq!(*queue.try_get().unwrap(), 2);
    assert!(queue.is_empty());
}

// ---- items ----

#[test]
fn an_item_dropped_by_a_panicking_worker_is_done() {
    let queue = WorkQueue::new();
    queue.add(1);
    panics(|| {
        let item = queue.get().unwrap();
        queue.add(*item);
        quiet_panic();
    });
    assert_eq!((queue.len(), queue.processing_len()), (1, 0), "it was dirty, so it is queued again");
    panics(|| {
        let _item = queue.get().unwrap().into_owned();
        quiet_panic();
    });
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

#[test]
fn a_dirty_key_of_a_worker_thread_that_dies_goes_to_the_next_getter() {
    let queue = WorkQueue::new();
    queue.add(1);
    let (holds, held) = mpsc::channel();
    thread::scope(|s| {
        let queue = &queue;
        let worker = s.spawn(move || {
            let item = queue.get().unwrap();
            queue.add(*item);
            holds.send(()).unwrap();
            quiet_panic();
        });
        held.recv().unwrap();
        assert_eq!(*queue.get().unwrap(), 1);
        assert!(worker.join().is_err());
    });
}

#[test]
fn an_owned_item_works_across_threads_and_outlives_every_handle() {
    let queue = WorkQueue::new();
    queue.add("key".to_owned());
    queue.add("other".to_owned());
    let item = queue.get().unwrap().into_owned();
    assert_eq!(queue.processing_len(), 1, "still the same hand-out");
    queue.add("key".to_owned());
    let other = queue.clone();
    drop(queue);
    let item = thread::spawn(move || {
        assert!(item.is_dirty());
        assert_eq!(item.key(), "key");
        item
    });
    let item = item.join().unwrap();
    drop(other);
    assert_eq!(*item, "key", "an owned item keeps the queue alive");
    item.done();
}

#[test]
fn items_print_their_key_and_whether_it_is_dirty() {
    let queue = WorkQueue::new();
    queue.add(7);
    let item = queue.get().unwrap();
    assert_eq!(format!("{item:?}"), "Item { key: 7, is_dirty: false }");
    queue.add(7);
    assert_eq!(format!("{:?}", item.into_owned()), "OwnedItem { key: 7, is_dirty: true }");
}

#[test]
fn an_add_that_races_with_the_done_of_its_key_is_not_lost() {
    // Adds race with `done` of the same key (P2). The last add comes before the last hand-out.
    let queue = WorkQueue::<&str>::new();
    let (published, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            while let Some(item) = queue.get() {
                // Relaxed: the queue makes the value visible.
                seen.store(published.load(Ordering::Relaxed), Ordering::Relaxed);
                item.done();
            }
        });
        for n in 1..=20_000 {
            published.store(n, Ordering::Relaxed);
            assert!(queue.add("key").is_accepted());
        }
        queue.shut_down();
    });
    assert_eq!(seen.into_inner(), 20_000);
}

// ---- futures ----

#[test]
fn get_async_resolves_at_once_if_a_key_is_queued() {
    let queue = WorkQueue::new();
    queue.add(1);
    assert_eq!(*block_on(queue.get_async()).unwrap(), 1);
    queue.shut_down();
    assert!(block_on(queue.get_async()).is_none());
}

/// They may go to another thread, and outlive the handle that they came from.
#[test]
fn owned_items_are_static() {
    fn is_static<T: Send + 'static>(item: T) -> T {
        item
    }
    fn is_send<T: Send>(future: T) -> T {
        future
    }
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let third = block_on(is_send(queue.get_owned_async())).unwrap();
    let items = [queue.get_owned().unwrap(), queue.try_get_owned().unwrap(), third];
    assert_eq!(queue.try_get_owned().unwrap_err(), TryGetError::Empty);
    assert_eq!((queue.processing_len(), queue.is_empty()), (3, true));
    let observer = queue.clone();
    drop(queue);
    thread::spawn(move || assert_eq!(is_static(items).map(|item| *item), [2, 3, 1])).join().unwrap();
    assert_eq!(observer.processing_len(), 0);
    observer.shut_down();
    assert!(observer.get_owned().is_none() && block_on(observer.get_owned_async()).is_none());
    assert_eq!(observer.try_get_owned().unwrap_err(), TryGetError::ShutDown);
}

/// Dropped before a poll, while it waits, and after it was woken: no key is lost, and the wake-up goes to the next getter.
#[test]
fn get_owned_async_is_cancel_safe() {
    let queue = WorkQueue::new();
    drop(queue.get_owned_async());
    let (first, second) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let mut dropped = queue.get_owned_async();
    assert!(poll(Pin::new(&mut dropped), &first).is_pending());
    let mut next = queue.get_owned_async();
    assert!(poll(Pin::new(&mut next), &second).is_pending());
    queue.add(1);
    assert_eq!((first.count(), second.count()), (1, 0));
    drop(dropped);
    assert_eq!((second.count(), queue.len(), queue.processing_len()), (1, 1, 0));
    let Poll::Ready(Some(item)) = poll(Pin::new(&mut next), &second) else { panic!("the key was lost") };
    assert_eq!((*item, queue.processing_len()), (1, 1));
}

#[test]
fn items_display_their_keys() {
    let queue = WorkQueue::new();
    queue.add("pod-1");
    let item = queue.get().unwrap();
    assert_eq!((format!("{item}"), format!("{item:>6}")), ("pod-1".to_owned(), " pod-1".to_owned()));
    assert_eq!(format!("{:<6}|", item.into_owned()), "pod-1 |");
}

#[test]
fn get_async_waits_until_an_add_or_a_done() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    {
        let mut get = pin!(queue.get_async());
        assert!(poll(get.as_mut(), &calls).is_pending());
        queue.add(1);
        assert_eq!(calls.count(), 1);
        let Poll::Ready(Some(item)) = poll(get, &calls) else { panic!("woken, and no key") };
        queue.add(1);
        let mut next = pin!(queue.get_async());
        assert!(poll(next.as_mut(), &calls).is_pending());
        assert_eq!(calls.count(), 1);
        item.done();
        assert_eq!(calls.count(), 2);
        assert!(poll(next, &calls).is_ready());
    }
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

#[test]
fn get_async_wakes_the_waker_of_the_last_poll() {
    let queue = WorkQueue::new();
    let (old, new) = (Arc::<Calls>::default(), Arc::<Calls>::default());
    let mut get = pin!(queue.get_async());
    assert!(poll(get.as_mut(), &old).is_pending());
    assert!(poll(get.as_mut(), &new).is_pending());
    assert_eq!(Arc::strong_count(&old), 1, "the old one is not kept");
    queue.add(1);
    assert_eq!((old.count(), new.count()), (0, 1));
    assert!(poll(get, &new).is_ready());
}

#[test]
fn a_dropped_future_leaves_the_wait_list() {
    let queue = WorkQueue::<u8>::new();
    let calls = Arc::<Calls>::default();
    {
        let mut get = pin!(queue.get_async());
        assert!(poll(get.as_mut(), &calls).is_pending());
        assert_eq!(queue.stats().waiters, 1);
    }
    assert_eq!(queue.stats().waiters, 0);
    assert_eq!(Arc::strong_count(&calls), 1);
    drop(queue.get_async());
}

#[test]
fn a_woken_future_that_is_dropped_forwards_its_wake_up() {
    let queue = WorkQueue::new();
    let [first, second] = [(); 2].map(|()| Arc::<Calls>::default());
    let mut last = pin!(queue.get_async());
    {
        let mut dropped = pin!(queue.get_async());
        assert!(poll(dropped.as_mut(), &first).is_pending());
        assert!(poll(last.as_mut(), &second).is_pending());
        queue.add(1);
        assert_eq!((first.count(), second.count()), (1, 0), "the future that waits longest is woken first");
    }
    assert_eq!(second.count(), 1, "cancelled: the next is woken");
    let Poll::Ready(Some(item)) = poll(last, &second) else { panic!("the key is lost") };
    assert_eq!(*item, 1);
}

#[test]
fn a_woken_future_that_is_dropped_forwards_its_wake_up_to_a_thread() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    thread::scope(|s| {
        let getter = {
            let mut dropped = pin!(queue.get_async());
            assert!(poll(dropped.as_mut(), &calls).is_pending());
            let getter = s.spawn(|| *queue.get().unwrap());
            wait_until(|| queue.stats().waiters == 2);
            queue.add(1);
            assert_eq!(calls.count(), 1);
            getter
        };
        assert_eq!(getter.join().unwrap(), 1);
    });
}

#[test]
fn a_future_woken_in_vain_keeps_its_position() {
    let queue = WorkQueue::new();
    let [first, second] = [(); 2].map(|()| Arc::<Calls>::default());
    let (mut a, mut b) = (pin!(queue.get_async()), pin!(queue.get_async()));
    assert!(poll(a.as_mut(), &first).is_pending());
    assert!(poll(b.as_mut(), &second).is_pending());
    queue.add(1);
    queue.try_get().unwrap().done();
    assert!(poll(a.as_mut(), &first).is_pending(), "another getter took the key");
    queue.add(2);
    assert_eq!((first.count(), second.count()), (2, 0));
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn polling_a_future_after_it_was_ready_panics() {
    let queue = WorkQueue::<u8>::new();
    queue.shut_down();
    let calls = Arc::<Calls>::default();
    let mut get = pin!(queue.get_async());
    assert!(poll(get.as_mut(), &calls).is_ready());
    let _ = poll(get.as_mut(), &calls);
}

#[test]
fn threads_and_tasks_share_one_queue() {
    const KEYS: usize = 2000;
    let queue = WorkQueue::new();
    let worked = Mutex::new(HashSet::new());
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(item) = queue.get() {
                    assert!(worked.lock().unwrap().insert(*item));
                }
            });
            s.spawn(|| {
                block_on(async {
                    while let Some(item) = queue.get_async().await {
                        assert!(worked.lock().unwrap().insert(*item));
                    }
                });
            });
        }
        let producers: Vec<_> = (0..2)
            .map(|p| {
                let queue = &queue;
                s.spawn(move || (p..KEYS).step_by(2).for_each(|key| assert_eq!(queue.add(key), Added::Queued)))
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        queue.shut_down_with_drain();
    });
    assert_eq!(worked.into_inner().unwrap().len(), KEYS);
}

// ---- shut-down ----

#[test]
fn shut_down_wakes_all_getters_and_all_futures() {
    let queue = WorkQueue::<u8>::new();
    let calls = Arc::<Calls>::default();
    thread::scope(|s| {
        let threads: Vec<_> = (0..3).map(|_| s.spawn(|| queue.get().is_none())).collect();
        let timed = s.spawn(|| queue.get_timeout(Duration::from_secs(3600)).err());
        let task = s.spawn(|| block_on(queue.get_async()).is_none());
        let mut future = pin!(queue.get_async());
        assert!(poll(future.as_mut(), &calls).is_pending());
        wait_until(|| queue.stats().waiters == 6);
        queue.shut_down();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        assert_eq!(timed.join().unwrap(), Some(GetTimeoutError::ShutDown));
        assert!(task.join().unwrap());
        assert_eq!(calls.count(), 1);
        assert!(matches!(poll(future, &calls), Poll::Ready(None)));
    });
    assert_eq!(queue.stats().waiters, 0);
}

#[test]
fn keys_queued_at_the_shut_down_are_still_handed_out() {
    let queue = WorkQueue::new();
    queue.add_all(0..3);
    queue.shut_down();
    assert_eq!(queue.add(3), Added::Rejected);
    let keys: Vec<i32> = std::iter::from_fn(|| queue.get().map(|item| *item)).collect();
    assert_eq!(keys, [0, 1, 2]);
}

#[test]
fn a_drain_that_times_out_counts_what_is_left() {
    let queue = WorkQueue::new();
    queue.add_all(0..3);
    let item = queue.get().unwrap();
    let error = queue.shut_down_with_drain_timeout(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, DrainTimeoutError { queued: 2, processing: 1, .. }));
    assert_eq!(error.to_string(), "not drained in time: 2 queued, 1 processing");
    assert!(queue.shutting_down(), "it is shut down nevertheless");
    item.done();
    drop(queue.get_many(2));
    assert_eq!(queue.shut_down_with_drain_timeout(Duration::ZERO), Ok(()));
    assert_eq!(queue.shut_down_with_drain_timeout(Duration::MAX), Ok(()));
}

#[test]
fn the_last_handle_drops_the_queued_keys() {
    let key = Arc::new(7);
    let queue = WorkQueue::new();
    let other = queue.clone();
    queue.add(Arc::clone(&key));
    drop(queue);
    assert_eq!((other.len(), Arc::strong_count(&key)), (1, 2));
    drop(other);
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn an_owned_item_may_be_the_last_handle_of_the_queue() {
    let key = Arc::new(7);
    let queue = WorkQueue::new();
    queue.add(Arc::clone(&key));
    let item = queue.get().unwrap().into_owned();
    queue.add(Arc::clone(&key));
    drop(queue);
    assert_eq!(Arc::strong_count(&key), 2);
    drop(item);
    assert_eq!(Arc::strong_count(&key), 1, "it was dirty: queued again, and dropped with the queue");
}

// ---- statistics and messages ----

#[test]
fn stats_are_a_snapshot_of_the_counters() {
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3, 3]);
    let item = queue.get().unwrap();
    queue.add(1);
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.waiters, stats.drainers), (2, 1, 0, 0));
    assert_eq!((stats.pushed, stats.coalesced, stats.deferred, stats.rejected), (3, 1, 1, 0));
    assert_eq!((stats.handed_out, stats.shutting_down), (1, false));
    item.done();
    queue.shut_down();
    queue.add(9);
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.rejected, stats.shutting_down), (3, 0, 1, true));
}

#[test]
fn debug_shows_name_and_numbers_and_no_key() {
    let queue = WorkQueue::builder().name("pods").capacity(10).build();
    queue.add("secret");
    let _item = queue.get().unwrap();
    let shown = format!("{queue:?}");
    for part in ["WorkQueue", "\"pods\"", "processing: 1", "len: 0", "handed_out: 1"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("secret"));
    assert_eq!(queue.inspect().name(), "pods");
    assert!(format!("{:?}", queue.get_async()).contains("GetAsync"));
    assert!(format!("{:?}", WorkQueue::<u8>::builder().name("x")).contains("\"x\""));
}

#[test]
fn errors_say_what_is_wrong() {
    let messages = [
        TryGetError::Empty.to_string(),
        TryGetError::ShutDown.to_string(),
        GetTimeoutError::Timeout.to_string(),
        GetTimeoutError::ShutDown.to_string(),
    ];
    assert_eq!(
        messages,
        [
            "no key is queued",
            "the queue is shut down and empty",
            "no key was queued in time",
            "the queue is shut down and empty"
        ]
    );
}

#[test]
fn capacity_is_a_hint_and_no_limit() {
    for capacity in [0, 1, 3, 1000] {
        let queue = WorkQueue::builder().capacity(capacity).build();
        assert_eq!(queue.add_all(0..5000), 5000);
        assert_eq!(queue.add_all(0..5000), 0);
        assert!((0..5000).all(|key| *queue.get().unwrap() == key));
        queue.shrink_to_fit();
        assert_eq!(queue.add(1), Added::Queued);
    }
}

// ---- keys whose code panics or uses the queue ----

thread_local!(static EQ_PANICS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });

/// Panics in `==` while a flag of this thread is set.
#[derive(Debug, Clone)]
struct BadEq(u8);

impl PartialEq for BadEq {
    fn eq(&self, other: &Self) -> bool {
        if EQ_PANICS.get() {
            quiet_panic();
        }
        self.0 == other.0
    }
}

impl Eq for BadEq {}

impl Hash for BadEq {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_panic_in_eq_changes_nothing() {
    let queue = WorkQueue::new();
    queue.add_all([BadEq(1), BadEq(2)]);
    let item = queue.get().unwrap();
    for key in [1, 2] {
        EQ_PANICS.set(true);
        panics(|| queue.add(BadEq(key)));
        EQ_PANICS.set(false);
    }
    assert!(!item.is_dirty());
    assert_eq!(thread::scope(|s| s.spawn(|| queue.len()).join().unwrap()), 1, "other threads are not locked out");
    assert_eq!(queue.add(BadEq(1)), Added::Deferred);
    assert_eq!(queue.add(BadEq(2)), Added::Coalesced);
    item.done();
    assert_eq!(queue.get().unwrap().0, 2);
    assert_eq!(queue.get().unwrap().0, 1);
    assert_eq!(queue.shut_down_with_drain_timeout(Duration::ZERO), Ok(()));
}

/// A failure is counted after the look-up: a look-up that panics counts nothing.
#[test]
fn a_panic_in_eq_counts_no_failure() {
    let queue = WorkQueue::new();
    queue.add(BadEq(1));
    let before = queue.stats();
    EQ_PANICS.set(true);
    panics(|| queue.add_rate_limited(BadEq(1)));
    EQ_PANICS.set(false);
    assert_eq!(queue.stats().failures, 0);
    assert_eq!(queue.stats(), before);
    assert_eq!(queue.add_rate_limited(BadEq(1)), Added::Delayed);
    queue.shut_down();
    assert_eq!(queue.add_rate_limited(BadEq(1)), Added::Rejected);
    assert_eq!(queue.stats().failures, 2, "a failure counts even when the add is refused");
}

thread_local!(static BUSY_QUEUE: std::cell::RefCell<Option<WorkQueue<Reentrant>>> = const { std::cell::RefCell::new(None) });

/// Uses the queue in `==`, which its docs forbid.
#[derive(Debug, Clone)]
struct Reentrant(u8);

impl PartialEq for Reentrant {
    fn eq(&self, other: &Self) -> bool {
        BUSY_QUEUE.with_borrow(|queue| queue.as_ref().map(WorkQueue::stats));
        self.0 == other.0
    }
}

impl Eq for Reentrant {}

impl Hash for Reentrant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// In a release build the thread would deadlock.
#[test]
#[cfg(debug_assertions)]
fn eq_that_uses_its_queue_panics_in_a_debug_build() {
    let queue = WorkQueue::new();
    queue.add(Reentrant(1));
    queue.add_rate_limited(Reentrant(1)); // so that there are failures to forget
    BUSY_QUEUE.set(Some(queue.clone()));
    let calls: [&dyn Fn(); 3] =
        [&|| _ = queue.add(Reentrant(1)), &|| _ = queue.cancel(&Reentrant(1)), &|| queue.forget(&Reentrant(1))];
    for call in calls {
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        let message = panic.downcast_ref::<&str>().expect("a message");
        assert!(message.contains("must not use its queue"), "{message}");
    }
    BUSY_QUEUE.take();
    assert_eq!(queue.add(Reentrant(1)), Added::Coalesced, "the lock is free, and nothing has changed");
    assert_eq!(queue.len(), 1);
}

/// Panics when dropped, if armed.
#[derive(Clone, PartialEq, Eq, Hash)]
struct BadDrop {
    number: u32,
    armed: bool,
}

impl Drop for BadDrop {
    fn drop(&mut self) {
        if self.armed && !thread::panicking() {
            quiet_panic();
        }
    }
}

impl BadDrop {
    const fn armed(number: u32) -> Self {
        Self { number, armed: true }
    }
}

#[test]
fn a_panic_in_the_drop_of_a_key_leaves_the_queue_consistent() {
    let queue = WorkQueue::new();
    assert_eq!(queue.add(BadDrop::armed(1)), Added::Queued);
    panics(|| queue.add(BadDrop::armed(1)));
    let item = queue.get().unwrap();
    panics(|| queue.add(BadDrop::armed(1)));
    assert!(item.is_dirty(), "the add has taken effect before its key is dropped");
    item.done();
    let item = queue.get().unwrap();
    thread::scope(|s| {
        let drain = s.spawn(|| queue.shut_down_with_drain());
        wait_until(|| queue.stats().drainers == 1);
        panics(|| item.done());
        drain.join().unwrap();
    });
    panics(|| queue.add(BadDrop::armed(2)));
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.rejected, stats.coalesced), (0, 0, 1, 1));
}

#[test]
fn a_panic_in_the_drop_of_a_queued_key_frees_nothing_twice() {
    let queue = WorkQueue::new();
    for number in 0..100 {
        queue.add(BadDrop { number, armed: number == 50 });
    }
    panics(|| drop(queue));
}

/// A key that counts its drops, and panics in some of them.
#[derive(Clone)]
struct CountedDrop {
    number: u32,
    panics: bool,
    drops: Arc<AtomicUsize>,
}

impl PartialEq for CountedDrop {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for CountedDrop {}

impl Hash for CountedDrop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Drop for CountedDrop {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            resume_unwind(Box::new(self.number));
        }
    }
}

/// A queue of 300 keys, of which those that `panics` selects panic when they are dropped, and the number of drops.
fn queue_of_counted_drops(panics: fn(u32) -> bool) -> (WorkQueue<CountedDrop>, Arc<AtomicUsize>) {
    let (queue, drops) = (WorkQueue::new(), Arc::new(AtomicUsize::new(0)));
    for number in 0..300 {
        queue.add(CountedDrop { number, panics: panics(number), drops: Arc::clone(&drops) });
    }
    (queue, drops)
}

#[test]
fn a_queue_drops_all_keys_even_if_some_drops_panic() {
    for panics in [(|number| number == 100) as fn(u32) -> bool, |number| number % 7 == 3] {
        let (queue, drops) = queue_of_counted_drops(panics);
        let panic = catch_unwind(AssertUnwindSafe(|| drop(queue))).unwrap_err();
        assert_eq!(drops.load(Ordering::Relaxed), 300);
        assert!(panic.downcast_ref().is_some_and(|&number| panics(number)), "the panic of a key's drop propagates");
        assert_eq!(Arc::strong_count(&drops), 1, "every key is gone");
    }
}

/// The thread unwinds already, so a second panic that left the queue's drop would abort the process.
#[test]
fn a_queue_that_is_dropped_in_a_panic_drops_all_keys() {
    let (queue, drops) = queue_of_counted_drops(|number| number % 7 == 3);
    panics(move || {
        let _queue = queue;
        quiet_panic();
    });
    assert_eq!(drops.load(Ordering::Relaxed), 300);
}

/// A key that uses the queue when it is dropped.
#[derive(Clone)]
struct ReentrantDrop {
    number: u32,
    queue: Arc<Mutex<Option<WorkQueue<ReentrantDrop>>>>,
}

impl PartialEq for ReentrantDrop {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for ReentrantDrop {}

impl Hash for ReentrantDrop {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl Drop for ReentrantDrop {
    fn drop(&mut self) {
        let queue = self.queue.lock().unwrap().clone();
        if let Some(queue) = queue {
            let _ = (queue.len(), queue.processing_len(), queue.stats(), queue.try_get().is_ok());
        }
    }
}

#[test]
fn a_key_may_use_its_queue_when_it_is_dropped() {
    // No key is dropped under a lock (P17). If one were, this test would deadlock.
    let shared = Arc::new(Mutex::new(None));
    let key = |number| ReentrantDrop { number, queue: Arc::clone(&shared) };
    let queue = WorkQueue::new();
    *shared.lock().unwrap() = Some(queue.clone());
    queue.add(key(1));
    let item = queue.get().unwrap();
    queue.add(key(1));
    item.done();
    queue.add(key(1));
    queue.add_all([key(2), key(2), key(3)]);
    drop(queue.get_many(5));
    queue.shut_down();
    queue.add(key(4));
    assert_eq!(queue.shut_down_with_drain_timeout(Duration::ZERO), Ok(()));
    *shared.lock().unwrap() = None;
}

/// A waker that uses the queue when it is called and when it is dropped.
struct ReentrantWaker {
    queue: WorkQueue<u8>,
    called: AtomicBool,
}

impl Wake for ReentrantWaker {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::SeqCst);
        self.queue.add(1);
        let _ = self.queue.stats();
    }
}

impl Drop for ReentrantWaker {
    fn drop(&mut self) {
        let _ = self.queue.stats();
    }
}

#[test]
fn a_waker_may_use_the_queue() {
    // Wakers are called and dropped without a lock, at every place where that happens (P17).
    let queue = WorkQueue::new();
    let waker = || Waker::from(Arc::new(ReentrantWaker { queue: queue.clone(), called: AtomicBool::new(false) }));
    for _ in 0..3 {
        let mut get = Box::pin(queue.get_async());
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        queue.add(1);
        assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_ready());
    }
    let mut get = Box::pin(queue.get_async());
    assert!(get.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
    drop(get);
    let mut get = Box::pin(queue.get_async());
    let reentrant = Arc::new(ReentrantWaker { queue: queue.clone(), called: AtomicBool::new(false) });
    assert!(get.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&reentrant)))).is_pending());
    queue.shut_down();
    assert!(reentrant.called.load(Ordering::SeqCst));
}

/// A future that waits for a key, with a waker that panics.
fn waiting_with_a_bad_waker(queue: &WorkQueue<u8>) -> std::pin::Pin<Box<keyqueue::GetAsync<'_, u8>>> {
    let mut get = Box::pin(queue.get_async());
    assert!(get.as_mut().poll(&mut Context::from_waker(&panicking_waker())).is_pending());
    get
}

#[test]
fn a_waker_that_panics_in_an_add_loses_no_key() {
    let queue = WorkQueue::new();
    let waiter = waiting_with_a_bad_waker(&queue);
    assert_eq!(queue.add(1), Added::Queued, "the waker's panic does not reach the adder");
    assert_eq!((queue.len(), queue.stats().caught_panics), (1, 1));
    drop(waiter);
    queue.try_get().unwrap().done();
}

#[test]
fn a_waker_that_panics_in_the_get_of_another_thread_loses_no_key() {
    // The woken getter takes a key and wakes the next one, whose waker panics.
    let queue = WorkQueue::new();
    thread::scope(|s| {
        let getter = s.spawn(|| queue.get().map(|item| *item));
        wait_until(|| queue.stats().waiters == 1);
        let waiter = waiting_with_a_bad_waker(&queue);
        assert_eq!(queue.add_all([1, 2]), 2);
        assert_eq!(getter.join().unwrap(), Some(1), "the getter has its key");
        assert_eq!((queue.stats().handed_out, queue.processing_len(), queue.len()), (1, 0, 1));
        drop(waiter);
    });
    assert_eq!(*queue.try_get().unwrap(), 2);
}

/// Each added key is handed to a worker, whatever number of wakers panic meanwhile.
#[test]
fn keys_are_handed_out_even_if_many_wakers_panic() {
    let queue = WorkQueue::new();
    let waiters: Vec<_> = (0..20).map(|_| waiting_with_a_bad_waker(&queue)).collect();
    assert_eq!(queue.add_all([1, 2, 3]), 3);
    let worked = thread::scope(|s| {
        let workers = queue.workers().build();
        let worker = s.spawn({
            let (workers, worked) = (workers.clone(), Mutex::new(Vec::new()));
            move || {
                workers.run(|item: &keyqueue::Item<'_, u8>| worked.lock().unwrap().push(**item));
                worked.into_inner().unwrap()
            }
        });
        assert!(workers.drain().is_empty());
        worker.join().unwrap()
    });
    assert_eq!(worked, [1, 2, 3]);
    let stats = queue.stats();
    assert_eq!((stats.handed_out, stats.panics, stats.caught_panics), (3, 0, 20));
    drop(waiters);
}

/// A waker that panics when it is dropped.
fn bad_to_drop() -> std::mem::ManuallyDrop<Waker> {
    use std::task::{RawWaker, RawWakerVTable};
    fn raw() -> RawWaker {
        static TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| (), |_| (), |_| quiet_panic());
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    // SAFETY: none of the functions looks at the pointer, and all may be called from anywhere.
    std::mem::ManuallyDrop::new(unsafe { Waker::from_raw(raw()) })
}

#[test]
fn a_waker_that_panics_when_dropped_loses_no_key() {
    let queue = WorkQueue::new();
    let calls = Arc::<Calls>::default();
    let mut get = Box::pin(queue.get_async());
    assert!(poll(get.as_mut(), &calls).is_pending());
    queue.add(1);
    // The poll clones its waker in case it has to wait, and drops the clone when it has a key.
    match get.as_mut().poll(&mut Context::from_waker(&bad_to_drop())) {
        Poll::Ready(Some(item)) => assert_eq!(*item, 1, "the task has its key"),
        other => panic!("{other:?}"),
    }
    drop(get);
    assert_eq!(queue.stats().caught_panics, 1);
}

#[test]
fn a_waker_that_panics_in_a_shut_down_stops_no_other_wake_up() {
    let queue = WorkQueue::new();
    thread::scope(|s| {
        let waiter = waiting_with_a_bad_waker(&queue);
        let getter = s.spawn(|| queue.get().is_none());
        wait_until(|| queue.stats().waiters == 2);
        queue.shut_down();
        assert!(getter.join().unwrap(), "woken nevertheless");
        drop(waiter);
    });
}

/// A key whose hash is the same for all values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OneHash(u32);

impl Hash for OneHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(42);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn ten_thousand_keys_with_one_hash_are_distinguished() {
    const KEYS: u32 = 10_000;
    let queue = WorkQueue::new();
    assert_eq!(queue.add_all((0..KEYS).map(OneHash)), KEYS as usize);
    for key in (0..KEYS).step_by(100) {
        assert_eq!(queue.add(OneHash(key)), Added::Coalesced);
    }
    let items = queue.get_many(usize::MAX);
    assert!(items.iter().map(|item| item.0).eq(0..KEYS));
    assert_eq!(queue.add(OneHash(KEYS / 2)), Added::Deferred);
    // In reverse order, so that each key is found at the head of the chain.
    items.into_iter().rev().for_each(keyqueue::Item::done);
    assert_eq!(*queue.get().unwrap(), OneHash(KEYS / 2));
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

#[test]
fn keys_may_be_zero_sized_large_or_overaligned() {
    let nothing = WorkQueue::new();
    assert_eq!(nothing.add(()), Added::Queued);
    assert_eq!(nothing.add(()), Added::Coalesced);
    nothing.get().unwrap().done();
    let large = WorkQueue::new();
    for n in 0..100_u64 {
        assert_eq!(large.add([n; 200]), Added::Queued);
    }
    assert!((0..100).all(|n| large.get().unwrap()[199] == n));

    #[derive(Clone, PartialEq, Eq, Hash)]
    #[repr(align(256))]
    struct Aligned(u8);
    let aligned = WorkQueue::new();
    aligned.add_all((0..100).map(Aligned));
    assert!(aligned.get_many(100).iter().all(|item| std::ptr::from_ref::<Aligned>(item).addr() % 256 == 0));
}

/// `Eq` panics in `add`: the key of the call is dropped after the lock, so its drop may use the queue.
#[test]
fn a_key_whose_eq_panics_is_dropped_without_the_lock() {
    static QUEUES: OnceLock<[WorkQueue<Key>; 2]> = OnceLock::new();
    static PANICS: AtomicBool = AtomicBool::new(false);
    #[derive(Debug, Clone)]
    struct Key(usize);
    impl std::hash::Hash for Key {
        fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
    }
    impl PartialEq for Key {
        fn eq(&self, _: &Self) -> bool {
            assert!(!PANICS.load(Ordering::SeqCst), "an Eq that panics");
            true
        }
    }
    impl Eq for Key {}
    impl Drop for Key {
        fn drop(&mut self) {
            if PANICS.load(Ordering::SeqCst) {
                let (sender, answer) = std::sync::mpsc::channel();
                let number = self.0;
                thread::spawn(move || sender.send(QUEUES.get().unwrap()[number].stats().len));
                FREE.store(answer.recv_timeout(Duration::from_secs(10)).is_ok(), Ordering::SeqCst);
            }
        }
    }
    static FREE: AtomicBool = AtomicBool::new(false);
    let queues = QUEUES.get_or_init(|| [WorkQueue::new(), WorkQueue::builder().measure(true).build()]);
    for (number, queue) in queues.iter().enumerate() {
        queue.add(Key(number));
        PANICS.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add(Key(number)))).is_err());
        PANICS.store(false, Ordering::SeqCst);
        assert!(FREE.swap(false, Ordering::SeqCst), "measured: {}", number == 1);
    }
}
