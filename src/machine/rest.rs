//! Rests: the times for which keys cool down after a run (P30). Adds that come meanwhile become one run at the end.
//!
//! ```text
//!                 rest, done                       add                         the rest ends
//!   processing ──────────────▶ RESTING ─────────────────▶ RESTING│WAITING ──────────────────▶ queued
//!                                 │                          ▲
//!                                 └─ the rest ends: absent   └─ it was dirty when it was done
//! ```
//!
//! A key that rests has one entry in the wheel, for the end of its rest (I11), and its delays are put off until then. With an add that
//! waits it counts as delayed. With [`DelayedAdd::Strict`](crate::DelayedAdd::Strict), an add that meets a retry waits for that, which may
//! take longer.

use super::delays::{Cancelled, Delay};
use super::later::Dues;
use super::{Claimed, EntryRef, Machine, Mode, Owed};
use crate::order::NORMAL;
use crate::{Added, DelayedBy};

impl<K> Machine<K> {
    /// Makes a held key rest for this time from now on. Of two rests the longer counts. If the wheel is full, the key does not rest.
    pub(crate) fn rest(&mut self, claimed: &Claimed<K>, now: u64, time: u64) -> Owed {
        let entry = self.held(claimed);
        let (number, state) = (entry.number(), entry.state());
        let end = self.later.deadline(now, time);
        if !self.later.has_room() {
            return Owed::NOTHING;
        }
        let (was_resting, was_delayed) = (state.is_resting(), state.is_delayed());
        state.set_resting();
        self.later.resting += usize::from(!was_resting);
        if !was_resting && !was_delayed {
            let _record = self.later.records.make(number);
            self.later.set_resting(number, true);
            self.later.write(number, Dues::default());
            return self.later.insert(number, end);
        }
        let end = if was_resting { end.max(self.later.records[number].deadline()) } else { end };
        let dues = self.later.dues(number);
        self.later.set_resting(number, true);
        let owed = self.later.put(number, end);
        // Puts off delays that would end earlier.
        self.store(entry, dues).and(owed)
    }

    #[cold]
    pub(super) fn hold(&mut self, entry: EntryRef<K>, priority: i8) -> Added {
        if self.wait(entry, priority) {
            self.counts.delays += 1;
            Added::Delayed
        } else {
            self.counts.coalesced += 1;
            Added::Coalesced
        }
    }

    /// Ends the processing of a key that rests and is dirty: the add waits.
    #[cold]
    pub(super) fn hold_dirty(&mut self, entry: EntryRef<K>, mode: Mode) {
        let priority = if mode.is_ordered { entry.pending() } else { NORMAL };
        self.times.iter_mut().for_each(|times| times.forget(entry.number()));
        self.counts.taken += 1;
        self.wait(entry, priority);
    }

    /// Makes an add wait for the end of a rest. Returns whether it is the first that does.
    fn wait(&mut self, entry: EntryRef<K>, priority: i8) -> bool {
        if self.later.is_held(entry.number()) {
            entry.set_pending(entry.pending().max(priority));
            return false;
        }
        entry.set_pending(priority);
        entry.state().set_waiting();
        self.later.set_held(entry.number(), true);
        if !entry.state().is_delayed() {
            self.later.count(entry.number());
            entry.state().set_delayed();
        }
        true
    }

    /// The add that waits for the end of a rest, as a delay.
    pub(super) fn held_add(&self, entry: EntryRef<K>) -> Option<Delay> {
        if !entry.state().is_resting() || !self.later.is_held(entry.number()) {
            return None;
        }
        let deadline = self.later.records[entry.number()].deadline();
        Some(Delay { deadline, priority: entry.pending(), by: DelayedBy::CoolDown })
    }

    /// Drops the delays of a key that rests. An add that waits for one of them then waits for the end of the rest alone.
    #[cold]
    pub(super) fn cancel_resting(&mut self, entry: EntryRef<K>, mode: Mode) -> (Cancelled, Owed) {
        let dues = self.later.dues(entry.number());
        if dues == Dues::default() {
            return (Cancelled::Nothing, Owed::NOTHING);
        }
        if entry.state().is_waited_for() && !self.later.is_held(entry.number()) {
            self.wait(entry, dues.highest().unwrap_or(NORMAL));
        }
        let owed = self.store(entry, Dues::default());
        let room = self.room_of(entry, mode);
        (Cancelled::Delay, owed.and(self.drained(mode)).and(room))
    }

    /// Ends the rest, or the delays that are past, of a key whose entry has left the wheel. Returns the priority with which the key is
    /// added now, if it is, or `None` if the entry was that of its only delay, which the caller ends.
    #[cold]
    pub(super) fn left_the_wheel(&mut self, entry: EntryRef<K>, now: u64, mode: Mode) -> Option<(Option<i8>, Owed)> {
        if entry.state().is_resting() {
            return Some(self.end_rest(entry, now, mode));
        }
        let mut dues = self.later.dues(entry.number());
        let due = dues.take_earliest().expect("a key in the wheel has a delay");
        if dues == Dues::default() {
            None
        } else {
            Some(self.expire_beside(entry, Some(due.priority), dues, now, mode))
        }
    }

    /// Ends the rest of a dirty key that is done after the shut-down, because a drain hands it out again (P6). The caller pushes it.
    #[cold]
    pub(super) fn wake(&mut self, entry: EntryRef<K>, mode: Mode) -> Owed {
        entry.state().set_dirty();
        self.later.remove(entry.number());
        self.end_rest(entry, 0, mode).1 // at time 0, because no delay expires any more
    }

    fn end_rest(&mut self, entry: EntryRef<K>, now: u64, mode: Mode) -> (Option<i8>, Owed) {
        let held = self.held_add(entry).map(|held| held.priority);
        self.later.resting -= 1;
        entry.state().clear_resting();
        self.later.set_held(entry.number(), false);
        let dues = self.later.dues(entry.number());
        self.later.set_resting(entry.number(), false);
        self.expire_beside(entry, held, dues, now, mode)
    }

    /// Goes on with the other delays of a key that has left the wheel. `added`: the priority of the add that this makes, if it makes one.
    /// Delays that are past end with it, so that no key of a later deadline comes between them (P8). One that is to come takes the place in
    /// the wheel; if the wheel is full, it ends, too.
    fn expire_beside(
        &mut self,
        entry: EntryRef<K>,
        mut added: Option<i8>,
        mut dues: Dues,
        now: u64,
        mode: Mode,
    ) -> (Option<i8>, Owed) {
        let (number, state) = (entry.number(), entry.state());
        let (highest, has_room) = (dues.highest(), self.later.has_room());
        while let Some((_, due)) = dues.earliest().filter(|(_, due)| due.deadline <= now || !has_room) {
            added = added.max(Some(due.priority));
            dues.take_earliest();
        }
        if added.is_some() && state.is_waited_for() {
            added = added.max(highest); // the add may have waited for the delay that is to come
            state.stop_waiting();
        }
        self.later.write(number, dues);
        if let Some((_, next)) = dues.earliest() {
            return (added, self.later.insert(number, next.deadline));
        }
        if state.is_delayed() {
            self.end_delay(entry);
        } else if state.is_vacant() {
            let (key, owed) = self.forget(entry, mode);
            self.gone.push(key);
            return (None, owed.and(Owed::only_if(true, Owed::GARBAGE)));
        }
        (added, Owed::NOTHING)
    }
}
