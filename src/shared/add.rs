//! `add`, and what all kinds of adds share.

use super::section::Section;
use super::{Core, Shared};
use crate::Added;
use crate::key::Hash as KeyHash;
use crate::sync::Arc;
use std::hash::Hash;

/// When getters are woken for a key that becomes queued.
#[derive(Clone, Copy)]
pub(crate) enum Wakeups {
    /// At the end of the critical section that queues the key.
    Now,
    /// The caller wakes them, for many keys at once: [`Shared::wake_for_all`].
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
        let added = match core.shard.find(&key, hash) {
            Some(known) if known.state().is_only_dirty() => {
                core.shard.counts.coalesced += 1;
                return Added::Coalesced;
            }
            Some(mut known) => known.add(),
            None => {
                core.shard.add_new(key, hash);
                this.pushed(core, wakeups);
                return Added::Queued;
            }
        };
        this.added(core, added, wakeups)
        // If the table has an equal key, `key` is dropped here, after the lock (W4).
    }

    /// `add` to a queue that measures, is shut down, or has to start its driver thread. The section is the last parameter, so that it is
    /// dropped before the key if `Eq` panics (W4).
    #[inline(never)]
    fn add_special(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups, mut section: Section<'_, K>) -> Added {
        let core = &mut *section;
        let added = if core.is_shutting_down() {
            core.shard.reject()
        } else {
            match core.shard.find(&key, hash) {
                Some(mut known) => known.add_measured(None),
                None => {
                    core.shard.add_new_measured(key, hash, None);
                    Added::Queued
                }
            }
        };
        this.added(core, added, wakeups);
        drop(section);
        Self::after_add(this, added);
        added
    }
}

impl<K> Shared<K> {
    /// A step of the shard has added a key: owes a wake-up to a getter if the key is queued now (W2).
    #[inline]
    pub(super) fn added(&self, core: &mut Core<K>, added: Added, wakeups: Wakeups) -> Added {
        if added == Added::Queued {
            self.pushed(core, wakeups);
        }
        added
    }

    /// A step of the shard has queued a key: owes a wake-up to a getter (W2), at once or as one of the `unwoken` keys.
    #[inline]
    pub(super) fn pushed(&self, core: &mut Core<K>, wakeups: Wakeups) {
        self.publish_len(core);
        match wakeups {
            Wakeups::Now => core.owe_getter(),
            Wakeups::Later => core.getters.note_unwoken(1),
        }
    }

    /// The rest of an add, after the lock, if [`has_extras`](Self::has_extras).
    #[cold]
    pub(crate) fn after_add(this: &Arc<Self>, added: Added) {
        Self::ensure_driver(this);
        this.tell(|observer| observer.added(added));
    }
}
