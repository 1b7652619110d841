//! Takes out the keys that are left when workers stop: either all of them, or none.

use crate::panics::contained;
use crate::{Item, Leftover, Stats, WorkQueue};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Takes out all keys of a queue that is shut down. If foreign code panics meanwhile, such as a key's `Clone`, all keys that were
/// taken go back.
pub(super) fn take_all<K>(queue: &WorkQueue<K>) -> Leftover<K>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let mut taken = Taken { queue, keys: Vec::new() };
    let processing = loop {
        while let Ok(item) = queue.try_get() {
            taken.take(item);
        }
        let before = queue.stats().handed_out;
        let processing = queue.inspect().processing_keys();
        // If a key is queued now or was handed out meanwhile, a key that was processing may be missing in both lists: try again.
        let Stats { len: 0, handed_out, .. } = queue.stats() else { continue };
        if handed_out == before {
            break processing.into_iter().map(|held| held.key).collect();
        }
    };
    let delayed = queue.take_delayed();
    Leftover { queued: taken.keep(), processing, delayed }
}

/// Keys that were taken out of the queue. Dropping this puts them back at the end of the queue; `keep` prevents that.
struct Taken<'q, K: Hash + Eq> {
    queue: &'q WorkQueue<K>,
    keys: Vec<K>,
}

impl<K: Hash + Eq + Clone> Taken<'_, K> {
    fn take(&mut self, item: Item<'_, K>) {
        match catch_unwind(AssertUnwindSafe(|| item.key().clone())) {
            Ok(key) => {
                self.keys.push(key);
                item.done();
            }
            Err(payload) => {
                item.put_back();
                resume_unwind(payload);
            }
        }
    }
}

impl<K: Hash + Eq> Taken<'_, K> {
    fn keep(mut self) -> Vec<K> {
        std::mem::take(&mut self.keys)
    }
}

impl<K: Hash + Eq> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        for key in self.keys.drain(..) {
            contained(|| self.queue.shared.put_back(key));
        }
    }
}
