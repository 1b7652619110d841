//! The queue's workers, for which each key's gate is entered first.

use crate::fleet::{Fleet, NotAllowed, Permit};
use keyqueue::{AddOptions, IntoOutcome, Item, Leftover, Outcome, Tally};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Loops that process the keys of a member's partitions; clones refer to the same loops. From [`Fleet::workers`].
///
/// They are the queue's [`keyqueue::Workers`]. A key whose partition another member owns is dropped without a call of the handler. A key
/// that comes after the member's deadline is queued again, and tried a little later.
pub struct Workers<K> {
    fleet: Fleet<K>,
    workers: keyqueue::Workers<K>,
}

impl<K> Clone for Workers<K> {
    fn clone(&self) -> Self {
        Self { fleet: self.fleet.clone(), workers: self.workers.clone() }
    }
}

impl<K> fmt::Debug for Workers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

/// A key that a handler processes, with its [`Permit`].
#[derive(Debug)]
pub struct Held<'a, K> {
    item: &'a Item<'a, K>,
    permit: Permit<'a, K>,
}

impl<'a, K> Held<'a, K> {
    /// The queue's item, for what its handler may ask: [`until_dirty`](Item::until_dirty), [`num_requeues`](Item::num_requeues).
    pub fn item(&self) -> &'a Item<'a, K> {
        self.item
    }

    /// The key.
    pub fn key(&self) -> &'a K {
        self.item.key()
    }
}

impl<'a, K> Deref for Held<'a, K> {
    type Target = Permit<'a, K>;

    fn deref(&self) -> &Permit<'a, K> {
        &self.permit
    }
}

/// How long a loop rests when the deadline is reached, with the key that it was handed. Then the key goes to the end of the queue.
const LATE_PAUSE: Duration = Duration::from_millis(100);

fn refuse(why: NotAllowed) -> Outcome {
    match why {
        NotAllowed::NotMine => Outcome::Success,
        NotAllowed::Late => Outcome::RequeueWith(AddOptions::new()),
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    pub(crate) fn new(fleet: Fleet<K>, workers: keyqueue::Workers<K>) -> Self {
        Self { fleet, workers }
    }

    /// A loop as a future. The number of loops that run is the number of keys that are processed at the same time.
    ///
    /// When the member's deadline is reached, the handler's future is dropped, and the key is queued again: it is processed if the member
    /// can renew its record after all, or dropped if another member has taken the partition.
    ///
    /// # Cancel safety
    /// See [`keyqueue::Workers::run_async`].
    pub fn run<F, R>(&self, mut handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&Held<'_, K>) -> R,
        R: IntoOutcome,
    {
        let shared = Arc::clone(&self.fleet.shared);
        self.workers.run_async(async move |item: &Item<'_, K>| -> Outcome {
            let permit = match shared.enter(item.key()) {
                Ok(permit) => permit,
                Err(why) => {
                    if why == NotAllowed::Late {
                        tokio::time::sleep(LATE_PAUSE).await;
                    }
                    return refuse(why);
                }
            };
            let held = Held { item, permit };
            tokio::select! {
                biased;
                outcome = handler(&held) => outcome.into_outcome(),
                () = held.lost() => Outcome::RequeueWith(AddOptions::new()),
            }
        })
    }

    /// Starts `threads` threads that each run a loop. A handler in a thread cannot be dropped: it must look at
    /// [`is_lost`](Permit::is_lost) at least as often as the [grace](crate::FleetBuilder::grace) says.
    ///
    /// # Errors
    /// If a thread cannot be started; those that were started run on.
    pub fn spawn<R: IntoOutcome>(
        &self,
        threads: usize,
        handler: impl Fn(&Held<'_, K>) -> R + Send + Sync + 'static,
    ) -> io::Result<()> {
        let handler = Arc::new(handler);
        for _ in 0..threads {
            let (workers, handler) = (self.clone(), Arc::clone(&handler));
            std::thread::Builder::new().name("fleet-worker".to_owned()).spawn(move || {
                let shared = &workers.fleet.shared;
                workers.workers.run(|item: &Item<'_, K>| match shared.enter(item.key()) {
                    Ok(permit) => handler(&Held { item, permit }).into_outcome(),
                    Err(why) => {
                        if why == NotAllowed::Late {
                            std::thread::sleep(LATE_PAUSE);
                        }
                        refuse(why)
                    }
                });
            })?;
        }
        Ok(())
    }

    /// What the loops have done so far.
    pub fn tally(&self) -> Tally {
        self.workers.tally()
    }

    /// Ends the loops: see [`keyqueue::Workers::stop`]. Call [`Fleet::leave`] before.
    pub fn stop(&self) -> Leftover<K> {
        self.workers.stop()
    }
}
