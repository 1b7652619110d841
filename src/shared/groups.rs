//! Groups: the foreign functions that name them. A queue with groups has the flag `ORDERED` from the beginning; another one has it from
//! the first call on that gives a priority (O1).

use crate::order::Group;
use ahash::RandomState;

/// The most keys that a group gives in a turn.
pub(crate) const MAX_WEIGHT: u32 = 1000;

/// The keys a turn of a key's group.
type WeightOf<K> = Box<dyn Fn(&K) -> u32 + Send + Sync>;

/// Hashes the group of a key, with the queue's hasher.
type HashOf<K> = Box<dyn Fn(&K, &RandomState) -> u64 + Send + Sync>;

/// How the queue orders its keys, with the functions of the user.
pub(crate) struct Order<K> {
    /// Lower priorities wait while higher ones have keys.
    pub(crate) strict: bool,
    /// At most this number of keys of a group are processing.
    pub(crate) limit: Option<u32>,
    /// A hash of the group of a key.
    pub(crate) group_of: Option<HashOf<K>>,
    /// Keys a turn of the group of this key.
    pub(crate) weight_of: Option<WeightOf<K>>,
}

impl<K> Default for Order<K> {
    fn default() -> Self {
        Self { strict: false, limit: None, group_of: None, weight_of: None }
    }
}

/// The functions of a queue with groups.
pub(super) struct Groups<K> {
    hash_of: HashOf<K>,
    weight_of: Option<WeightOf<K>>,
}

impl<K> Groups<K> {
    pub(super) fn new(group_of: Option<HashOf<K>>, weight_of: Option<WeightOf<K>>) -> Option<Box<Self>> {
        group_of.map(|hash_of| Box::new(Self { hash_of, weight_of }))
    }

    /// Asks for the group of a key. Not under the lock (P17).
    #[cold]
    pub(super) fn ask(&self, key: &K, hasher: &RandomState) -> Group {
        let hash = (self.hash_of)(key, hasher);
        let weight = self.weight_of.as_ref().map_or(1, |weight| weight(key));
        Group { hash, weight: weight.clamp(1, MAX_WEIGHT) as u16 }
    }
}
