//! `Stats::oldest_in_line` of a long queue, wherever the first key is in its block.

use keyqueue::WorkQueue;
use std::time::Duration;

#[test]
fn the_oldest_key_has_an_age_wherever_it_is_in_its_block() {
    let queue = WorkQueue::<u32>::builder().measure(true).build();
    queue.add_all(0..100_000);
    std::thread::sleep(Duration::from_millis(20));
    let mut without = Vec::new();
    for popped in 1..=1024 {
        drop(queue.try_get());
        if queue.stats().oldest_in_line < Some(Duration::from_millis(1)) {
            without.push(popped);
        }
    }
    assert!(without.is_empty(), "about 99 000 keys are queued, and the oldest has no age after {without:?}");
}
