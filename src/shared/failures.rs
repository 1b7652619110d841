//! The number of failures of each key, which the user's limiter keeps, or the queue if the limiter would only count.
//!
//! A limiter has a hash table of its own, in which each retry and each success costs a look-up, while the queue can keep the number next to
//! the key's deadline. If no other code uses the limiter, and its answer depends on the number of failures alone
//! ([`RateLimiter::schedule`](crate::rate_limiter::RateLimiter::schedule)), the queue replaces it by its
//! [`Schedule`](crate::rate_limiter::Schedule) and counts inline.
//!
//! Any other limiter is foreign code. If it panics, the key must not lose its retry (P2): a key that its holder requeues is delayed by
//! [`WITHOUT_LIMITER`](crate::options::WITHOUT_LIMITER), and the queue counts the failure. The number of retries is the sum of both counts.

use super::Shared;
use super::settings::Limiter;
use super::state::if_free;
use crate::AddOptions;
use crate::machine::Claimed;
use crate::panics::{Caught, contained};
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: Hash + Eq> Shared<K> {
    /// `forget`.
    pub(crate) fn forget<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        // Dropped at the end, because its drop may panic.
        let _removed = self.clear_failures(key);
        if let Limiter::External(limiter) = &self.settings.limiter {
            limiter.forget(&key.to_owned().into());
        }
    }

    /// Forgets the failures that the queue has counted. Returns the key if it has left the queue.
    fn clear_failures<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<K> {
        let (hash, mut hand) = (self.hash(key), None);
        if_free!(self, free => {
            self.free_forget(free, key, hash);
            None
        });
        let _had_failed = self.look_up(hash, |locked, hash| {
            let mut section = self.section(locked.lock());
            let had_failed = section.forget_failures(&mut hand, key, hash);
            section.end();
            had_failed.then_some(())
        });
        hand
    }

    /// `num_requeues`.
    pub(crate) fn num_requeues<Q>(&self, key: &Q) -> usize
    where
        Q: Hash + Equivalent<K> + ToOwned<Owned: Into<K>> + ?Sized,
    {
        let external = self.external_failures(key);
        let hash = self.hash(key);
        if_free!(self, free => external.saturating_add(self.free_failures(free, key, hash) as usize));
        let inline = self.look_up(hash, |locked, hash| Some(locked.lock().failures(key, hash)).filter(|n| *n > 0));
        external.saturating_add(inline.unwrap_or(0) as usize)
    }

    /// The failures that a limiter of the user's own has counted.
    pub(super) fn external_failures<Q>(&self, key: &Q) -> usize
    where
        Q: ToOwned<Owned: Into<K>> + ?Sized,
    {
        match &self.settings.limiter {
            Limiter::Inline(_) => 0,
            Limiter::External(limiter) => limiter.num_requeues(&key.to_owned().into()),
        }
    }
}

impl<K> Shared<K> {
    /// The options with the delay that an external limiter chooses. (An inline one chooses it under the lock.)
    #[inline]
    pub(crate) fn limited(&self, key: &K, mut options: AddOptions) -> AddOptions {
        if let (true, Limiter::External(limiter)) =
            (options.rate_limited && !options.skips_limiter, &self.settings.limiter)
        {
            options = options.not_before(limiter.when(key));
        }
        options
    }

    /// The same for the holder of the key, whose failure may not count.
    #[inline]
    pub(crate) fn limited_held(&self, key: &K, mut options: AddOptions) -> AddOptions {
        options.is_uncounted = options.rate_limited && self.has_delay_left(key);
        self.limited(key, options)
    }

    /// Whether the limiter would not count a failure of this key now.
    pub(crate) fn has_delay_left(&self, key: &K) -> bool {
        matches!(&self.settings.limiter, Limiter::External(limiter) if limiter.has_delay_left(key))
    }

    /// Like [`limited_held`](Self::limited_held), for the end of a hand-out, after which the limiter's panic is passed on.
    #[inline]
    pub(crate) fn try_limited_held(&self, key: &K, options: &mut AddOptions) -> Caught {
        match &self.settings.limiter {
            Limiter::External(_) if options.rate_limited && !options.skips_limiter => {
                let asked = *options;
                *options = asked.without_limiter(); // if it panics
                self.call_limiter(|| *options = self.limited_held(key, asked))
            }
            _ => Caught::NOTHING,
        }
    }

    /// Whether the limiter is foreign code.
    #[inline]
    pub(crate) fn has_external_limiter(&self) -> bool {
        matches!(self.settings.limiter, Limiter::External(_))
    }

    /// Calls the limiter for the holder of a key. A panic is counted.
    fn call_limiter(&self, call: impl FnOnce()) -> Caught {
        let caught = Caught::call(call);
        if caught.is_some() {
            contained(|| self.note_panic());
        }
        caught
    }

    /// `num_requeues`, for the holder of the key.
    pub(crate) fn num_requeues_held(&self, claimed: &Claimed<K>) -> usize {
        let Limiter::External(limiter) = &self.settings.limiter else { return self.failures_held(claimed) };
        let external = limiter.num_requeues(claimed.key());
        // Read without the lock, because with an external limiter only holders of the key count failures here, each before the next one
        // gets the key.
        if claimed.has_failed() { external.saturating_add(self.failures_held(claimed)) } else { external }
    }

    /// The number of failures that the queue itself has counted, for the holder of the key.
    pub(crate) fn failures_held(&self, claimed: &Claimed<K>) -> usize {
        if_free!(self, free => Self::free_failures_of(free, claimed.node()) as usize);
        self.home(claimed).lock().failures_held(claimed) as usize
    }

    /// Whether a failure after the last retry has given the key up, for the holder of the key.
    pub(crate) fn is_given_up(&self, claimed: &Claimed<K>) -> bool {
        if_free!(self, free => Self::free_is_given_up(free, claimed.node()));
        claimed.has_failed() && self.home(claimed).lock().is_given_up_held(claimed)
    }

    /// Has an external limiter forget a key, for the holder, who then calls `done` and passes the limiter's panic on.
    #[inline]
    pub(crate) fn limiter_forget(&self, key: &K) -> Caught {
        match &self.settings.limiter {
            Limiter::Inline(_) => Caught::NOTHING,
            Limiter::External(limiter) => self.call_limiter(|| limiter.forget(key)),
        }
    }
}
