//! `take_where` loses no key that it has taken when foreign code panics.

use keyqueue::WorkQueue;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

std::thread_local! {
    static HASH_PANICS: Cell<bool> = const { Cell::new(false) };
    static DROP_PANICS: Cell<Option<u32>> = const { Cell::new(None) };
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!HASH_PANICS.get(), "hash");
        self.0.hash(state);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if DROP_PANICS.get() == Some(self.0) && !std::thread::panicking() {
            DROP_PANICS.set(None);
            panic!("drop");
        }
    }
}

/// The number of keys in the queue, and of those that were returned.
fn total(queue: &WorkQueue<Key>, returned: usize) -> usize {
    queue.len() + queue.delayed_len() + returned
}

#[test]
fn a_hash_that_panics_after_the_predicate_loses_no_queued_key() {
    let queue = WorkQueue::new();
    queue.add(Key(1));
    queue.add_after(Key(2), Duration::from_secs(3600));
    let taken = catch_unwind(AssertUnwindSafe(|| {
        queue.take_where(|_| {
            HASH_PANICS.set(true);
            true
        })
    }));
    HASH_PANICS.set(false);
    let returned = taken.map_or(0, |left| left.queued.len() + left.delayed.len());
    assert_eq!(total(&queue, returned), 2, "a key is lost");
}

/// The first of three keys that match is handed out before it is taken. The queue's clone of it is dropped, and that panics.
#[test]
fn a_clone_whose_drop_panics_loses_no_other_key() {
    let queue = WorkQueue::new();
    (1..=3).for_each(|n| _ = queue.add(Key(n)));
    let mut held = Vec::new();
    let taken = catch_unwind(AssertUnwindSafe(|| {
        queue.take_where(|key| {
            if key.0 == 3 {
                held.extend(queue.try_get());
                DROP_PANICS.set(Some(1));
            }
            true
        })
    }));
    DROP_PANICS.set(None);
    let returned = taken.map_or(0, |left| left.queued.len() + left.delayed.len());
    assert_eq!(total(&queue, returned) + held.len(), 3, "keys are lost");
}
