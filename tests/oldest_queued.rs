//! `Stats::oldest_queued` of a long queue, wherever its first key is. (All ages of short ones are compared in `reference/`.)

use keyqueue::{Clock, WorkQueue};
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
