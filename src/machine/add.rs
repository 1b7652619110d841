//! `add`: the key becomes dirty.
//!
//! ```text
//!                      absent            queued             processing                     processing, dirty
//!   add answers        Queued            Coalesced          Deferred                       Coalesced
//!   and the key is     queued, at the    raised, if this    queued when its processing     raised
//!                      end of its level  priority is higher ends
//! ```

use super::{EntryRef, Machine, Mode, Owed};
use crate::Added;
use crate::key::{Hash, OnAddKnown};
use crate::order::{Group, Order, Pushed};
use equivalent::Equivalent;

impl<K> Machine<K> {
    /// Whether the key is known: then an add does not need its group.
    pub(crate) fn is_known<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: Hash) -> bool {
        self.keys.find(key, hash).is_some()
    }

    /// The key is to be handed out. `group` counts if the key is new.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        hand: &mut Option<K>,
        hash: Hash,
        group: Group,
        priority: i8,
        mode: Mode,
    ) -> (Added, Owed)
    where
        K: Eq,
    {
        if !mode.is_open {
            return (self.reject(), Owed::NOTHING);
        }
        self.order.expect(priority);
        let key = hand.as_ref().expect("an add has a key in its hand");
        if let Some(entry) = self.keys.find(key, hash) {
            return self.make_dirty(entry, priority);
        }
        let group = self.order.enter(group);
        let entry = self.keys.insert(hand.take().expect("see above"), hash, group);
        entry.state().on_add_new();
        self.counts.pushed += 1;
        (Added::Queued, self.push(entry, priority))
    }

    pub(super) fn reject(&mut self) -> Added {
        self.counts.rejected += 1;
        Added::Rejected
    }

    /// The key, which is known, is to be handed out.
    #[inline(always)]
    pub(super) fn make_dirty(&mut self, entry: EntryRef<K>, priority: i8) -> (Added, Owed) {
        match entry.state().on_add() {
            OnAddKnown::Push => {
                self.counts.pushed += 1;
                (Added::Queued, self.push(entry, priority))
            }
            OnAddKnown::Coalesce => {
                self.counts.coalesced += 1;
                if !entry.state().is_processing() {
                    if priority > entry.priority() {
                        self.raise(entry, priority);
                    }
                } else if priority > entry.pending() {
                    entry.set_pending(priority);
                }
                (Added::Coalesced, Owed::NOTHING)
            }
            OnAddKnown::Defer => {
                self.counts.deferred += 1;
                entry.set_pending(priority);
                (Added::Deferred, Owed::NOTHING)
            }
        }
    }

    /// Puts a key into the order whose state has just become queued (I5).
    #[inline(always)]
    pub(super) fn push(&mut self, entry: EntryRef<K>, priority: i8) -> Owed {
        entry.set_priority(priority);
        let Pushed { position, is_ready } = self.order.push(entry, priority, entry.group());
        entry.set_position(position);
        self.queued += 1;
        self.active += 1;
        Owed::ready(u32::from(is_ready))
    }

    /// Takes a queued key out of the order.
    pub(super) fn unpush(&mut self, entry: EntryRef<K>) {
        self.order.remove(entry, entry.place(), &mut self.bin);
        self.queued -= 1;
        self.active -= 1;
    }

    /// A queued key goes to the end of a higher level. It is ready as before, so nothing is owed.
    #[cold]
    fn raise(&mut self, entry: EntryRef<K>, priority: i8) {
        self.unpush(entry);
        let _as_before = self.push(entry, priority);
    }
}
