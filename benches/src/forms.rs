//! keyqueue in its forms: with shards, or lock-free.

use common::subject;
use keyqueue::WorkQueue;

/// A queue with this number of shards, or [`LOCK_FREE`].
pub struct Shards<const N: usize>(pub WorkQueue<u64>);

/// Stands for the lock-free engine.
pub const LOCK_FREE: usize = 0;

const fn name(shards: usize) -> &'static str {
    match shards {
        LOCK_FREE => "keyqueue, lock-free",
        1 => "keyqueue, 1 shard",
        _ => "keyqueue, 16 shards",
    }
}

fn make(shards: usize) -> WorkQueue<u64> {
    let builder = WorkQueue::builder();
    if shards == LOCK_FREE { builder.lock_free().build() } else { builder.shards(shards).build() }
}

subject!([const N: usize] Shards<N>, u64, name(N), make(N), |queue, key| queue.add(key));
