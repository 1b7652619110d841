//! Numbers for who looks at a queue from outside.

use std::time::Duration;

/// A snapshot of a queue, from [`WorkQueue::stats`](crate::WorkQueue::stats).
///
/// All numbers are of one moment, and they add up: `pushed + deferred == handed_out + taken + len +` the keys in work that will
/// come back. A delay that comes due counts as an add then.
///
/// With a stuck process before you: `longest_running` says that a worker hangs (which key it has, says
/// [`processing_keys`](crate::WorkQueue::processing_keys)), `oldest_in_line` with `waiters` at 0 that there are too few, `delayed` and `failing`
/// that keys wait for their backoff, `next_deadline` at zero that nobody delivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in line.
    pub len: usize,
    /// Keys in work.
    pub processing: usize,
    /// Keys with a delay that is not over. They may be in line or in work besides.
    pub delayed: usize,
    /// Keys whose failures the queue counts, and that were not forgotten since. They may be in line, in work or delayed, or none of
    /// these. With a limiter that counts itself, as one of your own does: only keys for which the limiter panicked.
    pub failing: usize,
    /// Threads and tasks that wait for a key.
    pub waiters: usize,
    /// Threads and tasks that wait for a drain to end, or for the queue to be idle.
    pub drainers: usize,
    /// Adds that put their key in line.
    pub pushed: u64,
    /// Adds that changed nothing: their key was dirty already, or has a delay that stands.
    pub coalesced: u64,
    /// Adds of a key in work, which put it in line when its holder is done.
    pub deferred: u64,
    /// Adds after the shut-down.
    pub rejected: u64,
    /// Hand-outs.
    pub handed_out: u64,
    /// Delays that were set or moved.
    pub delays: u64,
    /// Delays that came due, and whose keys were delivered.
    pub expired: u64,
    /// Calls that asked for a delay or for the limiter's, before the shut-down, whatever came of them: client-go's
    /// `workqueue_retries_total`, which counts plain `add_after` too.
    pub retries: u64,
    /// Calls that asked for the limiter's delay, after the shut-down too: what has failed.
    pub failures: u64,
    /// Keys that were [given up](crate::Item::give_up).
    pub given_up: u64,
    /// Panics of those who held a key: in the work on it, or of the limiter when they asked it.
    pub panics: u64,
    /// Panics of foreign code that the queue has caught, so that the call in which they happened went on: of wakers, of observers in
    /// [`handed_out`](crate::observe::Observer::handed_out) and `driver_failed`, of dropped keys in [`take_where`](crate::WorkQueue::take_where),
    /// and of the limiter for an item that unwinds.
    pub caught_panics: u64,
    /// Failed tries to start the thread that delivers delayed keys, as the process was out of threads or memory. Delays are set all
    /// the same: see [`Driver::Thread`](crate::Driver::Thread).
    pub driver_failures: u64,
    /// Queued keys that were taken out by [`take_where`](crate::WorkQueue::take_where), so that no hand-out follows their adds.
    pub taken: u64,
    /// How long the first in line has waited; zero if none is. If keys become dirty faster than a million a second, it may be one of
    /// the first 16. `None`, as the next two, unless the queue [measures](crate::WorkQueueBuilder::measure).
    pub oldest_in_line: Option<Duration>,
    /// How long the key has been in work that has been there longest; zero if none is. Client-go's
    /// `workqueue_longest_running_processor_seconds`. Never too high; too low, if the key was not measured, by the time until the next
    /// that was, or until somebody asked.
    pub longest_running: Option<Duration>,
    /// How long all keys in work have been there, together. Client-go's `workqueue_unfinished_work_seconds`.
    pub unfinished_work: Option<Duration>,
    /// In what time the earliest delay is over: zero if it is already, and not delivered yet. `Duration::MAX`: never. `None`: there
    /// is no delay. After one was moved or cancelled, this may be that one's for a while, so too early.
    pub next_deadline: Option<Duration>,
    /// Adds are refused.
    pub shutting_down: bool,
}

impl Stats {
    /// How many hand-outs are to come of the adds so far: keys in line, and those in work that will come back. Client-go's
    /// `workqueue_depth`.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.adds() - self.handed_out - self.taken
    }

    /// Adds that led to a hand-out of their own, or will: client-go's `workqueue_adds_total`.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.pushed + self.deferred
    }
}

/// A key that is processing, from [`WorkQueue::processing_keys`](crate::WorkQueue::processing_keys).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessingKey<K> {
    /// A copy of the key.
    pub key: K,
    /// For how long it has been processing. `None` unless the queue [measures](crate::WorkQueueBuilder::measure).
    pub elapsed: Option<Duration>,
}
