//! How tasks that always find a key let their runtime poll other tasks.
//!
//! A get that finds a key is ready at its first poll. So a task whose handlers never wait either would go on in one poll for as long as
//! there are keys. The futures and streams of a queue prevent this: the thread counts the keys that they take without having waited, and
//! after [`KEYS_AT_ONCE`] the next one *gives way*: it wakes its task and is pending once, before it takes a key. A getter that has waited
//! counts nothing, because its task has given way by that.
//!
//! **The count is the thread's.** A future is made anew for each key, so it cannot count. A count in the queue would be a word that each
//! get writes, from all threads (P18), and the thread that reaches the number need not be the one whose tasks wait. So a thread counts
//! its keys of all queues, futures and streams together, and between two polls of other tasks each future or stream takes so many keys at
//! most. Nothing tells when a poll ends, so the count goes on in the next one: a task that waits for other things between its keys is
//! polled once more in so many keys. For a queue with a given clock the count begins anew when the queue is built (P27).
//!
//! A loop of [`Workers`](crate::Workers) counts its own keys, since it looks after each whether the workers were stopped.

use crate::panics::contained;
use std::cell::Cell;
use std::task::Waker;

/// After this number of keys that were queued already, a task lets its runtime poll other tasks. Tokio gives its own channels this number
/// of messages.
pub(crate) const KEYS_AT_ONCE: u32 = 128;

thread_local!(static KEYS: Cell<u32> = const { Cell::new(0) });

/// Whether a task of this thread gives way before it takes the next key.
#[inline]
pub(crate) fn is_due() -> bool {
    // A model's threads are coroutines of one thread, so they have no counts of their own.
    !cfg!(loom) && KEYS.get() >= KEYS_AT_ONCE
}

/// A task of this thread has taken a key without having waited.
#[inline]
pub(crate) fn count_key() {
    KEYS.set(KEYS.get() + 1);
}

/// Counts from zero again.
pub(crate) fn begin_anew() {
    KEYS.set(0);
}

/// Wakes the task, which is pending then. False: the waker has panicked, so nothing would poll the task again, and it goes on. Not generic,
/// so that it is compiled once.
#[cold]
pub(crate) fn gives_way(waker: &Waker, note_panic: &dyn Fn()) -> bool {
    begin_anew();
    let woken = contained(|| waker.wake_by_ref()).is_some();
    if !woken {
        note_panic();
    }
    woken
}
