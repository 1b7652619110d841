//! A queue that is evidently right: client-go's two sets and one list, for one thread.
//!
//! It is the oracle of the replays: it returns whatever the crate returns to a single thread. The names of the fields and the
//! order of the statements are those of client-go's `queue.go`, so that the two can be read side by side.

#![allow(dead_code, reason = "every test binary uses its part of it")]

use keyqueue::Added;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Reference<K> {
    queue: VecDeque<K>,
    /// The crate's queue has several shards, and may hand out any queued key: see [`get_like`](Self::get_like).
    any_order: bool,
    dirty: HashSet<K>,
    processing: HashSet<K>,
    shutting_down: bool,
    pub(crate) counts: Counts,
    /// The clock, in nanoseconds.
    pub(crate) now: u64,
    /// When a key became dirty.
    dirty_since: HashMap<K, u64>,
    /// The keys that are processing, in the order of their hand-outs: with the time of the hand-out, and the queue time.
    pub(crate) processing_since: Vec<(K, u64, u64)>,
    /// The number of queue times, and their sum. The same of processing times in `worked`.
    pub(crate) waited: (u64, u128),
    pub(crate) worked: (u64, u128),
}

/// What [`keyqueue::Stats`] counts.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) pushed: u64,
    pub(crate) coalesced: u64,
    pub(crate) deferred: u64,
    pub(crate) rejected: u64,
    pub(crate) handed_out: u64,
    pub(crate) taken: u64,
}

impl<K: Hash + Eq + Clone> Reference<K> {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            any_order: false,
            dirty: HashSet::new(),
            processing: HashSet::new(),
            shutting_down: false,
            counts: Counts::default(),
            now: 0,
            dirty_since: HashMap::new(),
            processing_since: Vec::new(),
            waited: (0, 0),
            worked: (0, 0),
        }
    }

    /// The keys are in several shards of the crate's queue.
    pub(crate) fn in_any_order(self) -> Self {
        Self { any_order: true, ..self }
    }

    pub(crate) fn is_in_any_order(&self) -> bool {
        self.any_order
    }

    pub(crate) fn add(&mut self, key: K) -> Added {
        if self.shutting_down {
            self.counts.rejected += 1;
            return Added::Rejected;
        }
        if !self.dirty.insert(key.clone()) {
            self.counts.coalesced += 1;
            return Added::Coalesced;
        }
        self.dirty_since.insert(key.clone(), self.now);
        if self.processing.contains(&key) {
            self.counts.deferred += 1;
            return Added::Deferred;
        }
        self.queue.push_back(key);
        self.counts.pushed += 1;
        Added::Queued
    }

    /// Never waits: `None` if no key is queued, shut down or not.
    pub(crate) fn get(&mut self) -> Option<K> {
        let key = self.queue.pop_front()?;
        self.processing.insert(key.clone());
        self.dirty.remove(&key);
        self.counts.handed_out += 1;
        let waited = self.now - self.dirty_since.remove(&key).expect("it was dirty");
        self.waited = (self.waited.0 + 1, self.waited.1 + u128::from(waited));
        self.processing_since.push((key.clone(), self.now, waited));
        Some(key)
    }

    /// [`get`](Self::get), after the crate has handed out `handed_out`, or nothing. With several shards it may be any queued key.
    pub(crate) fn get_like(&mut self, handed_out: Option<&K>) -> Option<K> {
        if self.any_order {
            let at = self.queue.iter().position(|queued| Some(queued) == handed_out);
            let key = at.and_then(|at| self.queue.remove(at));
            key.into_iter().for_each(|key| self.queue.push_front(key));
        }
        self.get()
    }

    pub(crate) fn done(&mut self, key: &K) {
        assert!(self.processing.remove(key), "only a key that is processing can be done");
        let at = self.processing_since.iter().position(|(held, ..)| held == key).expect("both have the same keys");
        let (_, taken, _) = self.processing_since.remove(at);
        self.worked = (self.worked.0 + 1, self.worked.1 + u128::from(self.now - taken));
        if self.dirty.contains(key) {
            self.queue.push_back(key.clone());
        }
    }

    /// The queued keys that match, and those that match and are processing, which stay.
    pub(crate) fn take_where(&mut self, matches: impl Fn(&K) -> bool) -> (Vec<K>, Vec<K>) {
        let (taken, rest): (Vec<_>, Vec<_>) = self.queue.drain(..).partition(|key| matches(key));
        self.queue = rest.into();
        for key in &taken {
            self.dirty.remove(key);
            self.dirty_since.remove(key);
        }
        self.counts.taken += taken.len() as u64;
        (taken, self.processing.iter().filter(|key| matches(key)).cloned().collect())
    }

    /// Takes back what makes the key dirty: client-go has no such call.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let was_dirty = self.dirty.remove(key);
        if was_dirty {
            self.queue.retain(|queued| queued != key);
            self.dirty_since.remove(key);
            self.counts.taken += 1;
        }
        was_dirty
    }

    pub(crate) fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    pub(crate) fn shutting_down(&self) -> bool {
        self.shutting_down
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn processing_len(&self) -> usize {
        self.processing.len()
    }

    pub(crate) fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains(key)
    }

    /// How long the first queued key has waited: a range. With several shards it is the first of any shard. `None`: no key is queued.
    pub(crate) fn oldest_queued(&self) -> Option<std::ops::RangeInclusive<u64>> {
        let waited = |key: &K| self.now - self.dirty_since[key];
        let (first, longest) = (self.queue.front().map(waited)?, self.queue.iter().map(waited).max()?);
        Some(first..=if self.any_order { longest } else { first })
    }
}
