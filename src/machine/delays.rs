//! Delays: what sets, moves and drops them.
//!
//! A key has at most two: one that a caller has set, and one that its last holder has set, who has ended a hand-out with a retry or with a
//! requeue. Each is set by its own setter, and the earlier one is in the wheel.
//!
//! ```text
//!   a caller adds with a delay      no delay of      a caller's that is     a caller's that is
//!                                   a caller yet     as early or earlier    later
//!     EarliestWins                  set              stands                 moved
//!     Replace                       set, and no other delay is left
//!     KeepExisting                  set if there is no delay; beside a holder's, with its deadline
//!
//!   a caller adds without one
//!     Replace                       drops the delays, and adds the key
//!     KeepExisting                  the same
//!     Promote                       drops retries, and adds the key
//!     Strict                        waits for the retry, unless the key is dirty
//!     Independent                   adds the key; the delays stay
//!
//!   a hand-out ends
//!     retry, requeue                sets the holder's delay, whatever it was; KeepExisting: only if there is none
//!     the same, without a delay     drops the holder's delay, and adds the key
//!     succeed, give up              drops the holder's delay
//!     done                          changes nothing
//! ```
//!
//! A *retry* is a delay that was set for a failure, by a holder or by a caller. If the retry for which an add waits is dropped, the add takes
//! effect. Of the adds that meet a delay and leave it the highest priority counts. A delay is a bit of its key's state and an entry in the
//! wheel, and both change in one step (I9).

use super::later::{Due, Dues, Kind};
use super::{EntryRef, How, Machine, Mode, Owed};
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
        let priority = self.later.records[entry.number()].highest();
        let is_awaited = self.drop_delays(entry);
        let (cancelled, owed) = if is_awaited && mode.is_open {
            let (added, owed) = self.make_dirty(entry, priority, mode);
            (Cancelled::Added(added), owed)
        } else {
            (Cancelled::Delay, self.forget_if_vacant(hand, entry, mode))
        };
        (cancelled, owed.and(self.drained(mode)).and(self.later.garbage()))
    }

    /// A caller sets the delay of a key, or moves it. The call has made sure that there is room.
    #[inline(always)]
    pub(super) fn set_delay(&mut self, entry: EntryRef<K>, due: Due, conflict: DelayConflict) -> (Added, Owed) {
        if entry.state().is_delayed() { self.move_delay(entry, due, conflict) } else { self.begin_delay(entry, due) }
    }

    #[inline(always)]
    fn begin_delay(&mut self, entry: EntryRef<K>, due: Due) -> (Added, Owed) {
        entry.state().set_delayed();
        self.counts.delays += 1;
        (Added::Delayed, self.later.begin(entry.number(), due))
    }

    /// The same for a key that is delayed.
    fn move_delay(&mut self, entry: EntryRef<K>, mut due: Due, conflict: DelayConflict) -> (Added, Owed) {
        let number = entry.number();
        let mut dues = self.later.dues(number);
        match (conflict, &mut dues.caller) {
            (DelayConflict::KeepExisting, _) => {
                let owed = self.keep_existing(entry, due.priority);
                return (self.coalesced(), owed);
            }
            (DelayConflict::Replace, _) => {
                due.priority = due.priority.max(self.later.records[number].highest());
                dues = Dues { caller: Some(due), holder: None };
            }
            (DelayConflict::EarliestWins, Some(old)) => {
                due.priority = due.priority.max(old.priority);
                if old.deadline <= due.deadline {
                    old.priority = due.priority;
                    let owed = self.later.set(number, dues);
                    return (self.coalesced(), owed);
                }
                *old = due;
            }
            (DelayConflict::EarliestWins, None) => dues.caller = Some(due),
        }
        self.counts.delays += 1;
        (Added::Delayed, self.later.set(number, dues))
    }

    /// A caller's add is content with a delay of its key. If that is a holder's, which the end of a hand-out may drop, the caller gets one with
    /// the same deadline: so the add is not lost (P2).
    fn keep_existing(&mut self, entry: EntryRef<K>, priority: i8) -> Owed {
        let mut dues = self.later.dues(entry.number());
        let kept = match (dues.caller, dues.holder) {
            (Some(old), _) => Some(Due { priority: old.priority.max(priority), ..old }),
            (None, holder) => holder.map(|holder| Due { priority, kind: Kind::Callers, ..holder }),
        };
        dues.caller = kept;
        self.later.set(entry.number(), dues)
    }

    fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }

    /// What an add without a delay does about the delays of its key. Returns the priority of the add; `None`: it does nothing more.
    #[cold]
    pub(super) fn meet_delay(
        &mut self,
        entry: EntryRef<K>,
        priority: i8,
        conflict: DelayConflict,
    ) -> (Option<i8>, Owed) {
        let number = entry.number();
        match (conflict, self.policy) {
            (DelayConflict::Replace, _) => {
                let highest = self.later.records[number].highest();
                self.drop_delays(entry);
                (Some(priority.max(highest)), Owed::NOTHING)
            }
            (DelayConflict::KeepExisting, _) => (None, self.keep_existing(entry, priority)),
            (DelayConflict::EarliestWins, DelayedAdd::Independent) => (Some(priority), Owed::NOTHING),
            (DelayConflict::EarliestWins, DelayedAdd::Promote) => {
                let (mut dues, mut highest) = (self.later.dues(number), priority);
                for due in [&mut dues.caller, &mut dues.holder] {
                    highest = due.take_if(|due| due.kind.is_retry()).map_or(highest, |due| highest.max(due.priority));
                }
                (Some(highest), self.keep(entry, dues))
            }
            (DelayConflict::EarliestWins, DelayedAdd::Strict) => {
                let mut dues = self.later.dues(number);
                match dues.retry().filter(|_| entry.state().defer_add()) {
                    Some(retry) => retry.priority = retry.priority.max(priority),
                    None => return (Some(priority), Owed::NOTHING),
                }
                (None, self.later.set(number, dues))
            }
        }
    }

    /// The holder of a key ends the hand-out, and adds the key. What it has decided at the end of an earlier hand-out does not count any
    /// more, and what callers have set does.
    #[inline(always)]
    pub(super) fn add_held(&mut self, entry: EntryRef<K>, how: How<'_>, mode: Mode) -> (Added, Owed) {
        let delay = self.count_failure(entry, how.failure, how.delay);
        self.counts.retries += u64::from(delay.is_some());
        let kind = Kind::of_holder(how.failure.is_one());
        let due = delay.filter(|delay| *delay > 0).map(|delay| {
            let deadline = self.later.deadline(how.now, delay);
            Due { deadline, priority: how.priority, kind }
        });
        match due {
            _ if entry.state().is_delayed() => self.decide_anew(entry, due, how, mode),
            Some(due) => self.begin_delay(entry, due),
            None => self.make_dirty(entry, how.priority, mode),
        }
    }

    /// The same for a key that is delayed. `due`: its new delay, if it is to have one.
    fn decide_anew(&mut self, entry: EntryRef<K>, due: Option<Due>, how: How<'_>, mode: Mode) -> (Added, Owed) {
        let mut dues = self.later.dues(entry.number());
        if let Some(old) = &mut dues.holder {
            let is_later = due.is_some_and(|due| due.deadline > old.deadline);
            let stands =
                how.conflict == DelayConflict::KeepExisting || how.is_uncounted && old.kind.is_retry() && !is_later;
            if stands {
                old.priority = old.priority.max(how.priority);
                let owed = self.later.set(entry.number(), dues);
                return (self.coalesced(), owed);
            }
        }
        let owed = self.set_holders(entry, due, mode);
        if due.is_some() {
            self.counts.delays += 1;
            return (Added::Delayed, owed);
        }
        let (added, more) = self.make_dirty(entry, how.priority, mode);
        (added, owed.and(more))
    }

    /// The holder's work is over: what it has decided earlier does not count any more. After a shut-down, a delay stays for which an add
    /// waits, because that is the last trace of the add (P23).
    #[cold]
    pub(super) fn drop_holders(&mut self, entry: EntryRef<K>, mode: Mode) -> Owed {
        let is_last_trace = entry.state().is_waited_for() && !mode.is_open;
        if is_last_trace { Owed::NOTHING } else { self.set_holders(entry, None, mode) }
    }

    /// Sets or drops the holder's delay of a delayed key. If an add has waited for it, and there is no other retry, the add takes effect.
    fn set_holders(&mut self, entry: EntryRef<K>, due: Option<Due>, mode: Mode) -> Owed {
        let mut dues = self.later.dues(entry.number());
        let old = std::mem::replace(&mut dues.holder, due);
        let awaited = old.filter(|old| old.kind.is_retry() && entry.state().is_waited_for());
        let takes_effect = awaited.is_some() && dues.retry().is_none();
        if let (Some(awaited), Some(retry)) = (awaited, dues.retry()) {
            retry.priority = retry.priority.max(awaited.priority);
        }
        let owed = self.keep(entry, dues);
        let Some(old) = awaited.filter(|_| takes_effect) else { return owed };
        entry.state().stop_waiting();
        let (_deferred, more) = self.make_dirty(entry, old.priority, mode);
        owed.and(more).and(Owed::only_if(true, Owed::ADDED))
    }

    /// Only these are left of the delays of a key.
    fn keep(&mut self, entry: EntryRef<K>, dues: Dues) -> Owed {
        if dues == Dues::default() {
            self.drop_delays(entry);
            return self.later.garbage();
        }
        // If the wheel is full, the earlier delay stays, as the later one has no room.
        if self.later.has_room() { self.later.set(entry.number(), dues) } else { Owed::NOTHING }
    }

    /// Drops the delays of a delayed key. Returns whether an add waits for one.
    #[inline]
    pub(super) fn drop_delays(&mut self, entry: EntryRef<K>) -> bool {
        self.later.remove(entry.number());
        self.end_delay(entry)
    }

    /// The key has left the wheel (I9). Returns whether an add waits for the delay.
    #[inline]
    pub(super) fn end_delay(&mut self, entry: EntryRef<K>) -> bool {
        self.later.end(entry.number());
        entry.state().clear_delayed()
    }

    /// The last delay of a key, which may have left the wheel.
    pub(super) fn last_delay(&self, entry: EntryRef<K>, is_awaited: bool) -> Delay {
        let record = &self.later.records[entry.number()];
        Delay { deadline: record.deadline(), priority: record.priority(), is_awaited }
    }
}
