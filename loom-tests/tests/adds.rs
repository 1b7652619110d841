//! One key among adders and holders: P1 to P4.
#![cfg(loom)]

use keyqueue::{Added, TryGetError, WorkQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::check;

/// P3: two adds meet the `done` of their key; it is in line once afterwards, and one of the two put it there.
#[test]
fn add_while_processing_requeues_once() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let adders = [queue.clone(), queue.clone()].map(|queue| thread::spawn(move || queue.add(1)));
        item.done();
        let mut added = adders.map(|adder| adder.join().unwrap());
        added.sort_by_key(|added| *added == Added::Coalesced);
        assert!(matches!(added, [Added::Queued | Added::Deferred, Added::Coalesced]), "{added:?}");
        let again = queue.try_get().expect("added, so handed out again");
        assert_eq!(*again, 1);
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        again.done();
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    });
}

/// P2: an add that changes nothing still publishes. The add meets the `get` of its key.
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
        // Coalesced: with the add before this, the only hand-out that follows.
        match adder.join().unwrap() {
            Added::Coalesced => {
                assert_eq!(seen, 1, "what came before the add is visible");
                assert!(queue.is_empty());
            }
            Added::Deferred | Added::Queued => assert_eq!(queue.try_get().as_deref(), Ok(&1)),
            other => unreachable!("{other:?}"),
        }
    });
}

/// P2: an add that meets the `done` of its key is not lost, and is visible to the hand-out that follows.
#[test]
fn deferred_add_is_visible() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let data = Arc::new(AtomicUsize::new(0));
        let adder = thread::spawn({
            let (queue, data) = (queue.clone(), Arc::clone(&data));
            move || {
                data.store(1, Relaxed);
                let added = queue.add(1);
                assert!(matches!(added, Added::Deferred | Added::Queued), "{added:?}");
            }
        });
        item.done();
        let item = queue.get().unwrap();
        assert_eq!(data.load(Relaxed), 1, "what came before the add is visible");
        drop(item);
        adder.join().unwrap();
    });
}

/// P2: what a holder did is visible to the next, however the key came back in line.
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
                assert_eq!(data.load(Relaxed), 1, "what the last holder did is visible");
            }
        });
        data.store(1, Relaxed);
        item.done();
        next.join().unwrap();
    });
}

/// P1: two threads get, one of them adds: a cell that only holders touch is never touched by two at a time (or by one that
/// does not see what the other did: loom looks at both).
#[test]
fn never_two_holders() {
    fn hold(cell: &UnsafeCell<usize>) {
        let cell = cell.get_mut();
        thread::yield_now();
        // SAFETY: what is being checked: `cell` says so if somebody else is here.
        unsafe { cell.with(|n| *n += 1) }
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

/// P4: who is told that a key is in line, can rely on it: what it adds next comes behind, although another put it there.
#[test]
fn coalesced_add_keeps_the_order() {
    check(|| {
        let queue = WorkQueue::new();
        let other = thread::spawn({
            let queue = queue.clone();
            move || queue.add(1_u64)
        });
        queue.add(1);
        queue.add(2);
        assert_eq!(queue.get().as_deref(), Some(&1));
        other.join().unwrap();
    });
}
