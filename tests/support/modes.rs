//! The orders of a queue.

use keyqueue::{WorkQueue, WorkQueueBuilder};

/// The first number is the group.
pub(crate) type Key = (u32, u32);

/// One of them, with its name.
type Mode = (&'static str, fn() -> WorkQueueBuilder<Key>);

pub(crate) const MODES: [Mode; 6] = [
    ("plain", WorkQueue::builder),
    ("4 shards", || WorkQueue::builder().shards(4)),
    ("groups", fair),
    ("groups, 4 shards", || fair().shards(4)),
    ("limit 1", || fair().max_processing_per_group(1)),
    ("limit 2", || fair().max_processing_per_group(2)),
];

fn fair() -> WorkQueueBuilder<Key> {
    WorkQueue::builder().fair_by(|key: &Key| key.0)
}
