//! Fewer loops, beside loops that take a key or go to sleep: W1, W3, and `src/workers/size.rs`.

use keyqueue::Item;
use loom::thread::yield_now;
use loom_tests::{check, manual, with};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// One of two loops ends, while the other or neither sleeps: nothing but the call wakes it.
#[test]
fn fewer_loops_meet_one_that_goes_to_sleep() {
    check(|| {
        let queue = manual().0.build();
        let workers = queue.workers().spawn(2, |_: &Item<'_, u64>| ()).unwrap();
        workers.set_concurrency(1).unwrap();
        while workers.tally().running > 1 {
            yield_now();
        }
        queue.shut_down();
        workers.join();
    });
}

/// An add wakes the loop that leaves, or the other: the key is processed, once (W3).
#[test]
fn fewer_loops_meet_an_add() {
    check(|| {
        let queue = manual().0.build();
        let runs = Arc::new(AtomicUsize::new(0)); // not loom's: it is only read at the end
        let counts = Arc::clone(&runs);
        let count = move |_: &Item<'_, u64>| _ = counts.fetch_add(1, Relaxed);
        let workers = queue.workers().spawn(2, count).unwrap();
        let adder = with(&queue, |queue| queue.add(1));
        workers.set_concurrency(1).unwrap();
        adder.join().unwrap();
        queue.wait_idle();
        assert_eq!(runs.load(Relaxed), 1);
        queue.shut_down();
        workers.join();
    });
}
