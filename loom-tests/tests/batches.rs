//! Batches of workers: the wait for more keys meets adds, the end of the time, a drain and a stop.

use keyqueue::{BatchItem, Driver, WorkQueue, Workers};
use loom::future::block_on;
use loom::thread::{self, JoinHandle};
use loom_tests::{check, manual, with};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

/// Whether a loop runs in a thread or as a task.
#[derive(Debug, Clone, Copy)]
enum Way {
    Thread,
    Task,
}

const WAYS: [Way; 2] = [Way::Thread, Way::Task];
const LINGER: Duration = Duration::from_millis(1);

/// The batches that a loop has run, for a model that has joined it.
type Seen = Arc<Mutex<Vec<Vec<u64>>>>;

/// Starts a loop whose batches have up to two keys.
fn start(way: Way, queue: &WorkQueue<u64>) -> (Workers<u64>, Seen, JoinHandle<()>) {
    let (workers, seen) = (queue.workers().build(), Seen::default());
    let note = {
        let seen = Arc::clone(&seen);
        move |batch: &mut [BatchItem<'_, u64>]| {
            seen.lock().unwrap().push(batch.iter().map(|item| *item.key()).collect());
        }
    };
    let own = workers.clone();
    let thread = thread::spawn(move || match way {
        Way::Thread => own.run_batch(2, LINGER, note),
        Way::Task => {
            let handler = async move |batch: &mut [BatchItem<'_, u64>]| note(batch);
            block_on(own.run_batch_async(2, LINGER, handler));
        }
    });
    (workers, seen, thread)
}

fn keys(seen: &Seen) -> Vec<u64> {
    let mut keys = seen.lock().unwrap().concat();
    keys.sort_unstable();
    keys
}

/// The time of a batch comes, and wakes the task by a `turn` or by the driver thread, while the task is polled again.
#[test]
fn a_linger_ends_with_its_time() {
    for has_driver in [false, true] {
        check(move || {
            let (mut builder, time) = manual();
            if has_driver {
                builder = builder.driver(Driver::Thread);
            }
            let queue = builder.build();
            queue.add(1);
            let workers = queue.workers().build();
            let shut = queue.clone();
            let mut run =
                Box::pin(workers.run_batch_async(2, LINGER, async move |batch: &mut [BatchItem<'_, u64>]| {
                    assert_eq!(batch.len(), 1);
                    shut.shut_down();
                }));
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let task = thread::spawn(move || block_on(run));
            time.advance(LINGER);
            if !has_driver {
                queue.turn();
            }
            task.join().unwrap();
            assert_eq!(workers.tally().succeeded, 1);
        });
    }
}

/// A batch waits, and no time passes. Each key that is added meanwhile comes into this batch or another one, and the drain ends the wait,
/// even if a key of the full group is queued (P6, P7).
#[test]
fn a_batch_that_waits_meets_an_add_and_a_drain() {
    for way in WAYS {
        for is_limited in [false, true] {
            check(move || {
                let builder = manual().0;
                let limit = if is_limited { 1 } else { 2 };
                let queue = builder.fair_by(|_: &u64| 0).max_processing_per_group(limit).build();
                queue.add(1);
                let (workers, seen, thread) = start(way, &queue);
                let adder = with(&queue, |queue| queue.add(2).is_accepted());
                assert!(workers.drain().is_empty());
                thread.join().unwrap();
                let expected: &[u64] = if adder.join().unwrap() { &[1, 2] } else { &[1] };
                assert_eq!(keys(&seen), expected);
            });
        }
    }
}

/// A batch waits, or is about to, and the workers are stopped: each key was run, or was left in the queue (P23).
#[test]
fn a_batch_that_waits_meets_a_stop() {
    for way in WAYS {
        check(move || {
            let queue = manual().0.build();
            queue.add_all([1, 2, 3]);
            let (workers, seen, thread) = start(way, &queue);
            let left = workers.stop();
            thread.join().unwrap();
            assert!(workers.stop().is_empty());
            let seen = keys(&seen);
            let mut all = [&seen[..], &left.queued].concat();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3], "{left:?}");
            assert!(left.processing.iter().all(|key| seen.contains(key)), "{left:?}");
            assert_eq!(queue.stats().processing, 0);
        });
    }
}
