//! Queues whose keys fail: the crate's own, and each delayed rival with a limiter.

use super::Retry;
use crate::delays::Manual;
use common::limiter::{BASE, Limiter, MAX, ParkingLotLimiter};
use keyqueue::rate_limiter::ItemExponentialFailure;
use keyqueue::{Clock, Driver, MockClock, WorkQueue};
use std::time::Duration;

/// keyqueue without its thread, on a mock clock.
pub struct RetryOurs {
    queue: WorkQueue<u64>,
    clock: MockClock,
}

/// A delayed rival with the mutex limiter.
pub struct RetryRival<Q> {
    queue: Q,
    limiter: ParkingLotLimiter<u64>,
}

impl Retry for RetryOurs {
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

    fn advance(&mut self, by: Duration) -> usize {
        self.clock.advance(by);
        self.queue.turn()
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&u64) -> bool) {
        let item = self.queue.try_get().expect("a key is queued");
        if work(&item) {
            item.succeed();
        } else {
            item.retry();
        }
    }
}

impl<Q: Manual> Retry for RetryRival<Q> {
    fn make() -> Self {
        Self { queue: Q::make(), limiter: Limiter::make() }
    }

    #[inline]
    fn add(&mut self, key: u64) {
        self.queue.add(key);
    }

    fn advance(&mut self, by: Duration) -> usize {
        self.queue.advance(by)
    }

    /// Sets the delay after `done`. With several threads it would be set before; the steps are the same.
    #[inline]
    fn process(&mut self, work: impl FnOnce(&u64) -> bool) {
        let (limiter, mut again) = (&self.limiter, None);
        self.queue.process(|key| {
            if work(key) {
                limiter.forget(key);
            } else {
                again = Some((*key, limiter.when(key)));
            }
        });
        if let Some((key, delay)) = again {
            self.queue.add_after(key, delay);
        }
    }
}
