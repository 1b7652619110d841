//! Whether a member does its work.

use crate::fleet::Fleet;
use crate::shared::{Shared, Status};
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why a member does not do its work, from [`Fleet::health`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unhealthy {
    /// The member has left, or another process has its name.
    Left,
    /// The queue is shut down: the member leaves, and hands out no key any more.
    QueueShutDown,
    /// All loops of [workers](Fleet::workers) have ended: nobody processes the keys. Not reported of a program that never had one,
    /// because it may have loops of its own.
    NoWorkers,
    /// A partition waits to be handed over for longer than the [`release_timeout`](crate::FleetBuilder::release_timeout) and the
    /// [grace](crate::FleetBuilder::grace): a handler that was told to stop runs on, or the store cannot be written.
    ReleaseHangs {
        /// How long the partition has waited.
        waited: Duration,
    },
    /// Each request to the store, or each watch, has failed for longer than a [lease](crate::FleetBuilder::lease).
    StoreFails {
        /// For how long.
        since: Duration,
        /// The last error.
        error: String,
    },
    /// The member's deadline is reached: it could not renew its record, or the process stood still. It hands out no key.
    DeadlineReached,
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("the member has left"),
            Self::QueueShutDown => f.write_str("the queue is shut down"),
            Self::NoWorkers => f.write_str("all loops of the workers have ended"),
            Self::ReleaseHangs { waited } => write!(f, "a partition has waited for its handlers for {waited:?}"),
            Self::StoreFails { since, error } => write!(f, "the store has failed for {since:?}: {error}"),
            Self::DeadlineReached => f.write_str("the member could not renew its record in time"),
        }
    }
}

impl std::error::Error for Unhealthy {}

impl<K> Fleet<K> {
    /// Whether the member does its work; if not, one reason why. For a liveness probe: a process that stays unhealthy may be started
    /// again.
    ///
    /// It looks at the clock and does not rely on the member's task. So it also notices that the runtime runs no tasks.
    ///
    /// # Errors
    /// The first [reason](Unhealthy) that holds, in the order of the list there. A short outage of the store is one as soon as the
    /// deadline is reached. So let the probe fail a few times in a row before it acts.
    ///
    /// # Examples
    /// ```
    /// use keyqueue::WorkQueue;
    /// use keyqueue_fleet::{Fleet, MemoryStore, Unhealthy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keyqueue_fleet::FleetError> {
    /// let queue = WorkQueue::<String>::new();
    /// let fleet = Fleet::builder(MemoryStore::new()).build(queue.clone()).await?;
    /// let livez = || match fleet.health() {
    ///     Ok(()) => (200, "ok".to_owned()),
    ///     Err(why) => (503, why.to_string()),
    /// };
    /// assert_eq!(livez().0, 200);
    ///
    /// queue.shut_down();
    /// assert_eq!(fleet.health(), Err(Unhealthy::QueueShutDown));
    /// assert_eq!(livez(), (503, "the queue is shut down".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> Result<(), Unhealthy> {
        let shared = &*self.shared;
        let limits = &shared.limits;
        if matches!(&*shared.status.borrow(), Status::Left | Status::Refused(_)) {
            return Err(Unhealthy::Left);
        }
        if shared.queue.shutting_down() {
            return Err(Unhealthy::QueueShutDown);
        }
        if shared.had_loops.load(Ordering::Acquire) && shared.loops.load(Ordering::Acquire) == 0 {
            return Err(Unhealthy::NoWorkers);
        }
        let now = shared.clock.now();
        let releasing_since = shared.stats.lock().releasing_since;
        if let Some((since, limit)) = releasing_since.zip(limits.release)
            && now.saturating_sub(since) > limit.saturating_add(limits.grace)
        {
            return Err(Unhealthy::ReleaseHangs { waited: Duration::from_nanos(now.saturating_sub(since)) });
        }
        if let Some(since) = store_fails_since(shared)
            && now.saturating_sub(since) > limits.lease
        {
            let error = shared.last_error.lock().as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(Unhealthy::StoreFails { since: Duration::from_nanos(now.saturating_sub(since)), error });
        }
        if now >= shared.gates.deadline() {
            return Err(Unhealthy::DeadlineReached);
        }
        Ok(())
    }
}

fn store_fails_since<K>(shared: &Shared<K>) -> Option<u64> {
    let since = [&shared.requests_fail_since, &shared.watch_fails_since].map(|since| since.load(Ordering::Relaxed));
    since.into_iter().filter(|since| *since != 0).min()
}
