//! Puts keys and delays back, after foreign code has panicked in the call that took them out.
//!
//! These steps are adds, except that they also work after a shut-down, and leave a delay of the key as it is.

use super::add::Wakeups;
use super::measure::{UNREAD, known};
use super::{Core, Shared};
use crate::key::slab::SlotRef;
use crate::key::state::OnAdd;
use crate::sync::Arc;
use crate::time::time_left;
use crate::{AddOptions, Added};
use std::hash::Hash;

/// A delay that was taken out.
pub(super) struct Delay<K> {
    pub(super) deadline: u64,
    /// An add waits for it ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)).
    pub(super) waited: bool,
    pub(super) key: K,
}

impl<K> Shared<K> {
    /// For the holder of a key, instead of `done`: queues the key again, at the back.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    pub(crate) unsafe fn put_back_held(&self, slot: SlotRef<K>) {
        let (worked, _vacated) = {
            let core = &mut *self.enter();
            self.add_again(core, slot);
            let worked = core.note_done(slot, UNREAD);
            // SAFETY: guaranteed by the caller.
            (worked, unsafe { self.finish(core, slot) })
        };
        self.tell(|observer| observer.done(known(worked)));
    }

    /// Adds a key that is in the table, even after a shut-down, and regardless of a delay of the key.
    fn add_again(&self, core: &mut Core<K>, slot: SlotRef<K>) {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        match unsafe { slot.get() }.state.on_add() {
            OnAdd::Push => {
                core.counts.pushed += 1;
                core.note_add(slot, Added::Queued, UNREAD);
                self.push(core, slot, Wakeups::Now);
            }
            OnAdd::Coalesce => {
                core.counts.coalesced += 1;
            }
            OnAdd::Defer => {
                core.counts.deferred += 1;
                core.note_add(slot, Added::Deferred, UNREAD);
                core.owe_dirty_waiters(slot);
            }
        }
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// Queues a key, at the back.
    pub(crate) fn put_back(&self, key: K) {
        let hash = self.hash(&key);
        let core = &mut *self.enter();
        match core.table.find(&key, hash) {
            Some(slot) => self.add_again(core, slot),
            None => {
                let slot = self.add_new(core, key, hash, Wakeups::Now);
                core.note_add(slot, Added::Queued, UNREAD);
            }
        }
    }

    /// Sets a delay again, unless the key has an earlier one by now.
    pub(super) fn put_back_delay(this: &Arc<Self>, Delay { deadline, waited, key }: Delay<K>) {
        let hash = this.hash(&key);
        {
            let core = &mut *this.enter();
            let slot = match core.table.find(&key, hash) {
                Some(slot) => slot,
                None => core.table.insert(key, hash),
            };
            let now = core.time;
            this.set_delay(core, slot, now, AddOptions::new().after(time_left(deadline, now)));
            if waited {
                // SAFETY: in the table, so taken (S2), and we hold the lock.
                let _deferred = unsafe { slot.get() }.state.defer_add();
            }
        }
        Self::ensure_driver(this);
    }
}
