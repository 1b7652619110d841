//! All features of the crate at once, for `SOAK_SECONDS` (3 by default): no add is lost, no key has two holders, and nothing is left.
//!
//! ```text
//!  producers: a thread, threads that come and go, tasks       workers: threads, tasks (some aborted), bare loops of each get
//!        └────────────────▶  one queue, of keys that count themselves  ◀────────────────┘
//!        again and again: producers pause, the queue rests, a burst, it rests; the accounts and memory are checked; producers go on
//! ```
//!
//! Each key has an account of the hand-outs that the queue owes it:
//!
//! ```text
//!  producer:     ticket = asked += 1   ─▶   add     ─▶  accepted: due = max(due, ticket)        (or later, for a delay)
//!  canceller:                               cancel  ─▶  there was a delay: excused = asked
//!  holder:       seen = asked          ─▶   work
//! ```
//!
//! An accepted add is followed by a hand-out that begins after it, and sees what came before the add: its ticket too. All accesses to
//! accounts are Relaxed: only the queue's promise makes a ticket visible. The first failure is printed, and ends the process with status 1.

use fastrand::Rng;
use keyqueue::observe::Observer;
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, Added, DelayConflict, Item, OnPanic, Outcome, OwnedItem, WorkQueue, Workers};
use parking_lot::Mutex;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A few keys that all producers add, more that are added now and then, and the rest, which a burst adds too.
const HOT: u32 = 64;
const WARM: u32 = 4096;
const KEYS: u32 = 1 << 18;
/// Producers pause when this number of keys is queued.
const BACKLOG: usize = 20_000;
/// The number of retries of a key.
const RETRIES: usize = 4;
/// The rounds of a run, or more: their memory is compared.
const ROUNDS: usize = 7;

/// A check failed.
fn fail(message: impl Display) -> ! {
    eprintln!("soak: FAILED: {message}");
    std::process::exit(1)
}

static LIVE: AtomicI64 = AtomicI64::new(0);

/// A key, with a text in one of three. The live ones are counted.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    id: u32,
    name: Option<String>,
}

impl Key {
    fn new(id: u32) -> Self {
        Self::with_name(id, name(id))
    }

    fn with_name(id: u32, name: Option<String>) -> Self {
        LIVE.fetch_add(1, Relaxed);
        Self { id, name }
    }
}

fn name(id: u32) -> Option<String> {
    id.is_multiple_of(3).then(|| format!("namespace-{:03}/pod-{id:09}", id % 100))
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::with_name(self.id, self.name.clone())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Relaxed);
    }
}

#[derive(Default)]
struct Account {
    asked: AtomicU32,
    due: AtomicU32,
    later: AtomicU32,
    excused: AtomicU32,
    seen: AtomicU32,
    held: AtomicBool,
}

/// What all threads and tasks share.
struct World {
    queue: WorkQueue<Key>,
    accounts: Vec<Account>,
    hand_outs: AtomicU64,
    /// Adds by producers, handlers and bare holders, with the panics of these.
    calls: AtomicU64,
    events: Arc<Events>,
    /// Producers hold it (shared) while they add. The main thread takes it (exclusively) so that the queue comes to rest.
    gate: tokio::sync::RwLock<()>,
    /// Keys with delays of hours, to be cancelled before the queue can rest.
    far: Mutex<Vec<u32>>,
    /// The queue may be shut down at any moment; producers are to end; the watchdog is to end.
    ending: AtomicBool,
    stop: AtomicBool,
    over: AtomicBool,
    /// What the main thread waits for.
    stage: Mutex<&'static str>,
}

/// Counts what an observer is told.
#[derive(Default)]
struct Events {
    added: AtomicU64,
    done: AtomicU64,
    reports: AtomicU64,
}

struct Listener(Arc<Events>);

impl Observer for Listener {
    fn added(&self, _: Added) {
        self.0.added.fetch_add(1, Relaxed);
    }

    fn done(&self, _: Option<Duration>) {
        self.0.done.fetch_add(1, Relaxed);
    }

    fn report(&self, _: &str, _: &keyqueue::observe::Metrics) {
        self.0.reports.fetch_add(1, Relaxed);
    }
}

impl World {
    fn account(&self, id: u32) -> &Account {
        &self.accounts[id as usize]
    }

    fn ticket(&self, id: u32) -> u32 {
        self.account(id).asked.fetch_add(1, Relaxed) + 1
    }

    /// Enters an add in the key's account. A delay does not hold up a plain add.
    fn book(&self, id: u32, is_plain: bool, add: impl FnOnce() -> Added) -> Added {
        self.calls.fetch_add(1, Relaxed);
        let (account, ticket) = (self.account(id), self.ticket(id));
        let added = add();
        match added {
            Added::Queued | Added::Deferred => _ = account.due.fetch_max(ticket, Relaxed),
            Added::Coalesced if is_plain => _ = account.due.fetch_max(ticket, Relaxed),
            Added::Rejected => {}
            _ => _ = account.later.fetch_max(ticket, Relaxed),
        }
        added
    }

    fn add(&self, id: u32) -> Added {
        self.book(id, true, || self.queue.add(Key::new(id)))
    }

    fn add_with(&self, id: u32, options: AddOptions) -> Added {
        self.book(id, false, || self.queue.add_with(Key::new(id), options))
    }

    /// Must not be called while the queue may be shut down.
    fn add_all(&self, ids: impl Iterator<Item = u32>) {
        self.queue.add_all(ids.map(|id| {
            self.calls.fetch_add(1, Relaxed);
            self.account(id).due.fetch_max(self.ticket(id), Relaxed);
            Key::new(id)
        }));
    }

    /// No delay of the key is left: delayed adds before this need no hand-out.
    fn excuse(&self, id: u32) {
        let account = self.account(id);
        account.excused.fetch_max(account.asked.load(Relaxed), Relaxed);
    }

    fn cancel(&self, id: u32) {
        if self.queue.cancel(&Key::new(id)) {
            self.excuse(id);
        }
    }

    fn take_delayed(&self) {
        self.queue.take_delayed().iter().for_each(|delayed| self.excuse(delayed.key.id));
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Relaxed)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn stage(&self, name: &'static str) {
        *self.stage.lock() = name;
    }

    /// Checks that no hand-out is owed any more.
    fn settle(&self, when: &str) {
        for (id, Account { due, later, excused, seen, held, .. }) in self.accounts.iter().enumerate() {
            let [due, later, excused, seen] = [due, later, excused, seen].map(|ticket| ticket.load(Relaxed));
            if held.load(Relaxed) {
                fail(format_args!("{when}: key {id} is held, but the queue says that no key is processing"));
            }
            if due > seen || later > seen.max(excused) {
                fail(format_args!(
                    "{when}: key {id} lost an add: accepted {due}, delayed {later}, cancelled {excused}, seen {seen}"
                ));
            }
        }
    }
}

fn some_key(rng: &mut Rng) -> u32 {
    match rng.u8(..4) {
        0 | 1 => rng.u32(..HOT),
        2 => rng.u32(..WARM),
        _ => rng.u32(..KEYS),
    }
}

/// Some milliseconds, seldom many; now and then none.
fn some_delay(rng: &mut Rng) -> Duration {
    match rng.u8(..16) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(rng.u64(..100)),
        _ => Duration::from_micros(rng.u64(..5_000)),
    }
}

fn some_options(rng: &mut Rng) -> AddOptions {
    let conflict = [DelayConflict::EarliestWins, DelayConflict::Replace, DelayConflict::KeepExisting][rng.usize(..3)];
    AddOptions::new().after(some_delay(rng)).conflict(conflict)
}

/// A call of a producer.
fn call(world: &World, rng: &mut Rng) {
    let id = some_key(rng);
    match rng.u32(..1000) {
        0..600 => _ = world.add(id),
        600..820 => _ = world.add_with(id, some_options(rng)),
        820..870 => _ = world.book(id, false, || world.queue.add_rate_limited(Key::new(id))),
        870..930 => world.cancel(id),
        930..960 => world.queue.forget(&Key::new(id)),
        960..980 => {
            world.far.lock().push(id);
            world.add_with(id, some_options(rng).after(Duration::from_secs(3600)));
        }
        980..995 if !world.is_ending() => world.add_all((0..rng.usize(1..32)).map(|_| some_key(rng))),
        995 if rng.u8(..100) == 0 && !world.is_ending() => world.take_delayed(),
        996 if rng.u8(..100) == 0 => world.queue.shrink_to_fit(),
        _ => check_numbers(world),
    }
}

/// The queue's numbers add up at each moment.
fn check_numbers(world: &World) {
    let stats = world.queue.inspect().metrics().stats;
    let coming_back = stats.adds().checked_sub(stats.handed_out + stats.len as u64);
    if coming_back.is_none_or(|keys| keys > stats.processing as u64) {
        fail(format_args!("adds do not match hand-outs so far and those still owed: {stats:?}"));
    }
}

/// A producer: some batches of calls, with the gate open.
fn produce(world: &World, seed: u64, batches: u64) {
    let mut rng = Rng::with_seed(seed);
    for _ in (0..batches).take_while(|_| !world.is_stopped()) {
        let open = world.gate.blocking_read();
        (0..64).for_each(|_| call(world, &mut rng));
        drop(open);
        if world.queue.len() > BACKLOG {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

async fn produce_in_a_task(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_stopped() {
        let open = world.gate.read().await;
        (0..64).for_each(|_| call(&world, &mut rng));
        drop(open);
        tokio::time::sleep(Duration::from_millis(u64::from(world.queue.len() > BACKLOG))).await;
    }
}

/// Three producers at a time, which end soon.
fn short_threads(world: &World, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.is_stopped() {
        thread::scope(|scope| {
            for _ in 0..3 {
                let (seed, batches) = (rng.u64(..), rng.u64(1..40));
                scope.spawn(move || produce(world, seed, batches));
            }
        });
    }
}

/// The message of a planned panic, which is not printed.
struct Planned;

/// One hand-out. It is dropped before the key is done, even when a handler panics or is aborted.
struct Run<'w> {
    world: &'w World,
    id: u32,
    rng: Rng,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !self.world.account(self.id).held.swap(false, Relaxed) {
            fail(format_args!("key {} had two holders", self.id));
        }
    }
}

impl<'w> Run<'w> {
    fn begin(world: &'w World, key: &Key) -> Self {
        world.hand_outs.fetch_add(1, Relaxed);
        let account = world.account(key.id);
        if account.held.swap(true, Relaxed) {
            fail(format_args!("key {} has two holders", key.id));
        }
        let seen = account.asked.load(Relaxed);
        account.seen.fetch_max(seen, Relaxed);
        let mut rng = Rng::with_seed(u64::from(key.id) << 32 ^ u64::from(seen));
        if rng.u8(..16) == 0 && key.name != name(key.id) {
            fail(format_args!("not what was added: {key:?}"));
        }
        Self { world, id: key.id, rng }
    }

    /// Calls of a handler to its own queue.
    fn meddle(&mut self, is_dirty: impl Fn() -> bool) {
        let (world, rng, id) = (self.world, &mut self.rng, self.id);
        match rng.u16(..256) {
            0..32 => {
                let (added, dirty) = (world.add(id), is_dirty());
                let right = matches!(added, Added::Deferred | Added::Coalesced) && dirty;
                if !right && added != Added::Rejected {
                    fail(format_args!("key {id} is processed, an add was {added:?}, and it is dirty: {dirty}"));
                }
            }
            32..36 => _ = world.add(some_key(rng)),
            36..40 => _ = world.add_with(id, some_options(rng)),
            40..42 => world.cancel(id),
            42 => world.queue.forget(&Key::new(id)),
            43..46 => thread::yield_now(),
            46 if rng.u8(..16) == 0 => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }

    /// May panic. A key that a worker's handler sends back comes again, or is given up, unless the queue is shut down.
    fn outcome(mut self, in_workers: bool) -> Outcome {
        let (world, rng) = (self.world, &mut self.rng);
        let lot = rng.u8(..100);
        if lot < 80 || world.is_ending() {
            return Outcome::Success;
        }
        let ticket = world.ticket(self.id);
        if in_workers && lot < 98 {
            world.account(self.id).later.fetch_max(ticket, Relaxed);
        }
        match lot {
            80..88 => Outcome::Retry,
            88..91 => Outcome::Failed("planned".into()),
            91..94 => Outcome::RequeueAfter(some_delay(rng)),
            94..96 => Outcome::RequeueWith(some_options(rng)),
            96..98 => {
                world.calls.fetch_add(u64::from(!in_workers), Relaxed);
                resume_unwind(Box::new(Planned))
            }
            _ => Outcome::GiveUp("no use".into()),
        }
    }
}

fn handle(world: &World, item: &Item<'_, Key>) -> Outcome {
    let mut run = Run::begin(world, item);
    run.meddle(|| item.is_dirty());
    run.outcome(true)
}

/// The handler of tasks, which may be aborted at any await.
async fn handle_async(world: &World, item: &Item<'_, Key>) -> Outcome {
    let mut run = Run::begin(world, item);
    run.meddle(|| item.is_dirty());
    match run.rng.u16(..1024) {
        0..32 => tokio::task::yield_now().await,
        32 => tokio::time::sleep(Duration::from_millis(1)).await,
        33..36 => _ = tokio::time::timeout(Duration::from_millis(2), item.until_dirty()).await,
        _ => {}
    }
    run.outcome(true)
}

/// Loops in tasks. Each task is aborted after some milliseconds, whatever it is doing, and replaced by another.
async fn aborted_loops(world: Arc<World>, workers: Workers<Key>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.queue.shutting_down() {
        let its_world = Arc::clone(&world);
        let own =
            tokio::spawn(workers.run_async(async move |item: &Item<'_, Key>| handle_async(&its_world, item).await));
        tokio::time::sleep(Duration::from_millis(rng.u64(1..50))).await;
        own.abort();
        _ = own.await;
    }
}

/// A holder outside `Workers`. It may panic while it holds the item, which is then retried.
fn hold(world: &World, item: OwnedItem<Key>, mut run: Run<'_>) {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        run.meddle(|| item.is_dirty());
        let (id, outcome) = (run.id, run.outcome(false));
        match outcome {
            Outcome::Retry | Outcome::Failed(_) if item.num_requeues() < RETRIES => {
                world.book(id, false, || item.retry());
            }
            Outcome::RequeueAfter(delay) => _ = world.book(id, false, || item.requeue_after(delay)),
            Outcome::RequeueWith(options) => _ = world.book(id, false, || item.requeue_with(options)),
            Outcome::Success if id % 2 == 0 => drop(item),
            Outcome::Success => item.succeed(),
            _ => item.give_up(),
        }
    }));
    if let Err(payload) = ended
        && !payload.is::<Planned>()
    {
        resume_unwind(payload);
    }
}

fn hold_now(world: &World, item: Item<'_, Key>) {
    let run = Run::begin(world, &item);
    hold(world, item.into_owned(), run);
}

/// `get`, `get_many`, `get_timeout` and `try_get`; some items go to a thread of their own.
fn bare_gets(world: &Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.queue.shutting_down() || !world.queue.is_empty() {
        match rng.u16(..1024) {
            0 => {
                let Some(item) = world.queue.get() else { return };
                let (item, world) = (item.into_owned(), Arc::clone(world));
                let sent = thread::spawn(move || {
                    let run = Run::begin(&world, &item);
                    hold(&world, item, run);
                });
                sent.join().expect("only planned panics");
            }
            1..128 => {
                let items = world.queue.get_many(rng.usize(2..20));
                // All items are held from here on.
                let runs: Vec<_> = items.iter().map(|item| Run::begin(world, item)).collect();
                items.into_iter().zip(runs).for_each(|(item, run)| hold(world, item.into_owned(), run));
            }
            128..256 => _ = world.queue.try_get().map(|item| hold_now(world, item)),
            256..640 => _ = world.queue.get().map(|item| hold_now(world, item)),
            _ => {
                let patience = Duration::from_micros(rng.u64(..2_000));
                _ = world.queue.get_timeout(patience).map(|item| hold_now(world, item));
            }
        }
    }
}

/// `get_async`, dropped when it has waited for a while.
async fn bare_tasks(world: Arc<World>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    loop {
        let patience = Duration::from_micros(rng.u64(..3_000));
        match tokio::time::timeout(patience, world.queue.get_async()).await {
            Ok(Some(item)) => hold_now(&world, item),
            Ok(None) => return,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Fails if for a minute the main thread waits for the same, and no key is handed out.
fn watch(world: &World) {
    let (mut quarters, mut before) = (0, ("", 0));
    while !world.over.load(Relaxed) {
        thread::sleep(Duration::from_millis(250));
        let now = (*world.stage.lock(), world.hand_outs.load(Relaxed));
        quarters = if now == before { quarters + 1 } else { 0 };
        before = now;
        if quarters == 240 {
            fail(format_args!("waited for a minute for {}: {:?}", now.0, world.queue));
        }
    }
}

/// Waits until nothing is left to do, and checks the accounts. The producers must be paused.
fn rest(world: &World, runtime: &tokio::runtime::Runtime, round: usize) {
    world.stage("the queue to be idle");
    if round % 4 == 3 {
        world.take_delayed(); // handlers may set delays meanwhile
    }
    let far = std::mem::take(&mut *world.far.lock());
    far.into_iter().for_each(|id| world.cancel(id));
    if round.is_multiple_of(2) {
        world.queue.wait_idle();
    } else {
        runtime.block_on(world.queue.wait_idle_async());
    }
    world.stage("the check of the accounts");
    let (stats, hand_outs) = (world.queue.stats(), world.hand_outs.load(Relaxed));
    let left = stats.len + stats.processing + stats.delayed;
    if left > 0 || stats.adds() != stats.handed_out || stats.handed_out != hand_outs {
        fail(format_args!("at rest, the numbers do not add up: {hand_outs} hand-outs, {stats:?}"));
    }
    world.settle("at rest");
    is_zero("keys that the queue does not need", || LIVE.load(Relaxed) - world.queue.stats().failing as i64);
}

/// Many keys at once. When they have been handed out, all keys are forgotten.
fn burst(world: &World, runtime: &tokio::runtime::Runtime, round: usize) {
    world.stage("a burst");
    for (n, from) in (0..KEYS).step_by(10_000).enumerate() {
        let mut ids = from..KEYS.min(from + 10_000);
        match n % 4 {
            0 => ids.for_each(|id| _ = world.add(id)),
            1 => ids.for_each(|id| {
                let delay = Duration::from_micros(u64::from(id % 50_000));
                world.book(id, false, || world.queue.add_after(Key::new(id), delay));
            }),
            _ => world.add_all(ids.by_ref()),
        }
    }
    rest(world, runtime, round);
    (0..KEYS).for_each(|id| world.queue.forget(&Key::new(id)));
    is_zero("failures that were forgotten", || world.queue.stats().failing as i64);
    is_zero("keys that were forgotten", || LIVE.load(Relaxed));
}

/// Threads that end by themselves need a moment: up to ten seconds.
fn is_zero(what: &str, value: impl Fn() -> i64) {
    for _ in 0..1_000 {
        if value() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    fail(format_args!("{what}: {}", value()));
}

/// Bytes at rest, as the allocator counts them, and as the system does when the allocator has given back what it keeps.
fn memory() -> [usize; 2] {
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a Linux with /proc");
    let resident: usize = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    let stats = ALLOCATOR.stats();
    [stats.bytes_allocated - stats.bytes_deallocated, resident * 4096]
}

/// The lowest sample of the second half is compared with the lowest of the first: single samples differ by up to 0.8 MB. The first is
/// warm-up.
fn check_trend(samples: &[[usize; 2]]) {
    let (first, last) = samples[1..].split_at(samples.len() / 2);
    for (n, (what, allowed)) in [("heap", 800_000), ("resident", 3_000_000)].into_iter().enumerate() {
        let lowest = |part: &[[usize; 2]]| part.iter().map(|sample| sample[n]).min().expect("several rounds");
        let (first, last) = (lowest(first), lowest(last));
        println!("{what} at rest: {first} bytes in the first half, {last} in the second");
        if last > first + allowed {
            fail(format_args!("{what} at rest has grown from {first} to {last}"));
        }
    }
}

fn entries(folder: &str) -> i64 {
    std::fs::read_dir(folder).expect("a Linux with /proc").count() as i64
}

fn main() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no other thread is running yet. With several arenas resident memory depends on which thread has freed a key.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    let counts = || ["/proc/self/task", "/proc/self/fd"].map(entries);
    let before = counts();
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let time = Duration::from_secs(number("SOAK_SECONDS").unwrap_or(3));
    let seed = number("SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SOAK_SECONDS={} SOAK_SEED={seed}", time.as_secs());
    let (samples, hand_outs) = soak(time, seed);
    is_zero("keys without a queue", || LIVE.load(Relaxed));
    is_zero("threads more than at the start", || counts()[0] - before[0]);
    is_zero("files more than at the start", || counts()[1] - before[1]);
    check_trend(&samples);
    println!("passed: {hand_outs} hand-outs, {} rounds", samples.len());
}

/// Starts all threads and tasks, and ends them when the time is up. Returns the memory of each round, and the number of hand-outs.
fn soak(time: Duration, seed: u64) -> (Vec<[usize; 2]>, u64) {
    let events = Arc::new(Events::default());
    let queue = WorkQueue::builder()
        .name("soak")
        .rate_limiter(ItemExponentialFailure::new(Duration::from_micros(500), Duration::from_millis(8)))
        .on_panic(OnPanic::Retry)
        .measure(true)
        .observer(Listener(Arc::clone(&events)))
        .build();
    let world = Arc::new(World {
        queue,
        accounts: (0..KEYS).map(|_| Account::default()).collect(),
        hand_outs: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        events,
        gate: Default::default(),
        far: Default::default(),
        ending: false.into(),
        stop: false.into(),
        over: false.into(),
        stage: Mutex::new("the start"),
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    // The delayed adds of a key that is given up need no hand-out.
    let hooked = || {
        let its_world = Arc::clone(&world);
        world.queue.workers().max_retries(RETRIES).on_give_up(move |key, _| its_world.excuse(key.id))
    };
    let its_world = Arc::clone(&world);
    let in_threads =
        hooked().spawn(2, move |item: &Item<'_, Key>| handle(&its_world, item)).expect("can start threads");
    let in_tasks = hooked().build();
    let mut seeds = Rng::with_seed(seed);
    let mut seed = || seeds.u64(..);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let its_world = Arc::clone(&world);
        let work = in_tasks.run_async(async move |item: &Item<'_, Key>| handle_async(&its_world, item).await);
        tasks.push(runtime.spawn(work));
        tasks.push(runtime.spawn(aborted_loops(Arc::clone(&world), in_tasks.clone(), seed())));
        tasks.push(runtime.spawn(bare_tasks(Arc::clone(&world), seed())));
        tasks.push(runtime.spawn(produce_in_a_task(Arc::clone(&world), seed())));
    }
    let start = |run: fn(&Arc<World>, u64), seed| {
        let world = Arc::clone(&world);
        thread::spawn(move || run(&world, seed))
    };
    let threads = [
        start(|world, seed| produce(world, seed, u64::MAX), seed()),
        start(|world, seed| short_threads(world, seed), seed()),
        start(bare_gets, seed()),
        start(bare_gets, seed()),
    ];
    let watchdog = start(|world, _| watch(world), 0);
    let reporter = world.queue.inspect().report_every(Duration::from_millis(20)).expect("can start a thread");

    let (began, mut samples) = (Instant::now(), Vec::new());
    while began.elapsed() < time || samples.len() < ROUNDS {
        world.stage("a round to end");
        thread::sleep((time / 14).min(Duration::from_secs(2)));
        world.stage("producers to pause");
        let _still = world.gate.blocking_write();
        rest(&world, &runtime, samples.len());
        burst(&world, &runtime, samples.len() + 1);
        samples.push(memory());
    }

    // A drain while keys are added.
    {
        let _still = world.gate.blocking_write();
        rest(&world, &runtime, 0);
        world.ending.store(true, Relaxed); // no handler that has read the old value still runs
    }
    thread::sleep(Duration::from_millis(200));
    world.stage("the drain");
    let left = in_threads.drain_timeout(Duration::MAX);
    thread::sleep(Duration::from_millis(50)); // adds are refused meanwhile
    world.stop.store(true, Relaxed);
    world.stage("threads and tasks to end");
    threads.into_iter().for_each(|thread| thread.join().expect("a thread has panicked"));
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("a task has panicked"));
    in_tasks.join();
    drop((reporter, runtime));
    assert!(left.queued.is_empty() && left.processing.is_empty(), "the drain left keys: {left:?}");
    left.delayed.iter().for_each(|delayed| world.excuse(delayed.key.id));
    world.settle("after the drain");
    drop(left);

    let stats = world.queue.stats();
    let tallies = [in_threads.tally(), in_tasks.tally()];
    let again: u64 = tallies.iter().map(|tally| tally.retried + tally.requeued + tally.refused).sum();
    let calls = world.calls.load(Relaxed) + again + stats.expired;
    let became = stats.pushed + stats.coalesced + stats.deferred + stats.rejected + stats.delays;
    let hand_outs = world.hand_outs.load(Relaxed);
    let events = &world.events;
    assert_eq!((calls, events.added.load(Relaxed)), (became, became), "adds: {stats:?}, {tallies:?}");
    assert_eq!([stats.handed_out, stats.adds(), events.done.load(Relaxed)], [hand_outs; 3], "hand-outs: {stats:?}");
    assert_eq!([stats.len, stats.processing, stats.delayed, stats.waiters, stats.drainers], [0; 5], "{stats:?}");
    assert!(tallies.iter().all(|tally| tally.running == 0) && events.reports.load(Relaxed) > 0, "{tallies:?}");
    world.over.store(true, Relaxed);
    watchdog.join().expect("the watchdog has panicked");
    drop((in_threads, in_tasks));
    assert_eq!(Arc::strong_count(&world), 1, "a handle of the queue is left");
    (samples, hand_outs)
}
