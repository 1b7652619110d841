//! keyqueue as a subject with delays.

use super::{DelaySubject, Manual};
use crate::{Ours, Subject};
use common::limiter::{BASE, MAX};
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{Clock, Driver, MockClock, WorkQueue};
use std::time::Duration;

impl DelaySubject for Ours<u64> {
    #[inline]
    fn add_after(&self, key: u64, delay: Duration) {
        self.0.add_after(key, delay);
    }

    fn settle(&self) -> usize {
        self.0.delayed_len()
    }
}

/// keyqueue without its thread, on a mock clock.
pub struct ManualOurs {
    queue: WorkQueue<u64>,
    clock: MockClock,
}

impl Manual for ManualOurs {
    const NAME: &'static str = <Ours<u64> as Subject<u64>>::NAME;

    fn make() -> Self {
        let (clock, mock) = Clock::mock();
        let limiter = ItemExponentialFailure::new(BASE, MAX);
        let queue = WorkQueue::builder().driver(Driver::Manual).clock(clock).rate_limiter(limiter).build();
        Self { queue, clock: mock }
    }

    #[inline]
    fn add(&mut self, key: u64) {
        self.queue.add(key);
    }

    #[inline]
    fn add_after(&mut self, key: u64, delay: Duration) {
        self.queue.add_after(key, delay);
    }

    fn advance(&mut self, by: Duration) -> usize {
        self.clock.advance(by);
        self.queue.turn()
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&u64)) -> bool {
        self.queue.get().map(|item| work(&item)).is_some()
    }

    #[inline]
    fn process_or_retry(&mut self, work: impl FnOnce(&u64) -> bool) {
        let item = self.queue.try_get().expect("a key is queued");
        if work(&item) {
            item.succeed();
        } else {
            item.retry();
        }
    }

    #[inline]
    fn cancel(&mut self, key: &u64) -> bool {
        self.queue.cancel(key)
    }
}
