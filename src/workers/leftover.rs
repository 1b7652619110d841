//! What is left when workers stop, and how it is taken out of the queue: all of it, or nothing.

use crate::panics::contained;
use crate::{Item, Stats, WorkQueue};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// What was left when the workers were told to end; from [`Workers::stop`](super::Workers::stop) and the drains. It is gone from the
/// queue, but for what was in work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "these keys were not worked on"]
pub struct Leftover<K> {
    /// Keys that were in line.
    pub queued: Vec<K>,
    /// Keys that were in work, and still are unless their handlers have returned by now.
    pub processing: Vec<K>,
    /// Keys that were delayed, with the time that was left, earliest first.
    pub delayed: Vec<(K, Duration)>,
}

impl<K> Leftover<K> {
    /// Nothing was left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.processing.is_empty() && self.delayed.is_empty()
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Leftover<K> {
    /// Takes out what is left in a queue that is shut down. If foreign code panics meanwhile, such as a key's `Clone`, all that was
    /// taken goes back.
    pub(super) fn take(queue: &WorkQueue<K>) -> Self {
        let mut taken = Taken { queue, keys: Vec::new() };
        let processing = loop {
            while let Ok(item) = queue.try_get() {
                taken.take(item);
            }
            let before = queue.stats().handed_out;
            let processing = queue.processing_keys();
            // Else a key that was in work is in line again, or handed out once more: it is in neither list, maybe.
            let Stats { len: 0, handed_out, .. } = queue.stats() else { continue };
            if handed_out == before {
                break processing.into_iter().map(|held| held.key).collect();
            }
        };
        let delayed = queue.take_delayed();
        Self { queued: taken.keep(), processing, delayed }
    }
}

/// Keys that were taken out of the line. Unless they are kept, they go back to its end.
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
