//! What a user would write by hand: a mutex around what is known of the keys, and a collection that says which key comes next.
//!
//! What is known is a map of states ([`MapOfStates`]), one look-up a call; or, in client-go's form, two sets of keys ([`Sets`]), two look-ups.

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
    type Place: Copy + Send;

    fn push(&mut self, key: u64, priority: i8) -> Self::Place;

    fn pop(&mut self) -> Option<u64>;

    /// The key, which is queued, is added with a priority.
    fn raise(&mut self, _key: u64, place: Self::Place, _priority: i8) -> Self::Place {
        place
    }

    /// The processing of a key has ended. Returns whether another one may be taken instead.
    fn ended(&mut self, _key: u64) -> bool {
        false
    }
}

/// What is known of the keys that are queued or processing.
pub trait States<O: Order>: Default + Send + 'static {
    /// Returns whether the key was not queued, and is now.
    fn add(&mut self, order: &mut O, key: u64, priority: i8) -> bool;

    /// The key is processing from now on.
    fn taken(&mut self, key: u64);

    /// Returns whether the key is queued again.
    fn done(&mut self, order: &mut O, key: u64) -> bool;
}

/// The queue.
pub struct ByHand<O, S> {
    inner: Mutex<Inner<O, S>>,
    wakeup: Condvar,
}

#[derive(Default)]
struct Inner<O, S> {
    states: S,
    order: O,
    shut_down: bool,
}

impl<O: Order, S: States<O>> Prioritized<u64> for ByHand<O, S> {
    #[inline]
    fn add_at(&self, key: u64, priority: i8) {
        let mut guard = self.inner.lock();
        let Inner { states, order, shut_down } = &mut *guard;
        if !*shut_down && states.add(order, key, priority) {
            drop(guard);
            self.wakeup.notify_one();
        }
    }
}

impl<O: Order, S: States<O>> Subject<u64> for ByHand<O, S> {
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
                    inner.states.taken(key);
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
        let Inner { states, order, .. } = &mut *guard;
        let is_again = states.done(order, key);
        if order.ended(key) | is_again {
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

pub struct MapOfStates<P>(HashMap<u64, State<P>, RandomState>);

#[derive(Clone, Copy)]
enum State<P> {
    Queued(P),
    Processing,
    /// Processing, and added again with this priority.
    Again(i8),
}

impl<P> Default for MapOfStates<P> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<O: Order> States<O> for MapOfStates<O::Place>
where
    O::Place: 'static,
{
    #[inline]
    fn add(&mut self, order: &mut O, key: u64, priority: i8) -> bool {
        match self.0.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(State::Queued(order.push(key, priority)));
                true
            }
            Entry::Occupied(mut entry) => {
                let state = entry.get_mut();
                *state = match *state {
                    State::Queued(place) => State::Queued(order.raise(key, place, priority)),
                    State::Processing => State::Again(priority),
                    State::Again(before) => State::Again(before.max(priority)),
                };
                false
            }
        }
    }

    #[inline]
    fn taken(&mut self, key: u64) {
        *self.0.get_mut(&key).expect("a queued key is known") = State::Processing;
    }

    #[inline]
    fn done(&mut self, order: &mut O, key: u64) -> bool {
        let Entry::Occupied(mut entry) = self.0.entry(key) else { unreachable!("a processing key is known") };
        let State::Again(priority) = *entry.get() else {
            entry.remove();
            return false;
        };
        *entry.get_mut() = State::Queued(order.push(key, priority));
        true
    }
}

/// Where a dirty key is queued; or, if it is processing, the priority of its add.
pub struct Sets<P> {
    dirty: HashMap<u64, Result<P, i8>, RandomState>,
    processing: HashSet<u64, RandomState>,
}

impl<P> Default for Sets<P> {
    fn default() -> Self {
        Self { dirty: HashMap::default(), processing: HashSet::default() }
    }
}

impl<O: Order> States<O> for Sets<O::Place>
where
    O::Place: 'static,
{
    #[inline]
    fn add(&mut self, order: &mut O, key: u64, priority: i8) -> bool {
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

    #[inline]
    fn taken(&mut self, key: u64) {
        self.dirty.remove(&key);
        self.processing.insert(key);
    }

    #[inline]
    fn done(&mut self, order: &mut O, key: u64) -> bool {
        self.processing.remove(&key);
        let Some(dirty) = self.dirty.get_mut(&key) else { return false };
        if let Err(priority) = *dirty {
            *dirty = Ok(order.push(key, priority));
        }
        true
    }
}

impl Order for VecDeque<u64> {
    const NAME: &'static str = "VecDeque";
    type Place = ();

    #[inline]
    fn push(&mut self, key: u64, _priority: i8) {
        self.push_back(key);
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.pop_front()
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

/// Groups that take turns. A group is in the ring while it has queued keys, and not as many processing as the limit (0: none) says. It is
/// known while it has queued keys; with a limit, while it has keys.
#[derive(Default)]
pub struct Turns<const N: u64, const LIMIT: u32> {
    groups: HashMap<u64, Lane, RandomState>,
    ring: VecDeque<u64>,
}

#[derive(Default)]
struct Lane {
    keys: VecDeque<u64>,
    /// With a limit.
    processing: u32,
}

impl<const N: u64, const LIMIT: u32> Order for Turns<N, LIMIT> {
    const NAME: &'static str = if N == 100 { "VecDeques, 100 groups" } else { "VecDeques" };
    type Place = ();

    fn push(&mut self, key: u64, _priority: i8) {
        let lane = self.groups.entry(key % N).or_default();
        lane.keys.push_back(key);
        if lane.keys.len() == 1 && (LIMIT == 0 || lane.processing < LIMIT) {
            self.ring.push_back(key % N);
        }
    }

    fn pop(&mut self) -> Option<u64> {
        let group = self.ring.pop_front()?;
        let Entry::Occupied(mut entry) = self.groups.entry(group) else { unreachable!("a group in the ring has keys") };
        let lane = entry.get_mut();
        let key = lane.keys.pop_front();
        lane.processing += u32::from(LIMIT > 0);
        if !lane.keys.is_empty() {
            if LIMIT == 0 || lane.processing < LIMIT {
                self.ring.push_back(group);
            }
        } else if LIMIT == 0 {
            entry.remove();
        }
        key
    }

    fn ended(&mut self, key: u64) -> bool {
        if LIMIT == 0 {
            return false;
        }
        let Entry::Occupied(mut entry) = self.groups.entry(key % N) else { unreachable!("its group is known") };
        let lane = entry.get_mut();
        lane.processing -= 1;
        let is_listed_again = lane.processing + 1 == LIMIT && !lane.keys.is_empty();
        if is_listed_again {
            self.ring.push_back(key % N);
        } else if lane.processing == 0 && lane.keys.is_empty() {
            entry.remove();
        }
        is_listed_again
    }
}
