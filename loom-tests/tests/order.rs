//! Priorities and groups: keys that are raised, groups that are full, and the first priority of a queue.

use keyqueue::{AddOptions, Added, Priority, WorkQueue};
use loom::thread::JoinHandle;
use loom_tests::{check, with};

const HIGH: AddOptions = AddOptions::new().priority(Priority::HIGH);

/// All keys are in one group, one of which may be processing at a time.
fn one_at_a_time() -> WorkQueue<u64> {
    WorkQueue::builder().fair_by(|_| 0).max_processing_per_group(1).build()
}

fn getter(queue: &WorkQueue<u64>) -> JoinHandle<Option<u64>> {
    with(queue, |queue| queue.get().map(|item| *item))
}

/// The first priority of a queue comes while another thread adds and a third one gets (O1). No key is lost, and the order holds.
#[test]
fn the_first_priority_meets_plain_calls() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all([1, 2, 3]);
        let adder = with(&queue, |queue| queue.add(4));
        let urgent = with(&queue, |queue| queue.add_with(9, HIGH));
        let first = *queue.get().unwrap();
        assert_eq!((adder.join().unwrap(), urgent.join().unwrap()), (Added::Queued, Added::Queued));
        let rest: Vec<_> = std::iter::from_fn(|| queue.try_get().ok().map(|item| *item)).collect();
        assert_eq!((first, rest), if first == 9 { (9, vec![1, 2, 3, 4]) } else { (1, vec![9, 2, 3, 4]) });
    });
}

/// The `done` of a full group meets a getter that goes to sleep (P20).
#[test]
fn the_done_of_a_full_group_meets_a_sleeper() {
    check(|| {
        let queue = one_at_a_time();
        queue.add_all([1, 2]);
        let item = queue.get().unwrap();
        let parked = getter(&queue);
        drop(item);
        assert_eq!(parked.join().unwrap(), Some(2));
    });
}

/// After a shut-down, getters wait while a full group has keys, and all return when it has none (P6, P20).
#[test]
fn getters_of_a_shut_down_queue_wait_for_full_groups() {
    check(|| {
        let queue = one_at_a_time();
        queue.add_all([1, 2]);
        let item = queue.get().unwrap();
        queue.shut_down();
        let getters = [getter(&queue), getter(&queue)];
        drop(item);
        let mut got = getters.map(|getter| getter.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [None, Some(2)]);
    });
}

/// Two threads find a key new, and both ask for its group. It is queued once.
#[test]
fn two_adds_of_a_new_key_ask_for_its_group() {
    check(|| {
        let queue = WorkQueue::builder().fair_by(|key| key % 2).build();
        let other = with(&queue, |queue| queue.add(1));
        let mine = queue.add(1);
        let both = [mine, other.join().unwrap()];
        assert!(both == [Added::Queued, Added::Coalesced] || both == [Added::Coalesced, Added::Queued]);
        assert_eq!((queue.len(), queue.try_get().is_ok(), queue.try_get().is_ok()), (1, true, false));
    });
}

/// The end of a batch meets adds of its keys, of which the second getter has none yet. Each add leads to one more hand-out (P1).
#[test]
fn the_end_of_a_batch_meets_adds_of_its_keys() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all([1_u64, 2, 3]);
        let batch = queue.get_batch(3);
        assert_eq!(batch.len(), 3);
        let adder = with(&queue, |queue| [queue.add(1), queue.add(3)]);
        batch.succeed();
        let added = adder.join().unwrap();
        assert!(added.iter().all(|added| matches!(added, Added::Queued | Added::Deferred)), "{added:?}");
        let mut again: Vec<_> = queue.get_batch(3).iter().map(|item| **item).collect();
        again.sort_unstable();
        assert_eq!((again, queue.len(), queue.processing_len()), (vec![1, 3], 0, 0));
    });
}

/// The end of a batch makes two keys ready, for which two getters wait. None of them waits on (W2).
#[test]
fn the_end_of_a_batch_wakes_two_getters() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all([1_u64, 2]);
        let batch = queue.get_batch(2);
        assert_eq!([queue.add(1), queue.add(2)], [Added::Deferred; 2]);
        let getters = [getter(&queue), getter(&queue)];
        drop(batch);
        let mut got = getters.map(|getter| getter.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [Some(1), Some(2)]);
    });
}
