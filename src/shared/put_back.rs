//! Puts delays back, after foreign code has panicked in the call that took them out.
//!
//! This is an add with a delay, except that it also works after a shut-down, and leaves a delay of the key as it is.

use super::Shared;
use crate::shard::{Delay, WHEEL_IS_FULL};
use crate::sync::Arc;
use crate::time::time_left;
use crate::{AddOptions, Priority};
use std::hash::Hash;

impl<K: Hash + Eq> Shared<K> {
    /// Sets a delay again, unless the key has an earlier one by now.
    pub(super) fn put_back_delay(this: &Arc<Self>, Delay { deadline, waited, priority, group, key }: Delay<K>) {
        let hash = this.hash(&key);
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
        if !this.is_shutting_down() {
            this.expect_report();
        }
        Self::ensure_driver(this);
    }
}
