//! Waiting until nothing is in line and nothing in work.
//!
//! A drain, once adds are refused, marks every busy key as *watched* and counts it; the last `done` of a watched key takes
//! one off the count. Keys that nobody drains pay nothing for this: the mark is a bit of the word that `done` changes anyway.
//!
//! The count is raised under the lock of the key's shard, before `done` could take it down again, and every drainer first
//! marks whatever is not yet marked. So the count is 0 only when nothing is left.

use crate::sync::{Mutex, with_parker};
use crate::wait::{WaitList, Waiter, wake_all};
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Drain(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Watched keys whose last `done` has not come.
    pending: usize,
    /// How often drains were released by a plain shut-down.
    released: u64,
    drainers: WaitList,
}

/// How a drain ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    Empty,
    Released,
    TimedOut,
}

/// A drain that has begun; a release that comes later ends it.
#[derive(Debug)]
pub(crate) struct Drainer {
    released: u64,
}

impl Drain {
    pub(crate) fn begin(&self) -> Drainer {
        Drainer { released: self.0.lock().released }
    }

    /// Watches keys: `mark` marks them and says how many. Under the lock of their shard.
    pub(crate) fn watch(&self, mark: impl FnOnce() -> usize) {
        let mut inner = self.0.lock();
        inner.pending += mark();
    }

    /// The last `done` of a watched key. No lock is held.
    pub(crate) fn done(&self) {
        let mut inner = self.0.lock();
        inner.pending -= 1;
        if inner.pending == 0 {
            let drainers = inner.drainers.take_all();
            drop(inner);
            wake_all(drainers);
        }
    }

    /// Ends the drains that have begun.
    pub(crate) fn release(&self) {
        let mut inner = self.0.lock();
        inner.released += 1;
        let drainers = inner.drainers.take_all();
        drop(inner);
        wake_all(drainers);
    }

    /// Sleeps until the count is 0, the drain is released, or the time is up.
    pub(crate) fn wait(&self, drainer: &Drainer, deadline: Option<Instant>) -> Drained {
        with_parker(|parker| {
            loop {
                let ticket = {
                    let mut inner = self.0.lock();
                    if inner.pending == 0 {
                        return Drained::Empty;
                    }
                    if inner.released != drainer.released {
                        return Drained::Released;
                    }
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Drained::TimedOut;
                    }
                    inner.drainers.push(Waiter::Thread(parker.unparker()))
                };
                parker.park(deadline);
                // All are woken together, so nobody waits for this wake-up if we did not need it.
                drop(self.0.lock().drainers.remove(ticket));
            }
        })
    }

    /// Threads that wait for the end of a drain.
    pub(crate) fn drainers(&self) -> usize {
        self.0.lock().drainers.len()
    }
}
