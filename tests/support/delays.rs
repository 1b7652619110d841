//! A delaying queue that is evidently right: the plain [`Reference`], beside it the delays in one sorted map, and
//! a plain limiter.
//!
//! It is the oracle of the replays with delays, for one thread and a clock that only [`advance`](Delays::advance) moves. It
//! returns whatever the crate returns with [`keyqueue::Driver::Manual`] and a mock clock.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use super::limits::{Limits, Schedule, duration};
use super::reference::Reference;
use keyqueue::{Added, DelayConflict, DelayedAdd};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

/// A delay's place: by deadline, and among equal ones in the order in which they were set.
type Place = (u64, u64);

/// A delay with this deadline never expires.
const NEVER: u64 = u64::MAX;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Delays<K> {
    pub(crate) queue: Reference<K>,
    pub(crate) limits: Limits<K>,
    policy: DelayedAdd,
    delays: BTreeMap<Place, K>,
    /// Where a key is in `delays`. Both have the same keys.
    places: HashMap<K, Place>,
    /// [`DelayedAdd::Strict`]: the keys with a delay for which an add waits.
    waiting_adds: HashSet<K>,
    /// The number of delays that were set or moved.
    pub(crate) set: u64,
    /// The number of delays that expired.
    pub(crate) expired: u64,
    /// The number of calls with a delay, before the shut-down.
    pub(crate) retries: u64,
    /// The number of calls to the limiter.
    pub(crate) failures: u64,
    pub(crate) given_up: u64,
    /// A delay was dropped before it expired.
    pub(crate) rearranged: bool,
}

impl<K: Hash + Eq + Clone> Delays<K> {
    /// With the queue's default limiter.
    pub(crate) fn new(policy: DelayedAdd) -> Self {
        let (base, max) = (5_000_000, 1_000_000_000_000);
        Self::with_limits(policy, Limits::new(Schedule::Exponential { base, max }))
    }

    pub(crate) fn with_limits(policy: DelayedAdd, limits: Limits<K>) -> Self {
        Self::with_queue(Reference::new(), policy, limits)
    }

    pub(crate) fn with_queue(queue: Reference<K>, policy: DelayedAdd, limits: Limits<K>) -> Self {
        Self {
            queue,
            limits,
            policy,
            delays: BTreeMap::new(),
            places: HashMap::new(),
            waiting_adds: HashSet::new(),
            set: 0,
            expired: 0,
            retries: 0,
            failures: 0,
            given_up: 0,
            rearranged: false,
        }
    }

    pub(crate) fn add(&mut self, key: K) -> Added {
        if self.places.contains_key(&key) && !self.queue.shutting_down() {
            match self.policy {
                DelayedAdd::Promote => drop(self.remove(&key)),
                DelayedAdd::Strict if !self.queue.is_dirty(&key) => {
                    self.waiting_adds.insert(key);
                    return self.coalesced();
                }
                // Independent: the delay stays, and this add does not affect it.
                _ => {}
            }
        }
        self.queue.add(key)
    }

    pub(crate) fn add_after(&mut self, key: K, delay: Duration) -> Added {
        self.add_with(key, delay, DelayConflict::EarliestWins)
    }

    pub(crate) fn add_with(&mut self, key: K, delay: Duration, conflict: DelayConflict) -> Added {
        self.retries += u64::from(!self.queue.shutting_down());
        self.add_as(key, delay, conflict)
    }

    /// Without a delay: as with a delay of zero, but not counted as a retry.
    pub(crate) fn add_without(&mut self, key: K, conflict: DelayConflict) -> Added {
        self.add_as(key, Duration::ZERO, conflict)
    }

    fn add_as(&mut self, key: K, delay: Duration, conflict: DelayConflict) -> Added {
        if self.queue.shutting_down() {
            return self.queue.add(key); // which rejects it
        }
        let pending = self.places.get(&key).map(|&(deadline, _)| deadline);
        if pending.is_some() && conflict == DelayConflict::KeepExisting {
            return self.coalesced();
        }
        if delay.is_zero() {
            if conflict == DelayConflict::Replace {
                self.remove(&key);
            }
            return self.add(key);
        }
        let deadline = self.deadline(delay);
        if conflict == DelayConflict::EarliestWins && pending.is_some_and(|pending| pending <= deadline) {
            return self.coalesced();
        }
        // An add that waits for the old delay waits for the new one.
        let waiting_add = self.remove(&key).is_some_and(|(_, waiting_add)| waiting_add);
        if waiting_add {
            self.waiting_adds.insert(key.clone());
        }
        self.set += 1;
        self.places.insert(key.clone(), (deadline, self.set));
        self.delays.insert((deadline, self.set), key);
        Added::Delayed
    }

    pub(crate) fn add_rate_limited(&mut self, key: K) -> Added {
        self.add_rate_limited_with(key, Duration::ZERO, DelayConflict::EarliestWins)
    }

    /// Calls the limiter once, even if the add is rejected.
    pub(crate) fn add_rate_limited_with(&mut self, key: K, delay: Duration, conflict: DelayConflict) -> Added {
        self.failures += 1;
        let delay = delay.max(duration(self.limits.when(&key)));
        self.add_with(key, delay, conflict)
    }

    /// Only for a key that is processing.
    pub(crate) fn requeue_after(&mut self, key: K, delay: Duration) -> Added {
        self.limits.forget(&key);
        let added = self.add_after(key.clone(), delay);
        self.queue.done(&key);
        added
    }

    /// Only for a key that is processing.
    pub(crate) fn retry(&mut self, key: K) -> Added {
        let added = self.add_rate_limited(key.clone());
        self.queue.done(&key);
        added
    }

    /// Only for a key that is processing.
    pub(crate) fn succeed(&mut self, key: &K) {
        self.limits.forget(key);
        self.queue.done(key);
    }

    /// Only for a key that is processing.
    pub(crate) fn give_up(&mut self, key: &K) {
        self.succeed(key);
        self.given_up += 1;
    }

    pub(crate) fn cancel(&mut self, key: &K) -> bool {
        let Some((_, waiting_add)) = self.remove(key) else {
            return false;
        };
        if waiting_add && !self.queue.shutting_down() {
            self.queue.add(key.clone());
        }
        true
    }

    /// `remove`.
    pub(crate) fn take_back(&mut self, key: &K) -> bool {
        let was_delayed = self.remove(key).is_some();
        self.queue.remove(key) || was_delayed
    }

    pub(crate) fn take_delayed(&mut self) -> Vec<(K, Duration)> {
        let mut taken = Vec::new();
        while let Some((&(deadline, _), key)) = self.delays.first_key_value() {
            let key = key.clone();
            self.remove(&key);
            let left = Duration::from_nanos(deadline.saturating_sub(self.queue.now));
            taken.push((key, if deadline == NEVER { Duration::MAX } else { left }));
        }
        taken
    }

    /// The delayed keys, with the time that is left, earliest first.
    pub(crate) fn delayed_keys(&self) -> Vec<(K, Duration)> {
        let left = |deadline: u64| Duration::from_nanos(deadline.saturating_sub(self.queue.now));
        let keys = self.delays.iter().map(|(&(deadline, _), key)| (deadline, key.clone()));
        keys.map(|(deadline, key)| (key, if deadline == NEVER { Duration::MAX } else { left(deadline) })).collect()
    }

    /// The delays of the keys that match, with the time that was left.
    pub(crate) fn take_delays_where(&mut self, matches: impl Fn(&K) -> bool) -> Vec<(K, Duration)> {
        let mut taken = self.delayed_keys();
        taken.retain(|(key, _)| matches(key));
        taken.iter().for_each(|(key, _)| _ = self.remove(key));
        taken
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.queue.now = self.deadline(by);
    }

    pub(crate) fn turn(&mut self) -> usize {
        let mut due = 0;
        while let Some((&(deadline, _), key)) = self.delays.first_key_value() {
            if self.queue.shutting_down() || deadline == NEVER || self.queue.now < deadline {
                break;
            }
            let (key, rearranged) = (key.clone(), self.rearranged);
            self.remove(&key);
            self.rearranged = rearranged;
            self.queue.add(key);
            self.expired += 1;
            due += 1;
        }
        due
    }

    pub(crate) fn shut_down(&mut self) {
        self.queue.shut_down();
    }

    pub(crate) fn delayed_len(&self) -> usize {
        self.delays.len()
    }

    /// The time to each future deadline, in their order. Delays that never expire are left out.
    pub(crate) fn deadlines(&self) -> impl Iterator<Item = u64> {
        let coming = self.delays.keys().filter(|&&(deadline, _)| self.queue.now < deadline && deadline != NEVER);
        coming.map(|&(deadline, _)| deadline - self.queue.now)
    }

    /// The time until the earliest delay expires, if there is one.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let (&(deadline, _), _) = self.delays.first_key_value()?;
        let left = Duration::from_nanos(deadline.saturating_sub(self.queue.now));
        Some(if deadline == NEVER { Duration::MAX } else { left })
    }

    /// The number of delays that never expire.
    pub(crate) fn never(&self) -> usize {
        self.delays.range((NEVER, 0)..).count()
    }

    /// The time until the clock's last instant, in nanoseconds.
    pub(crate) fn left(&self) -> u64 {
        u64::MAX - self.queue.now
    }

    /// The clock's value after `delay`.
    fn deadline(&self, delay: Duration) -> u64 {
        self.queue.now.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Removes the delay of `key`, and returns its deadline and whether an add waited for it.
    fn remove(&mut self, key: &K) -> Option<(u64, bool)> {
        let place = self.places.remove(key)?;
        self.rearranged = true;
        assert!(self.delays.remove(&place).is_some(), "both maps have the same keys");
        Some((place.0, self.waiting_adds.remove(key)))
    }

    fn coalesced(&mut self) -> Added {
        self.queue.counts.coalesced += 1;
        Added::Coalesced
    }
}
