//! Pauses: how long an `add` waits for another thread's operation on the same queue. Microseconds; of each percentile, and of the longest
//! wait, the median of the rounds counts.
//!
//! Where other programs run too, `chrt -f 1 target/release/late` gives each thread a core whenever it needs one.

use clap::Parser;
use hdrhistogram::Histogram;
use keyqueue::{Clock, Driver, MockClock, WorkQueue};
use keyqueue_benches::harness::{Notes, Plan, Step};
use keyqueue_benches::latency::histogram;
use keyqueue_benches::results::Run;
use keyqueue_benches::tables;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Measures how long adds wait.
#[derive(Parser)]
struct Options {
    /// Only operations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Keys of a large queue.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Keys that one call of `take_delayed`, `turn` or `stop` moves.
    #[arg(long, default_value_t = 1_000_000)]
    batch: u64,
}

type Queue = WorkQueue<u64>;

/// One round of one operation.
struct Probe {
    keys: u64,
    batch: u64,
    /// The adds are of new keys. Otherwise of the key 0, which is queued or processing at most times.
    is_new: bool,
    waits: Histogram<u64>,
}

impl Probe {
    /// Runs the operation on this thread while another one adds keys. An add that has begun when it ends is measured to its end.
    fn during<R>(&mut self, queue: &Queue, operation: impl FnOnce() -> R) -> R {
        let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
        let &mut Self { keys, is_new, ref mut waits, .. } = self;
        let add = |n| _ = queue.add(if is_new { (1 << 40) + n % keys } else { 0 });
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..100).for_each(add);
                ready.wait();
                let mut last = Instant::now();
                for n in 100.. {
                    add(n);
                    let now = Instant::now();
                    waits.record((now - last).as_nanos().max(1) as u64).expect("resizes by itself");
                    last = now;
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            ready.wait();
            let result = operation();
            over.store(true, Ordering::Relaxed);
            result
        })
    }
}

/// A name, and what makes a queue and measures an operation on it.
type Operation = (&'static str, fn(&mut Probe));

const OPERATIONS: [Operation; 9] = [
    // What the machine adds by itself.
    ("none, for a second", |probe| probe.during(&empty(), || thread::sleep(Duration::from_secs(1)))),
    ("fill: add", |probe| {
        let (queue, keys) = (Queue::new(), probe.keys);
        probe.during(&queue, || (0..keys).for_each(|key| _ = queue.add(key)));
    }),
    ("drain: get and done", |probe| {
        let (queue, keys) = (filled(probe.keys), probe.keys);
        probe.during(&queue, || (0..keys).for_each(|_| drop(queue.try_get())));
    }),
    ("take_where: every second key", |probe| {
        let queue = filled(probe.keys);
        drop(probe.during(&queue, || queue.take_where(|key| key % 2 == 0)));
    }),
    ("done of all keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.keys as usize);
        probe.during(&queue, || drop(items));
    }),
    ("shrink_to_fit: drained", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize));
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    ("take_delayed", |probe| {
        let (queue, _clock) = delayed(probe.batch);
        assert_eq!(probe.during(&queue, || queue.take_delayed()).len(), probe.batch as usize);
    }),
    ("turn: all due at one moment", |probe| {
        let (queue, clock) = delayed(probe.batch);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(probe.during(&queue, || queue.turn()), probe.batch as usize);
    }),
    ("Workers::stop", |probe| {
        let queue = filled(probe.batch);
        let workers = queue.workers().build();
        assert!(!probe.during(&queue, || workers.stop()).is_empty());
    }),
];

/// A queue with these keys queued: the key 0 is the first.
fn filled(keys: u64) -> Queue {
    let queue = Queue::new();
    queue.add_all(0..keys);
    queue
}

/// A queue in which nothing is queued, and the key 0 is held for good: its adds wake no one.
fn empty() -> Queue {
    let queue = filled(1);
    std::mem::forget(queue.try_get());
    queue
}

/// A queue with a delay of an hour for each of these keys.
fn delayed(keys: u64) -> (Queue, MockClock) {
    let (clock, mock) = Clock::mock();
    let queue = Queue::builder().clock(clock).driver(Driver::Manual).build();
    (1..=keys).for_each(|key| _ = queue.add_after(key, Duration::from_secs(3600)));
    (queue, mock)
}

fn main() {
    let Options { only, rounds, keys, batch } = Options::parse();
    let mut plan = Plan::only(&only);
    for (name, operation) in OPERATIONS {
        let step = |(is_new, adds): (bool, &'static str)| {
            Box::new(move |notes: &mut Notes| {
                let mut probe = Probe { keys, batch, is_new, waits: histogram() };
                operation(&mut probe);
                notes.spread(["tails", name, adds], probe.waits, None);
            }) as Step
        };
        let adds = [(false, "adds of a known key"), (true, "adds of new keys")];
        plan.task(name.into(), rounds, adds.map(step).into());
    }
    let results = plan.run(Run { rounds, ..Run::here("late") });
    println!("{}\n\n{}", tables::run(&results), tables::percentiles(&results, "tails", ""));
}
