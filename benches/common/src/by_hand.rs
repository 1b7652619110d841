//! What a user would write by hand: a mutex around client-go's two sets, and a collection that says which key comes next.

use crate::{Prioritized, Subject};
use ahash::RandomState;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// The priority of a key, where there are some.
#[inline]
pub fn priority_of(key: u64) -> i8 {
    [-100, 0, 100][key as usize % 3]
}

/// Which queued key comes next.
pub trait Order: Default + Send + 'static {
    const NAME: &'static str;

    /// Where a queued key is.
    type Place: Copy + Default + Send + 'static;

    fn push(&mut self, key: u64, priority: i8) -> Self::Place;

    fn pop(&mut self) -> Option<u64>;

    /// The key, which is queued, is added with a priority.
    fn raise(&mut self, _key: u64, place: Self::Place, _priority: i8) -> Self::Place {
        place
    }
}

/// The queue.
pub struct ByHand<O: Order> {
    inner: Mutex<Inner<O>>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Inner<O: Order> {
    sets: Sets<O::Place>,
    order: O,
    shut_down: bool,
}

impl<O: Order> Prioritized<u64> for ByHand<O> {
    #[inline]
    fn add_at(&self, key: u64, priority: i8) {
        let mut guard = self.inner.lock();
        let Inner { sets, order, shut_down } = &mut *guard;
        if !*shut_down && sets.add(order, key, priority) {
            drop(guard);
            self.wakeup.notify_one();
        }
    }
}

impl<O: Order> Subject<u64> for ByHand<O> {
    const NAME: &'static str = O::NAME;

    fn make() -> Self {
        Self { inner: Mutex::default(), wakeup: Condvar::new() }
    }

    #[inline]
    fn add(&self, key: u64) {
        self.add_at(key, priority_of(key));
    }

    #[inline]
    fn process(&self, work: impl FnOnce(&Self, &u64)) -> bool {
        let key = {
            let mut inner = self.inner.lock();
            loop {
                if let Some(key) = inner.order.pop() {
                    inner.sets.taken(key);
                    break key;
                }
                if inner.shut_down {
                    return false;
                }
                self.wakeup.wait(&mut inner);
            }
        };
        work(self, &key);
        let mut guard = self.inner.lock();
        let Inner { sets, order, .. } = &mut *guard;
        if sets.done(order, key) {
            drop(guard);
            self.wakeup.notify_one();
        }
        true
    }

    fn shut_down(&self) {
        self.inner.lock().shut_down = true;
        self.wakeup.notify_all();
    }
}

/// client-go's two sets. Of a dirty key, where it is queued; or, if it is processing, the priority of its add.
#[derive(Default)]
struct Sets<P> {
    dirty: HashMap<u64, Result<P, i8>, RandomState>,
    processing: HashSet<u64, RandomState>,
}

impl<P: Copy> Sets<P> {
    /// Returns whether the key was not queued, and is now.
    #[inline]
    fn add(&mut self, order: &mut impl Order<Place = P>, key: u64, priority: i8) -> bool {
        match self.dirty.entry(key) {
            Entry::Vacant(entry) => {
                let is_processing = self.processing.contains(&key);
                entry.insert(if is_processing { Err(priority) } else { Ok(order.push(key, priority)) });
                !is_processing
            }
            Entry::Occupied(mut entry) => {
                let dirty = entry.get_mut();
                *dirty = match *dirty {
                    Ok(place) => Ok(order.raise(key, place, priority)),
                    Err(before) => Err(before.max(priority)),
                };
                false
            }
        }
    }

    /// The key is processing from now on.
    #[inline]
    fn taken(&mut self, key: u64) {
        self.dirty.remove(&key);
        self.processing.insert(key);
    }

    /// Returns whether the key is queued again.
    #[inline]
    fn done(&mut self, order: &mut impl Order<Place = P>, key: u64) -> bool {
        self.processing.remove(&key);
        let Some(dirty) = self.dirty.get_mut(&key) else { return false };
        if let Err(priority) = *dirty {
            *dirty = Ok(order.push(key, priority));
        }
        true
    }
}

/// By priority, and by the order of the pushes.
#[derive(Default)]
pub struct Sorted {
    keys: BTreeMap<(Reverse<i8>, u64), u64>,
    pushes: u64,
}

impl Order for Sorted {
    const NAME: &'static str = "BTreeMap";
    type Place = (i8, u64);

    fn push(&mut self, key: u64, priority: i8) -> (i8, u64) {
        self.pushes += 1;
        self.keys.insert((Reverse(priority), self.pushes), key);
        (priority, self.pushes)
    }

    fn pop(&mut self) -> Option<u64> {
        Some(self.keys.pop_first()?.1)
    }

    fn raise(&mut self, key: u64, (before, push): (i8, u64), priority: i8) -> (i8, u64) {
        if priority <= before {
            return (before, push);
        }
        self.keys.remove(&(Reverse(before), push));
        self.push(key, priority)
    }
}

/// Groups that take turns. A group is in the ring, and is known, while it has queued keys.
#[derive(Default)]
pub struct Turns<const N: u64> {
    groups: HashMap<u64, VecDeque<u64>, RandomState>,
    ring: VecDeque<u64>,
}

impl<const N: u64> Order for Turns<N> {
    const NAME: &'static str = if N == 100 { "VecDeques, 100 groups" } else { "VecDeques" };
    type Place = ();

    fn push(&mut self, key: u64, _priority: i8) {
        let keys = self.groups.entry(key % N).or_default();
        keys.push_back(key);
        if keys.len() == 1 {
            self.ring.push_back(key % N);
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let group = self.ring.pop_front()?;
        let Entry::Occupied(mut entry) = self.groups.entry(group) else { unreachable!("a group in the ring has keys") };
        let key = entry.get_mut().pop_front();
        if entry.get().is_empty() {
            entry.remove();
        } else {
            self.ring.push_back(group);
        }
        key
    }
}
