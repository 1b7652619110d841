//! What a builder says of a new queue, with the user's functions: its limiter, its observer, and those that name groups.

use crate::observe::Observer;
use crate::order::{Group, Limits};
use crate::rate_limiter::{RateLimiter, ScheduleFn};
use crate::shared::driver::states::Driver;
use crate::time::clock::Clock;
use crate::{DelayedAdd, FairShare, OnPanic};
use ahash::RandomState;

/// The most shards that a queue can have.
pub(crate) const MAX_SHARDS: usize = 64;

/// The settings of a new queue.
pub(crate) struct Settings<K> {
    pub(crate) name: Box<str>,
    /// What the queue draws its random numbers from. `None`: from the system.
    pub(crate) seed: Option<u64>,
    /// A power of two, up to [`MAX_SHARDS`].
    pub(crate) shards: usize,
    /// Whether the queue has the lock-free engine, beside one shard that is not used.
    pub(crate) lock_free: bool,
    pub(crate) capacity: usize,
    pub(crate) clock: Clock,
    pub(crate) driver: Driver,
    pub(crate) delayed_add: DelayedAdd,
    pub(crate) on_panic: Option<OnPanic>,
    pub(crate) measure: bool,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) limiter: Limiter<K>,
    pub(crate) order: Order<K>,
    /// The most keys that the queue knows at a time.
    pub(crate) max_keys: Option<usize>,
    /// The hand-outs a second, and of a burst.
    pub(crate) pace: Option<(f64, u32)>,
}

/// Decides how long a key that has failed is delayed.
pub(crate) enum Limiter<K> {
    /// By the number of its failures, which the queue counts.
    Inline(ScheduleFn),
    /// By user code, which is not called under the lock (P17).
    External(Box<dyn RateLimiter<K>>),
}

/// The most keys that a group gives in a turn.
pub(crate) const MAX_WEIGHT: u32 = 1000;

/// The weight of a key's group: the number of keys that the group gives in a turn.
type WeightOf<K> = Box<dyn Fn(&K) -> u32 + Send + Sync>;

/// The limits of a key's group.
type LimitsOf<K> = Box<dyn Fn(&K) -> Limits + Send + Sync>;

/// A limit of keys as the order has it. One above 2^32 is none, because a queue has fewer keys.
pub(crate) fn most_processing(limit: Option<usize>) -> u32 {
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX)
}

/// Hashes the group of a key, with the queue's hasher.
type HashOf<K> = Box<dyn Fn(&K, &RandomState) -> u64 + Send + Sync>;

/// How the queue orders its keys, with the functions of the user.
pub(crate) struct Order<K> {
    /// Whether lower priorities wait while higher ones have keys.
    pub(crate) strict: bool,
    /// How groups pay for their turns.
    pub(crate) shares: FairShare,
    /// At most this number of keys of a group are processing.
    pub(crate) limit: Option<usize>,
    /// A hash of the group of a key.
    pub(crate) group_of: Option<HashOf<K>>,
    /// The weight of a key's group.
    pub(crate) weight_of: Option<WeightOf<K>>,
    /// The weight and the limits of a key's group, in place of the two above.
    pub(crate) limits_of: Option<LimitsOf<K>>,
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        let shares = FairShare::HandOuts;
        Self { strict: false, shares, limit: None, group_of: None, weight_of: None, limits_of: None }
    }
}

impl<K> Order<K> {
    /// Whether keys have groups.
    pub(crate) fn has_groups(&self) -> bool {
        self.group_of.is_some()
    }

    /// Asks for the group of a key, if keys have groups. Not under the lock (P17).
    #[cold]
    pub(super) fn ask(&self, key: &K, hasher: &RandomState, clock: &Clock) -> Group {
        let hash = self.group_of.as_ref().map_or(0, |group| group(key, hasher));
        let limits = self.limits_of.as_ref().map(|limits| limits(key)).unwrap_or_else(|| {
            let weight = self.weight_of.as_ref().map_or(1, |weight| weight(key));
            let max_processing = most_processing(self.limit);
            Limits { weight: weight.clamp(1, MAX_WEIGHT) as u16, max_processing, rate: None }
        });
        Group { hash, limits, now: if limits.rate.is_some() { clock.now_coarse() } else { 0 } }
    }
}
