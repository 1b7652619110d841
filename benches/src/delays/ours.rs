//! keyqueue as a subject with delays.

use super::{Cancel, DelaySubject, Manual};
use crate::{Key, Ours, Subject};
use keyqueue::{Clock, Driver, MockClock, WorkQueue};
use std::time::Duration;

impl<K: Key> DelaySubject<K> for Ours<K> {
    #[inline]
    fn add_after(&self, key: K, delay: Duration) {
        self.0.add_after(key, delay);
    }

    fn settle(&self) -> Option<usize> {
        Some(self.0.delayed_len())
    }
}

/// keyqueue without its thread, on a mock clock.
pub struct ManualOurs<K> {
    queue: WorkQueue<K>,
    clock: MockClock,
}

impl<K: Key> Manual<K> for ManualOurs<K> {
    const NAME: &'static str = <Ours<K> as Subject<K>>::NAME;

    fn make() -> Self {
        let (clock, mock) = Clock::mock();
        Self { queue: WorkQueue::builder().driver(Driver::Manual).clock(clock).build(), clock: mock }
    }

    #[inline]
    fn add(&mut self, key: K) {
        self.queue.add(key);
    }

    #[inline]
    fn add_after(&mut self, key: K, delay: Duration) {
        self.queue.add_after(key, delay);
    }

    fn advance(&mut self, by: Duration) -> usize {
        self.clock.advance(by);
        self.queue.turn()
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&K)) -> bool {
        self.queue.get().map(|item| work(&item)).is_some()
    }
}

impl<K: Key> Cancel<K> for ManualOurs<K> {
    #[inline]
    fn cancel(&mut self, key: &K) -> bool {
        self.queue.cancel(key)
    }
}
