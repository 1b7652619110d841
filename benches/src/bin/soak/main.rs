//! Runs all features of the crate at once, for a given time, and checks that no add is lost.
//!
//! ```text
//!  producers: threads, short-lived threads, tasks       workers: threads, tasks (some aborted), bare loops of each get
//!        │                                                       │
//!        └──────────▶  one queue, of keys that count themselves  ◀┘
//!                              ▲
//!       every second: producers pause, the queue comes to rest, the ledger is checked, the producers go on
//!       every 20 s, or 14 times in a shorter run: a million more keys; memory, threads and files are noted; a second queue is stopped while it has keys
//! ```
//!
//! What is checked: for each key, that no add is lost and that it never has two holders; the queue's numbers against the soak's own; that
//! keys that are not needed are dropped; at the end, that a drain leaves nothing or names it, that memory has not grown, and that no
//! thread or file is left. The first failure is printed and ends the process with status 1.

mod consume;
mod key;
mod ledger;
mod process;
mod produce;
mod side;
mod watch;
mod world;

use clap::Parser;
use consume::RETRIES;
use fastrand::Rng;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use key::Key;
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{Item, Leftover, OnPanic, Stats, Tally, WorkQueue, Workers, WorkersBuilder};
use ledger::Ledger;
use process::Memory;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use watch::stage;
use world::{Events, Listener, World};

#[derive(Parser)]
#[command(about = "Runs all features of the crate at once, for a given time, and checks that no add is lost")]
struct Options {
    /// The duration of the run.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seed of all random choices; the schedule of the threads is not part of it. By default a new one each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Keys of a burst.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(..=i64::from(produce::KEYS)))]
    burst: u32,
}

static SEED: AtomicU64 = AtomicU64::new(0);

/// A check failed.
fn fail(message: impl Display) -> ! {
    eprintln!("soak: FAILED: {message} (--seed {})", SEED.load(Relaxed));
    std::process::exit(1)
}

fn main() {
    process::one_arena();
    let (threads, files) = (process::threads(), process::files());
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    SEED.store(seed, Relaxed);
    println!("seed {seed}");
    let began = Instant::now();
    let time = Duration::from_secs_f64(options.minutes * 60.0);

    let soak = Soak::start(seed);
    let samples = soak.phases(time, options.burst);
    let (world, stats, tally) = soak.end();
    let counts = world.counts.table();
    drop(world);
    let live = until_zero(Key::live);
    if live != 0 {
        fail(format_args!("{live} keys are alive, but no queue is left"));
    }
    let left = until_zero(|| process::threads() as i64 - threads as i64);
    if left != 0 {
        fail(format_args!("{left} threads more than at the start"));
    }
    if process::files() != files {
        fail(format_args!("{} open files, {files} at the start", process::files()));
    }
    trend(&samples);

    let seconds = began.elapsed().as_secs_f64();
    let row = |what: &str, number: u64| {
        println!("{what:<40} {:>15} {:>12.0}/s", HumanCount(number).to_string(), number as f64 / seconds)
    };
    println!("\n{:<40} {:>15} {:>14}", "", "in all", "");
    counts.into_iter().for_each(|(what, number)| row(what, number));
    row("Workers: succeeded", tally.succeeded);
    row("Workers: of these, requeued", tally.requeued);
    row("Workers: failed", tally.failed);
    row("Workers: retried", tally.retried);
    row("Workers: given up", tally.given_up);
    row("delays set or moved", stats.delays);
    row("delays that expired", stats.expired);
    row("adds that were coalesced", stats.coalesced);
    row("adds of a processing key", stats.deferred);
    row("hand-outs", stats.handed_out);
    let memory = Memory::now();
    println!(
        "resident: {} at most, {} at the end; heap: {} at the end",
        mb(memory.peak),
        mb(memory.resident),
        mb(memory.heap)
    );
    println!(
        "threads: {threads} before, {} after; open files: {files} before, {} after",
        process::threads(),
        process::files()
    );
    println!("passed, {seconds:.0} s, seed {seed}");
}

/// Reads `value` until it is zero or ten seconds have passed, and returns the last reading: threads that end by themselves need a moment.
fn until_zero(value: impl Fn() -> i64) -> i64 {
    for _ in 0..1_000 {
        if value() == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    value()
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// The least number of samples of memory.
const SAMPLES: usize = 7;

/// Checks that memory at rest does not grow: the lowest sample of the second half is compared with the lowest of the first. Single samples
/// differ by up to 0.8 MB, as running tasks and threads hold some memory. The first sample is warm-up.
fn trend(samples: &[Memory]) {
    let (first, last) = samples[1..].split_at(samples.len() / 2);
    for (what, of, allowed) in [
        ("heap", (|memory| memory.heap) as fn(&Memory) -> u64, 800_000),
        ("resident", |memory| memory.resident, 3_000_000),
    ] {
        let lowest = |part: &[Memory]| part.iter().map(of).min().expect("there are `SAMPLES` or more");
        let (first, last) = (lowest(first), lowest(last));
        println!("{what} at rest: {} in the first half, {} in the second", mb(first), mb(last));
        if last > first + allowed {
            fail(format_args!("{what} at rest has grown from {} to {}", mb(first), mb(last)));
        }
    }
}

/// All running threads and tasks.
struct Soak {
    world: Arc<World>,
    runtime: Runtime,
    /// In threads, and in tasks.
    workers: [Workers<Key>; 2],
    producers: Vec<thread::JoinHandle<()>>,
    consumers: Vec<thread::JoinHandle<()>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    watchdog: thread::JoinHandle<()>,
    reporter: keyqueue::observe::Reporter,
}

impl Soak {
    fn start(seed: u64) -> Self {
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
            ledger: Ledger::new(produce::KEYS),
            seed,
            counts: Default::default(),
            events,
            gate: Default::default(),
            ending: false.into(),
            stop: false.into(),
            over: false.into(),
            far: Default::default(),
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");

        let its_world = Arc::clone(&world);
        let handler = move |item: &Item<'_, Key>| consume::handle(&its_world, item);
        let in_threads = hooked(&world).spawn(2, handler).unwrap_or_else(|error| fail(error));
        let in_tasks = hooked(&world).build();
        let mut seeds = Rng::with_seed(seed);
        let mut seed = || seeds.u64(..);
        let mut tasks = Vec::new();
        for _ in 0..2 {
            let its_world = Arc::clone(&world);
            let work =
                in_tasks.run_async(async move |item: &Item<'_, Key>| consume::handle_async(&its_world, item).await);
            tasks.push(runtime.spawn(work));
            tasks.push(runtime.spawn(consume::aborted_loops(Arc::clone(&world), in_tasks.clone(), seed())));
            tasks.push(runtime.spawn(consume::bare_tasks(Arc::clone(&world), seed())));
            tasks.push(runtime.spawn(produce::task(Arc::clone(&world), seed())));
        }
        let start = |run: fn(&Arc<World>, u64), seed| {
            let world = Arc::clone(&world);
            thread::spawn(move || run(&world, seed))
        };
        let producers = vec![
            start(|world, seed| produce::thread(world, seed, u64::MAX), seed()),
            start(|world, seed| produce::short_threads(world, seed), seed()),
            start(|world, _| watch::numbers(world), 0),
        ];
        let consumers =
            vec![start(consume::bare_gets, seed()), start(|world, seed| consume::bare_timeouts(world, seed), seed())];
        let watchdog = start(|world, _| watch::patience(world), 0);
        let reporter =
            world.queue.inspect().report_every(Duration::from_millis(20)).unwrap_or_else(|error| fail(error));
        Self { world, runtime, workers: [in_threads, in_tasks], producers, consumers, tasks, watchdog, reporter }
    }

    /// Runs until the time is up, or longer until there are [`SAMPLES`]. Returns a memory sample for each time that the queue was at rest after a burst.
    fn phases(&self, time: Duration, burst: u32) -> Vec<Memory> {
        let world = &self.world;
        let style = ProgressStyle::with_template("{bar:40} {elapsed}/{msg}").expect("a template");
        let bar = ProgressBar::new(time.as_millis() as u64).with_style(style);
        let phase = Duration::from_secs(20).min(time / 14);
        let round = Duration::from_secs(1).min(phase / 2);
        let began = Instant::now();
        let (mut samples, mut next_phase, mut rounds) = (Vec::new(), phase, 0);
        println!("{:>6} {:>16} {:>10} {:>10} {:>10} {:>8}", "s", "hand-outs", "heap", "resident", "peak", "threads");
        while began.elapsed() < time || samples.len() < SAMPLES {
            let end = Instant::now() + round;
            while Instant::now() < end {
                stage("a round to end");
                thread::sleep(Duration::from_millis(100));
                let (elapsed, stats) = (began.elapsed(), world.queue.stats());
                bar.set_position(elapsed.as_millis() as u64);
                bar.set_message(format!(
                    "{}s  {} hand-outs/s, {} adds/s, {} delayed, resident {}",
                    time.as_secs(),
                    HumanCount((stats.handed_out as f64 / elapsed.as_secs_f64()) as u64),
                    HumanCount(((stats.adds() + stats.coalesced) as f64 / elapsed.as_secs_f64()) as u64),
                    stats.delayed,
                    mb(Memory::now().resident),
                ));
            }
            stage("producers to pause");
            let _still = world.gate.blocking_write();
            self.rest(rounds);
            rounds += 1;
            if began.elapsed() >= next_phase {
                next_phase += phase;
                self.burst(burst);
                self.rest(rounds);
                self.forget_all();
                stage("the second queue");
                side::run(world.seed ^ rounds);
                world::count(&world.counts.side_queues);
                self.check_live("after the second queue");
                let memory = Memory::trimmed();
                samples.push(memory);
                bar.suspend(|| {
                    println!(
                        "{:>6.0} {:>16} {:>10} {:>10} {:>10} {:>8}",
                        began.elapsed().as_secs_f64(),
                        HumanCount(world.queue.stats().handed_out).to_string(),
                        mb(memory.heap),
                        mb(memory.resident),
                        mb(memory.peak),
                        process::threads()
                    );
                });
            }
        }
        bar.finish_and_clear();
        samples
    }

    /// Waits until nothing is left to do, and checks the ledger. The producers must be paused.
    fn rest(&self, round: u64) {
        let world = &self.world;
        stage("the queue to be idle");
        if round % 4 == 3 {
            world.take_delayed(); // handlers may set delays meanwhile
        }
        let far = std::mem::take(&mut *world.far.lock());
        far.into_iter().for_each(|id| world.cancel(id));
        if round.is_multiple_of(2) {
            world.queue.wait_idle();
        } else {
            self.runtime.block_on(world.queue.wait_idle_async());
        }
        stage("the check of the ledger");
        let stats = world.queue.stats();
        let hand_outs = world.ledger.hand_outs.load(Relaxed);
        if stats.len + stats.processing + stats.delayed > 0
            || stats.adds() != stats.handed_out
            || stats.handed_out != hand_outs
        {
            fail(format_args!("at rest, the numbers do not add up: {hand_outs} hand-outs, {stats:?}"));
        }
        world.ledger.settle("at rest");
        self.check_live("at rest");
    }

    /// Checks that only keys with recorded failures are alive, and that the queue has them.
    fn check_live(&self, when: &str) {
        let failing = self.world.queue.stats().failing as i64;
        let leaked = until_zero(|| Key::live() - failing);
        if leaked != 0 {
            fail(format_args!("{when}: {} keys are alive, the queue needs {failing}", Key::live()));
        }
    }

    /// A million keys at once.
    fn burst(&self, keys: u32) {
        stage("a burst");
        let world = &self.world;
        for from in (0..keys).step_by(10_000) {
            let ids = from..keys.min(from + 10_000);
            match from / 10_000 % 4 {
                0 => ids.for_each(|id| _ = world.add(id)),
                1 => ids.for_each(|id| _ = world.add_after(id, Duration::from_micros(u64::from(id % 50_000)))),
                _ => world.add_all(ids),
            }
        }
    }

    /// Has the limiter forget every key.
    fn forget_all(&self) {
        stage("all keys to be forgotten");
        (0..produce::KEYS).for_each(|id| self.world.queue.forget(&Key::new(id)));
        let failing = self.world.queue.stats().failing;
        if failing > 0 {
            fail(format_args!("{failing} keys have recorded failures, but all were forgotten"));
        }
        self.check_live("all keys forgotten");
    }

    /// Drains the queue while keys are added, ends all threads, and checks the ledger for the last time.
    fn end(self) -> (Arc<World>, Stats, Tally) {
        let Self { world, runtime, workers: [in_threads, in_tasks], producers, consumers, tasks, watchdog, reporter } =
            self;
        {
            stage("producers to pause");
            let _still = world.gate.blocking_write();
            world.far.lock().drain(..).for_each(|id| world.cancel(id));
            stage("the queue to be idle");
            world.queue.wait_idle();
            world.ending.store(true, Relaxed); // no handler that has read the old value still runs
        }
        thread::sleep(Duration::from_millis(200));
        stage("the drain");
        let left = in_threads.drain_timeout(Duration::MAX);
        thread::sleep(Duration::from_millis(50)); // adds are refused meanwhile
        world.stop.store(true, Relaxed);
        stage("producers to end");
        join(producers);
        stage("consumers to end");
        join(consumers);
        for task in tasks {
            runtime.block_on(task).unwrap_or_else(|error| fail(format_args!("a task: {error}")));
        }
        in_tasks.join();
        drop((reporter, runtime));
        check_leftover(&world, &left);

        let stats = world.queue.stats();
        let tally = sum(in_threads.tally(), in_tasks.tally());
        check_numbers(&world, &stats, &tally);
        world.over.store(true, Relaxed);
        join(vec![watchdog]);
        drop((in_threads, in_tasks));
        if Arc::strong_count(&world) != 1 {
            fail("a handle of the queue is left");
        }
        (world, stats, tally)
    }
}

fn hooked(world: &Arc<World>) -> WorkersBuilder<Key> {
    let its_world = Arc::clone(world);
    // The delayed adds of a key that is given up need no hand-out.
    world.queue.workers().max_retries(RETRIES).on_give_up(move |key, _| its_world.ledger.excuse(key.id))
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap_or_else(|_| fail("a thread has panicked, see above"));
    }
}

/// A drain does not wait for delays, and lists each of them.
fn check_leftover(world: &World, left: &Leftover<Key>) {
    if !left.queued.is_empty() || !left.processing.is_empty() {
        fail(format_args!("the drain left {} queued and {} processing keys", left.queued.len(), left.processing.len()));
    }
    left.delayed.iter().for_each(|delayed| world.ledger.excuse(delayed.key.id));
    world.ledger.settle("after the drain");
}

fn sum(a: Tally, b: Tally) -> Tally {
    let mut sum = a;
    sum.running += b.running;
    sum.succeeded += b.succeeded;
    sum.requeued += b.requeued;
    sum.failed += b.failed;
    sum.retried += b.retried;
    sum.given_up += b.given_up;
    sum.panicked += b.panicked;
    sum.refused += b.refused;
    sum
}

/// Checks that the numbers of the queue, the workers, the observer and the soak agree.
fn check_numbers(world: &World, stats: &Stats, tally: &Tally) {
    let counts = &world.counts;
    let of = |counters: &[&AtomicU64]| counters.iter().map(|counter| counter.load(Relaxed)).sum::<u64>();
    let adds =
        of(&[&counts.adds, &counts.add_alls, &counts.add_afters, &counts.add_withs, &counts.limited, &counts.requeues]);
    let calls = adds + of(&[&counts.panics_outside]) + tally.retried + tally.requeued + tally.refused + stats.expired;
    // The refused ones are retries, which have failed, and requeues.
    let failed = of(&[&counts.limited, &counts.panics_outside]) + tally.retried;
    if !(failed..=failed + tally.refused).contains(&stats.failures) {
        fail(format_args!("failures: {failed} and {}; {stats:?}, {tally:?}", stats.failures));
    }
    let became = stats.pushed + stats.coalesced + stats.deferred + stats.rejected + stats.delays;
    let panics = of(&[&counts.panics_in_workers, &counts.panics_outside]);
    let events = &world.events;
    let (runs, ended) = (world.queue.inspect().metrics().runs, tally.succeeded + tally.failed);
    for (what, one, other) in [
        ("adds", calls, became),
        ("adds refused", of(&[&counts.rejected]) + tally.refused, stats.rejected),
        ("hand-outs", of(&[&world.ledger.hand_outs]), stats.handed_out),
        ("adds that lead to a hand-out", stats.adds(), stats.handed_out),
        ("keys given up", of(&[&counts.give_ups]) + tally.given_up, stats.given_up),
        ("panics", panics, stats.panics),
        ("panics in workers", of(&[&counts.panics_in_workers]), tally.panicked),
        ("adds, by the observer", of(&[&events.added]), became),
        ("hand-outs, by the observer", of(&[&events.handed_out]), stats.handed_out),
        ("keys done, by the observer", of(&[&events.done]), stats.handed_out),
        ("keys given up, by the observer", of(&[&events.given_up]), stats.given_up),
        ("panics, by the observer", of(&[&events.panicked]), stats.panics),
        (
            "keys and waiters left",
            (stats.len + stats.processing + stats.delayed + stats.waiters + stats.drainers) as u64,
            0,
        ),
        ("loops left", tally.running as u64, 0),
        ("runs, by the queue", runs.success + runs.requeue + runs.error + runs.give_up + runs.panic, ended),
        ("runs that succeeded, by the queue", runs.success + runs.requeue, tally.succeeded),
    ] {
        if one != other {
            fail(format_args!("{what}: {one} and {other}; {stats:?}, {tally:?}"));
        }
    }
    if of(&[&events.reports]) == 0 {
        fail("nothing was reported");
    }
}
