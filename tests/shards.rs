//! Queues with several shards: the order holds as promised (P18).
//!
//! That each call finds the shard of its key is judged by the plain queue of `reference/`; that no wake-up is lost in any form of waiting is in
//! `delays_stress.rs`; that one driver thread serves all shards is in `delays_driver.rs`, and
//! that an idle queue was idle in all shards at one moment in `stress.rs`.

use keyqueue::WorkQueue;

fn sharded(shards: usize) -> WorkQueue<u64> {
    WorkQueue::builder().shards(shards).build()
}

#[test]
fn the_number_is_rounded_up_to_a_power_of_two_and_limited() {
    for (asked, got) in [(0, 1), (1, 1), (2, 2), (3, 4), (16, 16), (33, 64), (64, 64), (usize::MAX, 64)] {
        assert_eq!(sharded(asked).shards(), got);
    }
}

/// With one getter a key is overtaken by at most (shards + 2) groups of 64, however long the line is: one group in each shard, one for the
/// shard with which the getter stays, and one for the shard to which its thread has just added a key (P18).
#[test]
fn a_key_is_overtaken_by_a_bounded_number_of_later_ones() {
    for (shards, keys) in [(2, 100_000), (16, 5_000), (16, 300_000), (64, 300_000)] {
        let queue = sharded(shards);
        (0..keys).for_each(|key| _ = queue.add(key));
        let mut order = Vec::new();
        while let Ok(item) = queue.try_get() {
            order.push(*item);
        }
        // Whatever is handed out before the lowest key that is still queued, and is higher, overtakes it.
        let (mut worst, mut lowest) = (0, 0);
        let mut taken = vec![false; keys as usize];
        for (count, key) in order.iter().enumerate() {
            taken[*key as usize] = true;
            while lowest < taken.len() && taken[lowest] {
                lowest += 1;
            }
            worst = worst.max(count + 1 - lowest);
        }
        assert_eq!(order.len(), keys as usize);
        assert!(worst <= (shards + 2) * 64, "{shards} shards, {keys} keys: {worst}");
    }
}
