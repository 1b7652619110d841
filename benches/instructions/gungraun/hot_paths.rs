//! The hot paths, each called [`CALLS`] times in a row by one thread. Arguments are made before counting begins, and results are
//! dropped after it has ended. (The counts of a retry include the first add, those of workers the shut-down.)
//!
//! Nothing here may wait or read the real clock, since the number of waits and readings differs between runs. So delays, limiters and
//! measuring use a mock clock, and the cost of contention is left to the benchmarks that measure time.

use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use instructions::{CALLS, fix_seeds};
use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{AddOptions, Clock, DelayConflict, Driver, MockClock, OwnedItem, Priority, WorkQueue, WorkQueueBuilder};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Numbers = WorkQueue<u64>;
type Strings = WorkQueue<String>;

/// Later than all other times here.
const LATER: Duration = Duration::from_secs(10_000);

// ---- Queues and limiters, made before counting

fn builder<K>() -> WorkQueueBuilder<K>
where
    WorkQueue<K>: Default,
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
{
    fix_seeds();
    WorkQueue::builder()
}

/// An empty queue whose table grows.
fn empty() -> (Numbers, Vec<OwnedItem<u64>>) {
    (builder().build(), Vec::new())
}

/// An empty queue with room for all keys.
fn roomy() -> (Numbers, Vec<OwnedItem<u64>>) {
    (builder().capacity(CALLS as usize).build(), Vec::new())
}

/// A queue of `keys` queued keys.
fn queued(keys: u64) -> Numbers {
    let queue = builder().capacity(keys as usize).build();
    queue.add_all(0..keys);
    queue
}

fn all_queued() -> (Numbers, Vec<OwnedItem<u64>>) {
    (queued(CALLS), Vec::new())
}

fn all_processing() -> (Numbers, Vec<OwnedItem<u64>>) {
    let queue = queued(CALLS);
    let held = queue.get_many(CALLS as usize).into_iter().map(|item| item.into_owned()).collect();
    (queue, held)
}

/// The same, in a queue that measures how long each key waits and is processed.
fn measured(keys: u64) -> Numbers {
    let queue = builder().capacity(keys as usize).clock(Clock::mock().0).measure(true).build();
    queue.add_all(0..keys);
    queue
}

/// The same keys in 16 shards. With a mock clock, getters choose the same shards each time.
fn sharded(keys: u64) -> Numbers {
    let queue = builder().capacity(keys as usize).clock(Clock::mock().0).shards(16).build();
    queue.add_all(0..keys);
    queue
}

/// Of three priorities in turn.
fn priority(key: u64) -> AddOptions {
    AddOptions::new().priority([Priority::HIGH, Priority::NORMAL, Priority::LOW][key as usize % 3])
}

/// The same keys with these priorities.
fn prioritized(keys: u64) -> Numbers {
    let queue = builder().capacity(keys as usize).build();
    (0..keys).for_each(|key| _ = queue.add_with(key, priority(key)));
    queue
}

/// A key like those of a controller.
fn string(number: u64) -> String {
    format!("namespace-{}/pod-{number}", number % 100)
}

/// A queue of these keys, and the keys to add.
fn strings(keys: u64) -> (Strings, Vec<String>) {
    let queue = builder().capacity(CALLS as usize).build();
    queue.add_all((0..keys).map(string));
    (queue, (0..CALLS).map(|number| string(number % keys.max(1))).collect())
}

fn new_strings() -> (Strings, Vec<String>) {
    (strings(0).0, (0..CALLS).map(string).collect())
}

fn unhurried() -> (Numbers, MockClock) {
    let (clock, time) = Clock::mock();
    (builder().capacity(CALLS as usize).clock(clock).driver(Driver::Manual).build(), time)
}

/// A delay for each key, some longer and some shorter than that of the key before.
fn moment(key: u64) -> Duration {
    Duration::from_micros(1 + key * 7919 % CALLS)
}

/// A queue in which each key is delayed, `by` plus the key's own [`moment`].
fn delayed(by: Duration) -> (Numbers, MockClock) {
    let (queue, time) = unhurried();
    for key in 0..CALLS {
        queue.add_after(key, by + moment(key));
    }
    (queue, time)
}

fn all_due() -> Numbers {
    let (queue, time) = delayed(Duration::ZERO);
    time.advance(LATER);
    queue
}

fn all_due_at_once() -> Numbers {
    let (queue, time) = unhurried();
    for key in 0..CALLS {
        queue.add_after(key, moment(CALLS - 1));
    }
    time.advance(LATER);
    queue
}

fn backoff() -> ItemExponentialFailure<u64> {
    fix_seeds();
    ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// A backoff that knows all keys.
fn backoff_of_known() -> ItemExponentialFailure<u64> {
    let limiter = backoff();
    for key in 0..CALLS {
        limiter.when(&key);
    }
    limiter
}

fn bucket(tokens: u32) -> Bucket {
    Bucket::with_clock(50.0, tokens, Clock::mock().0)
}

fn spent_bucket() -> Bucket {
    let bucket = bucket(1);
    bucket.try_acquire().expect("the one token");
    bucket
}

// ---- What is counted

#[library_benchmark]
#[bench::new(roomy())]
#[bench::new_growing(empty())]
#[bench::queued(all_queued())]
#[bench::processing(all_processing())]
fn add((queue, held): (Numbers, Vec<OwnedItem<u64>>)) -> (Numbers, Vec<OwnedItem<u64>>) {
    for key in 0..CALLS {
        black_box(queue.add(black_box(key)));
    }
    (queue, held)
}

#[library_benchmark]
#[bench::new(roomy())]
fn add_all((queue, _): (Numbers, Vec<OwnedItem<u64>>)) -> Numbers {
    black_box(queue.add_all(0..black_box(CALLS)));
    queue
}

#[library_benchmark]
#[bench::new(new_strings())]
#[bench::queued(strings(CALLS))]
fn add_string((queue, keys): (Strings, Vec<String>)) -> Strings {
    for key in keys {
        black_box(queue.add(key));
    }
    queue
}

#[library_benchmark]
#[bench::all(queued(CALLS))]
fn get_done(queue: Numbers) -> Numbers {
    for _ in 0..CALLS {
        black_box(queue.get()).expect("a queued key").done();
    }
    queue
}

#[library_benchmark]
#[bench::of_100(queued(CALLS))]
fn get_many_done(queue: Numbers) -> Numbers {
    for _ in 0..CALLS / 100 {
        assert_eq!(black_box(queue.get_many(100)).len(), 100);
    }
    queue
}

#[library_benchmark]
#[bench::keys_1(queued(1))]
#[bench::keys_1024(queued(1024))]
#[bench::keys_100k(queued(100_000))]
#[bench::measured_1024(measured(1024))]
#[bench::sharded_1024(sharded(1024))]
fn cycle(queue: Numbers) -> Numbers {
    for _ in 0..CALLS {
        let item = queue.get().expect("a queued key");
        let key = *item;
        item.done();
        black_box(queue.add(black_box(key)));
    }
    queue
}

#[library_benchmark]
#[bench::keys_1024(prioritized(1024))]
fn cycle_priorities(queue: Numbers) -> Numbers {
    for _ in 0..CALLS {
        let item = queue.get().expect("a queued key");
        let key = *item;
        item.done();
        black_box(queue.add_with(black_box(key), priority(key)));
    }
    queue
}

// An add of a key that is processing: `done` queues it.
#[library_benchmark]
#[bench::sharded_1024(sharded(1024))]
fn ring(queue: Numbers) -> Numbers {
    for _ in 0..CALLS {
        let item = queue.get().expect("a queued key");
        black_box(queue.add(black_box(*item)));
        item.done();
    }
    queue
}

#[library_benchmark]
#[bench::keys_1024(strings(1024))]
fn cycle_string((queue, keys): (Strings, Vec<String>)) -> Strings {
    for key in keys {
        black_box(queue.get()).expect("a queued key").done();
        black_box(queue.add(key));
    }
    queue
}

#[library_benchmark]
#[bench::keys_1024(queued(1024))]
fn cycle_async(queue: Numbers) -> Numbers {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..CALLS {
        let mut get = pin!(queue.get_async());
        let item = loop {
            // It gives way once in 128 keys.
            if let Poll::Ready(item) = get.as_mut().poll(&mut context) {
                break item.expect("a key is queued");
            }
        };
        let key = *item;
        item.done();
        black_box(queue.add(black_box(key)));
    }
    queue
}

#[library_benchmark]
#[bench::new(unhurried(), LATER)]
#[bench::later(delayed(Duration::ZERO), LATER)]
#[bench::earlier(delayed(LATER), Duration::ZERO)]
fn add_after((queue, time): (Numbers, MockClock), by: Duration) -> (Numbers, MockClock) {
    for key in 0..CALLS {
        black_box(queue.add_after(black_box(key), by + moment(key)));
    }
    (queue, time)
}

// A debounce makes this call for each event.
#[library_benchmark]
#[bench::later(delayed(Duration::ZERO))]
fn replace((queue, time): (Numbers, MockClock)) -> (Numbers, MockClock) {
    for key in 0..CALLS {
        let options = AddOptions::new().after(LATER + moment(key)).conflict(DelayConflict::Replace);
        black_box(queue.add_with(black_box(key), options));
    }
    (queue, time)
}

#[library_benchmark]
#[bench::all(delayed(LATER))]
fn cancel((queue, time): (Numbers, MockClock)) -> (Numbers, MockClock) {
    for key in 0..CALLS {
        assert!(queue.cancel(&black_box(key)));
    }
    (queue, time)
}

#[library_benchmark]
#[bench::at_once(all_due_at_once())]
#[bench::in_turn(all_due())]
fn expire(queue: Numbers) -> Numbers {
    assert_eq!(queue.turn(), CALLS as usize);
    queue
}

#[library_benchmark]
#[bench::new(backoff())]
#[bench::known(backoff_of_known())]
fn when(limiter: ItemExponentialFailure<u64>) -> ItemExponentialFailure<u64> {
    for key in 0..CALLS {
        black_box(limiter.when(&black_box(key)));
    }
    limiter
}

#[library_benchmark]
#[bench::known(backoff_of_known())]
fn forget(limiter: ItemExponentialFailure<u64>) -> ItemExponentialFailure<u64> {
    for key in 0..CALLS {
        limiter.forget(&black_box(key));
    }
    limiter
}

#[library_benchmark]
#[bench::admitted(bucket(CALLS as u32))]
#[bench::refused(spent_bucket())]
fn try_acquire(bucket: Bucket) -> Bucket {
    for _ in 0..CALLS {
        _ = black_box(bucket.try_acquire());
    }
    bucket
}

#[library_benchmark]
#[bench::ahead(spent_bucket())]
fn reserve(bucket: Bucket) -> Bucket {
    for _ in 0..CALLS {
        black_box(bucket.reserve().delay());
    }
    bucket
}

// A key is handed out, fails, and is queued again when its backoff has expired.
#[library_benchmark]
#[bench::keys_1024(unhurried(), 1024)]
fn retry((queue, time): (Numbers, MockClock), keys: u64) -> (Numbers, MockClock) {
    queue.add_all(0..keys);
    for _ in 0..CALLS {
        let item = queue.get().expect("a queued key");
        black_box(item.retry());
        time.advance(LATER);
        assert_eq!(queue.turn(), 1);
    }
    (queue, time)
}

#[library_benchmark]
#[bench::all(queued(CALLS))]
fn run_workers(queue: Numbers) -> Numbers {
    queue.shut_down();
    queue.workers().build().run(|item| _ = black_box(**item));
    queue
}

library_benchmark_group!(
    name = hot_paths,
    benchmarks = [
        add,
        add_all,
        add_string,
        get_done,
        get_many_done,
        cycle,
        cycle_priorities,
        cycle_string,
        cycle_async,
        ring,
        add_after,
        replace,
        cancel,
        expire,
        when,
        forget,
        try_acquire,
        reserve,
        retry,
        run_workers,
    ]
);

main!(
    // Only instructions are compared.
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = hot_paths
);
