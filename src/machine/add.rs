//! `add`: a key becomes dirty, or gets a delay.
//!
//! ```text
//!   the key was        absent            queued              processing               processing, dirty
//!     answer           Queued            Coalesced           Deferred                 Coalesced
//!     what happens     queued, at the    raised, if this     queued when its          raised
//!                      end of its level  priority is higher  processing ends
//! ```
//!
//! [`delays`](super::delays) says what an add does about a delay.

use super::later::Due;
use super::{EntryRef, Failure, Machine, Mode, Owed};
use crate::key::{KeyHash, OnAdd};
use crate::order::{Group, NORMAL};
use crate::time::Nanos;
use crate::{Added, DelayConflict};
use equivalent::Equivalent;

/// How a key is added.
#[derive(Clone, Copy)]
pub(crate) struct How<'s> {
    pub(crate) priority: i8,
    /// In nanoseconds. `Some(0)` adds at once as `None` does, but counts as a retry.
    pub(crate) delay: Option<u64>,
    pub(crate) conflict: DelayConflict,
    /// A caller's delay ends at most this time after the first such add of it.
    pub(crate) at_most: Option<Nanos>,
    pub(crate) failure: Failure<'s>,
    /// The holder's limiter did not count this failure, because the delay of the last retry has not passed. So that retry stands, unless
    /// this delay is longer.
    pub(crate) is_uncounted: bool,
    /// The time. Not used without a delay.
    pub(crate) now: u64,
}

/// What an add knows of its key.
pub(crate) struct Found<K> {
    pub(crate) entry: Option<EntryRef<K>>,
    /// Counts if the key is new.
    pub(crate) group: Group,
}

impl<K> Found<K> {
    pub(crate) fn is_known(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.state().is_known())
    }
}

impl How<'_> {
    /// A plain add.
    pub(crate) const NOW: Self = Self {
        priority: NORMAL,
        delay: None,
        conflict: DelayConflict::EarliestWins,
        at_most: None,
        failure: Failure::No,
        is_uncounted: false,
        now: 0,
    };

    /// Whether the key may get a delay. A counted failure may, because the schedule is asked later.
    #[inline]
    pub(crate) fn may_delay(&self) -> bool {
        self.delay.is_some_and(|delay| delay > 0) || self.failure.is_counted()
    }

    /// Whether the queue's bound does not refuse it.
    pub(crate) fn is_retry(&self) -> bool {
        self.failure.is_one()
    }

    /// Whether it says nothing but a priority.
    #[inline]
    fn is_plain(&self) -> bool {
        self.delay.is_none() && !self.failure.is_one()
    }
}

impl<K> Machine<K> {
    /// Looks for a key that is to be added. If it is known, the add does not need its group.
    #[inline(always)]
    pub(crate) fn find<Q: Equivalent<K> + ?Sized>(&mut self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        self.keys.find_to_add(key, hash)
    }

    /// Adds the key in the hand. `group` counts if the key is new.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        hand: &mut Option<K>,
        hash: KeyHash,
        group: Group,
        how: How<'_>,
        mode: Mode,
    ) -> (Added, Owed)
    where
        K: Eq,
    {
        let key = hand.as_ref().expect("an add has a key in its hand");
        let found = if mode.is_open { self.find(key, hash) } else { None };
        self.add_found(hand, hash, Found { entry: found, group }, how, mode)
    }

    /// Adds the key in the hand, for which the caller has looked in this critical section.
    #[inline(always)]
    pub(crate) fn add_found(
        &mut self,
        hand: &mut Option<K>,
        hash: KeyHash,
        found: Found<K>,
        how: How<'_>,
        mode: Mode,
    ) -> (Added, Owed)
    where
        K: Eq,
    {
        let Found { entry, group } = found;
        if !mode.is_open {
            return (self.refuse(hand, hash, group, how, mode), Owed::NOTHING);
        }
        if how.may_delay() {
            self.later.reserve();
        }
        self.expect(how.priority, mode); // after the foreign code, which may panic
        if let Some(entry) = entry {
            return self.add_known(entry, how, mode);
        }
        let entry = self.insert(hand, hash, group, mode);
        if !how.is_plain() {
            return self.add_known(entry, how, mode);
        }
        entry.state().on_add_new();
        self.counts.pushed += 1;
        if mode.is_measured {
            self.note_dirty(entry);
        }
        (Added::Queued, self.push(entry, how.priority, mode))
    }

    /// To be called before a key of this priority is queued.
    #[inline(always)]
    pub(super) fn expect(&mut self, priority: i8, mode: Mode) {
        debug_assert!(mode.is_ordered || priority == NORMAL && !self.order.is_ordered());
        if mode.is_ordered {
            self.order.expect(priority);
        }
        if mode.is_measured && priority != NORMAL {
            self.measure_all();
        }
    }

    /// Refuses an add. Its failure counts all the same, because a limiter of the user's own would have counted it, too.
    // `inline(always)`: if it were a function of its own, each add would write `how` to memory for it.
    #[inline(always)]
    fn refuse(&mut self, hand: &mut Option<K>, hash: KeyHash, group: Group, how: How<'_>, mode: Mode) -> Added
    where
        K: Eq,
    {
        if how.failure.is_counted() {
            let entry = self.find_or_insert(hand, hash, group, mode);
            let _delay = self.count_failure(entry, how.failure, None);
        } else {
            self.counts.failures += u64::from(how.failure.is_one());
        }
        self.counts.rejected += 1;
        Added::Rejected
    }

    /// Makes the new key in the hand known.
    #[inline(always)]
    fn insert(&mut self, hand: &mut Option<K>, hash: KeyHash, group: Group, mode: Mode) -> EntryRef<K> {
        let group = if mode.is_ordered { self.order.enter_group(group) } else { 0 };
        self.keys.insert(hand.take().expect("the key is in the hand"), hash, group)
    }

    pub(super) fn find_or_insert(
        &mut self,
        hand: &mut Option<K>,
        hash: KeyHash,
        group: Group,
        mode: Mode,
    ) -> EntryRef<K>
    where
        K: Eq,
    {
        let found = hand.as_ref().and_then(|key| self.keys.find(key, hash));
        found.unwrap_or_else(|| self.insert(hand, hash, group, mode))
    }

    /// Adds a key that is known, with all that [`How`] says.
    #[inline(always)]
    pub(super) fn add_known(&mut self, entry: EntryRef<K>, how: How<'_>, mode: Mode) -> (Added, Owed) {
        let delay = self.count_failure(entry, how.failure, how.delay);
        self.counts.retries += u64::from(delay.is_some());
        let delay = match how.at_most {
            Some(at_most) => self.bounded(entry, how.conflict, how.now, delay, at_most),
            None => delay,
        };
        if let Some(delay) = delay.filter(|delay| *delay > 0) {
            let deadline = self.later.deadline(how.now, delay);
            let due = Due { deadline, priority: how.priority, is_retry: how.failure.is_one() };
            return self.set_delay(entry, due, how.conflict);
        }
        if !entry.state().is_in_wheel() {
            return self.make_dirty(entry, how.priority, mode);
        }
        let (priority, owed) = self.meet_delay(entry, how.priority, how.conflict);
        let Some(priority) = priority else {
            self.counts.coalesced += 1;
            return (Added::Coalesced, owed);
        };
        let (added, more) = self.make_dirty(entry, priority, mode);
        (added, owed.and(more).and(self.garbage()))
    }

    /// The delay of an add that has a bound. The bound counts if the add replaces delays.
    #[cold]
    fn bounded(
        &mut self,
        entry: EntryRef<K>,
        conflict: DelayConflict,
        now: u64,
        delay: Option<u64>,
        at_most: Nanos,
    ) -> Option<u64> {
        match delay {
            Some(delay) if delay > 0 && conflict == DelayConflict::Replace => {
                Some(self.later.bounded(entry.number(), now, delay, at_most.get()))
            }
            _ => delay,
        }
    }

    /// Makes a known key dirty.
    #[inline(always)]
    pub(super) fn make_dirty(&mut self, entry: EntryRef<K>, priority: i8, mode: Mode) -> (Added, Owed) {
        let transition = entry.state().on_add();
        if mode.is_measured && matches!(transition, OnAdd::Push | OnAdd::Defer) {
            self.note_dirty(entry);
        }
        match transition {
            OnAdd::Push => {
                self.counts.pushed += 1;
                (Added::Queued, self.push(entry, priority, mode))
            }
            OnAdd::Coalesce => {
                self.counts.coalesced += 1;
                let owed = if mode.is_ordered { self.raise(entry, priority, mode) } else { Owed::NOTHING };
                (Added::Coalesced, owed)
            }
            OnAdd::Defer => {
                self.counts.deferred += 1;
                if mode.is_ordered {
                    entry.set_pending(priority);
                }
                (Added::Deferred, self.became_dirty(entry))
            }
            OnAdd::Hold => (self.hold(entry, priority), Owed::NOTHING),
        }
    }

    /// Puts a key into the order, as its state has just become queued (I5).
    #[inline(always)]
    pub(super) fn push(&mut self, entry: EntryRef<K>, priority: i8, mode: Mode) -> Owed {
        if !mode.is_ordered {
            entry.set_position(self.order.push_plain(entry));
            return mode.ready(1);
        }
        entry.set_priority(priority);
        let (position, is_ready) = self.order.push(entry, priority, entry.group());
        entry.set_position(position);
        if !is_ready {
            return self.earlier(); // its group may have come back with other limits, by which it is released earlier
        }
        mode.ready(1)
    }

    pub(super) fn unpush(&mut self, entry: EntryRef<K>) {
        self.order.remove(entry.place(), &mut self.bin);
    }

    /// Raises a dirty key to a higher priority: if it is queued, to the end of that level. It could be taken before, so no wake-up is owed.
    fn raise(&mut self, entry: EntryRef<K>, priority: i8, mode: Mode) -> Owed {
        if entry.state().is_processing() {
            entry.set_pending(entry.pending().max(priority));
        } else if priority > entry.priority() {
            self.unpush(entry);
            let _as_before = self.push(entry, priority, mode);
            return self.garbage();
        }
        Owed::NOTHING
    }
}
