//! `Stats::oldest_queued` of a long queue, wherever its first key is. (All ages of short ones are compared in `reference/`.)

use keyqueue::{AddOptions, Clock, Priority, TryGetError, WorkQueue};
use std::time::Duration;

#[test]
fn the_oldest_key_has_an_age_wherever_it_is_in_its_block() {
    let queue = WorkQueue::<u32>::builder().measure(true).build();
    queue.add_all(0..100_000);
    std::thread::sleep(Duration::from_millis(20));
    let mut without = Vec::new();
    for popped in 1..=1024 {
        drop(queue.try_get());
        if queue.stats().oldest_queued < Some(Duration::from_millis(1)) {
            without.push(popped);
        }
    }
    assert!(without.is_empty(), "about 99 000 keys are queued, and the oldest has no age after {without:?}");
}

/// With a limit, a key often waits because its own group is full.
#[test]
fn the_oldest_key_may_be_of_a_full_group() {
    for (groups, levels) in [(1, 1), (3, 2), (500, 1), (500, 200)] {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::builder().measure(true).clock(clock);
        let queue = builder.fair_by(move |key: &u32| key % groups).max_processing_per_group(1).build();
        let add = |key| queue.add_with(key, AddOptions::new().priority(Priority((key / groups % levels) as i8)));
        (0..groups).for_each(|key| _ = add(key));
        let held = queue.get_many(usize::MAX);
        assert_eq!((held.len(), queue.stats().oldest_queued), (groups as usize, None));
        (groups..groups * 4).for_each(|key| {
            add(key);
            time.advance(Duration::from_millis(1));
        });
        let oldest = Some(Duration::from_millis(u64::from(groups) * 3));
        assert_eq!(queue.try_get().err(), Some(TryGetError::Empty), "each group is full");
        assert_eq!(queue.stats().oldest_queued, oldest, "{groups} groups, {levels} levels");
        drop(held);
        // Its group may give keys of higher levels before.
        let mut is_gone = false;
        while !is_gone {
            for item in queue.get_many(usize::MAX) {
                is_gone |= *item == groups;
                item.done();
            }
        }
        assert!(queue.stats().oldest_queued < oldest, "{groups} groups, {levels} levels");
    }
}

/// The first 5000 keys are taken out, and the next one is the oldest.
#[test]
fn the_oldest_key_has_an_age_behind_thousands_of_removed_ones() {
    for popped in [false, true] {
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::<u32>::builder().measure(true).clock(clock).build();
        queue.add_all(0..6000);
        time.advance(Duration::from_secs(1));
        let taken = queue.take_where(|&key| key < 5000 && (key > 0 || !popped));
        assert_eq!(taken.queued.len(), if popped { 4999 } else { 5000 });
        if popped {
            drop(queue.try_get());
        }
        assert_eq!(queue.stats().oldest_queued, Some(Duration::from_secs(1)), "popped: {popped}");
    }
}

/// Of each group.
#[test]
fn the_oldest_key_of_a_group_has_an_age() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).measure(true).fair_by(|key: &u32| key % 2).build();
    for key in [1, 3, 2, 5] {
        queue.add(key);
        time.advance(Duration::from_secs(1));
    }
    let mut ages: Vec<_> = queue.inspect().groups().iter().map(|group| (group.key % 2, group.oldest)).collect();
    ages.sort();
    assert_eq!(ages, [(0, Some(Duration::from_secs(2))), (1, Some(Duration::from_secs(4)))]);
}
