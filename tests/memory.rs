//! What a queue costs in memory and when it gives memory back (P15), measured by a counting allocator.
//!
//! * A million queued keys cost the promised bytes each, and not much more at the peak of growing.
//! * Processed keys give back 90 % and more after a burst, whatever the order of `done`.
//! * An add that finds its key dirty allocates nothing, nor does any call with a steady set of keys.
//! * A key that is done costs nothing.
//! * A million delayed keys cost the promised bytes, and give them back when they are taken, cancelled, or expired and
//!   processed; a delay that is moved again and again costs no more than one; a steady set of delays allocates nothing.
//! * A million keys of a limiter cost the promised bytes, and give them back when they are forgotten; with a bound they cost no
//!   more than the bound; a key that fails again, or that is forgotten and fails later, allocates nothing.
//! * A group costs the promised bytes, and only while it has keys: also while one of a million stays.
//! * Keys that come back again and again, in bursts or by delays, cost no more each time.
//! * Without its last handle nothing is left of a queue.
//!
//! The counts are per thread, and a queue here is used by one thread, so the tests do not disturb each other. They print their
//! figures: `cargo test --test memory -- --nocapture`.

mod support {
    pub(crate) mod manual;
}

use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{AddOptions, Added, Clock, DelayConflict, MockClock, Priority, WorkQueue};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use support::manual::manual_queue;

/// The system's allocator, with counts.
struct Counting;

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Bytes that are allocated now. Signed: a thread may free what another allocated.
    live: isize,
    /// The maximum of `live` since [`reset_peak`].
    peak: isize,
    /// Calls that allocated or grew.
    allocations: usize,
}

thread_local!(static COUNTS: Cell<Counts> = const { Cell::new(Counts { live: 0, peak: 0, allocations: 0 }) });

fn count(bytes: isize, allocations: usize) {
    // A thread that ends may allocate after its counts are gone; those allocations are not counted.
    let _ = COUNTS.try_with(|cell| {
        let mut counts = cell.get();
        counts.live += bytes;
        counts.peak = counts.peak.max(counts.live);
        counts.allocations += allocations;
        cell.set(counts);
    });
}

// SAFETY: all calls are passed to `System` unchanged, and counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks exist during the copy.
        count(size as isize, 1);
        count(-(layout.size() as isize), 0);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live() -> isize {
    COUNTS.get().live
}

fn allocations() -> usize {
    COUNTS.get().allocations
}

fn reset_peak() {
    COUNTS.set(Counts { peak: live(), ..COUNTS.get() });
}

/// The number of allocations that `f` makes.
fn allocations_of(f: impl FnOnce()) -> usize {
    let before = allocations();
    f();
    allocations() - before
}

const MILLION: usize = 1_000_000;

/// Makes the allocations that happen once in a process (seeds, the number of CPUs).
fn warm_up() {
    let queue = WorkQueue::new();
    queue.add(0);
    queue.get().unwrap().done();
}

/// Fills a queue with a million keys, processes them, and checks and prints what a key costs beyond its `own` bytes.
fn burst<K>(what: &str, shards: usize, own: usize, at_most: f64, key: impl Fn(usize) -> K)
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
{
    warm_up();
    let empty = live();
    let queue = WorkQueue::builder().shards(shards).build();
    reset_peak();
    for n in 0..MILLION {
        assert_eq!(queue.add(key(n)), Added::Queued);
    }
    let full = live() - empty;
    let peak = COUNTS.get().peak - empty;
    let each = full as f64 / MILLION as f64 - own as f64;
    let peak_each = peak as f64 / MILLION as f64 - own as f64;
    while let Ok(item) = queue.try_get() {
        item.done();
    }
    let left = live() - empty;
    assert!(each <= at_most, "{each} bytes a key, {at_most} are promised");
    assert!(left * 10 <= full, "{left} bytes are left of {full}");
    queue.shrink_to_fit();
    let shrunk = live() - empty;
    drop(queue);
    let fresh = {
        let empty = live();
        let _queue = WorkQueue::<K>::builder().shards(shards).build();
        live() - empty
    };
    assert!(
        shrunk < fresh + 1024 * shards as isize,
        "{shrunk} bytes are left after shrink_to_fit, {fresh} is a new queue"
    );
    assert_eq!(live(), empty, "all handles are gone");
    // Printed after all is counted: the test harness keeps the text in memory that this thread allocates.
    println!(
        "{what}: {each:.1} bytes a key beyond its own {own}, {peak_each:.1} at the peak of growing; \
         {left} bytes left of {full} ({:.2} %), {shrunk} after shrink_to_fit",
        left as f64 / full as f64 * 100.0
    );
}

#[test]
fn a_million_integers_cost_the_promised_bytes_and_give_them_back() {
    burst("u64", 1, 0, 60.0, |n| n as u64);
    burst("u64, 16 shards", 16, 0, 64.0, |n| n as u64);
}

#[test]
fn a_million_strings_cost_the_promised_bytes_and_give_them_back() {
    // 30 bytes on the heap and 24 for the `String`.
    burst("String of 30", 1, 30 + 24, 90.0, |n| format!("namespace/deployment-{n:09}"));
}

#[test]
fn memory_is_given_back_whatever_the_order_of_done() {
    warm_up();
    let empty = live();
    let queue = WorkQueue::new();
    const KEYS: usize = 100_000;
    for round in 0..3 {
        queue.add_all((0..KEYS).map(|n| n as u64));
        let items = queue.get_many(KEYS);
        assert_eq!(items.len(), KEYS);
        let full = live() - empty - (items.capacity() * size_of_val(&items[0])) as isize;
        // In the first round no chunk is empty before the last tenth of the keys is done.
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for item in items {
            if round == 0 && *item % 10 != 0 { &mut first } else { &mut rest }.push(item);
        }
        drop(first);
        rest.into_iter().rev().for_each(keyqueue::Item::done);
        let left = live() - empty;
        println!("round {round}: {left} bytes left of {full}");
        assert!(left * 10 <= full, "{left} bytes are left of {full}");
    }
}

#[test]
fn large_keys_keep_no_more_memory_than_small_ones() {
    warm_up();
    let empty = live();
    let queue = WorkQueue::new();
    for n in 0..600_u16 {
        let mut key = [0_u8; 16 * 1024];
        key[..2].copy_from_slice(&n.to_le_bytes());
        queue.add(key);
    }
    while queue.try_get().is_ok() {}
    let left = live() - empty;
    assert!(left < 300 << 10, "{left} bytes are left"); // one chunk of eight keys, and the buckets
}

/// What the page "how it works" says.
#[test]
fn an_empty_shard_takes_what_the_docs_say() {
    warm_up();
    let shard = |builder: fn() -> keyqueue::WorkQueueBuilder<u64>| {
        let [one, all] = [1, 64].map(|shards| {
            let empty = live();
            let _queue = builder().shards(shards).build();
            live() - empty
        });
        (all - one) / 63
    };
    let plain = shard(WorkQueue::builder);
    let measured = shard(|| WorkQueue::builder().measure(true)) - plain;
    let grouped = shard(|| WorkQueue::builder().fair_by(|key| key % 10)) - plain;
    println!("an empty shard: {plain} bytes, {measured} more if the queue measures, {grouped} more with groups");
    assert!(plain <= 1500 && measured <= 8 << 10 && grouped <= 31 << 10, "{plain} {measured} {grouped}");
}

#[test]
fn requested_capacity_is_kept_until_shrink_to_fit() {
    warm_up();
    let queue = WorkQueue::builder().capacity(100_000).build();
    let asked = live();
    for n in 0..50_000 {
        queue.add(n);
    }
    while queue.try_get().is_ok() {}
    assert!(live() >= asked);
    queue.shrink_to_fit();
    assert!(live() < asked / 100);
}

#[test]
fn an_add_that_finds_its_key_dirty_allocates_nothing() {
    let integers = WorkQueue::new();
    let strings = WorkQueue::new();
    for n in 0..100_u64 {
        integers.add(n);
        strings.add(n.to_string());
    }
    let again: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let coalesced = allocations_of(|| {
        assert!((0..100).all(|n| integers.add(n) == Added::Coalesced));
        assert!(again.into_iter().all(|key| strings.add(key) == Added::Coalesced));
    });
    assert_eq!(coalesced, 0);
    let _held = (integers.get_many(100), strings.get_many(100));
    let again: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let twice = again.clone();
    let deferred = allocations_of(|| {
        assert!((0..100).all(|n| integers.add(n) == Added::Deferred));
        assert!((0..100).all(|n| integers.add(n) == Added::Coalesced));
        assert!(again.into_iter().all(|key| strings.add(key) == Added::Deferred));
        assert!(twice.into_iter().all(|key| strings.add(key) == Added::Coalesced));
    });
    assert_eq!(deferred, 0, "while processing");
}

#[test]
fn a_steady_set_of_keys_allocates_nothing() {
    for keys in [1, 100, 1000] {
        let queue = WorkQueue::new();
        let mut held = Vec::with_capacity(keys as usize);
        let mut round = || {
            // All queued, all processing, all done.
            (0..keys).for_each(|key| assert_eq!(queue.add(key), Added::Queued));
            held.extend(std::iter::from_fn(|| queue.try_get().ok().map(keyqueue::Item::into_owned)));
            held.clear();
            // One after the other.
            for key in 0..keys {
                queue.add(key);
                queue.get().unwrap().done();
            }
            // Added again while processing.
            (0..keys).for_each(|key| assert_eq!(queue.add(key), Added::Queued));
            for _ in 0..keys {
                let item = queue.get().unwrap();
                queue.add(*item);
                queue.add(*item);
            }
            while queue.try_get().is_ok() {}
        };
        round();
        let steady = allocations_of(|| (0..20).for_each(|_| round()));
        assert_eq!(steady, 0, "with {keys} keys");
    }
}

#[test]
fn keys_that_are_done_cost_nothing() {
    warm_up();
    let queue = WorkQueue::new();
    let cycle = |key: u64| {
        queue.add(key);
        queue.get().unwrap().done();
    };
    (0..100).for_each(cycle);
    let before = live();
    (100..100_100).for_each(cycle);
    let left = live() - before;
    println!("{left} bytes more after 100000 keys came and went");
    assert!(left <= 0, "{left} bytes more");
}

/// Without an observer nothing is kept of each key but the item.
#[test]
fn get_many_allocates_for_its_items_alone() {
    let queue = WorkQueue::new();
    queue.add_all(0..100);
    let mut items = Vec::new();
    assert_eq!(allocations_of(|| items = queue.get_many(50)), 1);
    assert_eq!(items.len(), 50);
}

#[test]
fn a_queue_without_handles_leaves_no_memory() {
    warm_up();
    let empty = live();
    let queue = WorkQueue::builder().name("a name of its own").capacity(1000).build();
    let other = queue.clone();
    queue.add_all((0..5000).map(|n| n.to_string()));
    let mut items: Vec<_> = queue.get_many(100).into_iter().map(keyqueue::Item::into_owned).collect();
    for item in &items[..50] {
        other.add(item.key().clone());
    }
    items.truncate(80);
    drop(queue);
    drop(other);
    assert!(live() > empty, "owned items keep the queue alive");
    drop(items);
    assert_eq!(live(), empty);
}

/// Pseudo-random delays of 1 to 60 seconds.
fn delay(n: usize) -> Duration {
    Duration::from_nanos(1_000_000_000 + (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 59_000_000_000)
}

#[test]
fn a_million_delayed_keys_cost_the_promised_bytes_and_give_them_back() {
    warm_up();
    type End = fn(&WorkQueue<u64>, &MockClock);
    let ends: [(&str, End); 3] = [
        ("take_delayed", |queue, _| assert_eq!(queue.take_delayed().len(), MILLION)),
        ("cancel", |queue, _| assert!((0..MILLION).all(|n| queue.cancel(&(n as u64))))),
        ("expiry", |queue, time| {
            time.advance(Duration::from_secs(60));
            assert_eq!(queue.turn(), MILLION);
            while queue.try_get().is_ok() {}
        }),
    ];
    // How much is left does not depend on the order in which the keys end. (Cancelled they end as they came, and here by their deadlines.)
    for (how, end) in ends {
        let empty = live();
        let (queue, time) = manual_queue();
        reset_peak();
        for n in 0..MILLION {
            queue.add_after(n as u64, delay(n));
        }
        let (full, peak) = (live() - empty, COUNTS.get().peak - empty);
        end(&queue, &time);
        let left = live() - empty;
        assert!(full <= 100 * MILLION as isize, "{} bytes a key", full as f64 / MILLION as f64);
        assert!(left <= 450_000, "{left} bytes are left of {full} after {how}");
        queue.shrink_to_fit();
        let shrunk = live() - empty;
        assert!(shrunk < 5120, "{shrunk} bytes are left after shrink_to_fit {how}");
        let each = |bytes| bytes as f64 / MILLION as f64;
        println!(
            "{:.1} bytes a delayed key, {:.1} at the peak; {left} bytes left of {full} after {how}, {shrunk} after shrink_to_fit",
            each(full),
            each(peak)
        );
    }
}

#[test]
fn a_delay_that_is_moved_again_and_again_costs_no_more_than_one() {
    warm_up();
    let (queue, time) = manual_queue();
    queue.add_after(0, Duration::from_secs(1));
    queue.add_after(1, Duration::from_secs(100_000));
    let once = live();
    for n in 0..3 * MILLION {
        let options = AddOptions::new().after(delay(n)).conflict(DelayConflict::Replace);
        assert_eq!(queue.add_with(0, options), Added::Delayed);
        if n % 1000 == 0 {
            time.advance(Duration::from_millis(1));
            queue.turn();
            assert!(live() - once <= 128 << 10, "{} bytes more after {n} times", live() - once);
        }
    }
    println!("{} bytes more after three million times", live() - once);
    assert_eq!(queue.delayed_len(), 2);
}

#[test]
fn a_steady_set_of_delays_allocates_nothing() {
    for keys in [1, 100] {
        let (queue, time) = manual_queue();
        let mut n = 0;
        let mut round = || {
            for key in 0..keys {
                n += 1;
                queue.add_after(key, delay(n));
                queue.add_with(key, AddOptions::new().after(delay(n) / 3).conflict(DelayConflict::Replace));
            }
            assert!(queue.cancel(&0));
            queue.add_after(0, delay(n));
            for _ in 0..60 {
                time.advance(Duration::from_secs(1));
                queue.turn();
                while queue.try_get().is_ok() {}
            }
        };
        // The number of blocks in use differs between rounds, so the warm-up takes many.
        (0..40).for_each(|_| round());
        let steady = allocations_of(|| (0..200).for_each(|_| round()));
        assert_eq!(steady, 0, "with {keys} keys");
    }
}

fn backoff<K>() -> ItemExponentialFailure<K> {
    ItemExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000))
}

/// Makes a million keys fail, forgets them, and checks and prints what a key costs beyond its `own` bytes.
fn failures<K>(what: &str, own: usize, at_most: f64, key: impl Fn(usize) -> K)
where
    K: std::hash::Hash + Eq + Clone + Send + Sync,
{
    backoff().when(&0);
    let empty = live();
    let limiter = backoff();
    reset_peak();
    for n in 0..MILLION {
        limiter.when(&key(n));
    }
    let (full, peak) = (live() - empty, COUNTS.get().peak - empty);
    assert_eq!(limiter.tracked_len(), MILLION);
    let again = allocations();
    let more = live();
    if own == size_of::<K>() {
        (0..MILLION).for_each(|n| _ = limiter.when(&key(n)));
        assert_eq!((allocations(), live()), (again, more), "known keys allocate nothing");
    }
    for n in 0..MILLION {
        limiter.forget(&key(n));
    }
    let left = live() - empty;
    assert_eq!(limiter.tracked_len(), 0);
    let each = |bytes| bytes as f64 / MILLION as f64 - own as f64;
    assert!((0.0..=at_most).contains(&each(full)), "{} bytes a key beyond its own {own}", each(full));
    assert!(left * 20 <= full, "{left} bytes are left of {full}");
    limiter.shrink_to_fit();
    let shrunk = live() - empty;
    drop(limiter);
    assert_eq!(live(), empty, "the limiter is dropped");
    println!(
        "{what}: {:.1} bytes a failed key beyond its own {own}, {:.1} at the peak of growing; {left} bytes left of {full}, \
         {shrunk} after shrink_to_fit",
        each(full),
        each(peak)
    );
}

#[test]
fn a_million_failed_integers_cost_the_promised_bytes_and_give_them_back() {
    failures("u64", 8, 68.0, |n| n as u64);
}

#[test]
fn a_million_failed_strings_cost_the_promised_bytes_and_give_them_back() {
    failures("String of 30", 30 + 24, 90.0, |n| format!("namespace/deployment-{n:09}"));
}

#[test]
fn memory_of_failures_is_given_back_whatever_the_order_of_forget() {
    let empty = live();
    let limiter = backoff();
    for round in 0..3 {
        (0..100_000).for_each(|key| _ = limiter.when(&key));
        let full = live() - empty;
        for key in 0..100_000 {
            // All but every hundredth key; in reverse order; in a scattered order.
            match round {
                0 if key % 100 == 0 => {}
                0 => limiter.forget(&key),
                1 => limiter.forget(&(99_999 - key)),
                _ => limiter.forget(&(key * 7_919 % 100_000)),
            }
        }
        let left = live() - empty;
        assert!(left * 10 <= full, "{left} bytes are left of {full} in round {round}");
    }
}

#[test]
fn a_limiter_with_a_bound_costs_no_more_than_its_bound() {
    warm_up();
    for bound in [10, 1_000, 100_000] {
        let empty = live();
        let limiter = backoff().max_tracked(bound);
        reset_peak();
        for key in 0..MILLION {
            limiter.when(&key);
        }
        let (full, peak) = (live() - empty, COUNTS.get().peak - empty);
        assert!(limiter.tracked_len() <= bound);
        println!("{full} bytes with a bound of {bound} keys, {peak} at the peak");
        // A table holds half of the bound. One may have just grown, be full, and grow again while another one is dropped.
        assert!(peak <= 120 * bound as isize + 8192, "{peak} bytes with a bound of {bound}");
    }
    let (clock, time) = Clock::mock();
    let limiter = backoff().retain_recent(Duration::from_secs(1000)).clock(clock);
    let empty = live();
    for key in 0..MILLION {
        limiter.when(&key);
        if key % 1_000 == 0 {
            time.advance(Duration::from_secs(100));
        }
    }
    let full = live() - empty;
    println!("{full} bytes with 10 000 keys a lifetime, {} keys remembered", limiter.tracked_len());
    // Keys of two lifetimes are remembered, in each part of the table.
    assert!(full <= 40_000 * 100, "{full} bytes");
}

#[test]
fn a_key_that_fails_and_succeeds_in_turn_allocates_nothing() {
    let limiter = backoff();
    let round = || {
        for key in 0..100 {
            limiter.when(&key);
            limiter.when(&key);
        }
        (0..100).for_each(|key| limiter.forget(&key));
    };
    round();
    let steady = allocations_of(|| (0..20).for_each(|_| round()));
    assert_eq!(steady, 0);
    let (queue, time) = manual_queue();
    let round = || {
        for key in 0..100 {
            queue.add(key);
            queue.get().unwrap().retry();
        }
        time.advance(Duration::from_millis(5));
        assert_eq!(queue.turn(), 100);
        while let Ok(item) = queue.try_get() {
            item.succeed();
        }
    };
    (0..20).for_each(|_| round());
    let steady = allocations_of(|| (0..20).for_each(|_| round()));
    assert_eq!(steady, 0, "in a queue");
}

#[test]
fn a_deduping_bucket_remembers_only_keys_with_a_pending_token() {
    let (clock, time) = Clock::mock();
    let limiter = DedupingBucket::new(Bucket::with_clock(1_000.0, 10, clock));
    let empty = live();
    for key in 0..MILLION {
        limiter.when(&key);
        time.advance(Duration::from_micros(900));
        if key % 1_000 == 999 {
            // All pending tokens become usable.
            time.advance(Duration::from_secs(1));
        }
    }
    let full = live() - empty;
    let remembered = limiter.tracked_len();
    assert!(full <= 1 << 20, "{full} bytes");
    time.advance(Duration::from_secs(1));
    limiter.shrink_to_fit();
    assert_eq!((limiter.tracked_len(), live() - empty), (0, 0));
    println!("{full} bytes after a million keys, {remembered} remembered");
}

#[test]
fn a_group_costs_the_promised_bytes_and_gives_them_back() {
    let keys = 100_000;
    let cost = |groups: u64, limit| {
        let mut builder = WorkQueue::builder().fair_by(move |key: &u64| key % groups);
        if limit {
            builder = builder.max_processing_per_group(10);
        }
        let queue = builder.build();
        warm_up();
        let empty = live();
        (0..keys).for_each(|key| _ = queue.add(key));
        let full = live() - empty;
        let mut held: Vec<_> = (0..keys / 2).map_while(|_| queue.try_get().ok()).collect();
        (0..keys).for_each(|_| held.extend(queue.try_get().ok()));
        if !limit {
            assert_eq!(held.len(), keys as usize);
        }
        while let Some(item) = held.pop() {
            item.done();
            held.extend(queue.try_get().ok());
        }
        drop(held);
        queue.shrink_to_fit();
        assert_eq!(queue.inspect().groups(), []);
        let left = live() - empty;
        assert!(left * 10 <= full, "{left} of {full} bytes are left");
        full as f64
    };
    for limit in [false, true] {
        let (one, many) = (cost(1, limit), cost(keys, limit));
        println!("{} bytes a key, {} bytes a group", one / keys as f64, (many - one) / keys as f64);
        assert!(one / keys as f64 <= 80.0 && (many - one) / keys as f64 <= 118.0);
    }
}

/// The queue remembers groups without keys until their turns would have come. `shrink_to_fit` forgets those whose turns have come.
#[test]
fn shrink_to_fit_forgets_groups_without_keys() {
    let queue = WorkQueue::builder().fair_by(|key: &u32| key % 1000).build();
    warm_up();
    let empty = live();
    for key in 0..16_000 {
        queue.add_with(key, AddOptions::new().priority(Priority((key / 1000) as i8)));
    }
    while let Ok(item) = queue.try_get() {
        item.done();
    }
    let left = live() - empty;
    queue.shrink_to_fit();
    let shrunk = live() - empty;
    println!("{left} bytes are left, {shrunk} after shrink_to_fit");
    assert!(shrunk < 5120, "{shrunk} bytes are left after shrink_to_fit, {left} before");
}

/// Of a million groups (fewer in a debug build) all are done but one, which is queued, or processing. No call of `shrink_to_fit` is needed,
/// nor an empty queue.
#[test]
fn a_million_groups_give_memory_back_while_one_key_stays() {
    for is_queued in [true, false] {
        let groups = if cfg!(debug_assertions) { MILLION / 5 } else { MILLION } as u64;
        let queue = WorkQueue::builder().strict_priorities(true).fair_by(|key: &u64| *key).build();
        warm_up();
        let empty = live();
        let last = || {
            queue.add_with(groups, AddOptions::new().priority(Priority::LOW));
        };
        let held = (!is_queued).then(|| (last(), queue.get().unwrap()));
        if is_queued {
            last();
        }
        queue.add_all(0..groups);
        let full = live() - empty;
        (0..groups).for_each(|_| queue.try_get().unwrap().done());
        let left = live() - empty;
        assert_eq!((queue.len(), queue.processing_len()), (usize::from(is_queued), usize::from(!is_queued)));
        assert!(left <= 1 << 20, "{left} bytes are left of {full} (queued: {is_queued})");
        drop(held);
        println!("{left} bytes are left of {full} while one key stays (queued: {is_queued})");
    }
}

/// A steady set of keys, which are queued and processed again and again.
#[test]
fn bursts_of_the_same_keys_take_no_more_memory_each_time() {
    let queue = WorkQueue::new();
    let burst = || {
        queue.add_all(0..2600_u64);
        while let Ok(item) = queue.try_get() {
            item.done();
        }
    };
    (0..10).for_each(|_| burst());
    let before = live();
    (0..200).for_each(|_| burst());
    assert!(live() - before < 64 << 10, "{} bytes more after 200 bursts", live() - before);
}

/// A controller that checks all its objects every ten minutes.
#[test]
fn a_resync_of_the_same_keys_takes_no_more_memory_each_time() {
    let (queue, time) = manual_queue();
    queue.add_all(0..10_000_u64);
    let resync = || {
        while let Ok(item) = queue.try_get() {
            item.requeue_after(Duration::from_secs(600));
        }
        time.advance(Duration::from_secs(601));
        queue.turn();
    };
    (0..10).for_each(|_| resync());
    let before = live();
    (0..50).for_each(|_| resync());
    let grown = live() - before;
    queue.shrink_to_fit();
    assert!(grown < 64 << 10, "{grown} bytes more after 50 resyncs");
}
