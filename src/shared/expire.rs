//! Delays that expire in a critical section of a getter, and what the observer is told of expired delays.
//!
//! Under load a due key would have to wait until the driver thread gets a core. So getters expire up to [`BY_GETTER`] keys in a section
//! that they have anyway: when they measure, were woken or are about to park, and from time to time in an ordered queue. They do not if the
//! clock is given, because such a clock stands still while the driver is late.

use super::Shared;
use super::section::Section;
use crate::Added;
use crate::machine::{Expired, NEVER};
use crate::shared::driver::states::Driver;
use crate::sync::model_const;

/// The number of keys that a getter expires in one critical section.
pub(super) const BY_GETTER: usize = model_const(16, 2);

/// A getter of an ordered queue reads the clock at one of this many hand-outs of a shard, because a reading takes as long as a hand-out.
pub(super) const READS: u64 = 16;

impl<K> Section<'_, K> {
    /// Ends the section of a getter that has looked for keys. It first adds some of the keys that are due in this shard, if one is due at
    /// the time `now` that the getter has read, or if it is time for a reading in an ordered queue.
    #[inline(always)]
    pub(super) fn end_as_getter(self, now: Option<u64>) {
        let is_due = match now {
            Some(now) => self.until() <= now,
            None => self.mode.is_ordered && self.until() != NEVER && self.counts.handed_out % READS == 0,
        };
        if is_due { self.expire_and_end() } else { self.end() }
    }

    #[cold]
    #[inline(never)]
    fn expire_and_end(mut self) {
        let shared = self.shared;
        // A measured time may be early by a tenth of a microsecond, so the clock is read again (P8).
        let turn = self.expire_as_getter(&mut None);
        self.end();
        shared.tell_expired_as_getter(turn);
    }

    /// Adds some of the keys that are due in this shard. `now` is the time, or where it is kept for the next shard. After the lock the
    /// caller calls [`tell_expired_as_getter`](Shared::tell_expired_as_getter).
    pub(super) fn expire_as_getter(&mut self, now: &mut Option<u64>) -> Option<Expired> {
        let settings = &self.shared.settings;
        let expires = settings.driver == Driver::Thread && settings.clock.is_for_getters() && self.mode.is_open;
        if !expires || self.until() == NEVER || self.until() > *now.get_or_insert_with(|| settings.clock.now()) {
            return None;
        }
        let turn = self.expire(now.expect("read above"), BY_GETTER);
        #[cfg(all(test, not(loom)))]
        super::driven::note(self.locked.index, self.counts.handed_out, &turn);
        Some(turn)
    }
}

impl<K> Shared<K> {
    /// Calls the observer for each expired delay. Returns their number.
    pub(super) fn tell_expired(&self, turn: &Expired) -> usize {
        self.tell(|observer| {
            for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(turn.by_answer) {
                (0..count).for_each(|_| observer.added(added));
            }
        });
        turn.by_answer.iter().sum()
    }

    /// The same by a getter. A panic of the observer must not keep a key from its holder, or a wake-up from the next getter.
    pub(super) fn tell_expired_as_getter(&self, turn: Option<Expired>) {
        turn.into_iter().for_each(|turn| _ = self.contain(|| self.tell_expired(&turn)));
    }
}
