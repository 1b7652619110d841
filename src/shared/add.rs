//! `add`, and what all kinds of adds share.

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::Section;
use crate::key::Hash as KeyHash;
use crate::shard::NewKey;
use crate::sync::Arc;
use crate::{Added, Priority};
use std::hash::Hash;

/// When getters are woken for a key that becomes queued.
#[derive(Clone, Copy)]
pub(crate) enum Wakeups {
    /// At the end of the critical section that queues the key.
    Now,
    /// The caller wakes them, for many keys at once: [`Shared::wake_getters`].
    Later,
}

impl<K: Hash + Eq> Shared<K> {
    /// `add`.
    // `inline(always)`: `add` and `add_all` differ in `wakeups`, which the compiler then knows in each (add queued 84 -> 63 instructions).
    #[inline(always)]
    pub(crate) fn add(this: &Arc<Self>, key: K, wakeups: Wakeups) -> Added {
        let hash = this.hash(&key);
        if this.others.is_empty() {
            Self::add_to(this, &this.first, key, hash, wakeups)
        } else {
            Self::add_to_one_of_many(this, key, hash, wakeups)
        }
    }

    #[inline(never)]
    fn add_to_one_of_many(this: &Arc<Self>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        let locked = this.shard_of(hash);
        this.note_add(locked);
        Self::add_to(this, locked, key, hash, wakeups)
    }

    // `inline(always)`: with one shard, the place of its data is known when this is compiled.
    #[inline(always)]
    fn add_to<'s>(this: &'s Arc<Self>, locked: &'s Locked<K>, key: K, hash: KeyHash, wakeups: Wakeups) -> Added {
        let mut section = this.enter(locked);
        if this.flags().has(Flags::ADD) {
            return Self::add_special(this, key, hash, wakeups, section);
        }
        match section.find(&key, hash) {
            Some(known) if known.state().is_only_dirty() => {
                section.counts.coalesced += 1;
                Added::Coalesced
            }
            Some(mut known) => {
                let added = known.add();
                section.publish_len();
                added
            }
            None => {
                section.add_new(key, hash);
                section.publish_len();
                Added::Queued
            }
        }
        // If the table has an equal key, `key` is dropped here, after the lock (W4).
    }

    /// `add` to a queue that measures, is ordered or shut down, has a getter that waits, or has to start its driver thread. The section is
    /// the last parameter, so that it is dropped before the key if `Eq` panics (W4).
    #[inline(never)]
    fn add_special<'s>(
        this: &'s Arc<Self>,
        key: K,
        hash: KeyHash,
        wakeups: Wakeups,
        mut section: Section<'s, K>,
    ) -> Added {
        if this.flags().has(Flags::ORDERED) {
            return Self::add_in_order(this, key, hash, wakeups, section);
        }
        let added = if this.is_shutting_down() {
            section.reject()
        } else {
            match section.find(&key, hash) {
                Some(mut known) => known.add_measured(None),
                None => {
                    section.add_new_measured(key, hash, None);
                    Added::Queued
                }
            }
        };
        section.added(added, wakeups);
        drop(section);
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }

    /// `add` to a queue that is ordered.
    #[inline(never)]
    fn add_in_order<'s>(
        this: &'s Arc<Self>,
        key: K,
        hash: KeyHash,
        wakeups: Wakeups,
        mut section: Section<'s, K>,
    ) -> Added {
        let group;
        (section, group) = this.settle_group(section, &key, hash);
        let added = if this.is_shutting_down() {
            section.reject()
        } else {
            match section.find(&key, hash) {
                Some(mut known) => known.add_in_order(None, Priority::NORMAL.0),
                None => {
                    section.add_new_in_order(key, hash, NewKey { group, ..NewKey::default() });
                    Added::Queued
                }
            }
        };
        section.added(added, wakeups);
        drop(section);
        if this.has_extras() {
            Self::after_add(this, added);
        }
        added
    }
}

impl<K> Section<'_, K> {
    /// A step has added a key: owes a wake-up to a getter if the key is queued now (W2).
    #[inline]
    pub(super) fn added(&mut self, added: Added, wakeups: Wakeups) -> Added {
        match added {
            Added::Queued => self.pushed(wakeups),
            // The key may have been raised.
            _ if self.is_ordered() => self.publish(),
            _ => {}
        }
        added
    }
}

impl<K> Shared<K> {
    /// The rest of an add, after the lock, if [`has_extras`](Self::has_extras).
    #[cold]
    pub(crate) fn after_add(this: &Arc<Self>, added: Added) {
        if added != Added::Rejected {
            this.expect_report();
        }
        Self::ensure_driver(this);
        this.tell(|observer| observer.added(added));
    }
}
