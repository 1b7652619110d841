//! Puts keys and delays back, after foreign code has panicked in the call that took them out.
//!
//! These steps are adds, except that they also work after a shut-down, and leave a delay of the key as it is.

use super::Shared;
use super::add::Wakeups;
use crate::key::Claimed;
use crate::shard::{Delay, NewKey, WHEEL_IS_FULL};
use crate::sync::Arc;
use crate::time::time_left;
use crate::{AddOptions, Priority};
use std::hash::Hash;

impl<K> Shared<K> {
    /// For the holder of a key, instead of `done`: queues the key again, at the back.
    pub(crate) fn put_back_held(&self, claimed: Claimed<K>) {
        let mut section = self.enter(self.home(&claimed));
        let priority = section.held_priority(&claimed);
        section.held(&claimed).add_again(priority.0); // processing, so `done` queues it
        self.finish(section, claimed);
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// Queues a key, at the back.
    pub(crate) fn put_back(&self, key: K) {
        let hash = self.hash(&key);
        let group = self.group_for_put_back(&key);
        let mut section = self.enter(self.shard_of(hash));
        let added = match section.find(&key, hash) {
            Some(mut known) => known.add_again(Priority::NORMAL.0),
            None => {
                if section.is_ordered() {
                    section.add_new_in_order(key, hash, NewKey { group, ..NewKey::default() });
                } else {
                    section.add_new_measured(key, hash, None);
                }
                crate::Added::Queued
            }
        };
        section.added(added, Wakeups::Now);
    }

    /// Sets a delay again, unless the key has an earlier one by now.
    pub(super) fn put_back_delay(this: &Arc<Self>, Delay { deadline, waited, priority, key }: Delay<K>) {
        let hash = this.hash(&key);
        let group = this.group_for_put_back(&key);
        {
            let mut section = this.enter(this.shard_of(hash));
            assert!(section.reserve_delay(), "{WHEEL_IS_FULL}");
            let now = section.time();
            let known = match section.find(&key, hash) {
                Some(known) => known,
                None => section.insert::<true>(key, hash, group),
            };
            let delay = AddOptions::new().after(time_left(deadline, now)).priority(Priority(priority));
            let set = known.set_delay_again(now, &delay, waited);
            section.added_with(set);
        }
        Self::ensure_driver(this);
    }
}
