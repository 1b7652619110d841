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
use crate::order::Group;
use crate::{Added, DelayConflict, DelayedAdd};
use equivalent::Equivalent;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
        let (added, owed) = self.make_dirty(entry, self.later.record(self.keys.number(entry)).priority, mode);
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
        let (number, mut owed) = (self.keys.number(entry), Owed::NOTHING);
        if entry.state().is_delayed() {
            let record = self.later.record_mut(number);
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
                Some(priority.max(self.later.record(self.keys.number(entry)).priority))
            }
            (DelayConflict::EarliestWins, DelayedAdd::Independent) => Some(priority),
            (DelayConflict::EarliestWins, DelayedAdd::Strict) if !entry.state().defer_add() => Some(priority),
            (DelayConflict::KeepExisting, _) | (DelayConflict::EarliestWins, DelayedAdd::Strict) => {
                let record = self.later.record_mut(self.keys.number(entry));
                record.priority = record.priority.max(priority);
                None
            }
        }
    }

    /// Takes the delay of a delayed key out of the wheel. Returns whether an add waits for it.
    #[inline]
    pub(super) fn drop_delay(&mut self, entry: EntryRef<K>) -> bool {
        self.later.remove(self.keys.number(entry));
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
        let record = self.later.record(self.keys.number(entry));
        Delay { deadline: record.deadline(), priority: record.priority, is_awaited }
    }

    /// Takes one delay out, whatever its deadline. Returns it with the group of its key. The key is in the hand, or a clone if the key is
    /// still known. If the clone panics, the delay stays.
    pub(crate) fn take_delay(&mut self, hand: &mut Option<K>, mode: Mode) -> (Option<(Delay, Group)>, Owed)
    where
        K: Clone,
    {
        let Some((number, deadline)) = self.later.pop_any() else { return (None, Owed::NOTHING) };
        let entry = self.keys.get(number).expect("a delayed key is known");
        let (is_awaited, group) = (self.end_delay(entry), self.order.group(entry.group()).0);
        let delay = self.last_delay(entry, is_awaited);
        if entry.state().is_vacant() {
            let _garbage_below = self.forget_if_vacant(hand, entry, mode);
        } else {
            let cloned = catch_unwind(AssertUnwindSafe(|| entry.key().clone()));
            *hand = Some(cloned.unwrap_or_else(|payload| {
                let _as_before = self.begin_again(entry, deadline, delay);
                resume_unwind(payload)
            }));
        }
        (Some((delay, group)), self.drained(mode).and(self.garbage()))
    }

    /// Sets a delay again that was taken out, also after a shut-down. If the key has a delay by now, the earlier one counts.
    pub(crate) fn put_back(&mut self, hand: &mut Option<K>, hash: Hash, group: Group, delay: Delay, mode: Mode) -> Owed
    where
        K: Eq,
    {
        self.later.reserve();
        let entry = self.find_or_insert(hand, hash, group, mode);
        if !entry.state().is_delayed() {
            return self.begin_again(entry, delay.deadline, delay);
        }
        let before = (self.counts.delays, self.counts.coalesced);
        let (_set, owed) = self.set_delay(entry, delay.deadline, delay.priority, DelayConflict::EarliestWins);
        (self.counts.delays, self.counts.coalesced) = before; // no call has set it
        let _waits = delay.is_awaited && entry.state().defer_add();
        owed
    }

    fn begin_again(&mut self, entry: EntryRef<K>, deadline: u64, delay: Delay) -> Owed {
        let number = self.keys.number(entry);
        self.later.begin(number, delay.priority);
        entry.state().set_delayed();
        let _waits = delay.is_awaited && entry.state().defer_add();
        self.later.insert(number, deadline)
    }
}
