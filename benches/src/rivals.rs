//! [`DashSeg`]: the design that comes to mind first for speed, a concurrent map of states and a lock-free queue. Each key is stored twice
//! and hashed four times a cycle. It shows the cost of those two crates on the hot path.

use crate::floors::Line;
use crate::{Key, Subject};
use ahash::RandomState;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

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
