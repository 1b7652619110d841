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

use super::Shared;
use crate::AddOptions;
use crate::key::Claimed;
use crate::panics::{Caught, contained};
use crate::rate_limiter::{RateLimiter, Schedule};
use equivalent::Equivalent;
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
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        // Dropped at the end: its drop may panic.
        let _removed = self.clear_failures(key);
        if let Limiter::External(limiter) = &self.limiter {
            limiter.forget(&key.to_owned().into());
        }
    }

    /// Forgets the failures that the queue has counted. Returns the key if it is out of the queue.
    fn clear_failures<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<K> {
        let hash = self.hash(key);
        let mut section = self.enter(self.shard_of(hash));
        let mut known = section.find_failing(key, hash)?;
        known.clear_failures();
        known.remove_if_vacant()
    }

    /// `num_requeues`.
    pub(crate) fn num_requeues<Q>(&self, key: &Q) -> usize
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        let external = match &self.limiter {
            Limiter::Inline(_) => 0,
            Limiter::External(limiter) => limiter.num_requeues(&key.to_owned().into()),
        };
        let hash = self.hash(key);
        let counted = self.shard_of(hash).lock().find_failing(key, hash).map_or(0, |known| known.failures());
        external.saturating_add(counted)
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

    /// Whether the queue counts this failure itself, in the key's `Record`.
    #[inline]
    pub(super) fn counts_inline(&self, options: &AddOptions) -> bool {
        options.rate_limited && (options.limiter_panicked || matches!(self.limiter, Limiter::Inline(_)))
    }

    /// The delay of a key that failed this number of times before, and whose failures are counted inline.
    #[inline]
    pub(super) fn delay_after(&self, failures: u32) -> Duration {
        match &self.limiter {
            Limiter::Inline(schedule) => schedule.delay(failures),
            Limiter::External(_) => Duration::ZERO, // it has panicked: the options have the delay
        }
    }

    /// `num_requeues`, for the holder of the key.
    pub(crate) fn num_requeues_held(&self, claimed: &Claimed<K>) -> usize {
        let Limiter::External(limiter) = &self.limiter else { return self.failures_held(claimed) };
        let external = limiter.num_requeues(claimed.view().key());
        // Read without the lock: with an external limiter, only holders of the key count failures here, and each does so before the next
        // holder gets the key. (A `forget` on another thread may clear them at any time.)
        if claimed.view().state().has_failed() {
            external.saturating_add(self.failures_held(claimed))
        } else {
            external
        }
    }

    /// The number of failures that the queue itself has counted, for the holder of the key.
    pub(crate) fn failures_held(&self, claimed: &Claimed<K>) -> usize {
        self.home(claimed).lock().held(claimed).failures()
    }

    /// Has an external limiter forget a key. For the holder of the key: it calls `done`, and then passes the limiter's panic on.
    #[inline]
    pub(crate) fn limiter_forget(&self, key: &K) -> Caught {
        match &self.limiter {
            Limiter::Inline(_) => Caught::NOTHING,
            Limiter::External(limiter) => self.call_limiter(|| limiter.forget(key)),
        }
    }

    /// `forget` and `done`, for the holder of the key, in one critical section. The caller has called
    /// [`limiter_forget`](Self::limiter_forget).
    #[inline]
    pub(crate) fn succeed(&self, claimed: Claimed<K>) {
        let mut section = self.enter(self.home(&claimed));
        section.clear_failures(&claimed);
        self.finish(section, claimed);
    }

    /// [`succeed`](Self::succeed) of a key that was given up.
    pub(crate) fn give_up(&self, claimed: Claimed<K>) {
        let mut section = self.enter(self.home(&claimed));
        section.counts.given_up += 1;
        section.clear_failures(&claimed);
        self.finish(section, claimed);
    }
}
