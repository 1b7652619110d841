//! `Stats::oldest_queued` of a long queue, wherever its first key is; and the ages of a queue that has no such key, or does not measure.

use keyqueue::{AddOptions, Clock, Priority, WorkQueue};
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

/// An age of zero is that of a key: a queue that has none has no age. With an order too (priorities), and with groups that are full.
#[test]
fn without_a_key_there_is_no_age() {
    for (measured, shards, ordered) in
        [(true, 1, false), (true, 1, true), (true, 4, false), (true, 4, true), (false, 1, false), (false, 4, true)]
    {
        let case = format!("measured: {measured}, {shards} shards, ordered: {ordered}");
        let (clock, time) = Clock::mock();
        let queue = WorkQueue::<u32>::builder().measure(measured).shards(shards).clock(clock).build();
        let ages = || {
            let stats = queue.stats();
            assert_eq!(queue.inspect().metrics().stats, stats);
            [stats.oldest_queued, stats.longest_running, stats.unfinished_work]
        };
        let are = |expected: [Option<Duration>; 3]| {
            assert_eq!(ages(), if measured { expected } else { [None; 3] }, "{case}");
        };
        let (zero, second) = (Some(Duration::ZERO), Some(Duration::from_secs(1)));
        are([None, None, zero]);
        for key in 0..2 {
            let options = AddOptions::new().priority(if ordered { Priority::HIGH } else { Priority::NORMAL });
            queue.add_with(key, options);
        }
        are([zero, None, zero]);
        let items = queue.get_many(2);
        are([None, zero, zero]);
        time.advance(Duration::from_secs(1));
        are([None, second, Some(Duration::from_secs(2))]);
        drop(items);
        are([None, None, zero]);
    }

    // A key whose group is full cannot be handed out.
    let (clock, _time) = Clock::mock();
    let builder = WorkQueue::<u32>::builder().measure(true).clock(clock);
    let queue = builder.fair_by(|_: &u32| ()).max_processing_per_group(1).build();
    queue.add_all([1, 2]);
    assert_eq!(queue.stats().oldest_queued, Some(Duration::ZERO));
    let item = queue.get();
    assert_eq!((queue.len(), queue.stats().oldest_queued), (1, None));
    drop(item);
    assert_eq!((queue.len(), queue.stats().oldest_queued), (1, Some(Duration::ZERO)));
}
