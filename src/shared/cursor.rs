//! Where each thread takes its next key, in queues with several shards.

use std::cell::Cell;

/// A shard of some queue. The fields are written one by one, since a load of all of them would wait for the stores of the parts.
pub(super) struct Spot {
    /// The number of the queue, or 0: not its address, which a later queue may have.
    pub(super) queue: Cell<u64>,
    pub(super) shard: Cell<usize>,
    /// How many more keys the thread takes there before it chooses again.
    pub(super) left: Cell<u32>,
}

impl Spot {
    const fn nowhere() -> Self {
        Self { queue: Cell::new(0), shard: Cell::new(0), left: Cell::new(0) }
    }

    /// The thread takes its next key here, if it is of the queue of this number.
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
    /// The rank of the front of the shard where it stays, when it chose that.
    pub(super) rank: Cell<i8>,
    /// It waits for the lock of that shard, also while other shards have keys.
    pub(super) waits: Cell<bool>,
}

impl Cursor {
    pub(super) const fn new() -> Self {
        Self { stay: Spot::nowhere(), added: Spot::nowhere(), rank: Cell::new(0), waits: Cell::new(false) }
    }
}

/// Calls this with the cursor of the thread.
#[inline]
pub(super) fn with_cursor<R>(use_it: impl FnOnce(&Cursor) -> R) -> R {
    thread_local!(static CURSOR: Cursor = const { Cursor::new() });
    // A model's threads are coroutines of one thread, so they have no cursors of their own: each get chooses.
    if cfg!(loom) { use_it(&Cursor::new()) } else { CURSOR.with(use_it) }
}
