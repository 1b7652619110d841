//! Takes back what was added for one key.
//!
//! A queued key leaves the line by its position, but a plain line does not know the position of a key: to keep it would cost each add. So
//! a short line is searched. The keys of a long one move to the order, where each key has links: the first call pays for the move, some
//! keys in each critical section, and those that follow are O(1). From then on the shard is ordered, as after the first priority.

use super::Shared;
use crate::shard::TakenBack;
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: Hash + Eq> Shared<K> {
    /// `remove`.
    pub(crate) fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        let hash = self.hash(key);
        let locked = self.shard_of(hash);
        let _removed = loop {
            {
                let mut section = self.enter(locked);
                let Some(known) = section.find(key, hash) else { return false };
                match known.take_back() {
                    TakenBack::Nothing => return false,
                    TakenBack::Taken(removed) => {
                        section.publish();
                        locked.publish_front(&section);
                        section.owe_drainers();
                        break removed;
                    }
                    TakenBack::NotFound => {}
                }
            }
            self.prepare_order(locked); // once: all keys are in the order then (O3)
        };
        self.end_getters();
        true
    }
}
