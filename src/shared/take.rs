//! A hand-out: the next key of a shard, and what follows after the lock.

use super::Shared;
use super::hub::Flags;
use super::locked::Locked;
use super::section::in_mode;
use crate::machine::{Claimed, Machine, MaybeNanos, Mode, Owed};
use crate::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A key that was taken out of the order.
pub(crate) struct Taken<K> {
    pub(crate) claimed: Claimed<K>,
    waited: MaybeNanos,
}

impl<K> Taken<K> {
    /// How long it was queued, if that is known.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.waited.duration()
    }
}

impl<K> Shared<K> {
    /// [`try_take`](Self::try_take) if the lock was held, if the queue measures, is ordered or has to start its driver thread, and if the
    /// line is empty, or its next key is in another block or behind a hole.
    #[inline(never)]
    pub(super) fn take_slow(this: &Arc<Self>, machine: MutexGuard<'_, Machine<K>>) -> Option<Claimed<K>> {
        in_mode!(this, mode, has_extras => {
            let taken = this.take_in(&this.first, machine, mode)?;
            if has_extras {
                Self::after_hand_out(this, taken.waited());
            }
            Some(taken.claimed)
        })
    }

    /// Takes the first key of a shard, and ends the critical section.
    pub(super) fn take<'s>(&'s self, locked: &'s Locked<K>, machine: MutexGuard<'s, Machine<K>>) -> Option<Taken<K>> {
        in_mode!(self, mode, _extras => {
            if mode.is_ordered && machine.ready(mode) > 0 {
                locked.count_hand_out();
            }
            self.take_in(locked, machine, mode)
        })
    }

    /// The same with the first key of a level, which has one.
    pub(super) fn take_of_level<'s>(
        &'s self,
        locked: &'s Locked<K>,
        mut machine: MutexGuard<'s, Machine<K>>,
        level: u8,
    ) -> Option<Taken<K>> {
        let (mode, mut now) = (self.mode(), None);
        let got = machine.get_of_level(level, mode);
        let (taken, owed) = self.started(got, &mut machine, mode, &mut now);
        if taken.is_some() {
            locked.count_hand_out();
        }
        self.leave_as_getter(locked, machine, owed, mode, now);
        taken
    }

    #[inline(always)]
    fn take_in<'s>(
        &'s self,
        locked: &'s Locked<K>,
        mut machine: MutexGuard<'s, Machine<K>>,
        mode: Mode,
    ) -> Option<Taken<K>> {
        let mut now = None;
        let (taken, owed) = self.next(&mut machine, mode, &mut now);
        self.leave_as_getter(locked, machine, owed, mode, now);
        taken
    }

    /// The step of a hand-out, with its times. Sets `now` if it reads the clock.
    #[inline(always)]
    pub(super) fn next(&self, machine: &mut Machine<K>, mode: Mode, now: &mut Option<u64>) -> (Option<Taken<K>>, Owed) {
        let got = machine.get(mode);
        self.started(got, machine, mode, now)
    }

    #[inline(always)]
    fn started(
        &self,
        (claimed, owed): (Option<Claimed<K>>, Owed),
        machine: &mut Machine<K>,
        mode: Mode,
        now: &mut Option<u64>,
    ) -> (Option<Taken<K>>, Owed) {
        let Some(claimed) = claimed else { return (None, owed) };
        let mut waited = MaybeNanos::UNKNOWN;
        if mode.is_measured {
            waited = machine.started(&claimed, || *now.insert(self.settings.clock.now_coarse()));
        }
        (Some(Taken { claimed, waited }), owed)
    }

    /// The rest of a hand-out, after the lock. Does not panic: the key must reach its holder (P2).
    #[inline]
    pub(crate) fn hand_out(this: &Arc<Self>, taken: Taken<K>) -> Claimed<K> {
        if this.has_extras() {
            Self::after_hand_out(this, taken.waited());
        }
        taken.claimed
    }

    #[cold]
    fn after_hand_out(this: &Arc<Self>, waited: Option<Duration>) {
        Self::ensure_driver(this);
        this.tell_handed_out(waited);
    }

    /// Tells the observer of a hand-out, and catches its panic.
    pub(crate) fn tell_handed_out(&self, waited: Option<Duration>) {
        self.contain(|| self.tell(|observer| observer.handed_out(waited)));
    }
}
