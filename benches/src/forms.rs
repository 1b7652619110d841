//! keyqueue in its forms: with shards, or lock-free.

use common::subject;
use keyqueue::WorkQueue;

/// A queue with this number of shards, [`LOCK_FREE`], or [`LOCK_FREE_16`].
pub struct Shards<const N: usize>(pub WorkQueue<u64>);

/// Stands for the lock-free engine with one shard.
pub const LOCK_FREE: usize = 0;
/// Stands for the lock-free engine with 16 shards.
pub const LOCK_FREE_16: usize = usize::MAX;

const fn name(shards: usize) -> &'static str {
    match shards {
        LOCK_FREE => "keyqueue, lock-free",
        LOCK_FREE_16 => "keyqueue, lock-free, 16 shards",
        1 => "keyqueue, 1 shard",
        _ => "keyqueue, 16 shards",
    }
}

fn make(shards: usize) -> WorkQueue<u64> {
    let builder = WorkQueue::builder();
    match shards {
        LOCK_FREE => builder.lock_free(),
        LOCK_FREE_16 => builder.lock_free().shards(16),
        _ => builder.shards(shards),
    }
    .build()
}

subject!([const N: usize] Shards<N>, u64, name(N), make(N), |queue, key| queue.add(key));
