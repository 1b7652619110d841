//! A hand-out: the next key of a shard, and what follows after the lock.

use super::Shared;
use super::hub::Flags;
use super::locked::Held;
use super::section::{Section, in_mode};
use crate::machine::{Claimed, MaybeNanos};
use crate::sync::Arc;
use std::time::Duration;

/// A key that was taken out of the order.
pub(crate) struct Taken<K> {
    pub(crate) claimed: Claimed<K>,
    pub(super) waited: MaybeNanos,
}

impl<K> Taken<K> {
    /// How long it was queued, if that is known.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.waited.duration()
    }
}

impl<K> Shared<K> {
    /// The slow path of [`try_take`](Self::try_take): the lock was held, the queue measures, is ordered or has to start its driver thread,
    /// or the next key of the line is not near.
    #[inline(never)]
    pub(super) fn take_slow(this: &Arc<Self>, held: Held<'_, K>) -> Option<Claimed<K>> {
        in_mode!(this, held, section, has_extras => {
            let mut now = None;
            let taken = section.take(None, &mut now);
            section.end_as_getter(now);
            let taken = taken?;
            if has_extras {
                Self::after_hand_out(this, taken.waited());
            }
            Some(taken.claimed)
        })
    }

    /// Takes the first key of a shard that this getter has chosen, or that of a level, in a section that has no number yet.
    pub(super) fn take(&self, held: Held<'_, K>, level: Option<u8>) -> Option<Taken<K>> {
        held.locked.number();
        in_mode!(self, held, section, _extras => {
            let mut now = None;
            let taken = section.take(level, &mut now);
            if section.mode.is_ordered && taken.is_some() {
                section.locked.count_hand_out();
            }
            section.end_as_getter(now);
            taken
        })
    }

    /// The rest of a hand-out, after the lock. It does not panic, because the key must reach its holder (P2).
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

impl<K> Section<'_, K> {
    /// The next key, or that of a level, with its times. Sets `now` if it reads the clock.
    #[inline(always)]
    pub(super) fn take(&mut self, level: Option<u8>, now: &mut Option<u64>) -> Option<Taken<K>> {
        if !self.lets_out(level) {
            return None;
        }
        let claimed = self.get(level)?;
        let mut waited = MaybeNanos::UNKNOWN;
        if self.mode.is_measured {
            let clock = &self.shared.settings.clock;
            waited = self.marks().started(&claimed, || *now.insert(clock.now_coarse()));
        }
        Some(Taken { claimed, waited })
    }
}
