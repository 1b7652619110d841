//! Delays that expire in a critical section of a getter, and what the observer is told of those that have expired.
//!
//! Under load a due key must not wait until the driver thread gets a core, so **a getter expires keys, too**: up to [`BY_GETTER`] in a
//! section that it has anyway, if it measures, was woken or is about to park; and in an ordered queue from time to time. With a clock that
//! is given it does not: such a clock stands still while the driver is late, so no key is late by it, and all keys come from one thread,
//! as without load.

use super::Shared;
use super::section::Section;
use crate::Added;
use crate::machine::{Expired, NEVER};
use crate::shared::driver::states::Driver;
use crate::sync::model_const;

/// The number of keys that a getter expires in one critical section.
pub(super) const BY_GETTER: usize = model_const(16, 2);

/// A getter of an ordered queue reads the clock at one of this number of hand-outs of a shard: a reading takes as long as a hand-out.
pub(super) const READS: u64 = 16;

impl<K> Section<'_, K> {
    /// Ends the section of a getter that has looked for one key or some. If a key is due at the time that it has (`now`), or if the queue is
    /// ordered and it is the turn of a reading, first adds some of the keys that are due in this shard.
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
        // The time of a measurement may be a tenth of a microsecond early: it is read again (P8).
        let turn = self.expire_as_getter(&mut None);
        self.end();
        shared.tell_expired_as_getter(turn);
    }

    /// Adds some of the keys that are due in this shard. `now`: the time, or where it is kept for the next shard. The caller calls
    /// [`tell_expired_as_getter`](Shared::tell_expired_as_getter) after the lock.
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
    /// Calls the observer for the delays that expired. Returns their number.
    pub(super) fn tell_expired(&self, turn: &Expired) -> usize {
        self.tell(|observer| {
            for (added, count) in [Added::Queued, Added::Deferred, Added::Coalesced].into_iter().zip(turn.by_answer) {
                (0..count).for_each(|_| observer.added(added));
            }
        });
        turn.by_answer.iter().sum()
    }

    /// The same by a getter: a panic of the observer must not keep a key from its holder, nor a wake-up from the next getter.
    pub(super) fn tell_expired_as_getter(&self, turn: Option<Expired>) {
        turn.into_iter().for_each(|turn| _ = self.contain(|| self.tell_expired(&turn)));
    }
}
