//! The queue's workers, for which each key's gate is entered first.

use crate::fleet::{Fleet, NotAllowed, Permit};
use crate::owned_permit::{Jobs, OwnedPermit};
use crate::shared::Shared;
use keyqueue::{AddOptions, GivenUp, IntoOutcome, Item, Leftover, Outcome, Tally, WorkQueue};
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::io;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Loops that process the keys of a member's partitions; clones refer to the same loops. From [`Fleet::workers`].
///
/// They are the queue's [`keyqueue::Workers`], and their methods have the same names. A key whose partition another member owns is dropped
/// without a call of the handler. A key that comes after the member's deadline is queued again, and tried a little later.
///
/// What a handler may return: [`IntoOutcome`], as in the queue, so `?` works in it.
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

/// Settings of [`Workers`], from [`Fleet::workers`]: those of [`keyqueue::WorkersBuilder`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use keyqueue::WorkQueue;
/// # use keyqueue_fleet::{Fleet, MemoryStore};
/// # let fleet = Fleet::builder(MemoryStore::new()).build(WorkQueue::<String>::new()).await?;
/// let workers = fleet
///     .workers()
///     .max_retries(15) // a key that fails for 164 s is given up
///     .on_give_up(|key, why| eprintln!("{key}: {why}"))
///     .spawn(4, |key| println!("{key} with token {}", key.token()))?; // four threads
/// # fleet.leave().await;
/// # let _left = workers.stop();
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `spawn` or `build`"]
pub struct WorkersBuilder<K> {
    fleet: Fleet<K>,
    settings: keyqueue::WorkersBuilder<K>,
}

impl<K> fmt::Debug for WorkersBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkersBuilder").field("fleet", &self.fleet).finish_non_exhaustive()
    }
}

/// A key that a handler processes, with its [`Permit`]. It dereferences to the key, and `Display` shows the key, as for the queue's
/// [`Item`].
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

    /// The permission to process the key.
    pub fn permit(&self) -> &Permit<'a, K> {
        &self.permit
    }

    /// A permit that can move into what the handler spawns: while it lives, the key is not handed out again and its partition is not handed
    /// over. See [`OwnedPermit`].
    pub fn owned_permit(&self) -> OwnedPermit<K> {
        self.jobs.permit(self.permit.shared, self.permit.entry)
    }

    /// The fencing token: [`Permit::token`].
    pub fn token(&self) -> u64 {
        self.permit.token()
    }

    /// The key's partition.
    pub fn partition(&self) -> u32 {
        self.permit.partition()
    }

    /// Whether the work must stop: [`Permit::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.permit.is_lost()
    }

    /// Waits until the work must stop.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn lost(&self) {
        self.permit.lost().await;
    }
}

impl<K> Deref for Held<'_, K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.item.key()
    }
}

impl<K: fmt::Display> fmt::Display for Held<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.item.key().fmt(f)
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

/// One key in a thread.
fn process<K, R: IntoOutcome>(
    shared: &Arc<Shared<K>>,
    item: &Item<'_, K>,
    handler: impl FnOnce(&Held<'_, K>) -> R,
) -> Outcome {
    match shared.enter(item.key()) {
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
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> WorkersBuilder<K> {
    pub(crate) fn new(fleet: Fleet<K>) -> Self {
        Self { settings: fleet.shared.queue.workers(), fleet }
    }

    fn with(self, set: impl FnOnce(keyqueue::WorkersBuilder<K>) -> keyqueue::WorkersBuilder<K>) -> Self {
        Self { fleet: self.fleet, settings: set(self.settings) }
    }

    /// The name of the threads: see [`keyqueue::WorkersBuilder::name`].
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|settings| settings.name(name))
    }

    /// How often a failing key is retried, and what an outage means for it: see [`keyqueue::WorkersBuilder::max_retries`].
    pub fn max_retries(self, retries: usize) -> Self {
        self.with(|settings| settings.max_retries(retries))
    }

    /// How long a failing key waits after its last retry: see [`keyqueue::WorkersBuilder::then_after`].
    pub fn then_after(self, delay: Duration) -> Self {
        self.with(|settings| settings.then_after(delay))
    }

    /// A hook for each error of a handler: see [`keyqueue::WorkersBuilder::on_error`].
    pub fn on_error(self, hook: impl Fn(&K, &(dyn Error + Send + Sync)) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_error(hook))
    }

    /// A hook for each panic of a handler: see [`keyqueue::WorkersBuilder::on_panic`].
    pub fn on_panic(self, hook: impl Fn(&K, &str) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_panic(hook))
    }

    /// A hook for each key that is given up: see [`keyqueue::WorkersBuilder::on_give_up`].
    pub fn on_give_up(self, hook: impl Fn(&K, &GivenUp<'_>) + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.on_give_up(hook))
    }

    /// Builds workers without a loop. Add loops with [`spawn_tasks`](Workers::spawn_tasks), [`run_async`](Workers::run_async) or
    /// [`run`](Workers::run).
    ///
    /// # Panics
    /// See [`keyqueue::WorkersBuilder::build`].
    #[track_caller]
    pub fn build(self) -> Workers<K> {
        Workers { fleet: self.fleet, workers: self.settings.build() }
    }

    /// Starts `threads` threads that each run a loop, until the queue is shut down. A handler in a thread cannot be dropped: it must look
    /// at [`is_lost`](Held::is_lost) at least as often as the [grace](crate::FleetBuilder::grace) says.
    ///
    /// # Errors
    /// See [`keyqueue::WorkersBuilder::spawn`]: no thread runs then.
    pub fn spawn<R: IntoOutcome>(
        self,
        threads: usize,
        handler: impl Fn(&Held<'_, K>) -> R + Send + Sync + 'static,
    ) -> io::Result<Workers<K>> {
        let running = Loop::new(&self.fleet.shared); // until the last thread drops its handler
        let workers =
            self.settings.spawn(threads, move |item: &Item<'_, K>| process(&running.0, item, |held| handler(held)))?;
        Ok(Workers { fleet: self.fleet, workers })
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Workers<K> {
    /// Runs a loop in this thread, until the queue is shut down and no key is queued. The handler must look at
    /// [`is_lost`](Held::is_lost), as in [`spawn`](WorkersBuilder::spawn).
    ///
    /// # Blocking
    /// See [`keyqueue::Workers::run`].
    pub fn run<R: IntoOutcome>(&self, mut handler: impl FnMut(&Held<'_, K>) -> R) {
        let running = Loop::new(&self.fleet.shared);
        self.workers.run(|item: &Item<'_, K>| process(&running.0, item, &mut handler));
    }

    /// A loop as a future. The number of loops that run is the number of keys that are processed at the same time. It ends when the queue
    /// is shut down and no key is queued, and when the member has left or its last handle is dropped.
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
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use keyqueue_fleet::{Fleet, MemoryStore};
    /// # async fn read(_: &str) -> Result<String, std::io::Error> { Ok("7".to_owned()) }
    /// use keyqueue::{Outcome, WorkQueue};
    ///
    /// # let fleet = Fleet::builder(MemoryStore::new()).build(WorkQueue::<String>::new()).await?;
    /// let workers = fleet.workers().build();
    /// tokio::spawn(workers.run_async(async |key| -> Result<(), Outcome> {
    ///     let text = read(key).await?; // an io::Error: retried
    ///     let number: u32 = text.parse().map_err(|_| Outcome::GiveUp("no number".into()))?;
    ///     println!("{key}: {number}, token {}", key.token());
    ///     Ok(())
    /// }));
    /// # while fleet.stats().owned < 256 { tokio::task::yield_now().await }
    /// # fleet.add("a".to_owned());
    /// # fleet.queue().wait_idle_async().await;
    /// # assert_eq!(workers.tally().succeeded, 1);
    /// # fleet.leave().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_async<F, R>(&self, mut handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: AsyncFnMut(&Held<'_, K>) -> R,
        R: IntoOutcome,
    {
        let running = Loop::new(&self.fleet.shared);
        let ended = self.fleet.shared.ended();
        let run = self.workers.run_async(async move |item: &Item<'_, K>| -> Outcome {
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
        });
        async move {
            tokio::select! {
                biased;
                () = run => {}
                () = ended => {}
            }
        }
    }

    /// Like [`run_async`](Self::run_async), for a handler that returns boxed futures: see [`keyqueue::Workers::run_boxed`].
    ///
    /// # Cancel safety
    /// Like [`run_async`](Self::run_async).
    pub fn run_boxed<F, R>(&self, mut handler: F) -> impl Future<Output = ()> + use<K, F, R>
    where
        F: for<'i> FnMut(&'i Held<'_, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>>,
        R: IntoOutcome,
    {
        self.run_async(async move |held: &Held<'_, K>| handler(held).await)
    }

    /// Starts `tasks` tasks on the current Tokio runtime, each of which runs a loop as of [`run_boxed`](Self::run_boxed). They end when
    /// such a loop does.
    ///
    /// # Panics
    /// If it is not called within a Tokio runtime, or if `tasks` is 0.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), keyqueue_fleet::FleetError> {
    /// # use keyqueue::WorkQueue;
    /// # use keyqueue_fleet::{Fleet, MemoryStore};
    /// use keyqueue_fleet::Held;
    ///
    /// async fn visit(url: &Held<'_, String>) -> Result<(), std::io::Error> {
    ///     println!("visiting {url} with token {}", url.token());
    ///     Ok(())
    /// }
    ///
    /// # let fleet = Fleet::builder(MemoryStore::new()).build(WorkQueue::<String>::new()).await?;
    /// fleet.workers().build().spawn_tasks(8, |url| Box::pin(visit(url)));
    /// # fleet.leave().await;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn spawn_tasks<F, R>(&self, tasks: usize, handler: F)
    where
        F: for<'i> Fn(&'i Held<'_, K>) -> Pin<Box<dyn Future<Output = R> + Send + 'i>> + Send + Sync + 'static,
        R: IntoOutcome + 'static,
    {
        assert!(tasks > 0, "spawn_tasks: tasks is 0, so no task would process keys");
        let handler = Arc::new(handler);
        for _ in 0..tasks {
            let handler = Arc::clone(&handler);
            tokio::spawn(self.run_async(async move |held: &Held<'_, K>| handler(held).await));
        }
    }

    /// Ends the loops: see [`keyqueue::Workers::stop`]. Call [`Fleet::leave`] before.
    pub fn stop(&self) -> Leftover<K> {
        self.workers.stop()
    }
}

impl<K> Workers<K> {
    /// What the loops have done so far.
    pub fn tally(&self) -> Tally {
        self.workers.tally()
    }

    /// The queue whose keys the loops process.
    pub fn queue(&self) -> &WorkQueue<K> {
        self.workers.queue()
    }

    /// Waits until all loops have ended.
    ///
    /// # Blocking
    /// See [`keyqueue::Workers::join`].
    pub fn join(&self) {
        self.workers.join();
    }

    /// Like [`join`](Self::join), for a task.
    ///
    /// # Cancel safety
    /// Dropping it ends the wait, and changes nothing else.
    pub async fn join_async(&self) {
        self.workers.join_async().await;
    }
}
