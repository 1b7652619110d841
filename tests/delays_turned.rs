//! Delays by a clock that stands still, and whoever turns: from when they count, and where time ends.

use keyqueue::observe::Observer;
use keyqueue::{AddOptions, Added, Clock, DelayConflict, Driver, MockClock, WorkQueue};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

fn still() -> (WorkQueue<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).build(), time)
}

const SECOND: Duration = Duration::from_secs(1);

/// Nobody else has looked at the clock since it moved.
#[test]
fn a_delay_counts_from_the_call() {
    let (queue, time) = still();
    time.advance(SECOND);
    queue.add_rate_limited(1); // 5 ms
    assert_eq!(queue.turn(), 0);
    time.advance(SECOND);
    queue.add_after(2, SECOND);
    assert_eq!(queue.turn(), 1, "the first");
    time.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(queue.turn(), 0);
    time.advance(Duration::from_nanos(1));
    assert_eq!(queue.turn(), 1);
}

/// At the last nanosecond that a clock can show, all delays are over but those that never are.
#[test]
fn a_delay_without_end_is_not_over_at_the_end_of_time() {
    let (queue, time) = still();
    time.advance(Duration::from_nanos(u64::MAX));
    queue.add_after(1, Duration::MAX);
    assert_eq!((queue.turn(), queue.delayed_len()), (0, 1));
    assert!(queue.add_with(1, AddOptions::new().conflict(DelayConflict::Replace)) == Added::Queued);
    assert_eq!((queue.len(), queue.delayed_len()), (1, 0));
}

struct Told(Sender<Added>);

impl Observer for Told {
    fn added(&self, added: Added) {
        self.0.send(added).unwrap();
    }
}

#[test]
fn an_observer_is_told_what_became_of_a_delay() {
    let (clock, time) = Clock::mock();
    let (told, tells) = channel();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).observer(Told(told)).build();
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
    assert_eq!(tells.try_iter().collect::<Vec<_>>(), expected);
}
