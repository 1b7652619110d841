//! Delays with a clock that is a function. (With a mock clock they are judged by the plain queue of `reference/`.)

use keyqueue::{Added, Clock, Driver, WorkQueue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A queue whose clock shows this number of seconds.
fn queue_by_a_function() -> (WorkQueue<u32>, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(100));
    let shown = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || match shown.load(Ordering::Relaxed) {
        u64::MAX => panic!("the clock is broken"),
        seconds => Duration::from_secs(seconds),
    });
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).measure(true).build(), seconds)
}

/// A clock that goes back stands still, so no key is lost, and none is early.
#[test]
fn a_clock_that_is_a_function_never_goes_back() {
    let (queue, seconds) = queue_by_a_function();
    queue.add_after(1, 10 * SECOND);
    seconds.store(3, Ordering::Relaxed);
    queue.add_after(2, 10 * SECOND); // at 100 s
    assert_eq!(queue.inspect().delayed_keys().iter().map(|key| key.left).collect::<Vec<_>>(), [10 * SECOND; 2]);
    for back in [0, 99, 100, 109] {
        seconds.store(back, Ordering::Relaxed);
        assert_eq!(queue.turn(), 0, "{back}");
    }
    seconds.store(110, Ordering::Relaxed);
    assert_eq!((queue.turn(), queue.len()), (2, 2));
    seconds.store(0, Ordering::Relaxed);
    let item = queue.try_get().unwrap();
    assert_eq!((item.waited(), item.retry()), (Some(Duration::ZERO), Added::Delayed));
    queue.add_after(3, Duration::MAX);
    seconds.store(u64::MAX - 1, Ordering::Relaxed); // more than the clock can show
    assert_eq!((queue.turn(), queue.len(), queue.delayed_len()), (1, 2, 1));
}

/// No call panics, also where it reads the clock under a lock, or while a panic drops an item.
#[test]
fn a_clock_whose_function_panics_stands_still() {
    let (queue, seconds) = queue_by_a_function();
    queue.add_after(1, SECOND);
    let broken = || seconds.store(u64::MAX, Ordering::Relaxed);
    broken();
    assert_eq!((queue.turn(), queue.add(2)), (0, Added::Queued));
    let holder = || {
        let _item = queue.try_get().unwrap();
        panic!("the holder");
    };
    assert!(catch_unwind(AssertUnwindSafe(holder)).is_err());
    assert_eq!((queue.processing_len(), queue.len(), queue.delayed_len()), (0, 0, 1));
    seconds.store(101, Ordering::Relaxed);
    assert_eq!((queue.turn(), *queue.try_get().unwrap()), (1, 1));
}

/// Nothing tells the driver thread when such a clock has gone on.
#[test]
fn a_clock_that_is_a_function_needs_a_manual_driver() {
    let text = "driver is Driver::Thread: a clock of `Clock::from_fn` needs `Driver::Manual`";
    let builder = || WorkQueue::<u32>::builder().clock(Clock::from_fn(|| SECOND));
    let error = builder().try_build().unwrap_err();
    assert_eq!((error.argument(), error.to_string().as_str()), ("driver", text));
    let panic = catch_unwind(|| builder().build()).unwrap_err();
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(text));
    assert!(builder().driver(Driver::Manual).try_build().is_ok());
}
