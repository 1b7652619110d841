//! Delays with a mock clock and `turn`: from when they count, and how they behave at the clock's last instant. And with a clock that is a
//! function.

use keyqueue::observe::Observer;
use keyqueue::{AddOptions, Added, Clock, DelayConflict, Driver, MockClock, WorkQueue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

fn manual_queue() -> (WorkQueue<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).build(), time)
}

const SECOND: Duration = Duration::from_secs(1);

/// The call itself has to read the clock: no other call has read it since it advanced.
#[test]
fn a_delay_counts_from_the_call() {
    let (queue, time) = manual_queue();
    time.advance(SECOND);
    queue.add_rate_limited(1); // 5 ms
    assert_eq!(queue.turn(), 0);
    time.advance(SECOND);
    queue.add_after(2, SECOND);
    assert_eq!(queue.turn(), 1, "key 1 has expired");
    time.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(queue.turn(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(queue.turn(), 1);
}

/// At the last nanosecond of a clock, all delays have expired but those that never do.
#[test]
fn a_delay_of_duration_max_does_not_expire_at_the_last_instant() {
    let (queue, time) = manual_queue();
    time.advance(Duration::from_nanos(u64::MAX));
    queue.add_after(1, Duration::MAX);
    assert_eq!((queue.turn(), queue.delayed_len()), (0, 1));
    assert!(queue.add_with(1, AddOptions::new().conflict(DelayConflict::Replace)) == Added::Queued);
    assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
}

struct Events(Sender<Added>);

impl Observer for Events {
    fn added(&self, added: Added) {
        self.0.send(added).unwrap();
    }
}

#[test]
fn an_observer_receives_the_result_of_each_expired_delay() {
    let (clock, time) = Clock::mock();
    let (sender, events) = channel();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).observer(Events(sender)).build();
    queue.add(1);
    queue.add(2);
    let held = queue.get().unwrap();
    (1..=3).for_each(|key| _ = queue.add_after(key, SECOND));
    time.advance(SECOND);
    assert_eq!(queue.turn(), 3);
    drop(held);
    let mut expected = vec![Added::Queued; 2];
    expected.extend([Added::Delayed; 3]);
    expected.extend([Added::Queued, Added::Deferred, Added::Coalesced]);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), expected);
}

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
