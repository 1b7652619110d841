//! `done`, and what becomes of a key whose holder unwinds.

use super::add::Wakeups;
use super::section::{Section, Special};
use super::{Core, Shared};
use crate::key::Claimed;
use crate::panics::contained;
use crate::shard::{Ended, MaybeNanos};

impl<K> Shared<K> {
    /// `done`.
    #[inline]
    pub(crate) fn done(&self, claimed: Claimed<K>) {
        let _removed = {
            let mut section = self.enter();
            if section.special.has(Special::MEASURED) {
                return self.finish(section, claimed);
            }
            self.end(&mut section, claimed)
        };
    }

    /// The end of a call that makes a key done: ends the critical section, calls the observer, and drops the key if it is out of the
    /// queue.
    #[inline(never)]
    pub(super) fn finish(&self, mut section: Section<'_, K>, claimed: Claimed<K>) {
        let (worked, _removed) = self.end_measured(&mut section, claimed, None);
        drop(section);
        self.tell_done(worked);
    }

    /// The step of `done` in a queue that may measure. `now`: the time, if the call has read the clock.
    #[inline(always)]
    pub(super) fn end_measured(
        &self,
        core: &mut Core<K>,
        claimed: Claimed<K>,
        now: Option<u64>,
    ) -> (MaybeNanos, Option<K>) {
        let worked = core.shard.note_end(&claimed, now);
        (worked, self.end(core, claimed))
    }

    pub(super) fn tell_done(&self, worked: MaybeNanos) {
        self.tell(|observer| observer.done(worked.duration()));
    }

    /// The step of `done`. Returns the key if it is out of the queue (I4): the caller drops it after the lock.
    // `inline(always)`: otherwise the key is returned through memory.
    #[inline(always)]
    fn end(&self, core: &mut Core<K>, claimed: Claimed<K>) -> Option<K> {
        let removed = match core.shard.done(claimed) {
            Ended::Queued => {
                self.pushed(core, Wakeups::Now);
                None
            }
            Ended::Kept => None,
            Ended::Removed(key) => Some(key),
        };
        core.owe_drainers();
        removed
    }

    /// `done` in a thread that unwinds: catches a panic of the observer or of the key's drop, as a second panic would abort the process.
    /// The key is done before that.
    #[cold]
    pub(crate) fn done_in_panic(&self, claimed: Claimed<K>) {
        contained(|| self.done(claimed));
    }

    /// Notes that the thread was already unwinding when it got this key.
    #[cold]
    pub(crate) fn note_unwinding(&self, claimed: &Claimed<K>) {
        let _lock = self.core.lock();
        claimed.view().state().set_unwinding();
    }

    /// The holder of a key has panicked.
    #[cold]
    pub(crate) fn note_panic(&self) {
        self.core.lock().shard.counts.panics += 1;
        self.tell(|observer| observer.panicked());
    }
}
