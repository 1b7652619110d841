//! Waiting for the end of all work: P7.
#![cfg(loom)]

use keyqueue::{DrainTimeoutError, WorkQueue};
use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use loom_tests::check;
use std::time::Duration;

/// How much work was finished. Relaxed: who drains must see it because of the drain.
fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// A thread that takes one key, counts it as finished, and is done.
fn work_off_one(queue: &WorkQueue<u64>, finished: &Arc<AtomicUsize>) -> thread::JoinHandle<()> {
    let (queue, finished) = (queue.clone(), Arc::clone(finished));
    thread::spawn(move || {
        let item = queue.get().unwrap();
        finished.fetch_add(1, Relaxed);
        item.done();
    })
}

/// One key in work and one in line: the drain ends after both, and not before.
#[test]
fn drain_waits_for_line_and_work() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add_all([1_u64, 2]);
        let worker = thread::spawn({
            let (queue, finished, first) = (queue.clone(), Arc::clone(&finished), queue.get().unwrap().into_owned());
            move || {
                finished.fetch_add(1, Relaxed);
                first.done();
                let second = queue.get().unwrap();
                finished.fetch_add(1, Relaxed);
                second.done();
            }
        });
        queue.shut_down_with_drain();
        assert_eq!(finished.load(Relaxed), 2);
        worker.join().unwrap();
    });
}

/// A drain that meets the `done` of the only key: is on the list in time, or sees that nothing is left.
#[test]
fn drain_meets_a_clean_done() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let drainer = thread::spawn({
            let queue = queue.clone();
            move || queue.shut_down_with_drain()
        });
        item.done();
        drainer.join().unwrap();
    });
}

/// A key that was added while in work is waited for until its second `done`.
#[test]
fn drain_waits_for_a_dirty_key() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        queue.add(1);
        let drainer = thread::spawn({
            let (queue, finished) = (queue.clone(), Arc::clone(&finished));
            move || {
                queue.shut_down_with_drain();
                assert_eq!(finished.load(Relaxed), 2);
            }
        });
        finished.fetch_add(1, Relaxed);
        item.done();
        let item = queue.get().unwrap();
        finished.fetch_add(1, Relaxed);
        item.done();
        drainer.join().unwrap();
    });
}

/// An add that meets a drain is refused or waited for.
#[test]
fn drain_covers_a_racing_add() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        let worker = thread::spawn({
            let (queue, finished) = (queue.clone(), Arc::clone(&finished));
            move || {
                let added = queue.add(1_u64);
                while let Some(item) = queue.get() {
                    finished.fetch_add(1, Relaxed);
                    item.done();
                }
                usize::from(added.is_accepted())
            }
        });
        queue.shut_down_with_drain();
        let finished = finished.load(Relaxed);
        assert_eq!(finished, worker.join().unwrap());
    });
}

/// Both drains end at the one `done`.
#[test]
fn two_drainers_both_return() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let drainers = [queue.clone(), queue.clone()].map(|queue| thread::spawn(move || queue.shut_down_with_drain()));
        item.done();
        for drainer in drainers {
            drainer.join().unwrap();
        }
    });
}

/// A plain shut-down after the drain has begun ends it, whatever is still in work.
#[test]
fn plain_shutdown_releases_drain() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let item = queue.get().unwrap();
        let drainer = thread::spawn({
            let queue = queue.clone();
            move || queue.shut_down_with_drain()
        });
        // The drain shuts down, so from then on a plain shut-down is later.
        while !queue.shutting_down() {
            thread::yield_now();
        }
        queue.shut_down();
        drainer.join().unwrap();
        item.done();
    });
}

/// A plain shut-down from before the drain does not end it.
#[test]
fn earlier_shutdown_does_not_release_drain() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add(1_u64);
        queue.shut_down();
        let worker = work_off_one(&queue, &finished);
        queue.shut_down_with_drain();
        assert_eq!(finished.load(Relaxed), 1);
        worker.join().unwrap();
    });
}

/// A drain whose time is up says what is left, all of one moment: the one key is in line or in work, never both or neither.
#[test]
fn timed_out_drain_counts_once() {
    check(|| {
        let queue = WorkQueue::new();
        let finished = counter();
        queue.add(1_u64);
        let worker = work_off_one(&queue, &finished);
        match queue.shut_down_with_drain_timeout(Duration::ZERO) {
            Ok(()) => assert_eq!(finished.load(Relaxed), 1),
            Err(DrainTimeoutError { queued, processing, .. }) => {
                assert_eq!(queued + processing, 1, "{queued}, {processing}")
            }
        }
        worker.join().unwrap();
        assert_eq!(queue.stats().drainers, 0);
    });
}
