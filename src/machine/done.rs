//! `done` and `requeue`: the processing of a key ends.

use super::{Claimed, EntryRef, How, Machine, Mode, Owed};
use crate::Added;
use crate::key::OnDone;
use crate::order::NORMAL;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Done,
    /// Forgets the failures of the key.
    Succeed,
    /// The same, and counts it as given up.
    GiveUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It is queued again, because it was added meanwhile.
    Queued,
    /// It is still known, because it is delayed, has failed, or cools down.
    Kept,
    /// It is forgotten, and is in the hand.
    Gone,
}

impl<K> Machine<K> {
    /// `now` is the time, if the machine [needs](Self::needs_time) it.
    #[inline(always)]
    pub(crate) fn done(
        &mut self,
        hand: &mut Option<K>,
        claimed: Claimed<K>,
        end: End,
        now: u64,
        mode: Mode,
    ) -> (Ended, Owed) {
        let entry = self.just_held(&claimed);
        self.end(hand, entry, end, now, mode)
    }

    #[inline(always)]
    fn end(&mut self, hand: &mut Option<K>, entry: EntryRef<K>, end: End, now: u64, mode: Mode) -> (Ended, Owed) {
        let mut dropped = Owed::NOTHING;
        if end != End::Done {
            self.counts.given_up += u64::from(end == End::GiveUp);
            if entry.state().has_past() {
                self.clear_failures(entry);
                if entry.state().is_delayed() {
                    dropped = self.drop_holders(entry, mode);
                }
            }
        }
        self.counts.ended += 1;
        let room = if mode.is_ordered && self.order.has_groups() { self.end_of_group(entry, now) } else { 0 };
        let (ended, owed) = match entry.state().on_done() {
            OnDone::Push => {
                let priority = if mode.is_ordered { entry.pending() } else { NORMAL };
                (Ended::Queued, self.push(entry, priority, mode))
            }
            OnDone::Hold if self.is_shut_down => {
                let owed = self.wake(entry, mode);
                let priority = if mode.is_ordered { entry.pending() } else { NORMAL };
                (Ended::Queued, self.push(entry, priority, mode).and(owed))
            }
            OnDone::Hold => {
                self.hold_dirty(entry, mode);
                (Ended::Kept, Owed::NOTHING)
            }
            OnDone::Keep => (Ended::Kept, self.room_of(entry, mode)),
            OnDone::Remove => {
                let room = self.room_of(entry, mode);
                let (key, owed) = self.forget(entry, mode);
                *hand = Some(key);
                (Ended::Gone, owed.and(room))
            }
        };
        (ended, owed.and(dropped).and(mode.ready(room)).and(self.drained(mode)))
    }

    /// Adds a held key, and ends its processing. `end`: as for [`done`](Self::done). A refusal returns the token, because the key is still
    /// held; its owner then calls `done`.
    #[inline]
    pub(crate) fn requeue(
        &mut self,
        hand: &mut Option<K>,
        claimed: Claimed<K>,
        how: How<'_>,
        end: End,
        mode: Mode,
    ) -> (Result<Added, Claimed<K>>, Owed) {
        let entry = self.held(&claimed);
        if mode.is_open && how.may_delay() {
            self.later.reserve();
        }
        if end != End::Done {
            self.clear_failures(entry);
        }
        if !mode.is_open {
            let _delay = self.count_failure(entry, how.failure, None);
            self.counts.rejected += 1;
            return (Err(claimed), Owed::NOTHING);
        }
        self.expect(how.priority, mode);
        let (added, owed) = self.add_held(entry, how, mode);
        let (_ended, more) = self.end(hand, entry, End::Done, how.now, mode);
        (Ok(added), owed.and(more))
    }
}
