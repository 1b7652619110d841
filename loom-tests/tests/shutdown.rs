//! The shut-down of a queue: P6, I7.

use keyqueue::{Added, WorkQueue};
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::{check, with};

/// A thread and a task that wait, or are about to, return because of the shut-down.
#[test]
fn shutdown_wakes_all() {
    check(|| {
        let queue = WorkQueue::<u64>::new();
        let thread = with(&queue, |queue| assert!(queue.get().is_none()));
        let task = with(&queue, |queue| assert!(block_on(queue.get_async()).is_none()));
        queue.shut_down();
        thread.join().unwrap();
        task.join().unwrap();
    });
}

/// The same for a getter that may be parked: it returns `None` only after every accepted key is handed out.
#[test]
fn parked_getter_gets_the_last_key() {
    check(|| {
        let queue = WorkQueue::new();
        let parked = with(&queue, |queue| std::iter::from_fn(|| queue.get()).count());
        let adder = with(&queue, |queue| queue.add(1_u64).is_accepted());
        queue.shut_down();
        assert_eq!(parked.join().unwrap(), usize::from(adder.join().unwrap()));
    });
}

/// A caller whose add is rejected sees the writes before the shut-down.
#[test]
fn shutdown_publishes_to_a_rejected_add() {
    check(|| {
        let queue = WorkQueue::new();
        let data = Arc::new(AtomicUsize::new(0));
        let adder = thread::spawn({
            let (queue, data) = (queue.clone(), Arc::clone(&data));
            move || {
                if queue.add(1_u64) == Added::Rejected {
                    assert_eq!(data.load(Relaxed), 1);
                }
            }
        });
        data.store(1, Relaxed);
        queue.shut_down();
        adder.join().unwrap();
    });
}
