//! Numbers for who looks at a queue from outside.

/// A snapshot of a queue, from [`WorkQueue::stats`](crate::WorkQueue::stats).
///
/// All numbers are of one moment, and they add up: `queued + deferred == handed_out + len +` the keys in work that will come
/// back. A delay that comes due counts as an add then.
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
    /// these. Always 0 with a limiter that counts itself, as one of your own does.
    pub failing: usize,
    /// Threads and tasks that wait for a key.
    pub waiters: usize,
    /// Threads that wait for a drain to end.
    pub drainers: usize,
    /// Adds that put their key in line.
    pub queued: u64,
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
    /// Adds are refused.
    pub shutting_down: bool,
}
