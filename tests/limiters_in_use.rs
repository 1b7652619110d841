//! How a queue and the combined limiters use the limiters that they are given, and how backoffs and stops behave in use.

use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step, WithMaxWait,
    default_controller_rate_limiter,
};
use keyqueue::{Clock, Driver, WorkQueue};
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

/// A queue hands its seed to a limiter that it owns, and the combined ones hand it on.
#[test]
fn combined_limiters_pass_a_seed_on() {
    let delays = |limiter: &mut dyn RateLimiter<u8>, seed| {
        limiter.reseed(seed);
        [1; 8].map(|key| limiter.when(&key))
    };
    let jittered = || ItemExponentialFailure::new(SECOND, 1000 * SECOND).jitter(1.0);
    let max = || WithMaxWait::new(jittered(), Duration::MAX);
    let both = || MaxOf::new(vec![Box::new(jittered()), Box::new(jittered())]);
    assert_eq!(delays(&mut max(), 1), delays(&mut max(), 1));
    assert_eq!(delays(&mut both(), 1), delays(&mut both(), 1));
    assert_ne!(delays(&mut both(), 1), delays(&mut both(), 2));
}

/// A seed chooses the hashes too, so limiters with the same seed forget the same keys.
#[test]
fn a_seed_says_which_keys_are_forgotten() {
    let bounded = || {
        let mut limiter = ItemExponentialFailure::new(SECOND, SECOND).max_tracked(2000);
        RateLimiter::<u32>::reseed(&mut limiter, 1);
        (0..10_000).for_each(|key| _ = limiter.when(&key));
        (0..10_000).filter(|key| limiter.num_requeues(key) > 0).collect::<Vec<_>>()
    };
    assert_eq!(bounded(), bounded());
    let deduping = || {
        let (clock, time) = Clock::mock();
        let mut limiter = DedupingBucket::new(Bucket::with_clock(1e6, 1, clock));
        RateLimiter::<u32>::reseed(&mut limiter, 1);
        let step = |key| {
            time.advance(Duration::from_micros(1));
            limiter.when(&key);
            limiter.tracked_len()
        };
        (0..100_000).map(step).filter(|len| len % 64 == 0).collect::<Vec<_>>()
    };
    assert_eq!(deduping(), deduping());
}

/// A bucket counts no failures, and of several limiters the one with the most failures counts.
#[test]
fn combined_limiters_have_the_largest_count() {
    let bucket = Bucket::new(1.0, 1);
    assert_eq!(RateLimiter::<u8>::num_requeues(&bucket, &1), 0);
    let both = MaxOf::new(vec![Box::new(bucket), Box::new(ItemExponentialFailure::new(SECOND, SECOND))]);
    (0..3).for_each(|_| _ = both.when(&1));
    assert_eq!(WithMaxWait::new(both, SECOND).num_requeues(&1), 3);
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
    let shared = Arc::new(plain());
    assert_eq!((failing(Arc::clone(&shared)), shared.tracked_len()), (1, 1), "an `Arc` may have other users");
    let shared = Arc::new(plain().max_tracked(100));
    assert_eq!((failing(Arc::clone(&shared)), shared.tracked_len()), (1, 1), "it counts by itself");
}

/// Whatever its settings, so that a dashboard sees keys that fail.
#[test]
fn the_failing_keys_of_each_limiter_of_the_crate_are_counted() {
    let [base, max] = [1, 60].map(Duration::from_secs);
    let backoff = || ItemExponentialFailure::<u32>::new(base, max);
    let limiters: Vec<(&str, Box<dyn RateLimiter<u32>>)> = vec![
        ("plain", Box::new(backoff())),
        ("jitter", Box::new(backoff().jitter(0.5))),
        ("served_only", Box::new(backoff().served_only())),
        ("max_tracked", Box::new(backoff().max_tracked(1000))),
        ("retain_recent", Box::new(backoff().retain_recent(max))),
        ("fast and slow, jitter", Box::new(ItemFastSlow::new(base, max, 3).jitter(0.5))),
        ("step, jitter", Box::new(Step::new([(0, base), (3, max)]).jitter(0.5))),
        ("WithMaxWait", Box::new(WithMaxWait::new(backoff(), base))),
        ("MaxOf", Box::new(default_controller_rate_limiter())),
        ("Arc", Box::new(Arc::new(backoff()))),
    ];
    for (name, limiter) in limiters {
        let queue = WorkQueue::builder().rate_limiter(limiter).driver(Driver::Manual).build();
        queue.add_all(0..10_u32);
        queue.get_many(10).into_iter().for_each(|item| _ = item.retry());
        assert_eq!((queue.stats().failing, queue.inspect().metrics().stats.failing), (10, 10), "{name}");
        (0..4).for_each(|key| queue.forget(&key));
        assert_eq!(queue.stats().failing, 6, "{name}");
    }
}
