//! Queues of parts that are said to be lock-free. Each key is stored twice.
//!
//! * [`DashSeg`]: the design that comes to mind first for speed, a concurrent map of states and a lock-free queue. Each key is hashed four
//!   times a cycle.
//! * [`Papaya`]: a map whose reads and writes take no lock, a state word for each key, which changes by compare-and-swap, and the same
//!   lock-free queue. Only its getters that wait take a lock.
//! * [`Scc`]: the same steps with a map that is made for writes. It locks a bucket of 32 keys for a moment: shared to find a node,
//!   exclusive to insert or to remove one. (With an exclusive lock in each add, p99.9 of an add was 3 to 4 ms with 32 threads, and a ring
//!   of 16 threads took 190 to 410 ns a turn in place of 36.) A new key has one allocation, its node.

use crate::floors::Line;
use crate::{Key, Subject};
use ahash::RandomState;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use scc::hash_map::Entry as SccEntry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A concurrent map of states and a lock-free queue.
pub struct DashSeg<K> {
    states: DashMap<K, State, RandomState>,
    line: Line<K>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Queued,
    Processing,
    Again,
}

impl<K: Key> Subject<K> for DashSeg<K> {
    const NAME: &'static str = "DashMap + SegQueue";

    fn make() -> Self {
        Self { states: DashMap::default(), line: Line::default() }
    }

    #[inline]
    fn add(&self, key: K) {
        if self.line.is_shutting_down() {
            return;
        }
        let push = match self.states.entry(key) {
            Entry::Occupied(mut state) => {
                if *state.get() == State::Processing {
                    state.insert(State::Again);
                }
                None
            }
            Entry::Vacant(vacant) => {
                let key = vacant.key().clone();
                vacant.insert(State::Queued);
                Some(key)
            }
        };
        if let Some(key) = push {
            self.line.push(key);
        }
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        let Some(key) = self.line.pop() else { return false };
        *self.states.get_mut(&key).expect("queued") = State::Processing;
        work(self, &key);
        if let Entry::Occupied(mut state) = self.states.entry(key) {
            if *state.get() == State::Again {
                state.insert(State::Queued);
                let key = state.key().clone();
                drop(state);
                self.line.push(key);
            } else {
                state.remove();
            }
        }
        true
    }

    fn shut_down(&self) {
        self.line.shut_down();
    }
}

/// A lock-free map, a state word for each key, and a lock-free queue.
pub type Papaya<K> = Lockless<K, papaya::HashMap<K, Arc<Node<K>>, RandomState>>;

/// The same, of a map with a lock for each bucket.
pub type Scc<K> = Lockless<K, scc::HashMap<K, Arc<Node<K>>, RandomState>>;

pub struct Lockless<K, M> {
    nodes: M,
    line: Line<Arc<Node<K>>>,
}

pub struct Node<K> {
    key: K,
    state: AtomicU8,
}

const QUEUED: u8 = 0;
const PROCESSING: u8 = 1;
const AGAIN: u8 = 2;
/// Done: the node is being removed from the map.
const GONE: u8 = 3;

impl<K: Key> Node<K> {
    fn new(key: &K) -> Arc<Self> {
        Arc::new(Self { key: key.clone(), state: AtomicU8::new(QUEUED) })
    }

    #[inline]
    fn step(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns `false` if the node is of no more use to an add of its key.
    #[inline]
    fn is_queued_again(&self) -> bool {
        loop {
            match self.state.load(Ordering::Acquire) {
                PROCESSING if !self.step(PROCESSING, AGAIN) => {}
                state => return state != GONE,
            }
        }
    }
}

/// A map of nodes.
pub trait Nodes<K>: Default + Send + Sync + 'static {
    const NAME: &'static str;

    /// An add. Returns the node if it is new.
    fn add(&self, key: K) -> Option<Arc<Node<K>>>;

    /// Removes the node, unless another one is in its place.
    fn remove(&self, node: &Arc<Node<K>>);
}

impl<K: Key> Nodes<K> for papaya::HashMap<K, Arc<Node<K>>, RandomState> {
    const NAME: &'static str = "papaya + SegQueue";

    #[inline]
    fn add(&self, key: K) -> Option<Arc<Node<K>>> {
        let nodes = self.pin();
        loop {
            match nodes.get(&key) {
                Some(node) if node.is_queued_again() => return None,
                Some(node) => _ = nodes.remove_if(&key, |_, found| Arc::ptr_eq(found, node)),
                None => {
                    let node = Node::new(&key);
                    if nodes.try_insert(key.clone(), Arc::clone(&node)).is_ok() {
                        return Some(node);
                    }
                }
            }
        }
    }

    #[inline]
    fn remove(&self, node: &Arc<Node<K>>) {
        _ = self.pin().remove_if(&node.key, |_, found| Arc::ptr_eq(found, node));
    }
}

impl<K: Key> Nodes<K> for scc::HashMap<K, Arc<Node<K>>, RandomState> {
    const NAME: &'static str = "scc + SegQueue";

    #[inline]
    fn add(&self, key: K) -> Option<Arc<Node<K>>> {
        // A shared lock of the bucket is enough for a key that is there.
        if self.read_sync(&key, |_, node| node.is_queued_again()) == Some(true) {
            return None;
        }
        match self.entry_sync(key) {
            SccEntry::Vacant(entry) => {
                let node = Node::new(entry.key());
                entry.insert_entry(Arc::clone(&node));
                Some(node)
            }
            SccEntry::Occupied(entry) if entry.get().is_queued_again() => None,
            // The thread that is done with the key finds another node in its place.
            SccEntry::Occupied(mut entry) => {
                let node = Node::new(entry.key());
                *entry.get_mut() = Arc::clone(&node);
                Some(node)
            }
        }
    }

    #[inline]
    fn remove(&self, node: &Arc<Node<K>>) {
        _ = self.remove_if_sync(&node.key, |found| Arc::ptr_eq(found, node));
    }
}

impl<K: Key, M: Nodes<K>> Subject<K> for Lockless<K, M> {
    const NAME: &'static str = M::NAME;

    fn make() -> Self {
        Self { nodes: M::default(), line: Line::default() }
    }

    #[inline]
    fn add(&self, key: K) {
        if !self.line.is_shutting_down()
            && let Some(node) = self.nodes.add(key)
        {
            self.line.push(node);
        }
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &K)) -> bool {
        let Some(node) = self.line.pop() else { return false };
        node.state.store(PROCESSING, Ordering::Release);
        work(self, &node.key);
        if node.step(PROCESSING, GONE) {
            self.nodes.remove(&node);
        } else {
            node.state.store(QUEUED, Ordering::Release);
            self.line.push(node);
        }
        true
    }

    fn shut_down(&self) {
        self.line.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::check::no_add_is_lost;

    #[test]
    fn a_rival_loses_no_add_that_meets_a_get_or_a_done() {
        fn check<Q: Subject<u64>>() {
            let (queue, mut again) = (Q::make(), 0);
            queue.add(7);
            queue.process(|queue, &key| queue.add(key));
            queue.shut_down();
            while queue.process(|_, _| again += 1) {}
            assert_eq!(again, 1, "{}: an add of a key that is processing", Q::NAME);
            (0..20).for_each(|_| no_add_is_lost::<Q>());
        }
        check::<DashSeg<u64>>();
        check::<Papaya<u64>>();
        check::<Scc<u64>>();
    }
}
