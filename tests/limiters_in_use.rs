//! How a queue and the combined limiters use the limiters that they are given, and how backoffs and stops behave in use.

use keyqueue::WorkQueue;
use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, MaxOf, RateLimiter, WithMaxWait};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Counts the calls of `shrink_to_fit`.
#[derive(Clone, Default)]
struct Shrinks(Arc<AtomicUsize>);

impl RateLimiter<u8> for Shrinks {
    fn when(&self, _: &u8) -> Duration {
        SECOND
    }

    fn forget(&self, _: &u8) {}

    fn num_requeues(&self, _: &u8) -> usize {
        0
    }

    fn shrink_to_fit(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn combined_limiters_pass_shrink_to_fit_on() {
    let shrinks = Shrinks::default();
    let both = MaxOf::new(vec![Box::new(shrinks.clone()), Box::new(shrinks.clone()), Box::new(Bucket::new(1.0, 1))]);
    WithMaxWait::new(both, SECOND).shrink_to_fit();
    assert_eq!(shrinks.0.load(Ordering::Relaxed), 2);
}

/// The queue itself counts failures for a plain backoff, beside its keys, and reports the number of failing keys.
#[test]
fn a_queue_counts_for_a_plain_limiter() {
    fn failing(limiter: impl RateLimiter<u8> + 'static) -> usize {
        let queue = WorkQueue::builder().rate_limiter(limiter).build();
        queue.add(1);
        queue.get().unwrap().retry();
        assert_eq!(queue.num_requeues(&1), 1);
        queue.stats().failing
    }
    let plain = || ItemExponentialFailure::new(SECOND, 60 * SECOND);
    assert_eq!(failing(plain()), 1);
    let boxed: Box<dyn RateLimiter<u8>> = Box::new(plain());
    assert_eq!(failing(boxed), 1, "a box has no other user");
    assert_eq!(failing(Arc::new(plain())), 0, "an `Arc` may have other users");
    assert_eq!(failing(plain().max_tracked(100)), 0, "a limiter with settings counts by itself");
}
