//! Slots that are freed and reused while threads add and hold keys: S1 to S3, I4, W4.

use keyqueue::WorkQueue;
use loom::alloc::Track;
use loom::thread;
use loom_tests::{check, rest, with};
use std::hash::{Hash, Hasher};

/// `shrink_to_fit` races adds and a `done`: in every order the added keys are queued, each once and unchanged. Chunks and buckets
/// are freed and allocated again.
#[test]
fn sweep_races_add() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all(1..=3_u64);
        let mut items = queue.get_many(3);
        let last = items.pop().unwrap().into_owned();
        drop(items);
        let worker = thread::spawn(move || last.done());
        let sweeper = with(&queue, |queue| queue.shrink_to_fit());
        queue.add(1);
        queue.add(2);
        worker.join().unwrap();
        sweeper.join().unwrap();
        assert_eq!(rest(&queue), [1, 2]);
    });
}

/// A holder reads its key without the lock while other threads vacate and reuse the slot beside it, the table grows, and chunks are
/// allocated and freed (S1, S3).
#[test]
fn held_key_keeps_its_slot() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add_all(["mine", "beside"].map(str::to_owned));
        let (mine, beside) = (queue.get().unwrap().into_owned(), queue.get().unwrap());
        let holder = thread::spawn(move || {
            assert_eq!(*mine, "mine");
            mine.done();
        });
        beside.done();
        queue.add_all(["a", "b", "c"].map(str::to_owned));
        assert_eq!(rest(&queue), ["a", "b", "c"]);
        queue.shrink_to_fit();
        holder.join().unwrap();
    });
}

/// Two threads add a held key while its holder reads it; the adds do not write the key in the slot (S1).
#[test]
fn adds_do_not_write_the_held_key() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add("a".to_owned());
        let item = queue.get().unwrap();
        let adders = [queue.clone(), queue.clone()].map(|queue| thread::spawn(move || queue.add("a".to_owned())));
        assert_eq!(*item, "a");
        item.done();
        for adder in adders {
            adder.join().unwrap();
        }
        assert_eq!(rest(&queue), ["a"]);
    });
}

/// One key leaves a slot, and another is written into it at once (S2). The holder's last read is ordered before that write.
#[test]
fn vacated_slot_is_reused() {
    check(|| {
        let queue = WorkQueue::new();
        queue.add("a".to_owned());
        let item = queue.get().unwrap().into_owned();
        let worker = thread::spawn(move || {
            assert_eq!(*item, "a");
            item.done();
        });
        queue.add("b".to_owned());
        queue.add("a".to_owned());
        worker.join().unwrap();
        let mut keys = rest(&queue);
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b"]);
    });
}

/// A key whose leak loom reports.
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

/// With one key queued and one processing, the last handle to be dropped, the queue's or the item's, frees both.
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
