//! The pause of the queue, beside getters that take a key or go to sleep, and beside the shut-down: W1, W2, I7.

use keyqueue::WorkQueue;
use loom::thread::JoinHandle;
use loom_tests::{check, with};

fn getter(queue: &WorkQueue<u64>) -> JoinHandle<Option<u64>> {
    with(queue, |queue| queue.get().map(|item| *item))
}

/// A getter, which has added the key itself, goes to sleep because the queue is paused: the resume finds it on the list, or it finds the
/// pause over (W2).
#[test]
fn a_resume_meets_a_getter_that_goes_to_sleep() {
    for shards in [1, 2] {
        check(move || {
            let queue = WorkQueue::builder().shards(shards).build();
            queue.pause();
            let getter = with(&queue, |queue| {
                queue.add(1);
                queue.get().map(|item| *item)
            });
            queue.resume();
            assert_eq!(getter.join().unwrap(), Some(1));
        });
    }
}

/// The add wakes the getter, or leaves that to the resume (W2).
#[test]
fn a_resume_meets_an_add_and_a_getter() {
    check(|| {
        let queue = WorkQueue::new();
        queue.pause();
        let getter = getter(&queue);
        let adder = with(&queue, |queue| queue.add(1));
        queue.resume();
        assert_eq!(getter.join().unwrap(), Some(1));
        adder.join().unwrap();
    });
}

/// Two getters sleep, and the resume wakes one, which wakes the other (W2).
#[test]
fn a_resume_wakes_a_getter_for_each_key() {
    check(|| {
        let queue = WorkQueue::new();
        queue.pause();
        queue.add_all([1, 2]);
        let getters = [getter(&queue), getter(&queue)];
        queue.resume();
        let mut keys = getters.map(|getter| getter.join().unwrap().unwrap());
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
    });
}

/// After `pause` has returned, the getter takes no key, until the resume. (A lock-free queue does not promise this of a get that has begun
/// before.)
#[test]
#[cfg(not(keyqueue_lock_free))]
fn no_hand_out_begins_after_a_pause() {
    for shards in [1, 2] {
        check(move || {
            let queue = WorkQueue::builder().shards(shards).build();
            queue.add(1);
            let getter = getter(&queue);
            queue.pause();
            let before = queue.len(); // without the lock, which would wait for a hand-out
            assert_eq!(before, queue.stats().len);
            queue.resume();
            assert_eq!(getter.join().unwrap(), Some(1));
        });
    }
}

/// A getter that waits in a paused queue gets what is queued when the queue is shut down, and then learns of that (P6).
#[test]
fn a_shut_down_meets_a_getter_that_is_paused() {
    check(|| {
        let queue = WorkQueue::new();
        queue.pause();
        queue.add(1);
        let getter = with(&queue, |queue| [(); 2].map(|()| queue.get().map(|item| *item)));
        queue.shut_down();
        assert_eq!(getter.join().unwrap(), [Some(1), None]);
        assert!(!queue.is_paused());
    });
}

/// A pause comes before a drain, which ends it, or after the begin of the drain, and then changes nothing (P7).
#[test]
fn a_pause_meets_a_drain() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1);
        let pauses = with(&queue, |queue| queue.pause());
        let worker = with(&queue, |queue| std::iter::from_fn(|| queue.get().map(drop)).count());
        queue.shut_down_with_drain();
        pauses.join().unwrap();
        assert!(!queue.is_paused());
        assert_eq!(worker.join().unwrap(), 1);
    });
}
