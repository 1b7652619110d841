//! Pauses of the whole queue. The random lives of `reference/` have them, too, and judge each hand-out. Here is what takes threads or a
//! driver thread, and each kind of queue.

#[path = "support/kinds.rs"]
mod kinds;
#[path = "support/tasks.rs"]
mod tasks;
#[path = "support/until.rs"]
mod until;

#[cfg(feature = "stream")]
use futures_core::Stream;
use keyqueue::{Clock, Driver, GetTimeoutError, TryGetError, WorkQueue, WorkQueueBuilder};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tasks::{Calls, poll};
use until::wait_until;

const MS: Duration = Duration::from_millis(1);
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3000 } else { 60 });

/// The kinds of queues that read the flag in different places.
fn kinds() -> Vec<(&'static str, WorkQueueBuilder<u32>)> {
    let mut all = kinds::kinds();
    all.push(("a pace", WorkQueue::builder().pace(1e6, 1000)));
    all.push(("a pace, turned", WorkQueue::builder().pace(1e6, 1000).driver(Driver::Manual)));
    all
}

/// All getters find nothing, and the calls that change or show the queue do what they always do.
#[test]
fn nothing_is_handed_out() {
    for (kind, builder) in kinds() {
        let queue = builder.build();
        queue.add_all(0..10);
        let held = queue.get().unwrap();
        queue.pause();
        queue.pause();
        assert!(queue.is_paused());
        queue.add(10);
        queue.add_after(11, Duration::ZERO);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty, "{kind}");
        assert_eq!(queue.get_timeout(MS).unwrap_err(), GetTimeoutError::Timeout, "{kind}");
        let task = std::sync::Arc::<Calls>::default();
        let (mut get, mut owned) = (pin!(queue.get_async()), pin!(queue.get_owned_async()));
        let mut batch = pin!(queue.get_batch_async(3));
        #[cfg(feature = "stream")]
        let mut stream = pin!(queue.stream());
        assert!(poll(get.as_mut(), &task).is_pending() && poll(owned.as_mut(), &task).is_pending(), "{kind}");
        assert!(poll(batch.as_mut(), &task).is_pending(), "{kind}");
        #[cfg(feature = "stream")]
        {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(stream.as_mut().poll_next(&mut context).is_pending(), "{kind}");
        }
        queue.add(12);
        held.done();
        assert_eq!((queue.len(), queue.processing_len()), (12, 0), "{kind}");
        assert!(queue.remove(&10) && !queue.take_where(|key| *key == 9).queued.is_empty(), "{kind}");
        assert_eq!(task.count(), 0, "{kind}: a push wakes nobody");

        queue.resume();
        assert!(!queue.is_paused() && task.count() > 0, "{kind}");
        assert!(queue.try_get().is_ok(), "{kind}");
    }
}

/// Threads, tasks and workers that wait in a paused queue get all keys after the resume.
#[test]
fn a_resume_wakes_those_who_wait() {
    for (kind, builder) in kinds() {
        let queue = builder.build();
        queue.pause();
        let done = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while queue.get_timeout(LONG).map(|item| item.succeed()).is_ok() {
                        done.fetch_add(1, SeqCst);
                    }
                });
                scope.spawn(|| {
                    futures_executor::block_on(async {
                        while let Some(item) = queue.get_async().await {
                            item.succeed();
                            done.fetch_add(1, SeqCst);
                        }
                    });
                });
            }
            wait_until(|| queue.stats().waiters == 4);
            for round in 1..=20 {
                queue.add_all(0..5);
                assert_eq!((queue.len(), done.load(SeqCst)), (5, 5 * (round - 1)), "{kind}");
                queue.resume();
                wait_until(|| done.load(SeqCst) == 5 * round);
                queue.pause();
            }
            queue.shut_down();
        });
    }
}

/// Threads pause and resume all the time: while the queue is paused, no hand-out begins, and at the end all keys have come.
#[test]
fn no_hand_out_begins_while_threads_pause() {
    const KEYS: u32 = if cfg!(miri) { 50 } else { 2_000 };
    for (kind, builder) in kinds() {
        let queue = builder.build();
        let (done, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(item) = queue.get() {
                        item.succeed();
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
            let pauses = scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    queue.pause();
                    let is_exact = !cfg!(keyqueue_lock_free) && !kind.starts_with("lock-free");
                    let before = queue.stats().handed_out;
                    for _ in 0..3 {
                        thread::yield_now();
                        assert!(!is_exact || queue.stats().handed_out == before, "{kind}");
                    }
                    queue.resume();
                    thread::yield_now();
                }
            });
            (0..KEYS).for_each(|key| _ = queue.add(key));
            wait_until(|| pauses.is_finished() || done.load(SeqCst) == KEYS);
            is_over.store(true, SeqCst);
            pauses.join().unwrap();
            queue.shut_down();
        });
        assert_eq!(done.load(SeqCst), KEYS, "{kind}");
    }
}

/// Shut-downs, drains and stops end the pause, and a pause that comes later changes nothing; that of a group stays.
#[test]
fn a_shut_down_ends_the_pause() {
    for (kind, builder) in kinds() {
        let queue = builder.build();
        queue.add_all(0..10);
        queue.pause();
        assert!(queue.wait_idle_timeout(MS).is_err(), "{kind}: an idle wait waits for the resume");
        thread::scope(|scope| {
            let worker = scope.spawn(|| std::iter::from_fn(|| queue.get()).count());
            wait_until(|| queue.stats().waiters == 1);
            queue.shut_down_with_drain();
            assert_eq!(worker.join().unwrap(), 10, "{kind}");
        });
        queue.pause();
        assert!(!queue.is_paused(), "{kind}");
    }
    let queue = WorkQueue::builder().fair_by(|key: &u32| key % 2).build();
    queue.add_all(0..2);
    queue.group(&0).pause(Duration::MAX).unwrap();
    queue.pause();
    assert!(queue.shut_down_with_drain_timeout(Duration::ZERO).is_err());
    assert_eq!((*queue.try_get().unwrap(), queue.try_get().unwrap_err()), (1, TryGetError::Empty));
    queue.group(&0).resume();
    assert_eq!(*queue.try_get().unwrap(), 0);
}

/// Workers in a paused queue: a stop returns what is queued, and a drain runs it.
#[test]
fn workers_stop_and_drain() {
    for drains in [false, true] {
        let queue = WorkQueue::new();
        queue.pause();
        let workers = queue.workers().spawn(2, |_| ()).unwrap();
        queue.add_all(0..3);
        wait_until(|| queue.stats().waiters == 2);
        assert_eq!(workers.tally().succeeded, 0);
        let left = if drains { workers.drain() } else { workers.stop() };
        workers.join();
        assert_eq!(left.queued.len() as u64 + workers.tally().succeeded, 3);
        assert!(!drains || left.is_empty());
    }
}

/// A handler pauses its own queue, and another thread resumes it.
#[test]
fn a_handler_pauses_its_queue() {
    let queue = WorkQueue::builder().shards(2).build();
    let handle = queue.clone();
    let workers = queue.workers().spawn(2, move |_| handle.pause()).unwrap();
    queue.add_all(0..20);
    for ran in 1.. {
        // Each worker may have had a key when the other one paused.
        wait_until(|| queue.is_paused() && queue.processing_len() == 0);
        if queue.is_empty() {
            break;
        }
        assert!(ran <= 20);
        queue.resume();
    }
    assert!(workers.drain().is_empty());
    assert_eq!(workers.tally().succeeded, 20);
}

/// A getter that waits for the token of a pace, and is paused meanwhile, and back: neither spins, and it gets its key.
#[test]
fn a_token_comes_during_a_pause() {
    for driver in [Driver::Thread, Driver::Manual] {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(driver).pace(1000.0, 1).build();
        queue.add_all([1, 2]);
        drop(queue.try_get().unwrap());
        let task = std::sync::Arc::<Calls>::default();
        let mut get = pin!(queue.get_async());
        assert!(poll(get.as_mut(), &task).is_pending());
        queue.pause();
        time.advance(MS);
        queue.turn();
        thread::sleep(MS); // the driver has time to wake it, which it must not
        assert!(task.count() == 0 && poll(get.as_mut(), &task).is_pending());
        queue.resume();
        assert_eq!(task.count(), 1);
        assert!(poll(get.as_mut(), &task).is_ready());
    }
}
