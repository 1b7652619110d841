//! Worker loops and their end: races of panics, joins, drains and stops.

use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{Item, OwnedItem, WorkQueue, WorkQueueBuilder, Workers, WorkersBuilder};
use loom::cell::UnsafeCell;
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{check, check_full, check_panics, fail, manual, ns, with};
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Waker};
use std::time::Duration;

/// Whether a loop runs in a thread or as a task.
#[derive(Clone, Copy)]
enum Way {
    Thread,
    Task,
}

const WAYS: [Way; 2] = [Way::Thread, Way::Task];

/// A queue without a driver: a key that fails stays delayed, because no model here calls `turn`.
fn backing_off() -> WorkQueueBuilder<u64> {
    manual().0.rate_limiter(ItemExponentialFailure::new(ns(10), ns(80)))
}

/// Starts one loop.
fn start(
    workers: WorkersBuilder<u64>,
    way: Way,
    handler: impl Fn(&Item<'_, u64>) + Send + Sync + 'static,
) -> Workers<u64> {
    match way {
        Way::Thread => workers.spawn(1, handler).unwrap(),
        Way::Task => {
            let workers = workers.build();
            let run = workers.run_async(async move |item: &Item<'_, u64>| handler(item));
            thread::spawn(move || block_on(run));
            workers
        }
    }
}

/// A handler that panics in its first call. One loop calls it, so its counter need not be loom's.
fn fails_first() -> impl Fn(&Item<'_, u64>) + Send + Sync + 'static {
    let runs = std::sync::atomic::AtomicUsize::new(0);
    move |_| {
        if runs.fetch_add(1, Relaxed) == 0 {
            fail();
        }
    }
}

/// The only key is not processing any more, and its retry is counted and listed: as delayed, or as refused.
fn failed_and_is_retried(queue: &WorkQueue<u64>, workers: &Workers<u64>, delayed: usize, refused: usize) {
    let (stats, tally) = (queue.stats(), workers.tally());
    assert_eq!((stats.len, stats.processing, stats.delayed, stats.panics), (0, 0, 0, 1));
    assert_eq!((tally.running, tally.panicked, tally.succeeded), (0, 1, 0));
    assert_eq!((tally.retried, tally.refused), (delayed as u64, refused as u64));
    assert_eq!(delayed + refused, 1);
}

/// A handler panics while the queue drains: the drain returns, and reports the key if it is delayed.
#[test]
fn panic_races_drain() {
    for way in WAYS {
        for waiting in WAYS {
            check_panics(1..=1, move || {
                let queue = backing_off().build();
                queue.add(1);
                let workers = start(queue.workers(), way, fails_first());
                let left = match waiting {
                    Way::Thread => workers.drain(),
                    Way::Task => block_on(workers.drain_async()),
                };
                assert_eq!((left.queued.len(), left.processing.len()), (0, 0));
                failed_and_is_retried(&queue, &workers, left.delayed.len(), left.refused.len());
            });
        }
    }
}

/// A handler panics while its loop is stopped, by `stop` or by a drain whose timeout expires: the key was never handed out, or
/// its retry is delayed or refused. If it is still processing, the next stop returns it as refused; it is in one list of each.
#[test]
fn panic_races_stop() {
    for way in WAYS {
        for stop in [Workers::stop, |workers: &Workers<u64>| workers.drain_timeout(Duration::ZERO)] {
            check_panics(0..=1, move || {
                let queue = backing_off().build();
                queue.add(1);
                let workers = start(queue.workers(), way, fails_first());
                let left = stop(&workers);
                workers.join();
                let last = workers.stop();
                assert_eq!((last.queued.len(), last.processing.len(), last.delayed.len()), (0, 0, 0));
                if left.queued.is_empty() {
                    let refused = left.refused.len() + last.refused.len();
                    failed_and_is_retried(&queue, &workers, left.delayed.len(), refused);
                    assert_eq!(left.processing.len(), last.refused.len(), "{left:?}, {last:?}");
                } else {
                    assert!(last.is_empty());
                    assert_eq!((left.queued, left.processing, left.delayed), (vec![1], vec![], vec![]));
                    assert_eq!((queue.stats().processing, workers.tally().panicked), (0, 0));
                }
            });
        }
    }
}

/// The future of a loop is dropped while its handler waits, and its loop is stopped: the key is queued again or refused. If it is still
/// processing, the next stop returns it as refused.
#[test]
fn a_dropped_run_races_stop() {
    check(|| {
        let queue = manual().0.build();
        queue.add(1);
        let workers = queue.workers().build();
        let mut run = Box::pin(workers.run_async(async |_: &Item<'_, u64>| pending::<()>().await));
        assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let dropper = thread::spawn(move || drop(run));
        let left = workers.stop();
        dropper.join().unwrap();
        let last = workers.stop();
        assert_eq!(left.queued.len() + left.processing.len() + left.refused.len(), 1, "{left:?}, {last:?}");
        assert_eq!((last.queued.len(), last.processing.len()), (0, 0));
        assert_eq!(left.processing, last.refused);
        assert_eq!((workers.tally().running, queue.stats().processing), (0, 0));
    });
}

/// A thread and a task join two loops that end, and both return.
#[test]
fn joins_race_the_end_of_two_loops() {
    check(|| {
        let queue = WorkQueue::new();
        let workers = queue.workers().spawn(1, |_: &Item<'_, u64>| ()).unwrap();
        let own = workers.run_async(async |_: &Item<'_, u64>| ());
        let joiner = with(&workers, |workers| {
            workers.join();
            workers.tally().running
        });
        queue.shut_down();
        block_on(own);
        block_on(workers.join_async());
        assert_eq!((workers.tally().running, joiner.join().unwrap()), (0, 0));
    });
}

/// A value that a handler captures, and that writes to the cell when it is dropped.
struct Last(Arc<UnsafeCell<u64>>);

// SAFETY: loom reports accesses of its cell that are not ordered, and the model checks that there are none.
unsafe impl Send for Last {}
// SAFETY: as for `Send`.
unsafe impl Sync for Last {}

impl Drop for Last {
    fn drop(&mut self) {
        // SAFETY: the read comes after the join.
        self.0.with_mut(|value| unsafe { *value = 7 });
    }
}

/// When a join returns, the values that the handlers have captured are dropped.
#[test]
fn join_returns_after_the_handler_is_dropped() {
    for way in WAYS {
        check(move || {
            let (queue, cell) = (WorkQueue::new(), Arc::new(UnsafeCell::new(0)));
            let last = Last(Arc::clone(&cell));
            queue.shut_down();
            let workers = start(queue.workers(), way, move |_| {
                let _captured = &last;
            });
            block_on(workers.join_async());
            // SAFETY: the write comes before the end of the loop.
            assert_eq!(cell.with(|value| unsafe { *value }), 7);
        });
    }
}

/// A tally while a loop ends counts each run once.
#[test]
fn tally_counts_each_run_once() {
    for way in WAYS {
        check(move || {
            let queue = WorkQueue::new();
            queue.add(1);
            let workers = start(queue.workers(), way, |_| ());
            queue.wait_idle();
            assert_eq!(workers.tally().succeeded, 1);
            queue.shut_down();
            assert_eq!(workers.tally().succeeded, 1);
            workers.join();
        });
    }
}

/// The queue's metrics count each run once: while the handle of the workers is dropped and their loop ends, and after that. They are
/// read twice, and no count decreases.
#[test]
fn metrics_count_each_run_of_dropped_workers_once() {
    for way in WAYS {
        check(move || {
            let queue = WorkQueue::new();
            queue.add(1);
            let workers = start(queue.workers(), way, |_| ());
            queue.wait_idle();
            queue.shut_down();
            drop(workers);
            let runs = [(); 2].map(|()| queue.inspect().metrics().runs.success);
            assert_eq!(runs, [1, 1]);
        });
    }
}

/// If one of several threads cannot be started, the others end at once, and no key is handed out.
///
/// Loom panics instead of returning an error: it has no room for a third thread.
#[test]
fn no_loop_begins_unless_all_threads_start() {
    check_full(3, || {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let handler = |_: &Item<'_, u64>| -> () { unreachable!("not all threads have started") };
        let spawn = || queue.workers().spawn(3, handler);
        assert!(catch_unwind(AssertUnwindSafe(spawn)).is_err());
        assert_eq!(queue.stats().handed_out, 0);
    });
}

/// Threads begin when all have started, and a drain ends them all.
#[test]
fn drain_ends_all_threads() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let workers = queue.workers().spawn(2, |_: &Item<'_, u64>| ()).unwrap();
        assert!(workers.drain().is_empty());
        let tally = workers.tally();
        assert_eq!((tally.running, tally.succeeded), (0, 1));
    });
}

/// A queue with a held key, and a second queue, whose shut-down is the deadline of a drain.
fn held_and_timer() -> (WorkQueue<u64>, OwnedItem<u64>, WorkQueue<u64>) {
    let queue = WorkQueue::new();
    queue.add(1);
    let item = queue.get().unwrap().into_owned();
    (queue, item, WorkQueue::new())
}

/// `done` of the last key ends a drain before its deadline. If the deadline comes too, the key is done or reported.
#[test]
fn drain_until_ends_with_the_work() {
    for deadline_comes in [false, true] {
        check(move || {
            let (queue, item, timer) = held_and_timer();
            let holder = thread::spawn(move || item.done());
            let ticking = deadline_comes.then(|| with(&timer, WorkQueue::shut_down));
            let left = block_on(queue.workers().build().drain_until(timer.until_shutting_down()));
            assert!(left.is_empty() || deadline_comes && left.processing == [1], "{left:?}");
            holder.join().unwrap();
            ticking.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(queue.stats().processing, 0);
        });
    }
}

/// `stop` beside a full group: its holder is done, with a dirty key, and another key is added. Each key is in one list, and what
/// was queued again after the look is in `processing`, and in `queued` of the next stop.
#[test]
fn stop_meets_the_done_of_a_full_group() {
    check(|| {
        let queue = WorkQueue::builder().fair_by(|_: &u64| 0).max_processing_per_group(1).build();
        queue.add_all([1, 2]);
        let item = queue.get().unwrap().into_owned();
        queue.add(1);
        let holder = thread::spawn(move || item.done());
        let adder = with(&queue, |queue| queue.add(3).is_accepted());
        let workers = queue.workers().build();
        let left = workers.stop();
        holder.join().unwrap();
        let accepted = adder.join().unwrap();
        let last = workers.stop();
        let mut keys = [&left.queued[..], &left.processing].concat();
        keys.sort_unstable();
        assert_eq!(keys, if accepted { vec![1, 2, 3] } else { vec![1, 2] }, "{left:?}");
        assert_eq!((left.processing, last.processing.len()), (last.queued, 0));
        assert_eq!((queue.stats().len, queue.stats().processing), (0, 0));
    });
}

/// `stop` beside a loop that waits behind a paused group, and beside the end of a hand-out that queues a key in this group: the loop ends.
#[test]
fn a_stop_ends_a_loop_behind_a_paused_group() {
    for way in WAYS {
        check(move || {
            let queue = WorkQueue::builder().fair_by(|_: &u64| 0).build();
            queue.add(1);
            let item = queue.get().unwrap().into_owned();
            queue.add(1);
            queue.group(&1).pause(Duration::MAX).unwrap();
            let workers = start(queue.workers(), way, |_| ());
            let holder = thread::spawn(move || item.done());
            let left = workers.stop();
            workers.join();
            holder.join().unwrap();
            let last = workers.stop();
            let mut keys = [left.queued, last.queued].concat();
            keys.dedup();
            assert_eq!((keys, workers.tally().succeeded), (vec![1], 0));
        });
    }
}

/// `stop` beside a getter that takes a queued key, and one that a `done` queues: what the getter holds is in `processing`, or done.
#[test]
fn stop_meets_a_getter() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all([1_u64, 2]);
        let item = queue.get().unwrap().into_owned();
        queue.add(1);
        // It keeps what it gets.
        let getter = with(&queue, move |queue| {
            item.done();
            queue.try_get().map(|item| item.into_owned()).ok()
        });
        let workers = queue.workers().build();
        let left = workers.stop();
        let held = getter.join().unwrap();
        let last = workers.stop();
        let mut keys = [&left.queued[..], &left.processing].concat();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2], "{left:?}, then {last:?}");
        let mut later: Vec<_> = held.iter().map(|item| **item).collect();
        assert_eq!(last.processing, later);
        later.extend(&last.queued);
        later.sort_unstable();
        let mut processing = left.processing;
        processing.sort_unstable();
        assert_eq!(processing, later);
    });
}

/// Writes before a `stop` are visible to the loop that ends because of it.
#[test]
fn stop_publishes() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        let shared = Arc::new((UnsafeCell::new(0), queue.workers().build()));
        let other = with(&shared, |shared| {
            shared.1.run(|_| ());
            // SAFETY: the write comes before the stop, and only the stop ends the loop.
            assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
        });
        // SAFETY: the read comes after the stop.
        shared.0.with_mut(|value| unsafe { *value = 7 });
        assert!(shared.1.stop().is_empty());
        other.join().unwrap();
    });
}

/// P23: a `remove`, which moves a long line to the order, and a stop share the keys: each key is taken back, or reported once.
#[test]
fn a_remove_and_a_stop_share_what_is_left() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all([1_u64, 2, 3]);
        let workers = queue.workers().build();
        let remover = with(&queue, |queue| queue.remove(&2));
        let queued = workers.stop().queued;
        let expected: &[_] = if remover.join().unwrap() { &[1, 3] } else { &[1, 2, 3] };
        assert_eq!(queued, expected);
        assert_eq!((queue.stats().len, queue.stats().depth()), (0, 0));
    });
}
