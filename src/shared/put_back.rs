//! Keys that go back to where they were taken from, because the call that took them out panics in foreign code.
//!
//! These steps are adds, except that the queue may be shut down, and that a delay of the key is left as it is.

use super::measure::UNREAD;
use super::{Core, Done, Shared};
use crate::AddOptions;
use crate::key::slab::SlotRef;
use crate::key::state::OnAdd;
use crate::sync::Arc;
use crate::time::driver::Notice;
use crate::time::time_left;
use crate::wait::Wake;
use std::hash::Hash;

/// A delay that was taken out.
pub(super) struct Delay<K> {
    pub(super) deadline: u64,
    /// An add waited for it.
    pub(super) waited: bool,
    pub(super) key: K,
}

impl<K> Shared<K> {
    /// Puts a key that is held at the end of the line, instead of `done`.
    ///
    /// # Safety
    /// The caller holds the key in this slot, and forgets the slot.
    pub(crate) unsafe fn put_back_held(&self, slot: SlotRef<K>) {
        let mut done = Done::nothing();
        let wake = {
            let core = &mut *self.core.lock();
            let wake = self.add_again(core, slot);
            // SAFETY: as the caller's.
            unsafe { self.done_slot(core, slot, UNREAD, &mut done) };
            wake
        };
        done.wake = done.wake.and(wake);
        done.settle(self);
    }

    /// An add of a key that is in the table, also after the shut-down, and whatever a delay of the key would make of it.
    fn add_again(&self, core: &mut Core<K>, slot: SlotRef<K>) -> Wake {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        match unsafe { slot.get() }.state.add() {
            OnAdd::Push => {
                core.counts.queued += 1;
                core.note_added(slot, UNREAD);
                self.push(core, slot, false)
            }
            OnAdd::Coalesce => {
                core.counts.coalesced += 1;
                Wake::default()
            }
            OnAdd::Defer => {
                core.counts.deferred += 1;
                core.note_added(slot, UNREAD);
                core.next_watchers(slot)
            }
        }
    }
}

impl<K: Hash + Eq> Shared<K> {
    /// Puts a key at the end of the line.
    pub(crate) fn put_back(&self, key: K) {
        let hash = self.hash(&key);
        let wake = {
            let core = &mut *self.core.lock();
            match core.table.find(&key, hash) {
                Some(slot) => self.add_again(core, slot),
                None => self.add_new(core, key, hash, UNREAD, false),
            }
        };
        self.wake(wake);
    }

    /// Sets a delay again, unless the key has an earlier one by now.
    pub(super) fn put_back_delay(this: &Arc<Self>, Delay { deadline, waited, key }: Delay<K>) {
        let hash = this.hash(&key);
        let rouse = {
            let core = &mut *this.core.lock();
            let slot = match core.table.find(&key, hash) {
                Some(slot) => slot,
                None => core.table.insert(key, hash),
            };
            let now = core.time;
            let (_, rouse) = this.delay(core, slot, now, AddOptions::new().after(time_left(deadline, now)));
            if waited {
                // SAFETY: in the table, so taken (S2), and we hold the lock.
                let _waits = unsafe { slot.get() }.state.wait();
            }
            if core.shutting_down { Notice::Nothing } else { rouse }
        };
        Self::rouse_driver(this, rouse);
    }
}
