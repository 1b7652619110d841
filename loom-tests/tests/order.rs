//! Priorities and groups: keys that are raised, groups that are full, and the first priority of a queue.

use keyqueue::{AddOptions, Added, Priority, WorkQueue};
use loom::thread::{self, JoinHandle};
use loom_tests::{check, with};
use std::hash::{Hash, Hasher};

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

/// A key that names its group. Equal keys may have different ones.
#[derive(Debug, Clone, Copy)]
struct Key(u64, u64);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A queue with two shards, and one key in groups of the first shard and of the second.
fn two_shards() -> (WorkQueue<Key>, [Key; 2]) {
    let queue = WorkQueue::builder().shards(2).fair_by(|key: &Key| key.1).max_processing_per_group(1).build();
    let key_of = |shard| (0..100).map(|group| Key(1, group)).find(|key| queue.shard_index(key) == shard);
    let keys = [0, 1].map(|shard| key_of(shard).expect("half of the groups"));
    (queue, keys)
}

/// Two threads add a new key, and name groups in different shards: one of them queues it (P1).
#[test]
fn adds_of_a_key_in_two_groups_queue_it_once() {
    check(|| {
        let (queue, [first, second]) = two_shards();
        let other = with(&queue, move |queue| queue.add(first));
        let mut answers = [queue.add(second), other.join().unwrap()];
        answers.sort_unstable_by_key(|answer| *answer != Added::Queued);
        assert_eq!((answers, queue.len()), ([Added::Queued, Added::Coalesced], 1));
        let item = queue.try_get().unwrap();
        assert!(queue.try_get().is_err());
        item.done();
        assert!(queue.is_empty() && !queue.remove(&first));
    });
}

/// The end of a key's processing, which may be that the queue forgets it, beside two threads that add it and name groups in different
/// shards. It is queued once (P1, P2).
#[test]
fn a_key_that_is_forgotten_comes_back_in_one_group() {
    check(|| {
        let (queue, [first, second]) = two_shards();
        queue.add(second);
        let item = queue.try_get().unwrap().into_owned();
        let holder = thread::spawn(move || item.done());
        let adders = [first, second].map(|key| with(&queue, move |queue| _ = queue.add(key)));
        holder.join().unwrap();
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        assert_eq!((queue.len(), queue.remove(&first), queue.len()), (1, true, 0));
    });
}

/// Getters of a queue that is shut down wait for a full group in each of two shards. All return when both are empty (P6, P20), whichever
/// is the last.
#[test]
fn getters_of_a_shut_down_queue_wait_for_full_groups_of_both_shards() {
    check(|| {
        let (queue, [first, second]) = two_shards();
        queue.add_all([first, second].map(|key| Key(2 + key.1, key.1)));
        let items = queue.get_many(2);
        let [left, right] = <[_; 2]>::try_from(items).unwrap().map(|item| item.into_owned());
        queue.add_all([left.1, right.1].map(|group| Key(200 + group, group)));
        queue.shut_down();
        let parked = with(&queue, |queue| queue.get().map(|item| item.0));
        // They take the keys that make the shards empty, and not the getter.
        let ends = [left, right].map(|item| {
            with(&queue, move |queue| {
                let other = Key(200 + item.1, item.1);
                queue.remove(&other)
            })
        });
        ends.into_iter().for_each(|end| _ = end.join().unwrap());
        let _whatever_is_first = parked.join().unwrap();
    });
}
