//! The kinds of queues in which adds and hand-outs take different ways.

use keyqueue::{WorkQueue, WorkQueueBuilder};

/// Each with its name.
pub(crate) fn kinds() -> Vec<(&'static str, WorkQueueBuilder<u32>)> {
    let builder = WorkQueue::builder;
    vec![
        ("plain", builder()),
        ("measured", builder().measure(true)),
        ("shards", builder().shards(4)),
        ("groups", builder().fair_by(|key: &u32| key % 3)),
        ("limits", builder().fair_by(|key: &u32| key % 3).max_processing_per_group(100)),
        ("groups in shards", builder().fair_by(|key: &u32| key % 3).shards(4)),
        #[cfg(feature = "lock-free")]
        ("lock-free", builder().lock_free()),
        #[cfg(feature = "lock-free")]
        ("lock-free shards", builder().lock_free().shards(4)),
    ]
}
