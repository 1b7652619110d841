//! `add`, and the steps that all kinds of adds share.

use super::measure::UNREAD;
use super::section::Section;
use super::{Core, Shared};
use crate::key::slab::SlotRef;
use crate::key::state::OnAdd;
use crate::key::table;
use crate::sync::{Arc, Ordering};
use crate::{Added, DelayedAdd};
use std::hash::Hash;

/// When getters are woken for a key that becomes queued.
#[derive(Clone, Copy)]
pub(crate) enum Wakeups {
    Now,
    /// The caller wakes them, for many keys at once: [`Core::owe_unwoken`].
    Later,
}

impl<K: Hash + Eq> Shared<K> {
    /// `add`.
    #[inline]
    pub(crate) fn add(this: &Arc<Self>, key: K, wakeups: Wakeups) -> Added {
        let hash = this.hash(&key);
        let mut section = this.enter();
        if section.special.is_any() {
            return Self::add_special(this, key, hash, wakeups, section);
        }
        let core = &mut *section;
        match core.table.find(&key, hash) {
            // SAFETY: in the table, so taken (S2), and we hold the lock.
            Some(slot) if unsafe { slot.get() }.state.is_only_dirty() => {
                core.counts.coalesced += 1;
                Added::Coalesced
            }
            Some(slot) => this.add_slot(core, slot, wakeups),
            None => {
                this.add_new(core, key, hash, wakeups);
                Added::Queued
            }
        }
        // If the table has an equal key, `key` is dropped here, after the lock (W4).
    }

    /// `add` to a queue that measures, is shut down, or has no driver thread. The section is the last parameter, so that it is dropped
    /// before the key if `Eq` panics (W4).
    #[inline(never)]
    fn add_special(
        this: &Arc<Self>,
        key: K,
        hash: table::Hash,
        wakeups: Wakeups,
        mut section: Section<'_, K>,
    ) -> Added {
        let core = &mut *section;
        let added = if core.is_shutting_down() {
            core.reject()
        } else {
            match core.table.find(&key, hash) {
                Some(slot) => {
                    let added = this.add_slot(core, slot, wakeups);
                    core.note_add(slot, added, UNREAD);
                    added
                }
                None => {
                    let slot = this.add_new(core, key, hash, wakeups);
                    core.note_add(slot, Added::Queued, UNREAD);
                    Added::Queued
                }
            }
        };
        drop(section);
        Self::after_add(this, added);
        added
    }
}

impl<K> Shared<K> {
    /// `add` of a key that is not in the table. **Linearization point of such an add**; that of the others is in the next function.
    #[inline]
    pub(super) fn add_new(&self, core: &mut Core<K>, key: K, hash: table::Hash, wakeups: Wakeups) -> SlotRef<K> {
        let slot = core.table.insert(key, hash);
        core.counts.pushed += 1;
        // SAFETY: taken (S2), and we hold the lock.
        unsafe { slot.get() }.state.on_add_new();
        self.push(core, slot, wakeups);
        slot
    }

    /// `add` of a key that is in the table. Wakes the tasks that wait for the key to become dirty, whatever `wakeups` says of getters.
    #[inline]
    pub(super) fn add_slot(&self, core: &mut Core<K>, slot: SlotRef<K>, wakeups: Wakeups) -> Added {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let state = &unsafe { slot.get() }.state;
        if state.is_delayed() {
            if let Some(added) = self.add_delayed(core, slot) {
                return added;
            }
        }
        match state.on_add() {
            OnAdd::Push => {
                core.counts.pushed += 1;
                self.push(core, slot, wakeups);
                Added::Queued
            }
            OnAdd::Coalesce => {
                core.counts.coalesced += 1;
                Added::Coalesced
            }
            OnAdd::Defer => {
                core.counts.deferred += 1;
                core.owe_dirty_waiters(slot);
                Added::Deferred
            }
        }
    }

    /// What an `add` does about the delay of its key. `Some`: the add does nothing more.
    #[cold]
    fn add_delayed(&self, core: &mut Core<K>, slot: SlotRef<K>) -> Option<Added> {
        match self.delayed_add {
            DelayedAdd::Independent => {}
            DelayedAdd::Promote => _ = core.remove_delay(slot),
            DelayedAdd::Strict => {
                // SAFETY: in the table, so taken (S2), and we hold the lock.
                let _deferred = unsafe { slot.get() }.state.defer_add();
                core.counts.coalesced += 1;
                return Some(Added::Coalesced);
            }
        }
        None
    }

    /// Queues a key (I5).
    #[inline]
    pub(super) fn push(&self, core: &mut Core<K>, slot: SlotRef<K>, wakeups: Wakeups) {
        core.line.push(slot);
        self.len.store(core.line.len(), Ordering::Relaxed); // Relaxed: see `len`
        match wakeups {
            Wakeups::Now => core.owe_getter(),
            Wakeups::Later => core.unwoken += 1,
        }
    }

    /// The rest of an add, after the lock, if [`has_extras`](Self::has_extras).
    #[cold]
    pub(crate) fn after_add(this: &Arc<Self>, added: Added) {
        Self::ensure_driver(this);
        this.tell(|observer| observer.added(added));
    }
}

impl<K> Core<K> {
    /// Refuses an add.
    #[inline]
    pub(super) fn reject(&mut self) -> Added {
        self.counts.rejected += 1;
        Added::Rejected
    }
}
