//! Permits that move into what a handler spawns.

use crate::gate::Entry;
use crate::shared::Shared;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// The permission to process a key, for work that a handler has spawned: a task, or a thread of `spawn_blocking`. From
/// [`Held::owned_permit`](crate::Held::owned_permit).
///
/// A handler that is dropped does not stop what it has spawned. So move one of these into it, and look at [`is_lost`](Self::is_lost) at
/// least as often as the [grace](crate::FleetBuilder::grace) says. While a permit lives, the partition is not handed over, and the key is
/// not handed out again by the loop that called the handler: the loop waits for it after the handler has returned, was dropped or has
/// panicked.
///
/// If the program aborts the task of that loop, nothing waits for the permit: this process may hand the key out again. Other members do
/// not, because the partition is not handed over.
///
/// # Examples
/// ```no_run
/// use keyqueue_fleet::Workers;
///
/// # fn part_of_the_work(_: &str, _: u64, _: u8) {}
/// # fn example(workers: Workers<String>) {
/// tokio::spawn(workers.run_async(async |held| {
///     let (key, permit) = (held.key().clone(), held.owned_permit());
///     let work = tokio::task::spawn_blocking(move || {
///         for part in 0..100 {
///             if permit.is_lost() {
///                 return;
///             }
///             part_of_the_work(&key, permit.token(), part);
///         }
///     });
///     work.await
/// }));
/// # }
/// ```
pub struct OwnedPermit<K> {
    shared: Arc<Shared<K>>,
    entry: Entry,
    /// The loop waits until all are dropped.
    _job: mpsc::Sender<Infallible>,
}

impl<K> OwnedPermit<K> {
    /// See [`Permit::token`](crate::Permit::token).
    pub fn token(&self) -> u64 {
        self.entry.token
    }

    /// The partition.
    pub fn partition(&self) -> u32 {
        self.entry.partition
    }

    /// Whether the work must stop. See [`Permit::is_lost`](crate::Permit::is_lost).
    pub fn is_lost(&self) -> bool {
        self.shared.is_lost(self.entry)
    }

    /// Waits until the work must stop.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn lost(&self) {
        self.shared.lost(self.entry).await;
    }
}

impl<K> Drop for OwnedPermit<K> {
    fn drop(&mut self) {
        self.shared.after_leaving(self.shared.gates.leave(self.entry.partition));
    }
}

impl<K> fmt::Debug for OwnedPermit<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit")
            .field("partition", &self.partition())
            .field("token", &self.token())
            .field("lost", &self.is_lost())
            .finish()
    }
}

/// What a handler has spawned with permits of its own. Nothing is allocated before the first one.
#[derive(Debug, Default)]
pub(crate) struct Jobs(OnceLock<(mpsc::Sender<Infallible>, mpsc::Receiver<Infallible>)>);

impl Jobs {
    /// One more permit for a holder that is inside.
    pub(crate) fn permit<K>(&self, shared: &Arc<Shared<K>>, entry: Entry) -> OwnedPermit<K> {
        let (job, _) = self.0.get_or_init(|| mpsc::channel(1));
        OwnedPermit { shared: Arc::clone(shared), entry: shared.gates.enter_again(entry), _job: job.clone() }
    }

    fn ended(self) -> Option<mpsc::Receiver<Infallible>> {
        self.0.into_inner().map(|(_sender, receiver)| receiver)
    }

    /// Waits until the permits are dropped.
    pub(crate) async fn wait(self) {
        if let Some(mut ended) = self.ended() {
            _ = ended.recv().await;
        }
    }

    /// Like [`wait`](Self::wait), in a thread.
    pub(crate) fn wait_blocking(self) {
        if let Some(mut ended) = self.ended() {
            _ = ended.blocking_recv();
        }
    }
}
