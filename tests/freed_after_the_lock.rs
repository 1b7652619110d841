//! Memory that a critical section no longer needs is freed after its lock, so no other thread waits while the allocator works.
//!
//! The allocator of this program looks, whenever something is freed, whether the thread holds the lock of a shard: it makes a call that
//! takes these locks, which panics in a debug build if the thread holds one. Lists of handles, and the buckets of a table, may be freed
//! under the lock. Here the lists are short, as the queues have few keys, and the buckets take more than all else, as the queues have
//! capacity for the keys from the beginning. So what is neither small nor as large as [`BUCKETS`] is what the lists are for: chunks of slots
//! and their side arrays, blocks of lines, lanes of groups and what finds them, the wheel. Its blocks are small, but many: see their sum.
//!
//! Sizes are those of 64-bit targets. They print what was freed: `cargo test --test freed_after_the_lock -- --nocapture`.

#![cfg(all(debug_assertions, target_pointer_width = "64"))]

use keyqueue::{AddOptions, Clock, Driver, MockClock, Priority, WorkQueue, WorkQueueBuilder};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

/// The system's allocator, which looks at the locks before it frees.
struct Looking;

/// A key of 32 bytes: 64 slots take 4 KiB, so the queue keeps no more than 16 empty chunks.
type Key = [u64; 4];

/// The fewest bytes of the buckets that a queue with capacity has.
const BUCKETS: usize = 1 << 16;
/// The most buckets that are freed at a time, in bytes.
const BUCKETS_MAX: usize = 1 << 19;

/// What was freed.
#[derive(Default)]
struct Freed {
    /// Bytes under a lock, but for buckets, in sum and at most at a time, and where that was.
    under: usize,
    most: usize,
    place: Option<Backtrace>,
    /// The most bytes of buckets at a time, under a lock.
    buckets: usize,
    /// Bytes without a lock.
    after: usize,
}

impl Freed {
    const NOTHING: Self = Self { under: 0, most: 0, place: None, buckets: 0, after: 0 };

    fn add(&mut self, bytes: usize, is_locked: bool) {
        if !is_locked {
            self.after += bytes;
        } else if bytes >= BUCKETS {
            self.buckets = self.buckets.max(bytes);
        } else {
            self.under += bytes;
            if bytes > self.most {
                (self.most, self.place) = (bytes, Some(Backtrace::force_capture()));
            }
        }
    }
}

thread_local! {
    /// The queue that is looked at, unless the thread looks just now.
    static QUEUE: Cell<Option<WorkQueue<Key>>> = const { Cell::new(None) };
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
    static FREED: RefCell<Freed> = const { RefCell::new(Freed::NOTHING) };
}

fn look(bytes: usize) {
    let Ok(Some(queue)) = QUEUE.try_with(Cell::take) else { return };
    IS_LOOKING.set(true);
    let is_locked = catch_unwind(AssertUnwindSafe(|| queue.processing_len())).is_err();
    FREED.with_borrow_mut(|freed| freed.add(bytes, is_locked));
    IS_LOOKING.set(false);
    QUEUE.set(Some(queue));
}

// SAFETY: all calls are passed to `System` unchanged. What is done before that frees memory by itself, but does not look again, and its
// panics do not leave it.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        look(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size < layout.size() {
            look(layout.size() - size);
        }
        // SAFETY: the caller keeps the contract of `GlobalAlloc`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Looking = Looking;

fn key(n: u64) -> Key {
    [n; 4]
}

/// Runs this on a queue, with its clock. Under the lock at most `most` bytes may be freed at a time, and `sum` bytes in sum; and after it
/// there must be more than `after`.
fn watch(
    [most, sum, after]: [usize; 3],
    builder: WorkQueueBuilder<Key>,
    run: impl FnOnce(&WorkQueue<Key>, &MockClock),
) {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_LOOKING.get() {
                print(info);
            }
        }));
    });
    let (clock, time) = Clock::mock();
    let queue = builder.clock(clock).driver(Driver::Manual).seed(1).build();
    QUEUE.set(Some(queue.clone()));
    run(&queue, &time);
    QUEUE.take();
    let freed = FREED.replace(Freed::NOTHING);
    println!(
        "under a lock {} bytes, at most {} at a time, and {} of buckets; after it {}",
        freed.under, freed.most, freed.buckets, freed.after
    );
    if let Some(place) = freed.place.filter(|_| freed.most > most || freed.under > sum) {
        panic!("{} bytes were freed under the lock, {} of them here:\n{place}", freed.under, freed.most);
    }
    assert!(freed.buckets <= BUCKETS_MAX, "{} bytes of buckets were freed at once, under the lock", freed.buckets);
    assert!(freed.after > after, "only {} bytes were freed after the lock", freed.after);
}

/// Hands out and ends all keys.
fn work(queue: &WorkQueue<Key>) {
    while queue.try_get().is_ok() {}
}

/// Removes all keys, one by one.
fn remove(queue: &WorkQueue<Key>, keys: u64) {
    (0..keys).for_each(|n| _ = queue.remove(&key(n)));
}

/// Each of these empties a queue.
const EMPTIES: [fn(&WorkQueue<Key>, u64); 4] = [
    |queue, _| work(queue),
    remove,
    |queue, _| _ = queue.take_where(|_| true),
    |queue, _| {
        while !queue.is_empty() {
            drop(queue.get_many(100));
        }
    },
];

const KEYS: u64 = 3000;

/// What [`watch`] expects: all lists of these keys are shorter than any block.
const LISTS: [usize; 3] = [1100, 6000, 150_000];

/// For this number of keys there are [`BUCKETS`] from the beginning, which are enough for all; and a line keeps nine empty blocks of twelve.
const CAPACITY: u64 = KEYS * 7 / 10;

fn builder() -> WorkQueueBuilder<Key> {
    WorkQueue::builder().capacity(CAPACITY as usize)
}

#[test]
fn chunks_of_keys_and_blocks_of_lines() {
    for shards in [1, 4] {
        for empty in EMPTIES {
            watch(LISTS, builder().capacity(shards * CAPACITY as usize).shards(shards), |queue, _| {
                queue.add_all((0..KEYS).map(key));
                (0..KEYS).for_each(|n| _ = queue.add(key(n)));
                empty(queue, KEYS);
                queue.add(key(0));
                queue.shrink_to_fit();
                empty(queue, 1);
                queue.shrink_to_fit();
            });
        }
    }
}

#[test]
fn lines_of_priorities_and_their_histograms() {
    for empty in EMPTIES {
        watch(LISTS, builder().measure(true), |queue, time| {
            for n in 0..KEYS {
                queue.add_with(key(n), AddOptions::new().priority(Priority(n as u8 as i8)));
            }
            time.advance(Duration::from_secs(1));
            empty(queue, KEYS);
            drop((queue.inspect().levels(), queue.inspect().metrics()));
            queue.shrink_to_fit();
        });
    }
}

#[test]
fn lanes_of_groups() {
    for empty in EMPTIES {
        for (keys_of_a_group, levels) in [(1, 1), (3, 3), (KEYS, 1), (KEYS, 256), (KEYS / 4, 20)] {
            watch(LISTS, builder().fair_by(move |key: &Key| key[0] / keys_of_a_group), |queue, _| {
                for n in 0..KEYS {
                    queue.add_with(key(n), AddOptions::new().priority(Priority((n % levels) as i8)));
                }
                drop(queue.inspect().groups());
                empty(queue, KEYS);
                queue.shrink_to_fit();
            });
        }
    }
}

#[test]
fn the_wheel_and_side_arrays() {
    const DELAYS: u64 = 10_000;
    let ends: [fn(&WorkQueue<Key>, &MockClock); 4] = [
        |queue, time| {
            for _ in 0..101 {
                time.advance(Duration::from_millis(10));
                queue.turn();
            }
        },
        |queue, _| (0..DELAYS).for_each(|n| _ = queue.cancel(&key(n))),
        |queue, _| remove(queue, DELAYS),
        |queue, _| _ = queue.take_delayed(),
    ];
    for end in ends {
        for delays in [KEYS, DELAYS] {
            watch(
                [1600 * delays / KEYS, 8000 * delays / KEYS, 300_000].map(|bytes| bytes as usize),
                builder().capacity(delays as usize * 7 / 10).measure(true),
                |queue, time| {
                    for n in 0..delays {
                        queue.add_after(key(n), Duration::from_nanos(1 + n * n * 7919 % 1_000_000_007));
                    }
                    end(queue, time);
                    work(queue);
                    queue.shrink_to_fit();
                },
            );
        }
    }
}

#[test]
fn side_arrays_of_failures() {
    watch(LISTS, builder(), |queue, _| {
        (0..KEYS).for_each(|n| _ = queue.add_rate_limited(key(n)));
        (0..KEYS).for_each(|n| _ = queue.cancel(&key(n)));
        work(queue);
        (0..KEYS).for_each(|n| queue.forget(&key(n)));
        queue.shrink_to_fit();
    });
}

/// A large array of buckets is freed in pieces of half a mebibyte, or after the lock.
#[test]
fn the_buckets_of_a_large_table() {
    const MANY: u64 = 100_000;
    for capacity in [0, 2 * MANY] {
        watch([BUCKETS, usize::MAX, 1_000_000], WorkQueue::builder().capacity(capacity as usize), |queue, _| {
            for empty in EMPTIES {
                queue.add_all((0..MANY).map(key));
                empty(queue, MANY);
                queue.shrink_to_fit();
            }
        });
    }
}
