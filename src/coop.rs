//! How tasks that always find a key let their runtime poll other tasks.
//!
//! A get that finds a key is ready at its first poll, so a task whose handlers never wait either would go on in one poll as long as there
//! are keys. To prevent this, each thread counts the keys that its tasks take without having waited, and after [`KEYS_AT_ONCE`] of them the
//! next future or stream *gives way*: it wakes its task and is pending once, before it takes a key. A loop of [`Workers`](crate::Workers)
//! does the same with a count of its own.
//!
//! **The count is the thread's**, for all its queues, futures and streams together, because a future is made anew for each key, and a count
//! in the queue would be a word that all threads write at each get (P18). Nothing tells when a poll ends, so a task that waits for other
//! things between its keys is now and then polled once more than necessary. For a queue with a given clock the count begins anew when the
//! queue is built (P27).

use crate::panics::contained;
use std::cell::Cell;
use std::task::Waker;

/// The number of keys that were queued already after which a task lets its runtime poll other tasks. Tokio's own channels have the same
/// number.
pub(crate) const KEYS_AT_ONCE: u32 = 128;

thread_local!(static KEYS: Cell<u32> = const { Cell::new(0) });

/// Whether a task of this thread has to give way before it takes the next key.
#[inline]
pub(crate) fn is_due() -> bool {
    // Never in a model, whose threads are coroutines of one thread, so that they have no counts of their own.
    !cfg!(loom) && KEYS.get() >= KEYS_AT_ONCE
}

/// Called when a task of this thread has taken a key without having waited.
#[inline]
pub(crate) fn count_key() {
    KEYS.set(KEYS.get() + 1);
}

/// Counts from zero again.
pub(crate) fn begin_anew() {
    KEYS.set(0);
}

/// Wakes the task, which is pending then. Returns `false` if the waker has panicked, in which case the task goes on, because nothing would
/// poll it again. Not generic, so that it is compiled once.
#[cold]
pub(crate) fn gives_way(waker: &Waker, note_panic: &dyn Fn()) -> bool {
    begin_anew();
    let woken = contained(|| waker.wake_by_ref()).is_some();
    if !woken {
        note_panic();
    }
    woken
}
