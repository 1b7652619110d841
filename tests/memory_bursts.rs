//! The memory of queued keys is given back (P15) even if no key leaves the table for good.

use keyqueue::{Clock, Driver, WorkQueue};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counting;
std::thread_local!(static LIVE: Cell<isize> = const { Cell::new(0) });

// SAFETY: passes all calls on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.with(|live| live.set(live.get() + layout.size() as isize));
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.with(|live| live.set(live.get() - layout.size() as isize));
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn live() -> isize {
    LIVE.with(Cell::get)
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
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
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
