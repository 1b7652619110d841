//! The order in which critical sections took their turns, for the stress run. Not in a normal build.
//!
//! With `--cfg keyqueue_steps` each critical section of a shard draws a number from the shard's counter, under the shard's lock, and leaves
//! it in a list of its thread. A test reads the list after each call, and replays the calls of all threads in the order of the numbers.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The shard's index.
    pub shard: usize,
    /// Its number in the shard, from 0.
    pub number: u64,
}

thread_local! {
    static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    static CLOCK: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The number of critical sections of this thread since [`take`].
#[must_use]
pub fn count() -> usize {
    STEPS.with_borrow(Vec::len)
}

/// The critical sections of this thread since the last call.
#[must_use]
pub fn take() -> Vec<Step> {
    STEPS.take()
}

/// The first time that this thread has read from a queue's clock since the last call.
#[must_use]
pub fn take_time() -> Option<u64> {
    CLOCK.take()
}

/// A critical section of this shard begins.
pub(crate) fn begin(shard: usize, steps: &AtomicU64) {
    let number = steps.fetch_add(1, Relaxed);
    STEPS.with_borrow_mut(|all| all.push(Step { shard, number }));
}

/// This thread has read the clock.
pub(crate) fn has_read(now: u64) {
    CLOCK.set(CLOCK.get().or(Some(now)));
}
