//! The queue's workers, for which each key's gate is entered first.

use crate::fleet::{Fleet, NotAllowed, Permit};
use crate::owned_permit::{Jobs, OwnedPermit};
use crate::shared::Shared;
use keyqueue::{AddOptions, IntoOutcome, Item, Leftover, Outcome, Tally};
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::io;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread;
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
    jobs: Jobs,
}

impl<'a, K> Held<'a, K> {
    fn new(item: &'a Item<'a, K>, permit: Permit<'a, K>) -> Self {
        Self { item, permit, jobs: Jobs::default() }
    }

    /// The queue's item, for what its handler may ask: [`until_dirty`](Item::until_dirty), [`num_requeues`](Item::num_requeues).
    pub fn item(&self) -> &'a Item<'a, K> {
        self.item
    }

    /// The key.
    pub fn key(&self) -> &'a K {
        self.item.key()
    }

    /// A permit that can move into what the handler spawns: while it lives, the key is not handed out again and its partition is not handed
    /// over. See [`OwnedPermit`].
    pub fn owned_permit(&self) -> OwnedPermit<K> {
        self.jobs.permit(self.permit.shared, self.permit.entry)
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

fn requeue() -> Outcome {
    Outcome::RequeueWith(AddOptions::new())
}

fn refuse(why: NotAllowed) -> Outcome {
    match why {
        NotAllowed::NotMine => Outcome::Success,
        NotAllowed::Late => requeue(),
    }
}

/// A loop that runs, for [`Fleet::health`].
struct Loop<K>(Arc<Shared<K>>);

impl<K> Loop<K> {
    fn new(shared: &Arc<Shared<K>>) -> Self {
        shared.loops.fetch_add(1, Ordering::AcqRel);
        shared.had_loops.store(true, Ordering::Release);
        Self(Arc::clone(shared))
    }
}

impl<K> Drop for Loop<K> {
    fn drop(&mut self) {
        self.0.loops.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs a handler until it is done, has panicked, or must stop. It looks at the clock before each poll, so a handler does not go on to its
/// next await after its process stood still.
async fn run_unless_lost<K>(held: &Held<'_, K>, handler: impl Future<Output = Outcome>) -> thread::Result<Outcome> {
    let (mut handler, mut lost) = (pin!(handler), pin!(held.permit.lost()));
    let mut just_entered = true; // which has looked at the clock
    poll_fn(|cx| {
        if !mem::take(&mut just_entered) && held.permit.is_lost() {
            return Poll::Ready(Ok(requeue()));
        }
        match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
            Ok(Poll::Ready(outcome)) => Poll::Ready(Ok(outcome)),
            Ok(Poll::Pending) => lost.as_mut().poll(cx).map(|()| Ok(requeue())),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    pub(crate) fn new(fleet: Fleet<K>, workers: keyqueue::Workers<K>) -> Self {
        Self { fleet, workers }
    }

    /// A loop as a future. The number of loops that run is the number of keys that are processed at the same time.
    ///
    /// When the member's deadline is reached, the handler's future is dropped, and the key is queued again: it is processed if the member
    /// can renew its record after all, or dropped if another member has taken the partition. So it is after a
    /// [`release_timeout`](crate::FleetBuilder::release_timeout). The deadline is looked at before each poll: a handler whose process stood
    /// still goes no further than the await at which it waits.
    ///
    /// A dropped handler does not stop what it has spawned: move an [`OwnedPermit`] into that.
    ///
    /// # Cancel safety
    /// See [`keyqueue::Workers::run_async`].
    pub fn run<F, R>(&self, mut handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&Held<'_, K>) -> R,
        R: IntoOutcome,
    {
        let running = Loop::new(&self.fleet.shared);
        self.workers.run_async(async move |item: &Item<'_, K>| -> Outcome {
            let permit = match running.0.enter(item.key()) {
                Ok(permit) => permit,
                Err(why) => {
                    if why == NotAllowed::Late {
                        tokio::time::sleep(LATE_PAUSE).await;
                    }
                    return refuse(why);
                }
            };
            let held = Held::new(item, permit);
            let outcome = run_unless_lost(&held, async { handler(&held).await.into_outcome() }).await;
            held.jobs.wait().await;
            outcome.unwrap_or_else(|panic| resume_unwind(panic))
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
            let running = Loop::new(&self.fleet.shared);
            thread::Builder::new().name("fleet-worker".to_owned()).spawn(move || {
                let running = running;
                workers.workers.run(|item: &Item<'_, K>| match running.0.enter(item.key()) {
                    Ok(permit) => {
                        let held = Held::new(item, permit);
                        let outcome = catch_unwind(AssertUnwindSafe(|| handler(&held).into_outcome()));
                        held.jobs.wait_blocking();
                        outcome.unwrap_or_else(|panic| resume_unwind(panic))
                    }
                    Err(why) => {
                        if why == NotAllowed::Late {
                            thread::sleep(LATE_PAUSE);
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
