//! Who counts the runs of a queue: each [`Workers`](crate::Workers) has counters of its own.

use super::Runs;
use crate::sync::next_id;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sums the runs that some counters have counted so far.
type Counter = Arc<dyn Fn() -> Runs + Send + Sync>;

/// The counters of one queue. The lock of the queue's hub guards them.
#[derive(Default, Clone)]
pub(crate) struct RunCounters {
    counters: BTreeMap<u64, Counter>,
    /// The runs of counters that were removed.
    removed: Runs,
}

impl RunCounters {
    /// Returns the number by which the counter is [removed](Self::remove).
    pub(crate) fn insert(&mut self, counter: impl Fn() -> Runs + Send + Sync + 'static) -> u64 {
        let number = next_id();
        self.counters.insert(number, Arc::new(counter));
        number
    }

    /// Ends a counter. What it has counted still counts.
    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(counter) = self.counters.remove(&number) {
            self.removed.add(counter());
        }
    }

    /// The sum. It is asked of a copy and not under the lock of the hub, because it visits each loop of all workers. No count ever
    /// decreases, because a counter that is removed meanwhile is still in the copy.
    pub(crate) fn sum(&self) -> Runs {
        let mut sum = self.removed;
        self.counters.values().for_each(|counter| sum.add(counter()));
        sum
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.counters.len()
    }
}
