//! Batches: their keys end together, whatever foreign code does.

use keyqueue::observe::Observer;
use keyqueue::rate_limiter::RateLimiter;
use keyqueue::{Batch, Clock, Driver, OnPanic, WorkQueue};
use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

thread_local!(static DROPS_PANIC: Cell<bool> = const { Cell::new(false) });

/// Its drop panics with its number, if it is odd and drops are to panic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if DROPS_PANIC.get() && self.0 % 2 == 1 {
            std::panic::panic_any(self.0);
        }
    }
}

#[test]
fn all_keys_end_though_the_drops_of_some_panic() {
    for shards in [1, 4] {
        for succeeds in [false, true] {
            let queue = WorkQueue::builder().shards(shards).build();
            queue.add_all((0..100).map(Bomb));
            let batch = queue.get_batch(usize::MAX);
            assert_eq!(batch.len(), 100);
            DROPS_PANIC.set(true);
            let ended = catch_unwind(AssertUnwindSafe(|| if succeeds { batch.succeed() } else { batch.done() }));
            DROPS_PANIC.set(false);
            let first = *ended.expect_err("the drop of a key has panicked").downcast::<u64>().unwrap();
            assert!(shards > 1 || first == 1, "the first panic is passed on, not that of {first}");
            let stats = queue.stats();
            assert_eq!((stats.processing, stats.len, stats.panics), (0, 0, 0), "{shards} shards");
            queue.shut_down_with_drain();
        }
    }
}

/// A limiter of the user's own, which counts what it is told to forget.
struct Forgets(Arc<AtomicU64>);

impl RateLimiter<u64> for Forgets {
    fn when(&self, _: &u64) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _: &u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn num_requeues(&self, _: &u64) -> usize {
        0
    }
}

#[test]
fn the_success_of_a_batch_forgets_the_failures_of_each_key() {
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).driver(Driver::Manual).build();
        for succeeds in [false, true] {
            queue.add_all(0..100_u64);
            let batch = queue.get_batch(usize::MAX);
            (0..100).for_each(|key| _ = queue.add_rate_limited(key));
            if succeeds {
                batch.succeed()
            } else {
                batch.done()
            }
            assert_eq!(queue.stats().failing, if succeeds { 0 } else { 100 });
        }
        let forgotten = Arc::new(AtomicU64::new(0));
        let queue = WorkQueue::builder().shards(shards).rate_limiter(Forgets(Arc::clone(&forgotten))).build();
        queue.add_all(0..100);
        queue.get_batch(usize::MAX).succeed();
        assert_eq!(forgotten.load(Ordering::Relaxed), 100);
    }
}

/// A panic of the worker counts for each key of its batch, as it does for items.
#[test]
fn a_panic_retries_each_key() {
    for (on_panic, delayed) in [(OnPanic::Retry, 10), (OnPanic::Done, 0)] {
        // On a busy machine the retries, after 5 ms, might come before the look.
        let queue = WorkQueue::builder().on_panic(on_panic).clock(Clock::mock().0).build();
        queue.add_all(0..10);
        let worker = thread::scope(|scope| {
            let work = || {
                let _batch = queue.get_batch(usize::MAX);
                panic!("a worker");
            };
            scope.spawn(work).join()
        });
        assert!(worker.is_err());
        assert_eq!((queue.stats().panics, queue.delayed_len(), queue.processing_len()), (10, delayed, 0));
    }
}

/// A batch that a thread ends while it unwinds has ended as the thread says, and no key counts as one whose holder has panicked.
#[test]
fn a_thread_that_unwinds_may_end_a_batch() {
    struct EndsAtDrop<'q>(Option<Batch<'q, u32>>);
    impl Drop for EndsAtDrop<'_> {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(Batch::succeed);
        }
    }
    let queue = WorkQueue::builder().on_panic(OnPanic::Retry).build();
    queue.add_all(0..10);
    let unwinds = catch_unwind(AssertUnwindSafe(|| {
        let _batch = EndsAtDrop(Some(queue.get_batch(usize::MAX)));
        panic!("a worker");
    }));
    assert!(unwinds.is_err());
    assert_eq!((queue.stats().panics, queue.delayed_len(), queue.processing_len()), (0, 0, 0));
}

/// What the observer was told of: the ends of processings. It panics at the third.
struct Ends(Arc<AtomicU64>);

impl Observer for Ends {
    fn done(&self, worked: Option<Duration>) {
        assert!(worked.is_some());
        assert!(self.0.fetch_add(1, Ordering::Relaxed) != 2, "the observer panics");
    }
}

#[test]
fn the_observer_is_told_of_each_key_though_it_panics() {
    for shards in [1, 4] {
        let told = Arc::new(AtomicU64::new(0));
        let queue = WorkQueue::builder().shards(shards).observer(Ends(Arc::clone(&told))).build();
        (0..100).for_each(|n| {
            queue.add(n);
            thread::sleep(Duration::from_micros(2)); // so that each key is measured
        });
        let batch = queue.get_batch(usize::MAX);
        assert!(catch_unwind(AssertUnwindSafe(|| batch.done())).is_err());
        assert_eq!((told.load(Ordering::Relaxed), queue.processing_len()), (100, 0));
    }
}

/// Keys that were added meanwhile are queued again in the order of the batch, getters are woken for them, and a drain ends with the batch.
#[test]
fn dirty_keys_come_back_in_order() {
    let queue = WorkQueue::new();
    queue.add_all(0..100);
    let batch = queue.get_batch(usize::MAX);
    queue.add_all((0..100).rev());
    assert!(batch.iter().all(|item| item.is_dirty()));
    thread::scope(|scope| {
        let getter = scope.spawn(|| *queue.get().unwrap());
        while queue.stats().waiters == 0 {
            thread::yield_now();
        }
        batch.succeed();
        assert_eq!(getter.join().unwrap(), 0);
    });
    let batch = queue.get_batch(usize::MAX);
    assert_eq!(batch.iter().map(|item| *item.key()).collect::<Vec<_>>(), (1..100).collect::<Vec<_>>());
    thread::scope(|scope| {
        scope.spawn(|| queue.shut_down_with_drain());
        while !queue.shutting_down() {
            thread::yield_now();
        }
        drop(batch);
    });
    assert!(queue.get_batch(10).is_empty());
}

/// Threads that add and work in batches lose no key, and no two hold the same one.
#[test]
#[cfg_attr(miri, ignore)] // 20 000 keys
fn threads_work_in_batches() {
    for shards in [1, 4] {
        let queue = WorkQueue::<u64>::builder().shards(shards).build();
        let (held, added, worked) = (Mutex::new(HashSet::new()), AtomicU64::new(0), AtomicU64::new(0));
        let work = || {
            loop {
                let mut batch = queue.get_batch(64);
                if batch.is_empty() {
                    return;
                }
                worked.fetch_add(batch.len() as u64, Ordering::Relaxed);
                for item in &batch {
                    assert!(held.lock().unwrap().insert(*item.key()), "two threads hold key {item}");
                }
                for item in &batch {
                    held.lock().unwrap().remove(item.key());
                }
                if batch.len() % 3 == 0 {
                    batch.swap_remove(0).succeed();
                }
                if batch.len() % 2 == 0 { batch.succeed() } else { drop(batch) }
            }
        };
        thread::scope(|scope| {
            (0..2).for_each(|_| _ = scope.spawn(work));
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for round in 0..50_u64 {
                            let keys = (0..200).map(|n| (n * round) % 500);
                            added.fetch_add(queue.add_all(keys) as u64, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            adders.into_iter().for_each(|adder| adder.join().unwrap());
            queue.shut_down();
        });
        let stats = queue.stats();
        assert_eq!((stats.len, stats.processing), (0, 0));
        assert_eq!(worked.into_inner(), added.into_inner(), "each accepted add leads to one hand-out");
    }
}
