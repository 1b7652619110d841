//! Delays: what sets, moves and drops them.
//!
//! A key has at most two: a caller's, and one that its last holder has set by a retry or a requeue. The earlier one is in the wheel (I9).
//! While the key cools down, both wait for the end of that: see [`rest`](super::rest).
//!
//! ```text
//!   a caller adds with a delay      no delay of      a caller's that is     a caller's that is
//!                                   a caller yet     as early or earlier    later
//!     EarliestWins                  set              stands                 moved
//!     Replace                       set, and no other delay is left; with `at_most` no later than this time after the first such add
//!     KeepExisting                  set if there is no delay; beside a holder's, with its deadline
//!
//!   a caller adds without one
//!     Replace                       drops the delays, and adds the key
//!     KeepExisting                  changes no delay; adds the key only if it has none
//!     Promote                       drops retries, and adds the key
//!     Strict                        waits for the retry, unless the key is dirty
//!     Independent                   adds the key; the delays stay
//!
//!   a hand-out ends (P29)
//!     retry, requeue                sets the holder's delay, whatever it was; KeepExisting: only if there is none
//!     the same, without a delay     drops the holder's delay, and adds the key
//!     succeed, give up              drops the holder's delay
//!     done                          changes nothing
//! ```
//!
//! A *retry* is a delay that was set for a failure. If the retry for which an add waits is dropped, the add takes effect at once; if a
//! caller moves it to a date, the add waits for the date. Of all adds that leave a delay as it is the highest priority counts.

use super::later::{Due, Dues, Setter};
use super::{EntryRef, How, Machine, Mode, Owed};
use crate::key::KeyHash;
use crate::{Added, DelayConflict, DelayedAdd, DelayedBy};
use equivalent::Equivalent;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Delay {
    pub(crate) deadline: u64,
    pub(crate) priority: i8,
    /// Who has set it.
    pub(crate) by: DelayedBy,
}

/// What a cancel has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancelled {
    Nothing,
    Delay,
    /// An add has waited for the delay, and takes effect now.
    Added(Added),
}

impl<K> Machine<K> {
    /// Whether one more delay can be set. A verb that has no room for its delay panics, so a holder asks before.
    pub(crate) fn has_room_for_delay(&mut self) -> bool {
        self.later.has_room()
    }

    #[inline(always)]
    pub(crate) fn cancel<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: KeyHash, mode: Mode) -> (Cancelled, Owed)
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.keys.find(key, hash).filter(|entry| entry.state().is_delayed()) else {
            return (Cancelled::Nothing, Owed::NOTHING);
        };
        if entry.state().is_resting() {
            return self.cancel_resting(entry, mode);
        }
        let is_awaited = entry.state().is_waited_for() && mode.is_open;
        let highest = if is_awaited { self.later.dues(entry.number()).highest() } else { None };
        self.drop_delays(entry);
        let (cancelled, owed) = if is_awaited {
            let (added, owed) = self.make_dirty(entry, highest.expect("it had a delay"), mode);
            (Cancelled::Added(added), owed)
        } else {
            let room = self.room_of(entry, mode);
            (Cancelled::Delay, self.forget_if_vacant(hand, entry, mode).and(room))
        };
        (cancelled, owed.and(self.drained(mode)).and(self.later.garbage()))
    }

    /// A caller sets or moves the delay of a key. There is room for it.
    #[inline(always)]
    pub(super) fn set_delay(&mut self, entry: EntryRef<K>, due: Due, conflict: DelayConflict) -> (Added, Owed) {
        if entry.state().is_in_wheel() {
            self.move_delay(entry, due, conflict)
        } else {
            self.begin_delay(entry, Setter::Caller, due)
        }
    }

    #[inline(always)]
    fn begin_delay(&mut self, entry: EntryRef<K>, setter: Setter, due: Due) -> (Added, Owed) {
        entry.state().set_delayed();
        self.counts.delays += 1;
        (Added::Delayed, self.later.begin(entry.number(), setter, due))
    }

    /// The same for a key that is in the wheel.
    fn move_delay(&mut self, entry: EntryRef<K>, due: Due, conflict: DelayConflict) -> (Added, Owed) {
        let number = entry.number();
        if !self.later.has_callers_alone(number) {
            return self.set_beside(entry, due, conflict);
        }
        let (has_stood, owed) = self.later.move_callers(number, due, |old| match conflict {
            DelayConflict::EarliestWins => old <= due.deadline,
            DelayConflict::Replace => false,
            DelayConflict::KeepExisting => true,
        });
        if has_stood {
            return (self.coalesced(), owed);
        }
        self.counts.delays += 1;
        (Added::Delayed, owed)
    }

    /// The same for a key that also has a holder's delay, or cools down.
    #[cold]
    fn set_beside(&mut self, entry: EntryRef<K>, mut due: Due, conflict: DelayConflict) -> (Added, Owed) {
        let mut dues = self.later.dues(entry.number());
        let has_one = dues != Dues::default();
        match (conflict, &mut dues.caller) {
            (DelayConflict::KeepExisting, _) if has_one => {
                let owed = self.keep_existing(entry, dues, due.priority);
                return (self.coalesced(), owed);
            }
            (DelayConflict::Replace, _) => {
                due.priority = dues.highest().map_or(due.priority, |highest| highest.max(due.priority));
                dues = Dues { caller: Some(due), holder: None };
            }
            (DelayConflict::EarliestWins, Some(old)) => {
                due.priority = due.priority.max(old.priority);
                if old.deadline <= due.deadline {
                    old.priority = due.priority;
                    let owed = self.store(entry, dues);
                    return (self.coalesced(), owed);
                }
                *old = due;
            }
            (_, slot) => *slot = Some(due),
        }
        self.counts.delays += 1;
        (Added::Delayed, self.store(entry, dues))
    }

    /// A caller's add leaves the delay of its key as it is. If that is a holder's, the caller gets one with the same deadline, because the
    /// end of a hand-out may drop the holder's, and the add must not be lost (P2).
    fn keep_existing(&mut self, entry: EntryRef<K>, mut dues: Dues, priority: i8) -> Owed {
        dues.caller = match (dues.caller, dues.holder) {
            (Some(old), _) => Some(Due { priority: old.priority.max(priority), ..old }),
            (None, holder) => holder.map(|holder| Due { priority, is_retry: false, ..holder }),
        };
        self.store(entry, dues)
    }

    fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }

    /// What an add without a delay does about the delays of its key. Returns the priority with which it makes the key dirty, or `None` if
    /// it does not.
    #[cold]
    pub(super) fn meet_delay(
        &mut self,
        entry: EntryRef<K>,
        priority: i8,
        conflict: DelayConflict,
    ) -> (Option<i8>, Owed) {
        let mut dues = self.later.dues(entry.number());
        match (conflict, self.policy) {
            (DelayConflict::Replace, _) => {
                let highest = dues.highest().map_or(priority, |highest| highest.max(priority));
                (Some(highest), self.keep(entry, Dues::default()))
            }
            (DelayConflict::KeepExisting, _) if dues != Dues::default() => {
                (None, self.keep_existing(entry, dues, priority))
            }
            (DelayConflict::EarliestWins, DelayedAdd::Promote) => {
                let mut highest = priority;
                for due in [&mut dues.caller, &mut dues.holder] {
                    highest = due.take_if(|due| due.is_retry).map_or(highest, |due| highest.max(due.priority));
                }
                (Some(highest), self.keep(entry, dues))
            }
            (DelayConflict::EarliestWins, DelayedAdd::Strict) => {
                match dues.retry().filter(|_| entry.state().defer_add()) {
                    Some(retry) => retry.priority = retry.priority.max(priority),
                    None => {
                        // This add also serves one that has waited so far.
                        if !self.later.is_held(entry.number()) {
                            entry.state().stop_waiting();
                        }
                        return (Some(priority), Owed::NOTHING);
                    }
                }
                (None, self.store(entry, dues))
            }
            _ => (Some(priority), Owed::NOTHING),
        }
    }

    /// The holder of a key adds it as it ends the hand-out. This replaces the delay that an earlier end has set, but no delay of a caller.
    #[inline(always)]
    pub(super) fn add_held(&mut self, entry: EntryRef<K>, how: How<'_>, mode: Mode) -> (Added, Owed) {
        let delay = self.count_failure(entry, how.failure, how.delay);
        self.counts.retries += u64::from(delay.is_some());
        let is_retry = how.failure.is_one();
        let due = delay.filter(|delay| *delay > 0).map(|delay| {
            let deadline = self.later.deadline(how.now, delay);
            Due { deadline, priority: how.priority, is_retry }
        });
        match due {
            _ if entry.state().is_in_wheel() => self.decide_anew(entry, due, how, mode),
            Some(due) => self.begin_delay(entry, Setter::Holder, due),
            None => self.make_dirty(entry, how.priority, mode),
        }
    }

    /// The same for a key that is in the wheel. `due`: the holder's new delay, if there is one.
    fn decide_anew(&mut self, entry: EntryRef<K>, due: Option<Due>, how: How<'_>, mode: Mode) -> (Added, Owed) {
        let mut dues = self.later.dues(entry.number());
        if let Some(old) = &mut dues.holder {
            let is_later = due.is_some_and(|due| due.deadline > old.deadline);
            let stands = how.conflict == DelayConflict::KeepExisting || how.is_uncounted && old.is_retry && !is_later;
            if stands {
                old.priority = old.priority.max(how.priority);
                let owed = self.store(entry, dues);
                return (self.coalesced(), owed);
            }
        }
        let owed = self.set_holders(entry, due, mode);
        if due.is_some() {
            self.counts.delays += 1;
            return (Added::Delayed, owed);
        }
        entry.state().stop_waiting(); // the next hand-out also serves an add that waits for a caller's retry
        let (added, more) = self.make_dirty(entry, how.priority, mode);
        (added, owed.and(more))
    }

    /// Drops the holder's delay, because its work is over. After a shut-down one for which an add waits stays, as the last trace of this
    /// add (P23).
    #[cold]
    pub(super) fn drop_holders(&mut self, entry: EntryRef<K>, mode: Mode) -> Owed {
        let is_last_trace = entry.state().is_waited_for() && self.is_shut_down;
        if is_last_trace { Owed::NOTHING } else { self.set_holders(entry, None, mode) }
    }

    /// Sets or drops the holder's delay of a key that is in the wheel. If an add has waited for the old one, and no other retry is left,
    /// the add takes effect.
    fn set_holders(&mut self, entry: EntryRef<K>, due: Option<Due>, mode: Mode) -> Owed {
        let mut dues = self.later.dues(entry.number());
        let old = std::mem::replace(&mut dues.holder, due);
        let awaited = old.filter(|old| old.is_retry && entry.state().is_waited_for());
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

    /// Leaves a key these of its delays. If the wheel is full, it keeps all, because there is no room to put the later one there.
    fn keep(&mut self, entry: EntryRef<K>, dues: Dues) -> Owed {
        if self.later.has_room() { self.store(entry, dues) } else { Owed::NOTHING }
    }

    /// Sets the delays of a key that is in the wheel. Those that would end before the key has cooled down are put off until then.
    pub(super) fn store(&mut self, entry: EntryRef<K>, mut dues: Dues) -> Owed {
        let (number, state) = (entry.number(), entry.state());
        if state.is_resting() {
            dues.not_before(self.later.records[number].deadline());
        }
        self.later.write(number, dues);
        let is_held = self.later.is_held(number);
        match (state.is_delayed(), dues.earliest()) {
            (true, None) if !is_held => self.end_delay(entry),
            (false, Some(_)) => {
                self.later.count(number);
                state.set_delayed();
            }
            _ => {}
        }
        match dues.earliest() {
            _ if state.is_resting() => Owed::NOTHING,
            Some((_, due)) => self.later.put(number, due.deadline),
            None => {
                self.later.remove(number);
                self.later.garbage()
            }
        }
    }

    /// Drops the delays of a delayed key, and the add that waits, if there is one.
    #[inline]
    pub(super) fn drop_delays(&mut self, entry: EntryRef<K>) {
        if entry.state().is_resting() {
            entry.state().stop_waiting();
            self.later.set_held(entry.number(), false);
            let _owes_nothing = self.store(entry, Dues::default());
            return;
        }
        self.later.remove(entry.number());
        self.end_delay(entry);
    }

    /// Notes that the key is no longer delayed, and that no add waits.
    #[inline]
    pub(super) fn end_delay(&mut self, entry: EntryRef<K>) {
        self.later.end(entry.number());
        entry.state().clear_delayed();
    }

    /// The delay that ends first.
    pub(super) fn first_delay(&self, entry: EntryRef<K>) -> Delay {
        if let Some(held) = self.held_add(entry) {
            return held;
        }
        let (setter, due) = self.later.dues(entry.number()).earliest().expect("a delayed key has a delay");
        let by = match setter {
            _ if due.is_retry => DelayedBy::Retry,
            Setter::Holder => DelayedBy::Requeue,
            Setter::Caller => DelayedBy::Caller,
        };
        Delay { deadline: due.deadline, priority: due.priority, by }
    }
}
