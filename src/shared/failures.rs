//! How often a key has failed: asked of a limiter, or, if that would do nothing but count, counted by the queue.
//!
//! The queue has a place for each key that it works on: beside its deadline. A limiter has a hash table of its own, which costs
//! another look-up, in other lines of the cache, at every retry and every success: half of the time of a key that fails. So a
//! limiter that a queue has for itself, and that answers by the number of failures alone
//! ([`RateLimiter::schedule`]), is replaced by its [`Schedule`], and its [`forget`](RateLimiter::forget) is to clear a bit.
//!
//! Any other limiter is foreign code, and may panic. A panic must not cost a key its retry (P2): the key that is held waits for
//! [`WITHOUT_LIMITER`](crate::options::WITHOUT_LIMITER) instead, and the queue counts the failure as it does for a `Schedule`. So
//! the number of retries is the limiter's number and the queue's, together.

use super::measure::{UNREAD, known};
use super::{Core, Shared};
use crate::AddOptions;
use crate::key::slab::SlotRef;
use crate::key::table;
use crate::panics::{Caught, contained};
use crate::rate_limiter::{RateLimiter, Schedule};
use crate::time::wheel::Placements;
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

/// What a requeue does about the failures of its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    Keep,
    Forget,
}

/// Who says how long a key waits that has failed.
pub(crate) enum Limiter<K> {
    /// The number of its failures, which the queue counts.
    Inline(Box<dyn Schedule>),
    /// User code: not to be asked under the lock.
    External(Box<dyn RateLimiter<K>>),
}

impl<K: Hash + Eq> Shared<K> {
    /// `forget`.
    pub(crate) fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        self.clear_failures(key);
        if let Limiter::External(limiter) = &self.limiter {
            limiter.forget(&key.to_owned().into());
        }
    }

    /// Forgets the failures that the queue has counted.
    fn forgive<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let _vacated = {
            let core = &mut *self.enter();
            let Some(slot) = core.find_failing(key, hash) else { return };
            core.clear_failures(slot);
            core.forget_if_vacant(slot)
        };
    }

    /// `num_requeues`.
    pub(crate) fn num_requeues<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned: Into<K>> + ?Sized,
    {
        let asked = match &self.limiter {
            Limiter::Inline(_) => 0,
            Limiter::External(limiter) => limiter.num_requeues(&key.to_owned().into()),
        };
        let hash = self.hash(key);
        let core = &mut *self.core.lock();
        asked.saturating_add(core.find_failing(key, hash).map_or(0, |slot| core.failures(slot)))
    }
}

impl<K> Shared<K> {
    /// The options, with what the limiter says of this key, unless that is counted under the lock.
    #[inline]
    pub(crate) fn limited(&self, key: &K, mut options: AddOptions) -> AddOptions {
        if let (true, Limiter::External(limiter)) = (options.rate_limited && !options.limiter_panicked, &self.limiter) {
            options = options.not_before(limiter.when(key));
        }
        options
    }

    /// As [`limited`](Self::limited), for the holder of the key, who says `done` and passes the limiter's panic on after that.
    #[inline]
    pub(crate) fn limited_held(&self, key: &K, options: &mut AddOptions) -> Caught {
        match &self.limiter {
            Limiter::External(_) if options.rate_limited => {
                let asked = *options;
                *options = asked.without_limiter(); // if it panics
                self.call_limiter(|| *options = self.limited(key, asked))
            }
            _ => Caught::NOTHING,
        }
    }

    /// The limiter is foreign code.
    #[inline]
    pub(crate) fn has_external_limiter(&self) -> bool {
        matches!(self.limiter, Limiter::External(_))
    }

    /// Calls the limiter for the holder of a key. A panic is counted.
    fn call_limiter(&self, call: impl FnOnce()) -> Caught {
        let caught = Caught::call(call);
        if caught.is_some() {
            contained(|| self.note_panic());
        }
        caught
    }

    /// A failure is to be counted in the key's ticket.
    #[inline]
    pub(super) fn counts_inline(&self, options: AddOptions) -> bool {
        options.rate_limited && (options.limiter_panicked || matches!(self.limiter, Limiter::Inline(_)))
    }

    /// One more failure of a key that is in the table: how long it is to wait.
    #[inline]
    pub(super) fn count_failure(&self, core: &mut Core<K>, slot: SlotRef<K>) -> Duration {
        let number = core.table.make_placement(slot);
        let ticket = core.table.placement(number);
        let before = ticket.failures;
        ticket.failures = before.saturating_add(1);
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let state = &unsafe { slot.get() }.state;
        debug_assert_eq!(state.has_failed(), before > 0, "I10");
        core.failing += usize::from(before == 0);
        state.set_failed();
        match &self.limiter {
            Limiter::Inline(schedule) => schedule.delay(before),
            Limiter::External(_) => Duration::ZERO, // it has panicked: the options have the delay
        }
    }

    /// `num_requeues` of a key that is held.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn num_requeues_held(&self, slot: SlotRef<K>) -> usize {
        if let Limiter::External(limiter) = &self.limiter {
            // SAFETY: as the caller's.
            let inside = unsafe { slot.get() };
            // SAFETY: as above.
            let asked = limiter.num_requeues(unsafe { inside.key() });
            // Read without the lock: with such a limiter, holders count failures, and each before the next has the key.
            if !inside.state.has_failed() {
                return asked;
            }
            // SAFETY: as the caller's.
            return asked.saturating_add(unsafe { self.failures_held(slot) });
        }
        // SAFETY: as the caller's.
        unsafe { self.failures_held(slot) }
    }

    /// How many failures the queue itself has counted, of a key that is held.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn failures_held(&self, slot: SlotRef<K>) -> usize {
        self.core.lock().failures(slot)
    }

    /// Has the limiter forget a key, unless the queue counts. For the holder of the key, who says `done` and passes the limiter's
    /// panic on after that.
    #[inline]
    pub(crate) fn limiter_forget(&self, key: &K) -> Caught {
        match &self.limiter {
            Limiter::Inline(_) => Caught::NOTHING,
            Limiter::External(limiter) => self.call_limiter(|| limiter.forget(key)),
        }
    }

    /// `forget` and `done` of a key that is held, in one step as far as the queue counts. `given_up`: and that is counted.
    ///
    /// # Safety
    /// The caller holds the key in this slot, has told the limiter, and forgets the slot.
    #[inline]
    pub(crate) unsafe fn succeed(&self, slot: SlotRef<K>, given_up: bool) {
        let (worked, _vacated) = {
            let core = &mut *self.enter();
            core.clear_failures(slot);
            core.counts.given_up += u64::from(given_up);
            let worked = core.note_done(slot, UNREAD);
            // SAFETY: guaranteed by the caller.
            (worked, unsafe { self.finish(core, slot) })
        };
        self.tell(|observer| observer.done(known(worked)));
    }
}

impl<K: Hash + Eq> Core<K> {
    /// The slot of a key whose failures the queue may have counted.
    fn find_failing<Q: Eq + ?Sized>(&self, key: &Q, hash: table::Hash) -> Option<SlotRef<K>>
    where
        K: Borrow<Q>,
    {
        if self.failing == 0 { None } else { self.table.find(key, hash) }
    }
}

impl<K> Core<K> {
    /// How often a key has failed that is in the table.
    fn failures(&mut self, slot: SlotRef<K>) -> usize {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        if !unsafe { slot.get() }.state.has_failed() {
            return 0;
        }
        let number = self.table.number(slot);
        self.table.placement(number).failures as usize
    }

    /// Forgets the failures of a key that is in the table. The caller sees to it that it leaves, if nothing else keeps it there.
    #[inline]
    pub(super) fn clear_failures(&mut self, slot: SlotRef<K>) {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        let state = &unsafe { slot.get() }.state;
        if state.has_failed() {
            let number = self.table.number(slot);
            self.table.placement(number).failures = 0;
            self.failing -= 1;
            state.clear_failed();
        }
    }
}
