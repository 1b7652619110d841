//! What a queue keeps in order to measure: the times of each key in its node, and histograms for each block of the tally.
//!
//! The times in a node are written by the thread that makes the key dirty, before its push, and by the holder.

use super::Free;
use crate::key::{NodeRef, NodeTimes};
use crate::machine::{Ages, Durations, MaybeNanos};
use crate::order::NORMAL;
use crate::sync::{Mutex, Ordering};
use crate::time::clock::Clock;
use crossbeam_utils::CachePadded;

/// What a queue that measures has.
pub(super) struct Times {
    clock: Clock,
    blocks: Box<[CachePadded<Mutex<Durations>>]>,
}

impl Times {
    pub(super) fn new(clock: Clock, blocks: usize) -> Self {
        Self { clock, blocks: (0..blocks).map(|_| CachePadded::new(Mutex::new(Durations::default()))).collect() }
    }
}

// Relaxed, here and below: the push and the pop order the times of a key, or only its holder has them. For other threads they are hints.
impl NodeTimes {
    fn since(&self, now: u64, then: u64) -> MaybeNanos {
        if then == Self::UNKNOWN { MaybeNanos::UNKNOWN } else { MaybeNanos::new(now.saturating_sub(then)) }
    }

    pub(crate) fn started_at(&self) -> Option<u64> {
        Some(self.started_at.load(Ordering::Relaxed)).filter(|at| *at != Self::UNKNOWN)
    }

    pub(crate) fn queued_at(&self) -> Option<u64> {
        Some(self.queued_at.load(Ordering::Relaxed)).filter(|at| *at != Self::UNKNOWN)
    }

    pub(crate) fn waited(&self) -> MaybeNanos {
        self.since(self.waited.load(Ordering::Relaxed), 0)
    }
}

impl<K> Free<K> {
    /// Called when a key becomes dirty, before its push.
    #[inline(always)]
    pub(super) fn note_dirty(&self, node: NodeRef<K>) {
        if let Some(times) = &self.times {
            let node = node.times().expect("the queue measures");
            node.queued_at.store(times.clock.now_coarse(), Ordering::Relaxed);
        }
    }

    /// The same, but before the step that makes the key dirty, after which its node may be gone.
    pub(super) fn note_dirty_soon(&self, node: NodeRef<K>) {
        if self.times.is_some() && !node.word().load().is_dirty() {
            self.note_dirty(node);
        }
    }

    /// Called when a key is handed out. Returns how long it was queued.
    pub(crate) fn note_start(&self, node: NodeRef<K>) -> MaybeNanos {
        let Some(times) = &self.times else { return MaybeNanos::UNKNOWN };
        let (node, now) = (node.times().expect("the queue measures"), times.clock.now_coarse());
        let queued_at = node.queued_at.swap(NodeTimes::UNKNOWN, Ordering::Relaxed);
        let waited = node.since(now, queued_at);
        let nanos = if queued_at == NodeTimes::UNKNOWN { NodeTimes::UNKNOWN } else { now.saturating_sub(queued_at) };
        node.waited.store(nanos, Ordering::Relaxed);
        node.started_at.store(now, Ordering::Relaxed);
        times.blocks[self.tally.mine().at].lock().note_waited(NORMAL, waited);
        waited
    }

    /// How long a key was processing. Called before the step that ends it, because afterwards the key may have another holder.
    pub(crate) fn worked(&self, node: NodeRef<K>) -> MaybeNanos {
        let Some(times) = &self.times else { return MaybeNanos::UNKNOWN };
        let node = node.times().expect("the queue measures");
        node.since(times.clock.now_coarse(), node.started_at.load(Ordering::Relaxed))
    }

    /// Called after that step.
    pub(crate) fn note_end(&self, worked: MaybeNanos) {
        if let Some(times) = &self.times {
            times.blocks[self.tally.mine().at].lock().note_worked(worked);
        }
    }

    /// Calls `each` with the histograms of each block.
    pub(crate) fn each_durations(&self, each: impl FnMut(&mut Durations)) {
        let blocks = self.times.iter().flat_map(|times| times.blocks.iter());
        let mut each = each;
        blocks.for_each(|block| each(&mut block.lock()));
    }

    /// The ages of the keys, by a walk over all of them, or `None` if the queue does not measure.
    pub(crate) fn ages(&self, now: u64) -> Option<Ages> {
        self.times.as_ref()?;
        let (mut ages, mut first) = (Ages::default(), None);
        self.map.each(|node| {
            let (bits, times) = (node.word().load(), node.times().expect("the queue measures"));
            if bits.is_processing() {
                let age = now.saturating_sub(times.started_at().unwrap_or(now));
                ages.unfinished_work = ages.unfinished_work.saturating_add(age);
                ages.longest_running = ages.longest_running.max(Some(age));
            } else if let Some(at) = times.queued_at().filter(|_| bits.is_dirty()) {
                // The first of the line. It need not be the oldest, because a key that comes back after its run became dirty earlier.
                first = first.into_iter().chain([(node.order(), at)]).min();
            }
        });
        ages.oldest_queued = first.map(|(_, at)| now.saturating_sub(at));
        Some(ages)
    }
}
