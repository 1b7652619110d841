//! Groups that are held back: their limits, rates and pauses change while getters go to sleep.

use keyqueue::{Clock, Driver, GroupLimits, WorkQueue};
use loom::thread::JoinHandle;
use loom_tests::{check, with};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// All keys are in one group.
fn one_group() -> WorkQueue<u64> {
    WorkQueue::builder().fair_by(|_| 0).build()
}

fn getter(queue: &WorkQueue<u64>) -> JoinHandle<Option<u64>> {
    with(queue, |queue| queue.get().map(|item| *item))
}

/// The limit of a full group is raised by two while two getters go to sleep. Each gets a key (W2).
#[test]
fn a_limit_is_raised_while_its_group_is_full() {
    check(|| {
        let queue = WorkQueue::builder().fair_by(|_| 0).max_processing_per_group(1).build();
        queue.add_all([1, 2, 3]);
        let _held = queue.get().unwrap();
        let getters = [(); 2].map(|()| with(&queue, |queue| queue.get().unwrap().into_owned()));
        queue.group(&0).set(GroupLimits::new().max_processing(3)).unwrap();
        let items = getters.map(|getter| getter.join().unwrap()); // both are processing at the same time
        assert_eq!(*items[0] + *items[1], 5);
    });
}

/// A pause ends, by a call, while a getter goes to sleep.
#[test]
fn a_pause_ends_while_a_getter_goes_to_sleep() {
    check(|| {
        let queue = one_group();
        queue.group(&0).pause(Duration::MAX).unwrap();
        queue.add(1);
        let parked = getter(&queue);
        queue.group(&0).resume();
        assert_eq!(parked.join().unwrap(), Some(1));
    });
}

/// The same by its time, which a `turn` finds.
#[test]
fn the_time_of_a_pause_is_over_while_a_getter_goes_to_sleep() {
    check(|| {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::builder().fair_by(|_| 0).clock(clock).driver(Driver::Manual).build();
        queue.group(&0).pause(SECOND).unwrap();
        queue.add(1);
        let parked = getter(&queue);
        time.advance(SECOND);
        queue.turn();
        assert_eq!(parked.join().unwrap(), Some(1));
    });
}

/// After a shut-down a getter waits for the key of a paused group, and returns when that is removed (P6).
#[test]
fn the_last_key_of_a_paused_group_is_removed() {
    check(|| {
        let queue = one_group();
        queue.group(&0).pause(Duration::MAX).unwrap();
        queue.add(1);
        queue.shut_down();
        let parked = getter(&queue);
        assert!(queue.remove(&1));
        assert_eq!(parked.join().unwrap(), None);
    });
}

/// A group waits for a token. Other limits move the entry in the wheel, or take it out, while a `turn` looks whether its time has come.
#[test]
fn the_entry_of_a_rate_meets_other_limits() {
    check(|| {
        let (clock, time) = Clock::mock();
        let rate = |rate| GroupLimits::new().rate(rate, 1);
        let builder = WorkQueue::builder().fair_by(|_: &u64| 0).group_limits(move |_| rate(1.0));
        let queue = builder.clock(clock).driver(Driver::Manual).build();
        queue.add_all([1, 2]);
        queue.get().unwrap().done();
        let parked = getter(&queue);
        time.advance(SECOND / 2);
        let turns = with(&queue, |queue| queue.turn());
        queue.group(&0).set(rate(2.0)).unwrap();
        turns.join().unwrap();
        time.advance(SECOND / 4); // the rest of the token takes half the time now
        queue.turn();
        assert_eq!(parked.join().unwrap(), Some(2));
    });
}
