//! Fewer loops, beside loops that take a key or go to sleep: W1, W2, and `src/workers/size.rs`.

use keyqueue::Item;
use loom::thread::yield_now;
use loom_tests::{check, manual};

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

/// A key comes after the call, when both loops are on their way: the one that stays processes it, and nothing else wakes that one (W2).
#[test]
fn fewer_loops_meet_an_add() {
    check(|| {
        let queue = manual().0.build();
        let workers = queue.workers().spawn(2, |_: &Item<'_, u64>| ()).unwrap();
        workers.set_concurrency(1).unwrap();
        queue.add(1);
        queue.wait_idle();
        assert_eq!(workers.tally().succeeded, 1);
        queue.shut_down();
        workers.join();
    });
}
