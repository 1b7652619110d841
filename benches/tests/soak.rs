//! All features of the crate at once, for `SOAK_SECONDS` (3 by default): whenever the queue rests, its numbers add up, and nothing has
//! leaked, neither memory nor keys, threads or files.
//!
//! ```text
//!  producers: threads and tasks of this round              workers: threads, tasks (some aborted), bare loops of each get
//!        └────────────────▶  one queue, of keys that count themselves  ◀────────────────┘
//!        again and again: producers end, the queue rests, a burst, it rests; the checks; the next producers
//! ```
//!
//! `tests/stress.rs` and `tests/delays_stress.rs` show that no add is lost and no key has two holders.

use fastrand::Rng;
use keyqueue::observe::MetricsObserver;
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{AddOptions, DelayConflict, Item, OnPanic, Outcome, WorkQueue, Workers};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
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

static LIVE: AtomicI64 = AtomicI64::new(0);

/// A key, with a text in one of three. The live ones are counted.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key(u32, Option<String>);

impl Key {
    fn new(id: u32) -> Self {
        LIVE.fetch_add(1, Relaxed);
        Self(id, id.is_multiple_of(3).then(|| format!("namespace-{:03}/pod-{id:09}", id % 100)))
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Relaxed);
    }
}

/// What all threads and tasks share.
struct World {
    queue: WorkQueue<Key>,
    hand_outs: AtomicU64,
}

fn some_key(rng: &mut Rng) -> Key {
    let below = [HOT, HOT, WARM, KEYS][rng.usize(..4)];
    Key::new(rng.u32(..below))
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
    let (queue, key) = (&world.queue, some_key(rng));
    match rng.u32(..1000) {
        0..600 => _ = queue.add(key),
        600..820 => _ = queue.add_with(key, some_options(rng)),
        820..870 => _ = queue.add_rate_limited(key),
        870..930 => _ = queue.cancel(&key),
        930..980 => queue.forget(&key),
        980..995 => _ = queue.add_all((0..rng.usize(1..32)).map(|_| some_key(rng))),
        995 if rng.u8(..100) == 0 => drop(queue.take_delayed()),
        996 if rng.u8(..100) == 0 => queue.shrink_to_fit(),
        _ => {
            let stats = queue.inspect().metrics().stats;
            let coming_back = stats.adds().checked_sub(stats.handed_out + stats.len as u64);
            assert!(
                coming_back.is_some_and(|keys| keys <= stats.processing as u64),
                "numbers do not add up: {stats:?}"
            );
        }
    }
}

/// Calls until the moment.
fn produce(world: &World, seed: u64, until: Instant) {
    let mut rng = Rng::with_seed(seed);
    while Instant::now() < until {
        (0..64).for_each(|_| call(world, &mut rng));
        if world.queue.len() > BACKLOG {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One hand-out: calls of a handler to its own queue, and its end. May panic, without a message.
fn work(world: &World, key: &Key) -> Outcome {
    let n = world.hand_outs.fetch_add(1, Relaxed);
    let (queue, rng) = (&world.queue, &mut Rng::with_seed(n));
    match rng.u16(..256) {
        0..32 => _ = queue.add(key.clone()),
        32..36 => _ = queue.add(some_key(rng)),
        36..40 => _ = queue.add_with(key.clone(), some_options(rng)),
        40..42 => _ = queue.cancel(key),
        42 => queue.forget(key),
        43..46 => thread::yield_now(),
        46 if rng.u8(..16) == 0 => thread::sleep(Duration::from_millis(1)),
        _ => {}
    }
    match rng.u8(..100) {
        0..8 => Outcome::Retry,
        8..11 => Outcome::Failed("planned".into()),
        11..14 => Outcome::RequeueAfter(some_delay(rng)),
        14..16 => Outcome::RequeueWith(some_options(rng)),
        16..18 => resume_unwind(Box::new("planned")),
        18 => Outcome::GiveUp("no use".into()),
        _ => Outcome::Success,
    }
}

/// The handler of tasks, which may be aborted at any await.
async fn work_async(world: &World, item: &Item<'_, Key>) -> Outcome {
    let outcome = work(world, item);
    match fastrand::u16(..1024) {
        0..32 => tokio::task::yield_now().await,
        32 => tokio::time::sleep(Duration::from_millis(1)).await,
        33..36 => _ = tokio::time::timeout(Duration::from_millis(2), item.until_dirty()).await,
        _ => {}
    }
    outcome
}

/// Loops in tasks. Each task is aborted after some milliseconds, whatever it is doing, and replaced by another.
async fn aborted_loops(world: Arc<World>, workers: Workers<Key>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    while !world.queue.shutting_down() {
        let its_world = Arc::clone(&world);
        let own = tokio::spawn(workers.run_async(async move |item: &Item<'_, Key>| work_async(&its_world, item).await));
        tokio::time::sleep(Duration::from_millis(rng.u64(1..50))).await;
        own.abort();
        _ = own.await;
    }
}

/// A holder outside `Workers`. It may panic while it holds the item, which is then retried.
fn hold(world: &World, item: Item<'_, Key>) {
    let item = item.into_owned();
    _ = catch_unwind(AssertUnwindSafe(|| match work(world, &item) {
        Outcome::Retry | Outcome::Failed(_) if item.num_requeues() < RETRIES => _ = item.retry(),
        Outcome::RequeueAfter(delay) => _ = item.requeue_after(delay),
        Outcome::RequeueWith(options) => _ = item.requeue_with(options),
        Outcome::Success if item.0.is_multiple_of(2) => drop(item),
        Outcome::Success => item.succeed(),
        _ => item.give_up(),
    }));
}

/// `get`, `get_many`, `get_timeout` and `try_get`.
fn bare_gets(world: &World, seed: u64) {
    let (queue, mut rng) = (&world.queue, Rng::with_seed(seed));
    while !queue.shutting_down() || !queue.is_empty() {
        match rng.u16(..1024) {
            0..128 => queue.get_many(rng.usize(2..20)).into_iter().for_each(|item| hold(world, item)),
            128..256 => _ = queue.try_get().map(|item| hold(world, item)),
            256..640 => _ = queue.get().map(|item| hold(world, item)),
            _ => _ = queue.get_timeout(Duration::from_micros(rng.u64(..2_000))).map(|item| hold(world, item)),
        }
    }
}

/// Waits until nothing is left to do, and checks the numbers. The producers must have ended.
fn rest(world: &World) {
    world.queue.wait_idle();
    let (stats, hand_outs) = (world.queue.stats(), world.hand_outs.load(Relaxed));
    assert_eq!([stats.len, stats.processing, stats.delayed], [0; 3], "at rest: {stats:?}");
    assert_eq!([stats.adds(), stats.handed_out], [hand_outs; 2], "at rest: {stats:?}");
    is_zero("keys that the queue does not need", || LIVE.load(Relaxed) - world.queue.stats().failing as i64);
}

/// Many keys at once. When they have been handed out, all keys are forgotten.
fn burst(world: &World) {
    for (n, from) in (0..KEYS).step_by(10_000).enumerate() {
        let keys = (from..KEYS.min(from + 10_000)).map(Key::new);
        let delay = |id| Duration::from_micros(u64::from(id % 50_000_u32));
        match n % 3 {
            0 => keys.for_each(|key| _ = world.queue.add(key)),
            1 => keys.zip(from..).for_each(|(key, id)| _ = world.queue.add_after(key, delay(id))),
            _ => _ = world.queue.add_all(keys),
        }
    }
    rest(world);
    (0..KEYS).for_each(|id| world.queue.forget(&Key::new(id)));
    is_zero("failures that were forgotten", || world.queue.stats().failing as i64);
}

/// Threads that end by themselves need a moment: up to ten seconds.
fn is_zero(what: &str, value: impl Fn() -> i64) {
    let start = Instant::now();
    while value() != 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: {}", value());
        thread::sleep(Duration::from_millis(10));
    }
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
        assert!(last <= first + allowed, "{what} at rest has grown from {first} to {last}");
    }
}

fn entries(folder: &str) -> i64 {
    std::fs::read_dir(folder).expect("a Linux with /proc").count() as i64
}

/// A panic of any thread ends the process: others would wait for that thread.
fn main() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("soak: FAILED: {panic}");
        std::process::exit(1)
    }));
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
    let queue = WorkQueue::builder()
        .name("soak")
        .rate_limiter(ItemExponentialFailure::new(Duration::from_micros(500), Duration::from_millis(8)))
        .on_panic(OnPanic::Retry)
        .measure(true)
        .observer(MetricsObserver::new())
        .build();
    let world = Arc::new(World { queue, hand_outs: AtomicU64::new(0) });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    let its_world = Arc::clone(&world);
    let in_threads = world.queue.workers().max_retries(RETRIES);
    let in_threads =
        in_threads.spawn(2, move |item: &Item<'_, Key>| work(&its_world, item)).expect("can start threads");
    let in_tasks = world.queue.workers().max_retries(RETRIES).build();
    let mut seeds = Rng::with_seed(seed);
    let mut seed = || seeds.u64(..);
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let its_world = Arc::clone(&world);
        let loops = in_tasks.run_async(async move |item: &Item<'_, Key>| work_async(&its_world, item).await);
        tasks.push(runtime.spawn(loops));
        tasks.push(runtime.spawn(aborted_loops(Arc::clone(&world), in_tasks.clone(), seed())));
    }
    let threads = [(); 2].map(|()| {
        let (world, seed) = (Arc::clone(&world), seed());
        thread::spawn(move || bare_gets(&world, seed))
    });

    let (began, mut samples) = (Instant::now(), Vec::new());
    while began.elapsed() < time || samples.len() < ROUNDS {
        let until = Instant::now() + (time / 14).min(Duration::from_secs(2));
        thread::scope(|scope| {
            let (world, seeds) = (&world, [(); 3].map(|()| seed()));
            scope.spawn(move || produce(world, seeds[0], until));
            // Threads that come and go.
            scope.spawn(move || {
                for n in (0..).take_while(|_| Instant::now() < until) {
                    let soon = until.min(Instant::now() + Duration::from_millis(n % 8));
                    thread::scope(|scope| {
                        seeds
                            .iter()
                            .for_each(|seed| _ = scope.spawn(move || produce(world, seed.wrapping_add(n), soon)));
                    });
                }
            });
            let (its_world, seed) = (Arc::clone(world), seeds[1]);
            let task = runtime.spawn(async move { produce(&its_world, seed, until) });
            runtime.block_on(task).expect("no producer panics");
        });
        rest(&world);
        burst(&world);
        samples.push(memory());
    }
    // A drain while keys are added. Of what is delayed, and refused, nothing is handed out any more.
    let left = thread::scope(|scope| {
        scope.spawn(|| produce(&world, 0, Instant::now() + Duration::from_millis(20)));
        in_threads.drain_timeout(Duration::MAX)
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no task panics"));
    in_tasks.join();
    drop(runtime);
    assert!(left.queued.is_empty() && left.processing.is_empty(), "the drain left keys: {left:?}");
    let (stats, hand_outs) = (world.queue.stats(), world.hand_outs.load(Relaxed));
    assert_eq!([stats.adds(), stats.handed_out], [hand_outs; 2], "after the drain: {stats:?}");
    assert_eq!([stats.len, stats.processing, stats.delayed, stats.waiters, stats.drainers], [0; 5], "{stats:?}");
    drop((in_threads, in_tasks));
    assert_eq!(Arc::strong_count(&world), 1, "a handle of the queue is left");
    (samples, hand_outs)
}
