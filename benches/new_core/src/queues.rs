//! The crate's queue and the machine's: with three priorities, with N groups (0: none), and with a limit of the keys of a group that are
//! processing at a time (0: none).

use crate::queue::Queue;
use crate::rivals::priority_of;
use common::{Key, Prioritized, subject};
use keyqueue::{AddOptions, Priority, WorkQueue};

pub struct Old<K, const LEVELS: bool, const N: u64, const LIMIT: u32>(WorkQueue<K>);
pub struct New<const LEVELS: bool, const N: u64, const LIMIT: u32>(Queue<u64>);

pub trait Number: Key + Into<u64> {}
impl<K: Key + Into<u64>> Number for K {}

/// A number under another name: the code of the crate's queue is compiled for it once more, and stands elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Twin(u64);

impl Key for Twin {
    fn nth(n: u64) -> Self {
        Self(n)
    }
}

impl From<Twin> for u64 {
    #[inline]
    fn from(key: Twin) -> Self {
        key.0
    }
}

#[inline]
fn number<K: Number>(key: &K) -> u64 {
    key.clone().into()
}

subject!([K: Number, const LEVELS: bool, const N: u64, const LIMIT: u32] Old<K, LEVELS, N, LIMIT>, K, {
    let builder = WorkQueue::builder();
    let builder = if N > 0 { builder.fair_by(|key| number::<K>(key) % N) } else { builder };
    if LIMIT > 0 { builder.max_processing_per_group(LIMIT as usize).build() } else { builder.build() }
}, |queue, key| if LEVELS {
    let priority = Priority(priority_of(number(&key)));
    queue.add_with(key, AddOptions::new().priority(priority));
} else {
    queue.add(key);
});

subject!([const LEVELS: bool, const N: u64, const LIMIT: u32] New<LEVELS, N, LIMIT>, u64, {
    let limit = (LIMIT > 0).then_some(LIMIT);
    if N > 0 { Queue::fair_by_with_limit(limit, |key| key % N) } else { Queue::plain() }
}, |queue, key| if LEVELS { queue.add_at(key, priority_of(key)) } else { queue.add(key) });

impl<K: Number> Prioritized<K> for Old<K, true, 0, 0> {
    #[inline]
    fn add_at(&self, key: K, priority: i8) {
        self.0.add_with(key, AddOptions::new().priority(Priority(priority)));
    }
}

impl Prioritized<u64> for New<true, 0, 0> {
    #[inline]
    fn add_at(&self, key: u64, priority: i8) {
        self.0.add_at(key, priority);
    }
}
