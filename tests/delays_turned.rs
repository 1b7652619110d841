//! Delays with a mock clock and `turn`: from when they count, and how they behave at the clock's last instant.

use keyqueue::observe::Observer;
use keyqueue::{AddOptions, Added, Clock, DelayConflict, Driver, MockClock, WorkQueue};
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
