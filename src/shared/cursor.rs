//! Where each thread takes its next key, in queues with several shards.

use super::locked::Front;
use std::cell::Cell;

/// A shard of some queue. The fields are written one by one, because a load of all of them at once would wait for these stores.
pub(super) struct Spot {
    /// The queue's [number](crate::sync::next_id), or 0. An address would not do, because a later queue may have it again.
    pub(super) queue: Cell<u64>,
    pub(super) shard: Cell<usize>,
    /// How many more keys the thread takes there before it chooses again.
    pub(super) left: Cell<u32>,
}

impl Spot {
    const fn nowhere() -> Self {
        Self { queue: Cell::new(0), shard: Cell::new(0), left: Cell::new(0) }
    }

    /// Whether the thread takes its next key of this queue here.
    #[inline]
    pub(super) fn is_in(&self, queue: u64) -> bool {
        self.left.get() > 0 && self.queue.get() == queue
    }
}

/// Where a thread takes keys.
pub(super) struct Cursor {
    /// Where it stays.
    pub(super) stay: Spot,
    /// Where it has last added a key.
    pub(super) added: Spot,
    /// The front of the shard where it stays, as it was when the thread chose the shard.
    pub(super) front: Cell<Front>,
    /// Whether it waits for the lock of that shard even while other shards have keys.
    pub(super) waits: Cell<bool>,
}

impl Cursor {
    pub(super) const fn new() -> Self {
        Self { stay: Spot::nowhere(), added: Spot::nowhere(), front: Cell::new(Front::LAST), waits: Cell::new(false) }
    }
}

/// Calls `use_it` with the thread's cursor.
#[inline]
pub(super) fn with_cursor<R>(use_it: impl FnOnce(&Cursor) -> R) -> R {
    thread_local!(static CURSOR: Cursor = const { Cursor::new() });
    // A model's threads are coroutines of one thread and have no cursors of their own, so each get chooses.
    if cfg!(loom) { use_it(&Cursor::new()) } else { CURSOR.with(use_it) }
}
