//! The number of failures of each key: kept by the user's limiter, or by the queue if the limiter would only count.
//!
//! A limiter has a hash table of its own, so each retry and each success costs another look-up, in other cache lines: half of the
//! time of a key that fails. The queue can keep the number next to the key's deadline. So if no other code uses the limiter, and its
//! answer depends on the number of failures alone ([`RateLimiter::schedule`]), the queue replaces it by its [`Schedule`] and counts
//! inline; then [`forget`](RateLimiter::forget) clears that number.
//!
//! Any other limiter is foreign code, and may panic. A panic must not cost a key its retry (P2): a key that is requeued by its holder
//! is delayed by [`WITHOUT_LIMITER`](crate::options::WITHOUT_LIMITER) instead, and the queue counts the failure inline. So the number of
//! retries is the sum of the limiter's number and the queue's.

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

/// Decides how long a key that has failed is delayed.
pub(crate) enum Limiter<K> {
    /// By the number of its failures, which the queue counts.
    Inline(Box<dyn Schedule>),
    /// User code: not called under the lock (P17).
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
    fn clear_failures<Q>(&self, key: &Q)
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
        let external = match &self.limiter {
            Limiter::Inline(_) => 0,
            Limiter::External(limiter) => limiter.num_requeues(&key.to_owned().into()),
        };
        let hash = self.hash(key);
        let core = &mut *self.core.lock();
        external.saturating_add(core.find_failing(key, hash).map_or(0, |slot| core.failures(slot)))
    }
}

impl<K> Shared<K> {
    /// The options, with the delay that an external limiter chooses. (An inline one chooses it under the lock.)
    #[inline]
    pub(crate) fn limited(&self, key: &K, mut options: AddOptions) -> AddOptions {
        if let (true, Limiter::External(limiter)) = (options.rate_limited && !options.limiter_panicked, &self.limiter) {
            options = options.not_before(limiter.when(key));
        }
        options
    }

    /// Like [`limited`](Self::limited), for the holder of the key: it calls `done`, and then passes the limiter's panic on.
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

    /// Whether the queue counts this failure, in the key's placement.
    #[inline]
    pub(super) fn counts_inline(&self, options: AddOptions) -> bool {
        options.rate_limited && (options.limiter_panicked || matches!(self.limiter, Limiter::Inline(_)))
    }

    /// Counts one more failure of a key that is in the table. Returns its delay.
    #[inline]
    pub(super) fn count_failure(&self, core: &mut Core<K>, slot: SlotRef<K>) -> Duration {
        let number = core.table.make_placement(slot);
        let placement = core.table.placement(number);
        let before = placement.failures;
        placement.failures = before.saturating_add(1);
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

    /// `num_requeues`, for the holder of the key.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn num_requeues_held(&self, slot: SlotRef<K>) -> usize {
        if let Limiter::External(limiter) = &self.limiter {
            // SAFETY: the caller holds the key (S2).
            let inside = unsafe { slot.get() };
            // SAFETY: the key is held, so the slot is taken and its key initialised (S1, S2).
            let external = limiter.num_requeues(unsafe { inside.key() });
            // Read without the lock: with an external limiter only the holder of a key counts its failures here, before the next
            // holder has the key.
            if !inside.state.has_failed() {
                return external;
            }
            // SAFETY: guaranteed by the caller.
            return external.saturating_add(unsafe { self.failures_held(slot) });
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.failures_held(slot) }
    }

    /// The number of failures that the queue itself has counted, for the holder of the key.
    ///
    /// # Safety
    /// The caller holds the key in this slot.
    pub(crate) unsafe fn failures_held(&self, slot: SlotRef<K>) -> usize {
        self.core.lock().failures(slot)
    }

    /// Has an external limiter forget a key. For the holder of the key: it calls `done`, and then passes the limiter's panic on.
    #[inline]
    pub(crate) fn limiter_forget(&self, key: &K) -> Caught {
        match &self.limiter {
            Limiter::Inline(_) => Caught::NOTHING,
            Limiter::External(limiter) => self.call_limiter(|| limiter.forget(key)),
        }
    }

    /// `forget` and `done`, for the holder of the key, in one critical section. `given_up`: also counts the key as given up.
    ///
    /// # Safety
    /// The caller holds the key in this slot, has called [`limiter_forget`](Self::limiter_forget), and forgets the slot.
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
    /// The failures that the queue has counted for a key that is in the table.
    fn failures(&mut self, slot: SlotRef<K>) -> usize {
        // SAFETY: in the table, so taken (S2), and we hold the lock.
        if !unsafe { slot.get() }.state.has_failed() {
            return 0;
        }
        let number = self.table.number(slot);
        self.table.placement(number).failures as usize
    }

    /// Forgets the failures of a key that is in the table. The caller takes the key out if no other bit keeps it there (I4).
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
