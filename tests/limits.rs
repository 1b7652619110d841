//! Limiters, by themselves and in a queue.
//!
//! * Invalid arguments are rejected with a message; extreme valid ones work as documented.
//! * A bucket admits no more than burst + rate * window, in any window (proptest, exact arithmetic), with real threads too.
//! * Threads: each `when` counts once, even if others call `forget` meanwhile; the bounds on tracked keys hold.
//! * A panic in a key's `Hash`, `Eq` or `Clone`, or in a user's limiter, leaves everything usable: no key is stuck.
//! * `retry`, `succeed` and `requeue_after` in every state of a key, and after a shut-down.
//! * Jitter stays in its bounds.
//!
//! No test but `a_bucket_admits_no_more_with_real_threads` waits for real time to pass.

use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step, WithMaxWait,
    default_controller_rate_limiter,
};
use keyqueue::{AddOptions, Added, Clock, DelayConflict, DelayedKey, Driver, MockClock, WorkQueue};
use num_bigint::BigUint;
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

/// The keys, and the times that were left.
fn pairs<K>(delayed: impl IntoIterator<Item = DelayedKey<K>>) -> Vec<(K, Duration)> {
    delayed.into_iter().map(|delayed| (delayed.key, delayed.left)).collect()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

// ---- arguments ----

/// Checks that `try_new` returns an error and `new` panics with the same text, and returns the text.
fn refused<T: Debug, E: std::error::Error>(try_new: Result<T, E>, new: impl FnOnce() -> T) -> String {
    let error = try_new.expect_err("the argument is invalid").to_string();
    let panic = catch_unwind(AssertUnwindSafe(new)).expect_err("the argument is invalid");
    assert_eq!(panic.downcast_ref::<String>(), Some(&error));
    error
}

#[test]
fn an_invalid_rate_is_rejected() {
    let cases = [
        (f64::NAN, "rate_per_second is NaN: it must be a number"),
        (-f64::NAN, "rate_per_second is NaN: it must be a number"),
        (-1.5, "rate_per_second is -1.5: it must not be negative"),
        (f64::NEG_INFINITY, "rate_per_second is -inf: it must not be negative"),
        (-3.0, "rate_per_second is -3: it must not be negative"),
        (-1e-300, "rate_per_second is -1e-300: it must not be negative"),
        (-f64::from_bits(1), "rate_per_second is -5e-324: it must not be negative"),
        (f64::MIN, "rate_per_second is -1.7976931348623157e308: it must not be negative"),
    ];
    for (rate, text) in cases {
        assert_eq!(refused(Bucket::try_new(rate, 1), || Bucket::new(rate, 1)), text);
        let [clock, other] = [Clock::new(), Clock::new()];
        assert_eq!(refused(Bucket::try_with_clock(rate, 0, clock), || Bucket::with_clock(rate, 0, other)), text);
        assert_eq!(Bucket::try_new(rate, 1).unwrap_err().argument(), "rate_per_second");
    }
}

#[test]
fn an_invalid_step_table_is_rejected() {
    let table = |rows: &[usize]| rows.iter().map(|&from| (from, ms(1))).collect::<Vec<_>>();
    let refuse = |rows: &[usize]| refused(Step::<u8>::try_new(table(rows)), || Step::new(table(rows)));
    assert_eq!(refuse(&[]), "rows is empty: there must be at least one");
    let ascend = "the numbers of failures must ascend";
    assert_eq!(refuse(&[0, 3, 3]), format!("rows is [.., (3, ..), (3, ..), ..]: {ascend}"));
    assert_eq!(refuse(&[5, 0, 9]), format!("rows is [.., (5, ..), (0, ..), ..]: {ascend}"));
    assert_eq!(Step::<u8>::try_new(table(&[])).unwrap_err().argument(), "rows");
    assert!(Step::<u8>::try_new(table(&[0, usize::MAX])).is_ok());
}

#[test]
fn an_invalid_jitter_is_rejected() {
    let limiter = || ItemExponentialFailure::<u8>::new(ms(1), ms(2));
    let cases = [
        (f64::NAN, "factor is NaN: it must be a number"),
        (-0.5, "factor is -0.5: it must not be negative"),
        (f64::NEG_INFINITY, "factor is -inf: it must not be negative"),
        (f64::INFINITY, "factor is inf: it must be finite"),
    ];
    for (factor, text) in cases {
        assert_eq!(refused(limiter().try_jitter(factor), || limiter().jitter(factor)), text);
    }
    assert!(limiter().try_jitter(0.0).is_ok() && limiter().try_jitter(f64::MAX).is_ok());
}

#[test]
fn a_base_above_the_maximum_is_clamped() {
    for (base, max) in [(ms(10), ms(3)), (ms(10), Duration::ZERO), (Duration::MAX, ms(1))] {
        let limiter = ItemExponentialFailure::new(base, max);
        assert_eq!([(); 3].map(|()| limiter.when(&1)), [max; 3]);
    }
}

#[test]
fn a_base_of_zero_gives_no_delay() {
    let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::MAX);
    assert!((0..5_000).all(|_| limiter.when(&1) == Duration::ZERO));
    assert_eq!(limiter.num_requeues(&1), 5_000);
}

#[test]
fn delays_saturate_and_never_overflow() {
    let limiter = ItemExponentialFailure::new(ns(1), Duration::MAX);
    let mut last = Duration::ZERO;
    for failures in 0..2_000_u32 {
        let delay = limiter.when(&1);
        assert!(last <= delay);
        if failures < 64 {
            assert_eq!(delay.as_nanos(), 1 << failures);
        }
        last = delay;
    }
    assert_eq!((last, limiter.num_requeues(&1)), (Duration::MAX, 2_000));
    for longest in [Duration::MAX, Duration::MAX - ns(1)] {
        let limiter = ItemExponentialFailure::new(longest, Duration::MAX);
        assert_eq!([(); 3].map(|()| limiter.when(&1)), [longest, Duration::MAX, Duration::MAX]);
        let limiter = ItemFastSlow::new(longest, ns(1), 1);
        assert_eq!([(); 2].map(|()| limiter.when(&1)), [longest, ns(1)]);
        let limiter = Step::new([(1, longest)]);
        assert_eq!([(); 3].map(|()| limiter.when(&1)), [longest; 3]);
    }
}

#[test]
fn a_delay_of_duration_max_never_expires() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(Duration::MAX, Duration::MAX);
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(limiter).build();
    assert_eq!(queue.add_rate_limited(1), Added::Delayed);
    time.advance(Duration::MAX);
    assert_eq!(queue.turn(), 0);
    assert_eq!(pairs(queue.take_delayed()), [(1, Duration::MAX)]);
}

#[test]
fn zero_fast_attempts_makes_all_attempts_slow() {
    let limiter = ItemFastSlow::new(ms(1), ms(9), 0);
    assert_eq!([(); 2].map(|()| limiter.when(&1)), [ms(9); 2]);
    let limiter = ItemFastSlow::new(ms(1), ms(9), usize::MAX);
    assert!((0..1_000).all(|_| limiter.when(&1) == ms(1)));
}

#[test]
fn failures_before_the_first_row_use_the_first_row() {
    let limiter = Step::new([(3, ms(1)), (4, ms(2))]);
    assert_eq!([(); 6].map(|()| limiter.when(&1)), [1, 1, 1, 1, 2, 2].map(ms));
}

fn mock_bucket(rate: f64, burst: u32) -> (Bucket, MockClock) {
    let (clock, time) = Clock::mock();
    (Bucket::with_clock(rate, burst, clock), time)
}

#[test]
fn a_burst_of_zero_admits_nothing() {
    for rate in [0.0, 1.0, 1e9, 1e12] {
        let (bucket, time) = mock_bucket(rate, 0);
        for _ in 0..3 {
            time.advance(Duration::from_secs(1 << 30));
            assert_eq!(bucket.try_acquire().unwrap_err().wait(), Duration::MAX, "at {rate}");
            let reservation = bucket.reserve();
            assert_eq!(reservation.delay(), Duration::MAX);
            assert!(!reservation.cancel());
        }
    }
    assert_eq!(mock_bucket(1.0, 0).0.try_acquire().unwrap_err().to_string(), "no token, now or ever");
    assert_eq!(mock_bucket(1.0, 0).0.max_ahead(ms(7)).reserve().delay(), ms(7));
}

#[test]
fn a_rate_of_zero_admits_the_burst_and_no_more() {
    for rate in [0.0, -0.0, f64::from_bits(1), f64::MIN_POSITIVE, 1e-300] {
        let (bucket, time) = mock_bucket(rate, 3);
        assert!((0..3).all(|_| bucket.try_acquire().is_ok()), "at {rate}");
        time.advance(Duration::from_secs(1 << 33));
        assert_eq!(bucket.try_acquire().map_err(|error| error.wait()), Err(Duration::MAX), "at {rate}");
        assert_eq!(bucket.reserve().delay(), Duration::MAX);
    }
}

#[test]
fn an_infinite_rate_admits_everything() {
    for burst in [0, 1, u32::MAX] {
        let bucket = Bucket::new(f64::INFINITY, burst);
        for _ in 0..1_000 {
            assert!(bucket.try_acquire().is_ok());
            assert_eq!(bucket.reserve().delay(), Duration::ZERO);
        }
        assert!(!bucket.reserve().cancel(), "nothing was spent");
    }
}

#[test]
fn a_failed_try_acquire_returns_the_exact_wait() {
    let (bucket, time) = mock_bucket(1_000.0, 1);
    assert!(bucket.try_acquire().is_ok());
    let error = bucket.try_acquire().unwrap_err();
    assert_eq!((error.wait(), error.to_string()), (ms(1), "no token for another 1ms".into()));
    time.advance(error.wait() - ns(1));
    assert_eq!(bucket.try_acquire().unwrap_err().wait(), ns(1));
    time.advance(ns(1));
    assert!(bucket.try_acquire().is_ok());
}

#[test]
fn a_reservation_can_be_cancelled_until_there_is_a_later_one() {
    let (bucket, time) = mock_bucket(1_000.0, 1);
    let first = bucket.reserve();
    let second = bucket.reserve();
    let third = bucket.reserve();
    assert_eq!([&first, &second, &third].map(|reservation| reservation.delay()), [0, 1, 2].map(ms));
    assert!(!second.cancel(), "there is a later reservation");
    assert!(third.cancel());
    assert_eq!(bucket.reserve().delay(), ms(2), "the second token is lost");
    drop(first);
    time.advance(ms(10));
    assert!(bucket.reserve().cancel());
    assert!(bucket.try_acquire().is_ok());
    assert!(bucket.try_acquire().is_err(), "a cancelled reservation does not raise the burst");
}

#[test]
fn max_ahead_bounds_the_delay() {
    let (bucket, time) = mock_bucket(1_000.0, 1);
    let bucket = bucket.max_ahead(ms(2));
    let delays = [(); 6].map(|()| bucket.reserve().delay());
    assert_eq!(delays, [0, 1, 2, 2, 2, 2].map(ms));
    assert!(!bucket.reserve().cancel(), "nothing was spent");
    time.advance(ms(1));
    assert_eq!(bucket.reserve().delay(), ms(2), "reservations beyond the bound spent no token");
    let never = Bucket::new(0.0, 1).max_ahead(ms(5));
    assert_eq!([(); 3].map(|()| never.reserve().delay()), [0, 5, 5].map(ms));
}

#[test]
fn combined_limiters_call_all_their_limiters() {
    let empty = MaxOf::<str>::new(vec![]);
    assert_eq!((empty.when("a"), empty.num_requeues("a")), (Duration::ZERO, 0));
    empty.forget("a");
    let inner = Arc::new(ItemExponentialFailure::new(ms(1), ms(100)));
    let other = Arc::new(ItemFastSlow::new(ms(5), Duration::ZERO, 2));
    let all = MaxOf::new(vec![Box::new(Arc::clone(&inner)), Box::new(Arc::clone(&other))]);
    assert_eq!([(); 4].map(|()| all.when(&1)), [5, 5, 4, 8].map(ms));
    assert_eq!((inner.num_requeues(&1), other.num_requeues(&1), all.num_requeues(&1)), (4, 4, 4));
    inner.forget(&1);
    assert_eq!(all.num_requeues(&1), 4, "the largest");
    all.forget(&1);
    assert_eq!((inner.num_requeues(&1), other.num_requeues(&1)), (0, 0));
    let cut = WithMaxWait::new(Arc::clone(&inner), ms(3));
    assert_eq!([(); 4].map(|()| cut.when(&1)), [1, 2, 3, 3].map(ms));
    assert_eq!((cut.num_requeues(&1), inner.when(&1)), (4, ms(16)));
    cut.forget(&1);
    assert_eq!(inner.num_requeues(&1), 0);
}

#[test]
fn the_default_controller_limiter_is_a_backoff_and_a_bucket() {
    let limiter = default_controller_rate_limiter::<u32>();
    assert_eq!([(); 3].map(|()| limiter.when(&0)), [5, 10, 20].map(ms));
    (0..100).for_each(|key| _ = limiter.when(&(1 + key)));
    assert!(limiter.when(&1_000) > ms(5), "the burst of 100 is spent");
}

// ---- settings of the per-key limiters ----

#[test]
fn served_only_counts_a_failure_when_the_delay_before_it_has_expired() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(10), ms(1_000)).served_only().clock(clock);
    assert_eq!(limiter.when(&1), ms(10));
    time.advance(ms(4));
    assert_eq!([(); 3].map(|()| limiter.when(&1)), [ms(6); 3], "the rest of the delay");
    assert_eq!(limiter.num_requeues(&1), 1);
    time.advance(ms(6));
    assert_eq!((limiter.when(&1), limiter.num_requeues(&1)), (ms(20), 2));
    limiter.forget(&1);
    assert_eq!(limiter.when(&1), ms(10), "forgotten, so there is no rest");
}

#[test]
fn retain_recent_forgets_old_keys_but_none_that_is_delayed() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(1), ms(50)).retain_recent(ms(10)).max_tracked(500).clock(clock);
    limiter.when(&1);
    time.advance(ms(49));
    limiter.when(&2);
    assert_eq!(limiter.when(&1), ms(2), "no key is old before the longest delay, 50 ms, has passed");
    time.advance(ms(100));
    limiter.when(&3);
    assert_eq!((limiter.tracked_len(), limiter.num_requeues(&1)), (1, 0));
    time.advance(ms(100));
    assert_eq!(limiter.tracked_len(), 1, "old keys are evicted by calls");
    limiter.shrink_to_fit();
    assert_eq!(limiter.tracked_len(), 0);
}

#[test]
fn max_tracked_keeps_the_latest_keys() {
    for bound in [0, 1, 2, 3, 10, 100, 1_000] {
        let limiter = ItemExponentialFailure::new(ms(1), ms(50)).max_tracked(bound);
        for key in 0..5_000_usize {
            limiter.when(&key);
            assert!(limiter.tracked_len() <= bound.max(2));
            let sure = (bound / 2).clamp(1, key + 1);
            assert!((key + 1 - sure..=key).all(|key| limiter.num_requeues(&key) == 1), "{key} of {bound}");
        }
    }
}

mod jitter {
    use super::{Duration, ItemExponentialFailure, ItemFastSlow, RateLimiter, Step, ms};
    use std::collections::HashSet;

    #[test]
    fn stays_in_its_bounds_and_within_the_maximum() {
        for factor in [0.0, 0.1, 1.0, 7.5, 1e300] {
            let limiter = ItemExponentialFailure::new(ms(8), ms(100)).jitter(factor);
            for key in 0..500_u32 {
                for exact in [8, 16, 32, 64, 100, 100].map(ms) {
                    let delay = limiter.when(&key);
                    let most = exact.as_secs_f64() * (1.0 + factor);
                    assert!(exact <= delay && delay <= ms(100), "{delay:?}");
                    assert!(delay.as_secs_f64() <= most, "{delay:?} of {exact:?} with {factor}");
                }
            }
        }
        let limiter = ItemFastSlow::new(ms(8), ms(2), 1).jitter(9.0);
        assert!((0..200).all(|key| (ms(8)..ms(80)).contains(&limiter.when(&key))));
        assert!((0..200).all(|key| (ms(2)..ms(20)).contains(&limiter.when(&key))));
        let limiter = Step::new([(0, Duration::MAX - ms(1)), (1, Duration::MAX)]).jitter(f64::MAX);
        assert!((0..200).all(|key| limiter.when(&key) >= Duration::MAX - ms(1)));
    }

    #[test]
    fn is_spread_over_its_whole_range() {
        let limiter = ItemExponentialFailure::new(ms(100), ms(1_000)).jitter(1.0);
        let mut tenths = [0; 10];
        let mut all = HashSet::new();
        for key in 0..10_000_u32 {
            let delay = limiter.when(&key);
            tenths[((delay - ms(100)).as_nanos() / 10_000_000) as usize] += 1;
            all.insert(delay);
        }
        // 1000 are expected in each, with a standard deviation of 30.
        assert!(tenths.iter().all(|tenth| (800..1_200).contains(tenth)), "{tenths:?}");
        assert!(all.len() > 9_900, "{}", all.len());
    }

    #[test]
    fn is_the_same_from_the_same_seed() {
        let answers = |seed| {
            let limiter = ItemExponentialFailure::new(ms(100), ms(100_000)).jitter(1.0).seed(seed);
            (0..200_u32).map(|n| limiter.when(&(n % 7))).collect::<Vec<_>>()
        };
        assert_eq!(answers(1), answers(1));
        assert_ne!(answers(1), answers(2));
        let plain = ItemExponentialFailure::new(ms(100), ms(100_000)).seed(1);
        assert_eq!(plain.when(&1), ms(100), "a seed alone does nothing");
        let seeded_first = ItemExponentialFailure::new(ms(100), ms(100_000)).seed(1).jitter(1.0);
        assert_eq!(seeded_first.when(&0), answers(1)[0]);
    }

    #[test]
    fn draws_from_one_seed_are_uncorrelated() {
        for seed in 0..20 {
            let limiter = ItemExponentialFailure::new(ms(1_000), ms(100_000)).jitter(1.0).seed(seed);
            let draws = (0..10_000).map(|key| limiter.when(&key).as_secs_f64() - 1.5).collect::<Vec<_>>();
            let product = draws.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
            let correlation = product / draws.iter().map(|draw| draw * draw).sum::<f64>();
            // The standard deviation of the correlation is 0.01.
            assert!(correlation.abs() < 0.06, "{correlation} with seed {seed}");
        }
    }
}

// ---- burst + rate * window ----

#[derive(Debug, Clone)]
enum Ask {
    Advance(u64),
    TryAcquire(u8),
    Reserve(u8),
    /// Reserves a token, and cancels the reservation.
    Cancel,
    /// Waits until there is a token, and takes it.
    Acquire,
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => (any::<u64>(), 24..64_u32).prop_map(|(by, bits)| Ask::Advance(by >> bits)),
        4 => (0..8_u8).prop_map(Ask::TryAcquire),
        2 => (0..4_u8).prop_map(Ask::Reserve),
        1 => Just(Ask::Cancel),
        3 => Just(Ask::Acquire),
    ]
}

/// Tokens a second.
fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        (1..10_000_000_u32).prop_map(|nanos| 1e9 / f64::from(nanos)),
        (1..1_000_000_000_u32).prop_map(f64::from),
        (-3.0..9.0).prop_map(|power| 10_f64.powf(power)),
    ]
}

/// A rate in whole numbers: the units that a nanosecond earns, and the units that a token costs.
fn units(rate: f64) -> (BigUint, BigUint) {
    let (digits, exponent) = (rate.to_bits() & ((1 << 52) - 1) | 1 << 52, (rate.to_bits() >> 52) as i32 - 1_075);
    let (nanosecond, token) = (BigUint::from(digits), BigUint::from(1_000_000_000_u32));
    if exponent < 0 { (nanosecond, token << -exponent) } else { (nanosecond << exponent, token) }
}

/// If a token takes no whole number of nanoseconds, the ends of a window are rounded: by at most this many in total.
const GRAIN: u64 = 5;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_bucket_admits_no_more_than_burst_plus_rate_times_window(
        rate in rate(),
        burst in 1..20_u32,
        asks in vec(ask(), 0..80),
    ) {
        let (bucket, time) = mock_bucket(rate, burst);
        let (mut now, mut admitted) = (0, vec![]);
        for ask in asks {
            match ask {
                Ask::Advance(by) => {
                    time.advance(ns(by));
                    now += by;
                }
                Ask::TryAcquire(times) => {
                    admitted.extend((0..times).filter(|_| bucket.try_acquire().is_ok()).map(|_| now));
                }
                Ask::Reserve(times) => {
                    admitted.extend((0..times).map(|_| now + bucket.reserve().delay().as_nanos() as u64));
                }
                Ask::Cancel => assert!(bucket.reserve().cancel()),
                Ask::Acquire => {
                    if let Err(error) = bucket.try_acquire() {
                        time.advance(error.wait());
                        now += error.wait().as_nanos() as u64;
                        bucket.try_acquire().expect("a token was promised for now");
                    }
                    admitted.push(now);
                }
            }
        }
        admitted.sort_unstable();
        let (nanosecond, token) = units(rate);
        let grain = if &token % &nanosecond == BigUint::ZERO { 0 } else { GRAIN };
        for (at, from) in admitted.iter().enumerate() {
            for (count, to) in (1_u32..).zip(&admitted[at..]) {
                let over = &token * count.saturating_sub(burst);
                let earned = &nanosecond * (to - from + grain);
                prop_assert!(over <= earned, "{count} from {from} to {to}");
            }
        }
    }
}

/// Uses the real clock: runs for 20 ms a case.
#[test]
fn a_bucket_admits_no_more_with_real_threads() {
    const THREADS: usize = 4;
    for (rate, burst) in [(50_000.0, 20), (3e6, 1), (7.0, 1_000)] {
        let barrier = Barrier::new(THREADS);
        let begin = Instant::now();
        let bucket = Bucket::new(rate, burst);
        let acquire = || {
            barrier.wait();
            // At least one attempt, however late the thread starts.
            let mut count = u64::from(bucket.try_acquire().is_ok());
            while begin.elapsed() < ms(20) {
                count += u64::from(bucket.try_acquire().is_ok());
            }
            count
        };
        let admitted: u64 = thread::scope(|s| {
            let threads = [(); THREADS].map(|()| s.spawn(acquire));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let most = f64::from(burst) + rate * begin.elapsed().as_secs_f64();
        assert!(admitted as f64 <= most, "{admitted} of {most} at {rate}");
        assert!(admitted > 0);
    }
}

#[test]
fn each_reservation_takes_one_token_with_threads() {
    const EACH: usize = 100_000;
    let (bucket, _time) = mock_bucket(1_000.0, 10);
    let barrier = Barrier::new(4);
    let reserve = || {
        barrier.wait();
        (0..EACH).map(|_| bucket.reserve().delay()).collect::<Vec<_>>()
    };
    let mut delays: Vec<_> = thread::scope(|s| {
        let threads = [(); 4].map(|()| s.spawn(reserve));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    delays.sort_unstable();
    let expected: Vec<_> = (0..4 * EACH).map(|n| ms(n.saturating_sub(9) as u64)).collect();
    assert_eq!(delays, expected);
}

// ---- threads ----

/// Runs `run` in `count` threads that start together, with the number of each.
fn in_threads<R: Send>(count: usize, run: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(count);
    let start = |n| {
        barrier.wait();
        run(n)
    };
    thread::scope(|s| {
        let start = &start;
        let threads: Vec<_> = (0..count).map(|n| s.spawn(move || start(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn concurrent_failures_are_each_counted_once() {
    const EACH: usize = 20_000;
    let limiter = Step::new((0..4 * EACH).map(|n| (n, ns(n as u64))));
    let mut answers = in_threads(4, |_| (0..EACH).map(|_| limiter.when(&7)).collect::<Vec<_>>()).concat();
    assert_eq!(limiter.num_requeues(&7), 4 * EACH);
    answers.sort_unstable();
    assert!(answers.into_iter().eq((0..4 * EACH as u64).map(ns)), "each failure number once");
}

#[test]
fn concurrent_forgets_lose_no_failure() {
    const EACH: usize = 20_000;
    // Each answer is the number of failures since the last forget. There are at most as many answers of 0 as forgets, and
    // one more; and each answer n follows an answer n - 1.
    let limiter = Step::new((0..3 * EACH).map(|n| (n, ns(n as u64))));
    let forgets = AtomicUsize::new(0);
    let answers = in_threads(4, |n| {
        if n == 3 {
            for _ in 0..EACH {
                limiter.forget(&7);
                forgets.fetch_add(1, Ordering::Relaxed);
                limiter.forget(&8);
            }
            vec![]
        } else {
            (0..EACH).map(|_| limiter.when(&7).as_nanos() as usize).collect()
        }
    })
    .concat();
    let mut times = vec![0_usize; 3 * EACH + 1];
    answers.into_iter().for_each(|failures| times[failures] += 1);
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "each nth failure follows an (n - 1)th");
    assert!(times[0] <= forgets.into_inner() + 1);
    let runs = times.iter().take_while(|&&times| times > 0).count();
    assert!(limiter.num_requeues(&7) <= runs);
    assert!(limiter.tracked_len() <= 1);
}

#[test]
fn max_tracked_holds_with_threads() {
    for bound in [2, 100, 5_000] {
        let (clock, time) = Clock::mock();
        let limiter = ItemExponentialFailure::new(ms(1), ms(2)).max_tracked(bound).retain_recent(ms(5)).clock(clock);
        in_threads(4, |n| {
            for key in 0..10_000 {
                limiter.when(&(n, key));
                if key % 3 == 0 {
                    limiter.forget(&(n, key));
                }
                if key % 64 == 0 {
                    time.advance(ns(100));
                    assert!(limiter.tracked_len() <= bound);
                }
            }
        });
        assert!(limiter.tracked_len() <= bound);
        time.advance(ms(100));
        limiter.shrink_to_fit();
        assert_eq!(limiter.tracked_len(), 0);
    }
}

#[test]
fn threads_share_one_token_per_key() {
    let (bucket, _time) = mock_bucket(1.0, 1);
    let limiter = DedupingBucket::new(bucket);
    assert_eq!(limiter.when(&0), Duration::ZERO);
    let mut answers = in_threads(4, |_| (1..=50_u64).map(|key| limiter.when(&key)).collect::<Vec<_>>());
    assert!(answers.iter().all(|answer| *answer == answers[0]), "one token per key");
    answers[0].sort_unstable();
    assert!(answers[0].iter().copied().eq((1..=50).map(Duration::from_secs)));
}

// ---- panics ----

thread_local!(static FAULT: Cell<Option<Fault>> = const { Cell::new(None) });

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Hash,
    Eq,
    Clone,
}

/// Panics, without a message, if this fault is injected.
fn fault(here: Fault) {
    if FAULT.get() == Some(here) {
        resume_unwind(Box::new(()));
    }
}

/// Whether `run` panics with this fault injected.
fn panics<R>(fault: Fault, run: impl FnOnce() -> R) -> bool {
    FAULT.set(Some(fault));
    let result = catch_unwind(AssertUnwindSafe(run));
    FAULT.set(None);
    result.is_err()
}

#[derive(Debug)]
struct Fragile(u32);

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        fault(Fault::Hash);
        self.0.hash(state);
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        fault(Fault::Eq);
        self.0 == other.0
    }
}

impl Eq for Fragile {}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        fault(Fault::Clone);
        Self(self.0)
    }
}

#[test]
fn a_key_that_panics_leaves_a_limiter_usable() {
    let limiters = [
        ItemExponentialFailure::new(ms(1), ms(100)),
        ItemExponentialFailure::new(ms(1), ms(100)).max_tracked(4),
        ItemExponentialFailure::new(ms(1), ms(100)).retain_recent(ms(5)).served_only(),
    ];
    for limiter in limiters {
        limiter.when(&Fragile(1));
        assert!(panics(Fault::Hash, || limiter.when(&Fragile(1))));
        assert!(panics(Fault::Eq, || limiter.when(&Fragile(1))));
        assert!(panics(Fault::Eq, || limiter.forget(&Fragile(1))));
        assert!(panics(Fault::Eq, || limiter.num_requeues(&Fragile(1))));
        assert!(panics(Fault::Clone, || limiter.when(&Fragile(2))));
        assert!(!panics(Fault::Clone, || limiter.when(&Fragile(1))), "a key that is known is not cloned");
        assert_eq!((limiter.tracked_len(), limiter.num_requeues(&Fragile(2))), (1, 0));
        for key in 2..20 {
            limiter.when(&Fragile(key));
        }
        assert!(limiter.num_requeues(&Fragile(19)) == 1 && limiter.tracked_len() > 1);
        (1..20).for_each(|key| limiter.forget(&Fragile(key)));
        assert_eq!(limiter.tracked_len(), 0);
    }
}

#[test]
fn a_key_that_panics_leaves_a_deduping_bucket_usable() {
    let (bucket, time) = mock_bucket(1.0, 1);
    let limiter = DedupingBucket::new(bucket);
    assert_eq!([1, 2].map(|key| limiter.when(&Fragile(key))), [ms(0), ms(1_000)]);
    assert!(panics(Fault::Hash, || limiter.when(&Fragile(2))));
    assert!(panics(Fault::Eq, || limiter.when(&Fragile(2))));
    assert!(panics(Fault::Clone, || limiter.when(&Fragile(3))));
    time.advance(ms(500));
    assert_eq!(limiter.when(&Fragile(2)), ms(500));
    assert_eq!(limiter.when(&Fragile(3)), ms(1_500), "the calls that panicked spent no token");
}

/// A limiter that counts its calls, and panics while its flag is set.
#[derive(Default)]
struct Faulty {
    called: AtomicUsize,
    forgotten: AtomicUsize,
    panics: AtomicBool,
}

impl Faulty {
    fn note(&self, count: &AtomicUsize) {
        count.fetch_add(1, Ordering::Relaxed);
        if self.panics.load(Ordering::Relaxed) {
            resume_unwind(Box::new(()));
        }
    }
}

impl<K: ?Sized> RateLimiter<K> for Faulty {
    fn when(&self, _: &K) -> Duration {
        self.note(&self.called);
        ms(1)
    }

    fn forget(&self, _: &K) {
        self.note(&self.forgotten);
    }

    fn num_requeues(&self, _: &K) -> usize {
        self.note(&AtomicUsize::new(0));
        self.called.load(Ordering::Relaxed)
    }
}

fn faulty_queue() -> (WorkQueue<&'static str>, Arc<Faulty>) {
    let limiter = Arc::new(Faulty::default());
    let (clock, _) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual);
    (builder.rate_limiter(Arc::clone(&limiter)).build(), limiter)
}

#[test]
fn a_custom_limiter_is_called_once_for_each_rate_limited_add() {
    let (queue, limiter) = faulty_queue();
    let called = || limiter.called.load(Ordering::Relaxed);
    let options = AddOptions::new().rate_limited();
    assert_eq!(queue.add_rate_limited("a"), Added::Delayed);
    assert_eq!(queue.add_with("a", options.conflict(DelayConflict::KeepExisting)), Added::Coalesced);
    assert_eq!(queue.add_with("b", options.after(ms(7))), Added::Delayed);
    assert_eq!(queue.add_with("c", options.after(ns(7))), Added::Delayed);
    assert_eq!((called(), queue.num_requeues(&"a")), (4, 4));
    queue.add("a");
    queue.add_after("a", ms(3));
    queue.get().unwrap().done();
    assert_eq!(called(), 4, "other adds do not call the limiter");
    let delays = [("a", ms(1)), ("c", ms(1)), ("b", ms(7))];
    assert_eq!(pairs(queue.take_delayed()), delays, "the longer of the two delays");
    queue.shut_down();
    assert_eq!(queue.add_rate_limited("a"), Added::Rejected);
    assert_eq!(called(), 5, "a rejected add calls it too, as in client-go");
}

#[test]
fn a_limiter_that_panics_leaves_no_key_stuck() {
    type End = fn(&WorkQueue<&'static str>);
    let ends: [(&str, End); 7] = [
        ("retry", |queue| _ = queue.get().unwrap().retry()),
        ("succeed", |queue| queue.get().unwrap().succeed()),
        ("requeue_after", |queue| _ = queue.get().unwrap().requeue_after(ms(1))),
        ("requeue_with", |queue| _ = queue.get().unwrap().requeue_with(AddOptions::new().rate_limited())),
        ("an owned retry", |queue| _ = queue.get().unwrap().into_owned().retry()),
        ("an owned succeed", |queue| queue.get().unwrap().into_owned().succeed()),
        ("an owned requeue_after", |queue| _ = queue.get().unwrap().into_owned().requeue_after(ms(1))),
    ];
    for (what, end) in ends {
        let (queue, limiter) = faulty_queue();
        queue.add("a");
        limiter.panics.store(true, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| end(&queue))).is_err(), "{what}");
        let comes_back = usize::from(!what.contains("succeed"));
        assert_eq!((queue.processing_len(), queue.len(), queue.delayed_len()), (0, 0, comes_back), "{what}");
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_rate_limited("a"))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| queue.forget(&"a"))).is_err());
        assert_eq!((queue.processing_len(), queue.len(), queue.delayed_len()), (0, 0, comes_back), "{what}");
        assert_eq!(queue.add("a"), Added::Queued);
        let item = queue.get().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| item.num_requeues())).is_err());
        assert_eq!(queue.add("a"), Added::Deferred, "it is still held");
        assert!(catch_unwind(AssertUnwindSafe(|| item.retry())).is_err());
        assert_eq!((queue.processing_len(), queue.len()), (0, 1), "the add that came meanwhile is not lost");
        limiter.panics.store(false, Ordering::Relaxed);
        end(&queue);
        assert!(queue.shut_down_with_drain_timeout(Duration::ZERO).is_ok());
    }
}

// ---- the queue ----

fn mock_queue() -> (WorkQueue<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).build(), time)
}

/// Queued, processing, delayed.
fn lens<K>(queue: &WorkQueue<K>) -> [usize; 3] {
    [queue.len(), queue.processing_len(), queue.delayed_len()]
}

#[test]
fn a_retry_comes_back_after_its_backoff() {
    let (queue, time) = mock_queue();
    queue.add(1);
    for backoff in [5, 10, 20, 40].map(ms) {
        let item = queue.get().unwrap();
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!(lens(&queue), [0, 0, 1]);
        time.advance(backoff - ns(1));
        assert_eq!(queue.turn(), 0);
        time.advance(ns(1));
        assert_eq!(queue.turn(), 1);
    }
    let item = queue.get().unwrap();
    assert_eq!((item.num_requeues(), queue.num_requeues(&1)), (4, 4));
    item.succeed();
    assert_eq!((lens(&queue), queue.num_requeues(&1)), ([0; 3], 0));
}

#[test]
fn a_retry_of_a_dirty_key_leaves_it_queued_and_delayed() {
    let (queue, time) = mock_queue();
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add(1);
    assert_eq!(item.retry(), Added::Delayed);
    assert_eq!(lens(&queue), [1, 0, 1]);
    time.advance(ms(5));
    assert_eq!(queue.turn(), 1);
    assert_eq!(lens(&queue), [1, 0, 0], "the expired key was queued already");
}

#[test]
fn a_retry_does_not_postpone_an_earlier_delay() {
    let (queue, _time) = mock_queue();
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add_after(1, ms(3));
    assert_eq!(item.retry(), Added::Coalesced);
    assert_eq!(pairs(queue.take_delayed()), [(1, ms(3))]);
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add_after(1, ms(3_000));
    assert_eq!(item.retry(), Added::Delayed);
    assert_eq!(pairs(queue.take_delayed()), [(1, ms(10))]);
}

#[test]
fn a_success_keeps_adds_that_came_while_processing() {
    let (queue, _time) = mock_queue();
    queue.add_rate_limited(1);
    assert!(queue.cancel(&1));
    queue.add(1);
    let item = queue.get().unwrap();
    queue.add(1);
    queue.add_after(1, ms(3));
    item.succeed();
    assert_eq!((lens(&queue), queue.num_requeues(&1)), ([1, 0, 1], 0));
}

#[test]
fn requeue_after_forgets_the_failures_and_delays_the_key() {
    let (queue, _time) = mock_queue();
    queue.add(1);
    assert_eq!(queue.get().unwrap().retry(), Added::Delayed);
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!(item.num_requeues(), 1);
    assert!(queue.cancel(&1));
    assert_eq!(item.requeue_after(ms(60)), Added::Delayed);
    assert_eq!((lens(&queue), queue.num_requeues(&1)), ([0, 0, 1], 0));
    queue.add(1);
    let item = queue.get().unwrap();
    assert_eq!(item.requeue_after(Duration::ZERO), Added::Deferred, "without a delay: queued at done");
    assert_eq!(lens(&queue), [1, 0, 1]);
    let options = AddOptions::new().after(ms(2)).rate_limited().conflict(DelayConflict::Replace);
    assert_eq!(queue.get().unwrap().requeue_with(options), Added::Delayed);
    assert_eq!((queue.num_requeues(&1), pairs(queue.take_delayed())), (1, vec![(1, ms(5))]));
}

#[test]
fn after_a_shut_down_limiters_are_called_and_items_are_done() {
    for owned in [false, true] {
        let (queue, _time) = mock_queue();
        queue.add_all([1, 2, 3]);
        let mut items = queue.get_many(3);
        queue.add_rate_limited(3);
        queue.shut_down();
        let (third, second, first) = (items.pop().unwrap(), items.pop().unwrap(), items.pop().unwrap());
        if owned {
            assert_eq!(first.into_owned().retry(), Added::Rejected);
            second.into_owned().succeed();
            assert_eq!(third.into_owned().requeue_after(ms(1)), Added::Rejected);
        } else {
            assert_eq!(first.retry(), Added::Rejected);
            second.succeed();
            assert_eq!(third.requeue_after(ms(1)), Added::Rejected);
        }
        assert_eq!([1, 2, 3].map(|key| queue.num_requeues(&key)), [1, 0, 0]);
        assert_eq!((queue.len(), queue.processing_len()), (0, 0));
        assert_eq!(queue.add_rate_limited(1), Added::Rejected);
        assert_eq!(queue.num_requeues(&1), 2);
        queue.forget(&1);
        assert_eq!(queue.num_requeues(&1), 0);
    }
}

#[test]
fn each_way_to_end_an_item_releases_a_drain() {
    type End = fn(keyqueue::Item<'_, u32>);
    let ends: [End; 4] = [
        |item| assert_eq!(item.retry(), Added::Rejected),
        |item| item.succeed(),
        |item| assert_eq!(item.requeue_after(ms(1)), Added::Rejected),
        |item| assert_eq!(item.into_owned().retry(), Added::Rejected),
    ];
    for end in ends {
        let queue = WorkQueue::new();
        queue.add(1);
        let item = queue.get().unwrap();
        thread::scope(|s| {
            let drain = s.spawn(|| queue.shut_down_with_drain());
            while queue.stats().drainers == 0 {
                thread::yield_now();
            }
            assert!(!drain.is_finished());
            end(item);
            drain.join().unwrap();
        });
    }
}

#[test]
fn num_requeues_and_forget_take_borrowed_keys() {
    let queue = WorkQueue::<String>::new();
    queue.add_rate_limited("a".into());
    assert_eq!(queue.num_requeues("a"), 1);
    queue.forget("a");
    assert_eq!(queue.num_requeues("a"), 0);
}

/// A key whose copies an `Arc` counts.
#[derive(Debug, Clone)]
struct Counted(u32, #[allow(dead_code, reason = "it is there to be dropped")] Arc<()>);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn keys_are_freed_when_they_succeed_and_the_queue_with_its_last_item() {
    let trace = Arc::new(());
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    queue.add_all((0..100).map(|n| Counted(n, Arc::clone(&trace))));
    assert_eq!(Arc::strong_count(&trace), 101);
    for item in queue.get_many(100) {
        if item.0 % 2 == 0 {
            item.retry()
        } else {
            item.into_owned().retry()
        };
    }
    assert!((101..=201).contains(&Arc::strong_count(&trace)), "once in the queue, and perhaps in the limiter");
    time.advance(ms(5));
    assert_eq!(queue.turn(), 100);
    let mut items: Vec<_> = queue.get_many(100).into_iter().map(keyqueue::Item::into_owned).collect();
    items.drain(..50).for_each(keyqueue::OwnedItem::succeed);
    assert!((51..=101).contains(&Arc::strong_count(&trace)));
    drop(queue);
    items.drain(..49).for_each(|item| _ = item.retry());
    assert!(Arc::strong_count(&trace) > 1, "an owned item keeps the queue alive");
    items.pop().unwrap().succeed();
    assert_eq!(Arc::strong_count(&trace), 1);
}

/// A queue with this limiter and a manual driver, and its mock clock.
fn limited(limiter: impl RateLimiter<u64> + 'static, clock: (Clock, MockClock)) -> (WorkQueue<u64>, MockClock) {
    let (clock, time) = clock;
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(limiter).build(), time)
}

/// The queue must not count failures itself for a limiter that has settings or a history.
#[test]
fn a_limiter_with_settings_keeps_them_in_a_queue() {
    let plain = || ItemExponentialFailure::<u64>::new(ms(5), ms(1000));

    let clock = Clock::mock();
    let (queue, time) = limited(plain().served_only().clock(clock.0.clone()), clock);
    queue.add_rate_limited(1);
    queue.add_rate_limited(1);
    assert_eq!(queue.num_requeues(&1), 1, "the first delay had not expired");
    time.advance(ms(5));
    queue.add_rate_limited(1);
    assert_eq!(queue.num_requeues(&1), 2);

    let (queue, _) = limited(plain().max_tracked(2), Clock::mock());
    (1..=4).for_each(|key| _ = queue.add_rate_limited(key));
    assert_eq!([1, 2, 4].map(|key| queue.num_requeues(&key)), [0, 0, 1]);

    let clock = Clock::mock();
    let (queue, time) = limited(plain().retain_recent(ms(2000)).clock(clock.0.clone()), clock);
    queue.add_rate_limited(1);
    time.advance(ms(4000));
    queue.add_rate_limited(1);
    assert_eq!(queue.num_requeues(&1), 1);

    let used = plain();
    used.when(&1);
    let (queue, _) = limited(used, Clock::mock());
    assert_eq!(queue.num_requeues(&1), 1, "the failure counted before");
}

#[test]
fn a_limiter_with_jitter_keeps_it_in_a_queue() {
    let jittered = || ItemExponentialFailure::new(ms(5), ms(1000)).jitter(0.5).seed(7);
    let (queue, _) = limited(jittered(), Clock::mock());
    queue.add_rate_limited(1);
    assert_eq!(pairs(queue.take_delayed()), [(1, jittered().when(&1))]);
}

#[test]
fn a_key_that_failed_leaves_the_queue_when_it_is_forgotten() {
    let trace = Arc::new(());
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).build();
    let key = |n| Counted(n, Arc::clone(&trace));
    for n in 0..4 {
        queue.add_rate_limited(key(n));
    }
    time.advance(ms(5));
    assert_eq!(queue.turn(), 4);
    queue.get_many(4).into_iter().for_each(keyqueue::Item::done);
    assert_eq!(Arc::strong_count(&trace), 5, "their failures are recorded");
    for n in 0..4 {
        queue.forget(&key(n));
    }
    assert_eq!(Arc::strong_count(&trace), 1);
}

#[test]
fn retain_recent_forgets_after_twice_the_age_at_the_latest() {
    let (clock, time) = Clock::mock();
    // With a bound, the two keys share a table.
    let limiter = ItemExponentialFailure::new(ms(1), ms(50)).max_tracked(100).clock(clock);
    let limiter = limiter.retain_recent(Duration::from_secs(100));
    assert_eq!([(); 5].map(|()| limiter.when(&1)).last(), Some(&ms(16)));
    time.advance(Duration::from_secs(199));
    limiter.when(&2);
    time.advance(Duration::from_secs(1));
    assert_eq!(limiter.num_requeues(&1), 0);
    assert_eq!(limiter.num_requeues(&2), 1);
    assert_eq!(limiter.when(&1), ms(1));
}

#[test]
fn num_requeues_ignores_failures_that_are_too_old() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(1), ms(50)).retain_recent(Duration::from_secs(1)).clock(clock);
    (0..15).for_each(|_| _ = limiter.when(&1));
    time.advance(Duration::from_nanos(999_999_999));
    assert_eq!(limiter.num_requeues(&1), 15);
    time.advance(Duration::from_nanos(1_000_000_001));
    assert_eq!(limiter.num_requeues(&1), 0, "otherwise a worker would give up at the first failure");
    assert_eq!(limiter.when(&1), ms(1));
}

#[test]
fn a_deduping_bucket_evicts_the_keys_of_a_burst() {
    let (clock, time) = Clock::mock();
    let limiter = DedupingBucket::new(Bucket::with_clock(1e6, 10, clock));
    (0..100_000_u32).for_each(|key| _ = limiter.when(&key));
    assert!(limiter.tracked_len() >= 99_990);
    time.advance(Duration::from_secs(1));
    for key in 0..20_000 {
        limiter.when(&(1_000_000 + key));
        time.advance(ms(1));
    }
    assert!(limiter.tracked_len() < 20_000, "{}", limiter.tracked_len());
}

#[test]
fn stats_count_failing_keys() {
    let (queue, time) = mock_queue();
    (0..3).for_each(|key| _ = queue.add_rate_limited(key));
    assert_eq!(queue.stats().failing, 3);
    time.advance(ms(5));
    assert_eq!(queue.turn(), 3);
    queue.get().unwrap().succeed();
    assert_eq!(queue.stats().failing, 2);
    queue.get().unwrap().done();
    assert_eq!(queue.stats().failing, 2, "`done` is not a success");
    queue.get().unwrap().requeue_after(ms(1));
    queue.forget(&1);
    queue.forget(&7);
    assert_eq!(queue.stats().failing, 0);
}

#[test]
fn a_bucket_closes_at_the_end_of_its_time_range() {
    let (bucket, time) = mock_bucket(1.0, u32::MAX);
    time.advance(Duration::from_nanos(u64::MAX - 5_000_000_000));
    // 584 years from now: there is room for five seconds, so for five tokens, whatever the burst.
    let admitted = (0..100).take_while(|_| bucket.try_acquire().is_ok()).count();
    assert!((4..=5).contains(&admitted), "{admitted}");
    assert_eq!(bucket.try_acquire().unwrap_err().wait(), Duration::MAX);
    assert_eq!(bucket.reserve().delay(), Duration::MAX);
}

/// The queue keeps a key for the failures that it counts when the limiter has panicked. `forget` drops this key, and the drop may panic.
#[test]
fn a_limiter_forgets_a_key_even_if_its_drop_panics() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    static LIMITER_PANICS: AtomicBool = AtomicBool::new(true);
    static DROP_PANICS: AtomicBool = AtomicBool::new(false);
    static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key;
    impl Drop for Key {
        fn drop(&mut self) {
            if DROP_PANICS.swap(false, Ordering::Relaxed) {
                resume_unwind(Box::new("a drop"));
            }
        }
    }
    struct Own;
    impl RateLimiter<Key> for Own {
        fn when(&self, _: &Key) -> Duration {
            if LIMITER_PANICS.load(Ordering::Relaxed) { resume_unwind(Box::new("a limiter")) } else { Duration::ZERO }
        }
        fn forget(&self, _: &Key) {
            FORGOTTEN.fetch_add(1, Ordering::Relaxed);
        }
        fn num_requeues(&self, _: &Key) -> usize {
            0
        }
    }
    let queue = keyqueue::WorkQueue::builder().rate_limiter(Own).driver(keyqueue::Driver::Manual).build();
    queue.add(Key);
    let item = queue.get().expect("a key is queued");
    assert!(catch_unwind(AssertUnwindSafe(|| item.retry())).is_err());
    assert!(queue.cancel(&Key));
    assert_eq!((queue.num_requeues(&Key), queue.stats().failing), (1, 1));
    DROP_PANICS.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.forget(&Key))).is_err());
    assert_eq!((queue.num_requeues(&Key), FORGOTTEN.load(Ordering::Relaxed)), (0, 1));
}
