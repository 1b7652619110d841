//! The number of loops that `spawn` and `spawn_tasks` have started, which may change while they run.
//!
//! ```text
//!   set_concurrency(n)   more:   begin the new loops under the lock ─ unlock ─ start a thread or a task for each
//!                        fewer:  ending = running − n, under the lock ─ unlock ─ take all getters off their list, and wake them
//!
//!   loop                 between two keys:  ending > 0?  lock, take one off `ending`, end
//!                        in `get`:          go on the list ─ ending > 0?  leave the list ─ otherwise park
//! ```
//!
//! **No loop sleeps through its end.** A loop that waits for a key goes on the getters' list before it looks at `ending`, and a call that
//! wants fewer loops sets `ending` before it takes the getters off the list, for which both take the hub's lock. A loop that comes later
//! therefore sees the number, and one that came earlier is woken, and looks again before it takes a key.
//!
//! A stop ends the loops in the same way, because after a shut-down, too, a loop waits while a group that is held back has queued keys.
//!
//! **No wake-up is lost**, because a loop that leaves the list hands on the wake-up that it may have received for a key, as a dropped
//! `get_async` does (W3).
//!
//! **Who has the handler.** Each loop has a reference to what starts loops of its kind, and that has the handler. The workers have a weak
//! one, so the handler is dropped by the last loop, before a join returns.

use super::run_loop::Loop;
use super::{Inner, Outcome, Workers};
use crate::Item;
use crate::sync::{Arc, spawn};
use std::hash::Hash;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No more loops can be asked for, because the counts of all of them are allocated before the first one starts.
const MOST: usize = 1_000_000;

/// Starts a thread or a task for a loop.
pub(super) trait Start<K>: Send + Sync {
    /// If it fails, the loop has ended.
    fn start(self: std::sync::Arc<Self>, own: Loop<K>) -> io::Result<()>;
}

/// Starts threads.
pub(super) struct Threads<H> {
    name: String,
    /// How many were started, as each has a name of its own.
    started: AtomicUsize,
    handler: H,
}

impl<H> Threads<H> {
    pub(super) fn new(name: String, handler: H) -> Self {
        Self { name, started: AtomicUsize::new(0), handler }
    }
}

impl<K, H> Start<K> for Threads<H>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    H: Fn(&Item<'_, K>) -> Outcome + Send + Sync + 'static,
{
    fn start(self: std::sync::Arc<Self>, own: Loop<K>) -> io::Result<()> {
        let number = self.started.fetch_add(1, Ordering::Relaxed); // Relaxed: a number for a name
        let (name, workers) = (format!("{}-{number}", self.name), Arc::clone(own.workers()));
        let work = (self, own);
        let run = move || {
            let (threads, own) = &work;
            if own.may_begin() {
                own.run(&mut |item: &Item<'_, K>| (threads.handler)(item));
            }
        };
        workers.loops.join_later(spawn(&name, run)?);
        Ok(())
    }
}

impl<K> Inner<K> {
    pub(super) fn start_with<S: Start<K> + 'static>(&self, starter: &std::sync::Arc<S>) {
        let starter: std::sync::Arc<dyn Start<K>> = std::sync::Arc::clone(starter) as _;
        let starters = &mut *self.starters.lock();
        starters.retain(|starter| starter.strong_count() > 0);
        starters.push(std::sync::Arc::downgrade(&starter));
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Changes the number of loops that [`spawn`](crate::WorkersBuilder::spawn) or `spawn_tasks` has started to `n`, so that at most `n`
    /// keys are processed at the same time. Loops of [`run`](Self::run), [`run_async`](Self::run_async) and [`run_boxed`](Self::run_boxed)
    /// neither count nor end.
    ///
    /// If there are fewer loops, more are started, with the same handler. If there are more, a loop that waits for a key ends at once, and
    /// one whose handler runs ends after this run: nothing is interrupted, and no key is lost. Until then
    /// [`Tally::running`](crate::Tally::running) counts it. A loop that is just about to take a key while this is called may process that
    /// key first. After a [`stop`](Self::stop) or [`finish`](Self::finish) this changes nothing.
    ///
    /// If `spawn_tasks` was called several times, `n` is the number of all its tasks together, and new ones get the handler and the runtime
    /// of the last call of which a task is left. To have nothing processed for a while, [pause](crate::WorkQueue::pause) the queue.
    ///
    /// # Errors
    /// With [`InvalidInput`](io::ErrorKind::InvalidInput) if `n` is 0 or more than a million, or if no loop of `spawn` or `spawn_tasks` is
    /// left whose handler a new one could call. With the error of the system if a thread cannot be started: those that were started before
    /// go on.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    ///
    /// let queue = WorkQueue::<u32>::new();
    /// let workers = queue.workers().spawn(2, |n| println!("{n}"))?;
    /// workers.set_concurrency(8)?;
    /// assert_eq!(workers.tally().running, 8);
    ///
    /// workers.set_concurrency(1)?;
    /// queue.add_all([1, 2, 3]); // one after the other
    /// let _leftover = workers.drain();
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "resize")]
    #[doc(alias = "concurrency")]
    pub fn set_concurrency(&self, n: usize) -> io::Result<()> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if n == 0 {
            return invalid("set_concurrency: 0 loops would process no key; `pause` of the queue does that");
        }
        if n > MOST {
            return invalid("set_concurrency: more than a million loops");
        }
        let inner = &self.inner;
        let starter = inner.starters.lock().iter().rev().find_map(std::sync::Weak::upgrade);
        let Some(starter) = starter else {
            return invalid("set_concurrency: no loop of `spawn` or `spawn_tasks` is left");
        };
        let (more, fewer) = inner.loops.resize(n);
        if fewer {
            inner.queue.shared.recall_getters();
        }
        // All are loops before one is started, so that those that could not be started end.
        let more: Vec<_> = more.into_iter().map(|counts| Loop::with(Arc::clone(inner), counts)).collect();
        more.into_iter().try_for_each(|own| std::sync::Arc::clone(&starter).start(own))
    }
}
