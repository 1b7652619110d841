//! The bound on the number of keys, and adds that wait for room, beside the calls that make room and those that end the wait.

use keyqueue::{Added, Driver, OwnedItem, WorkQueue};
use loom::thread::JoinHandle;
use loom_tests::{check, with};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

/// A queue with one place, which a held key has taken.
fn full(shards: usize) -> (WorkQueue<u64>, OwnedItem<u64>) {
    let queue = WorkQueue::builder().shards(shards).max_keys(1).driver(Driver::Manual).build();
    queue.add(1);
    let item = queue.get_owned().unwrap();
    (queue, item)
}

fn adder(queue: &WorkQueue<u64>, key: u64) -> JoinHandle<Added> {
    with(queue, move |queue| queue.add_wait(key))
}

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// The place is free before the add goes on the list, or its end finds the add there.
#[test]
fn a_done_meets_an_add_that_goes_to_sleep() {
    for shards in [1, 2] {
        check(move || {
            let (queue, item) = full(shards);
            let adder = adder(&queue, 2);
            item.done();
            assert_eq!(adder.join().unwrap(), Added::Queued);
            assert_eq!((queue.len(), queue.add(3)), (1, Added::Full));
        });
    }
}

/// The same when the key is taken back.
#[test]
fn a_remove_meets_an_add_that_goes_to_sleep() {
    for shards in [1, 2] {
        check(move || {
            let queue = WorkQueue::builder().shards(shards).max_keys(1).driver(Driver::Manual).build();
            queue.add(1);
            let adder = adder(&queue, 2);
            assert!(queue.remove(&1));
            assert_eq!(adder.join().unwrap(), Added::Queued);
        });
    }
}

/// Two adds wait for one place. When it is free once more, the other one has it. (On the lock-free engine this has too many orders.)
#[test]
#[cfg(not(keyqueue_lock_free))]
fn two_adds_have_one_place_after_the_other() {
    check(|| {
        let (queue, item) = full(1);
        let adders = [adder(&queue, 2), adder(&queue, 3)];
        item.done();
        queue.get().unwrap().done();
        queue.get().unwrap().done();
        assert_eq!(adders.map(|adder| adder.join().unwrap()), [Added::Queued; 2]);
    });
}

/// Two places become free at the same time.
#[test]
fn two_places_wake_two_adds() {
    check(|| {
        let queue = WorkQueue::builder().max_keys(2).driver(Driver::Manual).build();
        queue.add_all([1, 2]);
        let adders = [adder(&queue, 3), adder(&queue, 4)];
        drop(queue.take_where(|key| *key < 3));
        assert_eq!(adders.map(|adder| adder.join().unwrap()), [Added::Queued; 2]);
    });
}

/// A future is dropped while the end of a key wakes it: another add is woken in its place.
#[test]
fn a_cancelled_add_hands_its_wake_up_on() {
    check(|| {
        let (queue, item) = full(1);
        let mut future = Box::pin(queue.add_wait_async(2));
        assert!(is_pending(future.as_mut()));
        let adder = adder(&queue, 3);
        let ends = with(&queue, move |_| item.done());
        drop(future);
        assert_eq!(adder.join().unwrap(), Added::Queued);
        ends.join().unwrap();
    });
}

/// An add that is woken finds its key known, because a retry was faster, and leaves the place to the other one.
#[test]
fn an_add_that_needs_no_place_hands_its_wake_up_on() {
    check(|| {
        let queue = WorkQueue::builder().max_keys(2).driver(Driver::Manual).build();
        queue.add_all([1, 2]);
        let items = [(); 2].map(|()| queue.get_owned().unwrap());
        let mut future = Box::pin(queue.add_wait_async(3));
        assert!(is_pending(future.as_mut()));
        queue.add_rate_limited(3);
        let adder = adder(&queue, 4);
        items.into_iter().for_each(OwnedItem::done);
        assert!(!is_pending(future.as_mut()));
        assert_eq!(adder.join().unwrap(), Added::Queued);
    });
}

/// Two adds of new keys and one place: one is refused, whatever their shards.
#[test]
fn two_adds_do_not_share_a_place() {
    for shards in [1, 2] {
        check(move || {
            let queue = WorkQueue::builder().shards(shards).max_keys(1).driver(Driver::Manual).build();
            let other = with(&queue, |queue| queue.add(1).is_accepted());
            let accepted = queue.add(2).is_accepted();
            assert!(other.join().unwrap() != accepted);
            assert_eq!((queue.len(), queue.stats().full), (1, 1));
        });
    }
}

/// The end of a key and an add of the same key, while another add waits: there is one key, or two one after the other.
#[test]
fn an_add_of_the_key_that_ends_meets_one_that_waits() {
    check(|| {
        let (queue, item) = full(1);
        let adder = adder(&queue, 2);
        let same = with(&queue, |queue| queue.add(1));
        item.done();
        if same.join().unwrap().is_accepted() {
            queue.remove(&1);
        }
        assert_eq!(adder.join().unwrap(), Added::Queued);
        assert_eq!(queue.len(), 1);
    });
}

/// A shut-down finds the add on the list, or the add finds the shut-down.
#[test]
fn a_shut_down_meets_an_add_that_goes_to_sleep() {
    for shards in [1, 2] {
        check(move || {
            let (queue, item) = full(shards);
            let adders = [adder(&queue, 2), adder(&queue, 3)];
            queue.shut_down();
            assert_eq!(adders.map(|adder| adder.join().unwrap()), [Added::Rejected; 2]);
            item.done();
        });
    }
}

/// A drain ends the wait of an add, and does not wait for it.
#[test]
fn a_drain_meets_an_add_that_goes_to_sleep() {
    check(|| {
        let (queue, item) = full(1);
        let adder = adder(&queue, 2);
        let mut drain = Box::pin(queue.shut_down_with_drain_async());
        assert!(is_pending(drain.as_mut()));
        assert_eq!(adder.join().unwrap(), Added::Rejected);
        item.done();
        assert!(!is_pending(drain.as_mut()));
    });
}

/// A stop ends the wait of an add, whose key is in no list.
#[test]
fn a_stop_meets_an_add_that_goes_to_sleep() {
    check(|| {
        let (queue, item) = full(1);
        let adder = adder(&queue, 2);
        let left = queue.workers().build().stop();
        assert_eq!(adder.join().unwrap(), Added::Rejected);
        assert_eq!((left.queued.len(), left.processing), (0, vec![1]));
        item.done();
    });
}

/// The key that has the place ends while the queue is stopped: the add is refused, or its key is in the list.
#[test]
fn a_stop_meets_an_add_that_has_room() {
    check(|| {
        let (queue, item) = full(1);
        let adder = adder(&queue, 2);
        let ends = with(&queue, move |_| item.done());
        let left = queue.workers().build().stop();
        let accepted = adder.join().unwrap().is_accepted();
        assert_eq!(left.queued == [2], accepted);
        ends.join().unwrap();
    });
}
