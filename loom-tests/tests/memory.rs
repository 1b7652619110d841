//! Slots that come and go under the feet of adders and holders: S1 to S3, I4.
#![cfg(loom)]

use keyqueue::{TryGetError, WorkQueue};
use loom::alloc::Track;
use loom::thread;
use loom_tests::check;
use std::hash::{Hash, Hasher};

/// Everything in line, in order.
fn rest<K: Clone>(queue: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| queue.try_get().ok().map(|item| item.key().clone())).collect()
}

/// A queue that knows `keys`, all idle.
fn idle(keys: impl IntoIterator<Item = u64>) -> WorkQueue<u64> {
    let queue = WorkQueue::new();
    queue.add_all(keys);
    rest(&queue);
    queue
}

/// Idle keys are swept while one of them is added: it is found or made anew, in line once, and itself.
#[test]
fn sweep_races_add() {
    check(|| {
        let queue = idle([1, 2]);
        let sweeper = thread::spawn({
            let queue = queue.clone();
            move || queue.shrink_to_fit()
        });
        queue.add(1);
        assert_eq!(queue.get().as_deref(), Some(&1));
        queue.add(2);
        sweeper.join().unwrap();
        assert_eq!(rest(&queue), [2]);
    });
}

/// A key is swept the moment it is idle: what the holder read of it comes before its slot is vacated.
#[test]
fn sweep_races_done() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(1_u64);
        let sweeper = thread::spawn({
            let queue = queue.clone();
            move || queue.shrink_to_fit()
        });
        let item = queue.get().unwrap();
        assert_eq!(*item, 1);
        item.done();
        sweeper.join().unwrap();
        queue.shrink_to_fit();
        assert_eq!(queue.stats().keys, 0);
    });
}

/// The sweep that a `done` sets off, when most of the table is idle, meets adds of what it sweeps.
#[test]
fn trim_races_add() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all(0..8_u64);
        let mut items = queue.get_many(8);
        let last = items.pop().unwrap().into_owned();
        let known = items.iter().map(|item| **item).next().unwrap();
        drop(items);
        let worker = thread::spawn(move || last.done());
        queue.add(known);
        queue.add(9);
        worker.join().unwrap();
        assert_eq!(rest(&queue), [known, 9]);
    });
}

/// A key that owns memory leaves the table at `done`, while it is added: back in line, once.
#[test]
fn done_races_add_of_owned_key() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add("a".to_owned());
        let item = queue.get().unwrap();
        let adder = thread::spawn({
            let queue = queue.clone();
            move || queue.add("a".to_owned())
        });
        item.done();
        assert_eq!(queue.get().as_deref().map(String::as_str), Some("a"));
        adder.join().unwrap();
        assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
        assert_eq!(queue.stats().keys, 0);
    });
}

/// A slot that one key leaves and another takes at once never mixes them up.
#[test]
fn slot_changes_hands() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add("a".to_owned());
        let item = queue.get().unwrap().into_owned();
        let worker = thread::spawn(move || item.done());
        queue.add("b".to_owned());
        queue.add("a".to_owned());
        worker.join().unwrap();
        let mut keys = rest(&queue);
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b"]);
    });
}

/// A key that loom misses if it is not dropped.
struct Tracked(u64, #[allow(dead_code, reason = "for its drop")] Track<()>);

impl Tracked {
    fn new(n: u64) -> Self {
        Self(n, Track::new(()))
    }
}

impl Clone for Tracked {
    fn clone(&self) -> Self {
        Self::new(self.0)
    }
}

impl PartialEq for Tracked {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Tracked {}

impl Hash for Tracked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A key in line and one in work; whoever comes last, a handle or the item, frees everything.
#[test]
fn drop_of_last_handle_frees_keys() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add(Tracked::new(1));
        queue.add(Tracked::new(2));
        queue.add(Tracked::new(2));
        let item = queue.get().unwrap().into_owned();
        let holder = thread::spawn(move || item.done());
        drop(queue);
        holder.join().unwrap();
    });
}
