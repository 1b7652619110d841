//! What a queue and the limiters that are made of limiters do with those that they are given; and what goes with them.

use keyqueue::rate_limiter::{Bucket, ItemExponentialFailure, MaxOf, RateLimiter, Step, WithMaxWait};
use keyqueue::{Clock, WorkQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Counts how often it is to give back memory.
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
fn all_give_back_memory() {
    let shrinks = Shrinks::default();
    let both = MaxOf::new(vec![Box::new(shrinks.clone()), Box::new(shrinks.clone()), Box::new(Bucket::new(1.0, 1))]);
    WithMaxWait::new(both, SECOND).shrink_to_fit();
    assert_eq!(shrinks.0.load(Ordering::Relaxed), 2);
}

/// A plain backoff is the queue's own business: it counts the failures beside its keys, and says of how many keys it knows.
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
    assert_eq!(failing(plain().max_tracked(100)), 0, "what has settings counts for itself");
}

/// An age that is shorter than the longest delay counts as that, also if it is not the last of the table.
#[test]
fn a_table_forgets_nobody_who_waits() {
    let (clock, time) = Clock::mock();
    let step = Step::new([(0, 60 * SECOND), (1, SECOND)]).retain_recent(SECOND).clock(clock);
    step.when(&1);
    time.advance(59 * SECOND);
    assert_eq!(step.num_requeues(&1), 1);
    time.advance(61 * SECOND);
    assert_eq!(step.num_requeues(&1), 0);
}

#[cfg(feature = "jitter")]
mod backoff {
    use super::SECOND;
    use keyqueue::backoff::{Backoff, BackoffManager, Stop};

    #[test]
    fn a_series_says_how_long_it_is() {
        let backoff = Backoff { duration: SECOND, factor: 2.0, steps: 1, ..Backoff::default() };
        assert_eq!(BackoffManager::new(backoff.clone(), SECOND).size_hint(), (usize::MAX, None));
        let mut steps = backoff.into_iter();
        assert_eq!(steps.size_hint(), (1, Some(1)));
        steps.next();
        assert_eq!(steps.size_hint(), (0, Some(0)));
    }

    #[test]
    fn who_waits_for_a_stop_comes_back_after_it() {
        let stop = Stop::new();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                stop.wait();
                stop.is_stopped()
            });
            while !format!("{stop:?}").contains("waiters: 1") {
                assert!(!waits.is_finished(), "came back before");
                std::thread::yield_now();
            }
            stop.stop();
            assert!(waits.join().unwrap());
        });
    }
}
