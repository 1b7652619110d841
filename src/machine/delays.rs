//! Delays: what sets, moves and drops them.
//!
//! ```text
//!   add with a delay      no delay yet       a delay that is       an earlier one
//!                                            as early or earlier   is asked for
//!     EarliestWins        set                stands                moved
//!     Replace             set                moved                 moved
//!     KeepExisting        set                stands                stands
//!
//!   add without one       of a delayed key
//!     Replace, Promote    drops the delay, and adds the key
//!     KeepExisting        changes nothing
//!     Independent         adds the key; the delay stays
//!     Strict              waits for the delay, unless the key is dirty
//! ```
//!
//! Whichever deadline counts, the higher priority does. A delay is a bit of its key's state and an entry in the wheel, and both change in
//! one step (I9).

use super::{EntryRef, Machine, Mode, Owed};
use crate::key::Hash;
use crate::{Added, DelayConflict, DelayedAdd};
use equivalent::Equivalent;

/// A delay that was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Delay {
    pub(crate) deadline: u64,
    pub(crate) priority: i8,
    /// An add waits for it ([`DelayedAdd::Strict`]).
    pub(crate) is_awaited: bool,
}

/// What a cancel has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancelled {
    /// There was no delay.
    Nothing,
    Delay,
    /// An add has waited for the delay, and is made now.
    Added(Added),
}

impl<K> Machine<K> {
    /// Whether one more delay can be set. A verb that sets one and has no room panics, so a holder asks before.
    pub(crate) fn has_room_for_delay(&mut self) -> bool {
        self.later.has_room()
    }

    /// Drops the delay of a key.
    #[inline(always)]
    pub(crate) fn cancel<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: Hash, mode: Mode) -> (Cancelled, Owed)
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.keys.find(key, hash).filter(|entry| entry.state().is_delayed()) else {
            return (Cancelled::Nothing, Owed::NOTHING);
        };
        let is_awaited = self.drop_delay(entry);
        let (cancelled, owed) = if is_awaited && mode.is_open {
            self.add_that_waited(entry, mode)
        } else {
            (Cancelled::Delay, self.forget_if_vacant(hand, entry, mode))
        };
        (cancelled, owed.and(self.drained(mode)).and(self.later.garbage()))
    }

    #[cold]
    #[inline(never)]
    fn add_that_waited(&mut self, entry: EntryRef<K>, mode: Mode) -> (Cancelled, Owed) {
        let (added, owed) = self.make_dirty(entry, self.later.records[entry.number()].priority, mode);
        (Cancelled::Added(added), owed)
    }

    /// Sets the delay of a key, or moves it. The caller has made sure that there is room.
    pub(super) fn set_delay(
        &mut self,
        entry: EntryRef<K>,
        deadline: u64,
        priority: i8,
        conflict: DelayConflict,
    ) -> (Added, Owed) {
        let (number, mut owed) = (entry.number(), Owed::NOTHING);
        if entry.state().is_delayed() {
            let record = &mut self.later.records[number];
            record.priority = record.priority.max(priority);
            let stands = match conflict {
                DelayConflict::EarliestWins => record.deadline() <= deadline,
                DelayConflict::Replace => false,
                DelayConflict::KeepExisting => true,
            };
            if stands {
                self.counts.coalesced += 1;
                return (Added::Coalesced, Owed::NOTHING);
            }
            self.later.remove(number);
            owed = self.later.garbage();
        } else {
            self.later.begin(number, priority);
            entry.state().set_delayed();
        }
        self.counts.delays += 1;
        (Added::Delayed, self.later.insert(number, deadline).and(owed))
    }

    /// What an add without a delay does about the delay of its key. Returns the priority of the add; `None`: it does nothing more.
    #[cold]
    pub(super) fn meet_delay(&mut self, entry: EntryRef<K>, priority: i8, conflict: DelayConflict) -> Option<i8> {
        match (conflict, self.policy) {
            (DelayConflict::Replace, _) | (DelayConflict::EarliestWins, DelayedAdd::Promote) => {
                self.drop_delay(entry);
                Some(priority.max(self.later.records[entry.number()].priority))
            }
            (DelayConflict::EarliestWins, DelayedAdd::Independent) => Some(priority),
            (DelayConflict::EarliestWins, DelayedAdd::Strict) if !entry.state().defer_add() => Some(priority),
            (DelayConflict::KeepExisting, _) | (DelayConflict::EarliestWins, DelayedAdd::Strict) => {
                let record = &mut self.later.records[entry.number()];
                record.priority = record.priority.max(priority);
                None
            }
        }
    }

    /// Takes the delay of a delayed key out of the wheel. Returns whether an add waits for it.
    #[inline]
    pub(super) fn drop_delay(&mut self, entry: EntryRef<K>) -> bool {
        self.later.remove(entry.number());
        self.end_delay(entry)
    }

    /// The key has left the wheel (I9). Returns whether an add waits for the delay.
    #[inline]
    pub(super) fn end_delay(&mut self, entry: EntryRef<K>) -> bool {
        self.later.delayed -= 1;
        entry.state().clear_delayed()
    }

    /// The last delay of a key, which may have left the wheel.
    pub(super) fn last_delay(&self, entry: EntryRef<K>, is_awaited: bool) -> Delay {
        let record = &self.later.records[entry.number()];
        Delay { deadline: record.deadline(), priority: record.priority, is_awaited }
    }
}
