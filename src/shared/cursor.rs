//! Where each thread takes its next key, in queues with several shards.

use std::cell::Cell;

/// Where a thread takes keys. The fields are written one by one, since a load of all of them would wait for the stores of the parts.
pub(super) struct Cursor {
    /// The number of the queue, or 0: not its address, which a later queue may have.
    pub(super) queue: Cell<u64>,
    pub(super) shard: Cell<usize>,
    /// How many more keys the thread takes from this shard before it chooses again.
    pub(super) left: Cell<u32>,
    /// The level of its front when the thread chose it.
    pub(super) level: Cell<i8>,
    /// It waits for the lock of this shard, also while other shards have keys.
    pub(super) waits: Cell<bool>,
    /// The queue to which the thread has last added a key, the shard, and how many more keys it takes back there before it chooses again.
    pub(super) added_queue: Cell<u64>,
    pub(super) added: Cell<usize>,
    pub(super) own_left: Cell<u32>,
}

impl Cursor {
    pub(super) const fn new() -> Self {
        Self {
            queue: Cell::new(0),
            shard: Cell::new(0),
            left: Cell::new(0),
            level: Cell::new(0),
            waits: Cell::new(false),
            added_queue: Cell::new(0),
            added: Cell::new(0),
            own_left: Cell::new(0),
        }
    }

    /// What another thread does, whose cursor this is.
    #[cfg(test)]
    pub(super) fn of_another<R>(&self, call: impl FnOnce() -> R) -> R {
        let swap = || {
            with_cursor(|here| {
                here.queue.swap(&self.queue);
                here.shard.swap(&self.shard);
                here.left.swap(&self.left);
                here.level.swap(&self.level);
                here.waits.swap(&self.waits);
                here.added_queue.swap(&self.added_queue);
                here.added.swap(&self.added);
                here.own_left.swap(&self.own_left);
            });
        };
        swap();
        let answer = call();
        swap();
        answer
    }
}

/// Calls this with the cursor of the thread.
#[inline]
pub(super) fn with_cursor<R>(use_it: impl FnOnce(&Cursor) -> R) -> R {
    thread_local!(static CURSOR: Cursor = const { Cursor::new() });
    // A model's threads are coroutines of one thread, so they have no cursors of their own: each get chooses.
    if cfg!(loom) { use_it(&Cursor::new()) } else { CURSOR.with(use_it) }
}
