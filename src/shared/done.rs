//! `done`, and what becomes of a key whose holder unwinds.

use super::Shared;
use super::add::Wakeups;
use super::hub::Flags;
use super::locked::Locked;
use super::section::Section;
use crate::key::Claimed;
use crate::panics::contained;
use crate::shard::{Ended, MaybeNanos};

impl<K> Shared<K> {
    /// `done`.
    // `inline(never)`: else `Item::done` and others have a copy each.
    #[inline(never)]
    pub(crate) fn done(&self, claimed: Claimed<K>) {
        if self.others.is_empty() { self.done_in(&self.first, claimed) } else { self.done_in_one_of_many(claimed) }
    }

    #[inline(never)]
    fn done_in_one_of_many(&self, claimed: Claimed<K>) {
        self.done_in(self.home(&claimed), claimed);
    }

    // `inline(always)`: with one shard, the place of its data is known when this is compiled.
    #[inline(always)]
    fn done_in(&self, locked: &Locked<K>, claimed: Claimed<K>) {
        let _removed = {
            let mut section = self.enter(locked);
            if self.flags().has(Flags::DONE) {
                return self.finish(section, claimed);
            }
            match section.done(claimed) {
                Ended::Queued => {
                    section.publish_len();
                    None
                }
                Ended::Kept => None,
                Ended::Removed(key) => Some(key),
            }
        };
    }

    /// The end of a call that makes a key done: ends the critical section, calls the observer, and drops the key if it is out of the
    /// queue.
    #[inline(never)]
    pub(super) fn finish(&self, mut section: Section<'_, K>, claimed: Claimed<K>) {
        let (worked, _removed) = section.end(claimed, None);
        drop(section);
        self.tell_done(worked);
    }

    pub(super) fn tell_done(&self, worked: MaybeNanos) {
        self.tell(|observer| observer.done(worked.duration()));
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
        let _lock = self.home(claimed).lock();
        claimed.view().state().set_unwinding();
    }

    /// The holder of a key has panicked.
    #[cold]
    pub(crate) fn note_panic(&self) {
        self.hub().counts.panics += 1;
        self.tell(|observer| observer.panicked());
    }
}

impl<K> Section<'_, K> {
    /// The step of `done`, in a queue that may measure, and with all that it owes. `now`: the time, if the call has read the clock.
    /// Returns how long the key was processing, and the key if it is out of the queue (I4): the caller drops it after the lock.
    // `inline(always)`: otherwise the key is returned through memory.
    #[inline(always)]
    pub(super) fn end(&mut self, claimed: Claimed<K>, now: Option<u64>) -> (MaybeNanos, Option<K>) {
        let worked = self.note_end(&claimed, now);
        if self.is_ordered() {
            return (worked, self.end_in_order(claimed));
        }
        let removed = match self.done(claimed) {
            Ended::Queued => {
                self.pushed(Wakeups::Now);
                None
            }
            Ended::Kept => None,
            Ended::Removed(key) => Some(key),
        };
        self.owe_drainers();
        (worked, removed)
    }

    /// The rest of [`end`](Self::end) in a queue that is ordered.
    #[inline(never)]
    fn end_in_order(&mut self, claimed: Claimed<K>) -> Option<K> {
        let (ended, ready) = self.done_in_order(claimed);
        if ready || matches!(ended, Ended::Queued) {
            self.pushed(Wakeups::Now);
        }
        self.owe_drainers();
        match ended {
            Ended::Queued | Ended::Kept => None,
            Ended::Removed(key) => Some(key),
        }
    }
}
