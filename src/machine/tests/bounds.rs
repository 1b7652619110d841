//! What a verb does when there is no room, and which memory a slot takes.

use crate::key::KeyHash;
use crate::machine::{BATCH, End, EntryRef, Failure, How, Machine, Mode};
use crate::order::{AnyOrder, Group};
use crate::rate_limiter::{ItemExponentialFailure, RateLimiter};
use crate::time::wheel::MAX_BLOCKS;
use crate::{Added, DelayConflict, DelayedAdd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn add(machine: &mut Machine<u64>, key: u64, how: How<'_>) -> Added {
    machine.add(&mut Some(key), KeyHash(key as u32), Group::default(), how, Mode::PLAIN).0
}

fn says_full<T>(end: std::thread::Result<T>) -> bool {
    let message = end.err().expect("there is no room");
    message.downcast_ref::<String>().is_some_and(|message| message.contains("17 GB"))
}

/// The wheel is full, so each verb that would set a delay panics before it changes anything; a holder asks before.
#[test]
fn a_verb_that_finds_the_wheel_full_changes_nothing() {
    let limiter = ItemExponentialFailure::new(Duration::from_secs(3600), Duration::MAX);
    let schedule = RateLimiter::<u64>::schedule(&limiter).expect("it only counts");
    let mut machine = Machine::<u64>::new(AnyOrder::new(false), DelayedAdd::Independent, 0);
    let soon = How { delay: Some(1), ..How::NOW };
    let later = How { delay: Some(86_400_000_000_000), ..How::NOW };
    assert_eq!([1, 5].map(|key| add(&mut machine, key, soon)), [Added::Delayed; 2]); // one block
    assert_eq!(add(&mut machine, 2, How::NOW), Added::Queued);
    let claimed = machine.get(0, Mode::PLAIN).0.expect("it is queued");
    assert!(machine.has_room_for_delay());
    MAX_BLOCKS.set(1);
    let counts = machine.counts;
    let replaces = How { conflict: DelayConflict::Replace, ..later };
    let fails = How { failure: Failure::Counted(Some(&*schedule)), ..How::NOW };
    for (key, how) in [(3, later), (1, replaces), (4, fails), (1, fails)] {
        let added = catch_unwind(AssertUnwindSafe(|| add(&mut machine, key, how)));
        assert!(says_full(added));
    }
    let requeue = || machine.requeue(&mut None, claimed, later, End::Done, Mode::PLAIN);
    let requeued = catch_unwind(AssertUnwindSafe(requeue));
    assert!(says_full(requeued));
    assert!(!machine.has_room_for_delay());
    assert_eq!((machine.known(), machine.delayed(), machine.failing(), machine.until()), (3, 2, 0, 1));
    assert_eq!(machine.counts, counts);
    // What sets no delay needs no room.
    assert_eq!(add(&mut machine, 3, How { delay: Some(0), ..How::NOW }), Added::Queued);
    let (expired, owed) = machine.expire(1, BATCH, Mode { is_awaited: true, ..Mode::PLAIN });
    assert_eq!((expired.by_answer, expired.has_more, owed.ready()), ([2, 0, 0], false, 2));
    MAX_BLOCKS.set(1000);
    assert_eq!(add(&mut machine, 4, later), Added::Delayed);
}

/// A requeue may be what gives the queue its first priority.
#[test]
fn a_requeue_with_the_first_priority_is_next() {
    let mut machine = Machine::<u64>::new(AnyOrder::new(true), DelayedAdd::Independent, 0);
    for key in [1, 2] {
        let _added = machine.add(&mut Some(key), KeyHash(key as u32), Group::default(), How::NOW, Mode::ORDERED);
    }
    let claimed = machine.get(0, Mode::ORDERED).0.expect("it is queued");
    assert_eq!(*claimed.key(), 1);
    let how = How { priority: 1, ..How::NOW };
    assert!(machine.requeue(&mut None, claimed, how, End::Done, Mode::ORDERED).0.is_ok());
    let next = machine.get(0, Mode::ORDERED).0.expect("it is queued");
    assert_eq!(*next.key(), 1);
    let _gone = machine.done(&mut None, next, End::Done, 0, Mode::ORDERED);
}

/// A queued number takes 32 bytes beside its places in the table and in the order; a failed or delayed one, and a measured one, 32 more each.
#[test]
#[cfg_attr(not(target_pointer_width = "64"), ignore = "the sizes are those of 64-bit targets")]
fn what_a_slot_takes() {
    assert_eq!(Machine::<u64>::BYTES, [32, 32, 32]);
    assert_eq!(size_of::<Option<EntryRef<u64>>>(), 8);
}
