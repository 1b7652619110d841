//! Threads that add and hold one key: P1 to P4, and values that are read without the lock.

use keyqueue::{Added, WorkQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::check;

/// An add that changes nothing still publishes (P2). The add races the `get` of its key.
#[test]
fn coalesced_add_is_visible() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let data = Arc::new(AtomicUsize::new(0));
        let adder = thread::spawn({
            let (queue, data) = (queue.clone(), Arc::clone(&data));
            move || {
                data.store(1, Relaxed);
                queue.add(1)
            }
        });
        let item = queue.get().unwrap();
        let seen = data.load(Relaxed);
        item.done();
        // A coalesced add came before the hand-out above, and no other hand-out follows.
        match adder.join().unwrap() {
            Added::Coalesced => {
                assert_eq!(seen, 1, "a write before the add is visible");
                assert!(queue.is_empty());
            }
            Added::Deferred | Added::Queued => assert_eq!(queue.try_get().as_deref(), Ok(&1)),
            other => unreachable!("{other:?}"),
        }
    });
}

/// What a holder did is visible to the next holder, whether the key was queued by the add or by `done` (P2).
#[test]
fn done_is_visible_to_next_holder() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let data = Arc::new(AtomicUsize::new(0));
        let next = thread::spawn({
            let (queue, data) = (queue.clone(), Arc::clone(&data));
            move || {
                queue.add(1);
                let _item = queue.get().unwrap();
                assert_eq!(data.load(Relaxed), 1, "a write of the last holder is visible");
            }
        });
        data.store(1, Relaxed);
        item.done();
        next.join().unwrap();
    });
}

/// Two threads get, and one of them adds (P1). Only holders access the cell, and loom reports two simultaneous accesses as well as two that
/// are not ordered.
#[test]
fn never_two_holders() {
    fn hold(cell: &UnsafeCell<usize>) {
        cell.with_mut(|n| {
            // SAFETY: this is the property that the model checks: loom panics first if another thread accesses the cell.
            unsafe { *n += 1 }
        });
    }
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let cell = Arc::new(UnsafeCell::new(0));
        let other = thread::spawn({
            let (queue, cell) = (queue.clone(), Arc::clone(&cell));
            move || {
                if let Ok(_item) = queue.try_get() {
                    hold(&cell);
                }
            }
        });
        queue.add(1);
        if let Ok(_item) = queue.try_get() {
            hold(&cell);
        }
        other.join().unwrap();
    });
}

/// `is_dirty` reads without the lock. A holder that reads `true` sees the writes before the add; otherwise the next hand-out sees
/// them.
#[test]
fn is_dirty_publishes() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let data = Arc::new(AtomicUsize::new(0));
        // Orders nothing. It makes loom try the order "add first, then `is_dirty`", which loom does not try for the state word
        // alone, because the adder's own read of the word hides the holder's (see README.md).
        let hint = Arc::new(AtomicUsize::new(0));
        let adder = thread::spawn({
            let (queue, data, hint) = (queue.clone(), Arc::clone(&data), Arc::clone(&hint));
            move || {
                data.store(1, Relaxed);
                queue.add(1);
                hint.store(1, Relaxed);
            }
        });
        hint.load(Relaxed);
        if item.is_dirty() {
            assert_eq!(data.load(Relaxed), 1, "a write before the add is visible to a holder that reads `true`");
        }
        item.done();
        let item = queue.get().unwrap();
        assert!(!item.is_dirty(), "this hand-out is that of the only add");
        assert_eq!(data.load(Relaxed), 1);
        drop(item);
        adder.join().unwrap();
    });
}
