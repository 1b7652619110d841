//! Consumers: loops of [`Workers`](keyqueue::Workers) in threads and in tasks that are aborted at times, and bare loops around each kind
//! of get. The outcome of each key is random.

use crate::fail;
use crate::key::Key;
use crate::ledger::Held;
use crate::produce::{some_delay, some_key, some_options};
use crate::world::{World, count};
use fastrand::Rng;
use keyqueue::{Added, GetTimeoutError, Item, Outcome, OwnedItem, Workers};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

/// The number of retries of a key.
pub const RETRIES: usize = 4;

/// The message of a planned panic, which is not printed.
struct Planned;

/// One hand-out, from its start to its end.
struct Run<'w> {
    world: &'w World,
    id: u32,
    rng: Rng,
    /// Dropped before the key is done, even when a handler panics or is aborted.
    _held: Held<'w>,
}

impl<'w> Run<'w> {
    fn begin(world: &'w World, key: &Key) -> Self {
        let held = world.ledger.begin(key.id);
        let mut rng = Rng::with_seed(world.seed ^ u64::from(key.id) << 32 ^ u64::from(held.seen));
        if rng.u8(..16) == 0 && !key.is_whole() {
            fail(format_args!("key {} is not what was added: {key:?}", key.id));
        }
        Self { world, id: key.id, rng, _held: held }
    }

    /// Random calls of a handler to its own queue.
    fn meddle(&mut self, is_dirty: impl Fn() -> bool) {
        let (world, rng, id) = (self.world, &mut self.rng, self.id);
        match rng.u16(..256) {
            0..32 => {
                for _ in 0..rng.u8(1..4) {
                    let added = world.add(id);
                    let right = matches!(added, Added::Deferred | Added::Coalesced | Added::Rejected);
                    if !right || added != Added::Rejected && !is_dirty() {
                        fail(format_args!(
                            "key {id} is processed, an add was {added:?}, and it is dirty: {}",
                            is_dirty()
                        ));
                    }
                }
            }
            32..36 => _ = world.add(some_key(rng)),
            36..40 => _ = world.add_after(id, some_delay(rng)),
            40..42 => world.cancel(id),
            42 => world.queue.forget(&Key::new(id)),
            43..46 => thread::yield_now(),
            46 if rng.u8(..16) == 0 => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }

    /// Chooses the outcome of the key. May panic.
    fn outcome(mut self, panics: &AtomicU64, promise: bool) -> Outcome {
        let (world, rng) = (self.world, &mut self.rng);
        let lot = rng.u8(..100);
        if lot < 80 || world.is_ending() {
            return Outcome::Success;
        }
        // A key that is to come back is accepted, or given up, unless the queue is shut down.
        let ticket = world.ledger.ticket(self.id);
        if promise && lot < 98 {
            world.ledger.later(ticket);
        }
        match lot {
            80..88 => Outcome::Retry,
            88..91 => Outcome::Failed("planned".into()),
            91..94 => Outcome::RequeueAfter(some_delay(rng)),
            94..96 => Outcome::RequeueWith(some_options(rng)),
            96..98 => {
                count(panics);
                resume_unwind(Box::new(Planned))
            }
            _ => Outcome::GiveUp("no use".into()),
        }
    }
}

/// The handler of threads.
pub fn handle(world: &World, item: &Item<'_, Key>) -> Outcome {
    let mut run = Run::begin(world, item);
    run.meddle(|| item.is_dirty());
    run.outcome(&world.counts.panics_in_workers, true)
}

/// The handler of tasks, which may be aborted at any await.
pub async fn handle_async(world: &World, item: &Item<'_, Key>) -> Outcome {
    let mut run = Run::begin(world, item);
    run.meddle(|| item.is_dirty());
    match run.rng.u16(..1024) {
        0..32 => tokio::task::yield_now().await,
        32 => tokio::time::sleep(Duration::from_millis(1)).await,
        33..36 => {
            tokio::select! {
                () = item.until_dirty() => {}
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
        }
        _ => {}
    }
    run.outcome(&world.counts.panics_in_workers, true)
}

/// Loops in tasks. Each task is aborted after some milliseconds, whatever it is doing, and replaced by another.
pub async fn aborted_loops(world: Arc<World>, workers: Workers<Key>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.queue.shutting_down() {
        let its_world = Arc::clone(&world);
        let own =
            tokio::spawn(workers.run_async(async move |item: &Item<'_, Key>| handle_async(&its_world, item).await));
        tokio::time::sleep(Duration::from_millis(rng.u64(1..50))).await;
        own.abort();
        if own.await.is_err_and(|error| error.is_cancelled()) {
            count(&world.counts.aborted);
        }
    }
}

/// A holder outside `Workers`: it updates the ledger, calls the queue, and finishes the key.
trait Bare: std::ops::Deref<Target = Key> + Sized {
    fn is_dirty(&self) -> bool;
    fn finish(self, world: &World, outcome: Outcome);

    /// May panic while it holds the item, which is then retried.
    fn work(self, world: &World) {
        let held = Run::begin(world, &self);
        self.work_held(world, held);
    }

    fn work_held(self, world: &World, mut run: Run<'_>) {
        run.meddle(|| self.is_dirty());
        let outcome = run.outcome(&world.counts.panics_outside, false);
        self.finish(world, outcome);
    }
}

macro_rules! bare {
    ($item:ty) => {
        impl Bare for $item {
            fn is_dirty(&self) -> bool {
                <$item>::is_dirty(self)
            }

            fn finish(self, world: &World, outcome: Outcome) {
                let (id, counts) = (self.id, &world.counts);
                match outcome {
                    Outcome::Retry | Outcome::Failed(_) if self.num_requeues() < RETRIES => {
                        world.requeue(id, &counts.limited, || self.retry());
                    }
                    Outcome::RequeueAfter(delay) => world.requeue(id, &counts.requeues, || self.requeue_after(delay)),
                    Outcome::RequeueWith(options) => world.requeue(id, &counts.requeues, || self.requeue_with(options)),
                    Outcome::Success if id % 2 == 0 => drop(self),
                    Outcome::Success => self.succeed(),
                    _ => {
                        count(&counts.give_ups);
                        self.give_up();
                    }
                }
            }
        }
    };
}

bare!(Item<'_, Key>);
bare!(OwnedItem<Key>);

/// Calls `run`, and catches planned panics.
fn contained(run: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { return };
    if !payload.is::<Planned>() {
        resume_unwind(payload);
    }
}

/// `get` and `get_many`; some items go to a thread of their own.
pub fn bare_gets(world: &Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    loop {
        if rng.u8(..8) == 0 {
            let items = world.queue.get_many(rng.usize(2..20));
            if items.is_empty() {
                return;
            }
            // All items are held from here on.
            let runs: Vec<_> = items.iter().map(|item| Run::begin(world, item)).collect();
            items.into_iter().zip(runs).for_each(|(item, run)| contained(|| item.work_held(world, run)));
            continue;
        }
        let Some(item) = world.queue.get() else { return };
        if rng.u16(..1024) > 0 {
            contained(|| item.work(world));
            continue;
        }
        count(&world.counts.items_sent);
        let (item, its_world) = (item.into_owned(), Arc::clone(world));
        let sent = thread::spawn(move || contained(|| item.work(&its_world)));
        sent.join().expect("only planned panics");
    }
}

/// `get_timeout` and `try_get`.
pub fn bare_timeouts(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    loop {
        let found = match rng.u8(..8) {
            0 => match world.queue.try_get() {
                Ok(item) => Ok(item),
                Err(error) if error.is_shut_down() => Err(GetTimeoutError::ShutDown),
                Err(_) => Err(GetTimeoutError::Timeout),
            },
            _ => world.queue.get_timeout(Duration::from_micros(rng.u64(..2_000))),
        };
        match found {
            Ok(item) => contained(|| item.work(world)),
            Err(error) if error.is_shut_down() => return,
            Err(_) => count(&world.counts.timeouts),
        }
    }
}

/// `get_async`, dropped when it has waited for a while.
pub async fn bare_tasks(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    loop {
        let patience = Duration::from_micros(rng.u64(..3_000));
        match tokio::time::timeout(patience, world.queue.get_async()).await {
            Ok(Some(item)) => contained(|| item.work(&world)),
            Ok(None) => return,
            Err(_) => count(&world.counts.dropped_gets),
        }
        if rng.u8(..32) == 0 {
            tokio::task::yield_now().await;
        }
    }
}
