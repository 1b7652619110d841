//! Limiters, by themselves and in a queue.
//!
//! What they answer, with any settings, is compared with integer models (`support/limiter.rs`), and what a queue does with the answers with
//! the plain queue of `reference/`. Here: invalid arguments and the limits of valid ones; a bucket with threads (P14); jitter as a
//! whole; keys that panic; and that a queue does not count for a limiter that has settings. No test waits for real time to pass.

#[allow(dead_code, reason = "the plain queue uses all of it")]
#[path = "reference/key.rs"]
mod key;
mod support {
    pub(crate) mod manual;
}

use key::{Fault, Key, arm, disarm};
use keyqueue::rate_limiter::{
    Bucket, DedupingBucket, ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step,
    default_controller_rate_limiter,
};
use keyqueue::{Clock, MockClock, WorkQueue};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use support::manual::{manual, pairs};

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
fn extreme_settings_give_the_documented_delays() {
    type Limiter = Box<dyn RateLimiter<u8>>;
    let (max, zero) = (Duration::MAX, Duration::ZERO);
    let exponential = |base, max| -> Limiter { Box::new(ItemExponentialFailure::new(base, max)) };
    let fast_slow = |fast, slow, attempts| -> Limiter { Box::new(ItemFastSlow::new(fast, slow, attempts)) };
    let table = |rows: &[(usize, Duration)]| -> Limiter { Box::new(Step::new(rows.iter().copied())) };
    let cases = [
        ("a base above the maximum is clamped", exponential(ms(10), ms(3)), [ms(3); 3]),
        ("a maximum of zero", exponential(ms(10), zero), [zero; 3]),
        ("a base of zero", exponential(zero, max), [zero; 3]),
        ("the longest base", exponential(max - ns(1), max), [max - ns(1), max, max]),
        ("the longest fast delay", fast_slow(max, ns(1), 1), [max, ns(1), ns(1)]),
        ("zero fast attempts", fast_slow(ms(1), ms(9), 0), [ms(9); 3]),
        ("failures before the first row use it", table(&[(2, ms(1)), (3, max)]), [ms(1); 3]),
        ("no limiters", Box::new(MaxOf::new(vec![])), [zero; 3]),
    ];
    for (name, limiter, expected) in cases {
        assert_eq!([(); 3].map(|()| limiter.when(&1)), expected, "{name}");
    }
}

#[test]
fn delays_double_and_then_stay_at_the_maximum() {
    let limiter = ItemExponentialFailure::new(ns(1), Duration::MAX);
    let delays: Vec<_> = (0..2_000).map(|_| limiter.when(&1)).collect();
    assert!(delays.is_sorted() && delays[..64].iter().enumerate().all(|(n, delay)| delay.as_nanos() == 1 << n));
    assert_eq!((delays.last(), limiter.num_requeues(&1)), (Some(&Duration::MAX), 2_000));
}

fn mock_bucket(rate: f64, burst: u32) -> (Bucket, MockClock) {
    let (clock, time) = Clock::mock();
    (Bucket::with_clock(rate, burst, clock), time)
}

#[test]
fn a_failed_try_acquire_says_how_long_to_wait() {
    let (bucket, _) = mock_bucket(1_000.0, 1);
    assert!(bucket.try_acquire().is_ok());
    let error = bucket.try_acquire().unwrap_err();
    assert_eq!((error.wait(), error.to_string()), (ms(1), "no token for another 1ms".into()));
    assert_eq!(mock_bucket(1.0, 0).0.try_acquire().unwrap_err().to_string(), "no token, now or ever");
}

#[test]
fn the_default_controller_limiter_is_a_backoff_and_a_bucket() {
    let limiter = default_controller_rate_limiter::<u32>();
    assert_eq!([(); 3].map(|()| limiter.when(&0)), [5, 10, 20].map(ms));
    (0..100).for_each(|key| _ = limiter.when(&(1 + key)));
    assert!(limiter.when(&1_000) > ms(5), "the burst of 100 is spent");
}

// ---- settings of the per-key limiters ----

mod jitter {
    use super::{Clock, Duration, ItemExponentialFailure, ItemFastSlow, RateLimiter, Step, ms};
    use std::collections::HashSet;

    /// A delay that has reached the maximum is spread as well, and does not exceed it.
    #[test]
    fn keys_at_the_maximum_differ_and_do_not_exceed_it() {
        let minute = ms(60_000);
        // The first delay and the maximum, the factor, and the shortest delay.
        let cases = [
            (minute, minute, 0.5, ms(40_000)),
            (10 * minute, minute, 0.5, ms(40_000)), // the first is cut to the maximum
            (ms(50_000), minute, 0.5, ms(40_000)),  // or to the longest delay before the jitter
            (minute, minute, 1.0, ms(30_000)),
            (minute, minute, 9.0, ms(6_000)),
            (minute, minute, 1e300, Duration::from_nanos(1)),
            (minute, minute, f64::MAX, Duration::from_nanos(1)),
            (ms(8), ms(100), 1e300, Duration::from_nanos(1)),
        ];
        for (base, max, factor, least) in cases {
            let limiter = ItemExponentialFailure::new(base, max).jitter(factor);
            let delays: HashSet<_> = (0..1000).map(|key| limiter.when(&key)).collect();
            assert!(delays.len() > 990, "{base:?}, {factor}: {} delays of 1000 keys", delays.len());
            assert!(delays.iter().all(|delay| (least..=max).contains(delay)), "{base:?}, {factor}");
            let [shortest, longest] = [delays.iter().min(), delays.iter().max()].map(|delay| *delay.unwrap());
            let width = max - least;
            assert!(shortest < least + width / 10 && longest > max - width / 10, "{shortest:?} to {longest:?}");
        }
    }

    /// The delays grow up to the longest one before the jitter, and stay there.
    #[test]
    fn delays_grow_until_jitter_might_exceed_the_maximum() {
        let limiter = ItemExponentialFailure::new(ms(10), ms(60)).jitter(0.5);
        let expected = [(10, 15), (20, 30), (40, 60), (40, 60), (40, 60)];
        for key in 0..200 {
            for (least, end) in expected {
                let delay = limiter.when(&key);
                assert!((ms(least)..ms(end)).contains(&delay), "{delay:?}, and not {least} to {end} ms");
            }
        }
    }

    #[test]
    fn a_factor_of_zero_a_maximum_of_zero_and_none_change_nothing() {
        for factor in [0.0, -0.0] {
            let limiter = ItemExponentialFailure::new(ms(10), ms(15)).jitter(factor).served_only();
            assert_eq!([1, 2].map(|key| limiter.when(&key)), [ms(10); 2]);
            let limiter = ItemExponentialFailure::new(ms(10), ms(15)).jitter(factor);
            assert_eq!([1; 3].map(|key| limiter.when(&key)), [10, 15, 15].map(ms));
        }
        for factor in [0.5, 1e300] {
            let limiter = ItemExponentialFailure::new(ms(10), Duration::ZERO).jitter(factor);
            assert_eq!([1; 2].map(|key| limiter.when(&key)), [Duration::ZERO; 2]);
            let limiter = ItemExponentialFailure::new(Duration::ZERO, ms(10)).jitter(factor);
            assert_eq!([1; 2].map(|key| limiter.when(&key)), [Duration::ZERO; 2]);
            // `Duration::MAX` is no maximum: a delay that never ends does not become one that does.
            let limiter = ItemExponentialFailure::new(Duration::MAX, Duration::MAX).jitter(factor);
            assert!((0..200).all(|key| limiter.when(&key) == Duration::MAX));
            let limiter = ItemExponentialFailure::new(ms(10), Duration::MAX).jitter(factor);
            assert!((0..200).all(|key| limiter.when(&key) >= ms(10)));
            let limiter = Step::new([(0, Duration::MAX - ms(1)), (1, Duration::MAX)]).jitter(factor);
            assert!((0..200).all(|key| limiter.when(&key) >= Duration::MAX - ms(1)));
            assert!((0..200).all(|key| limiter.when(&key) == Duration::MAX));
        }
        // Limiters without a maximum.
        let limiter = ItemFastSlow::new(ms(10), ms(60), 1).jitter(0.5);
        assert!((0..200).all(|key| (ms(10)..ms(15)).contains(&limiter.when(&key))));
        assert!((0..200).all(|key| (ms(60)..ms(90)).contains(&limiter.when(&key))));
    }

    /// A key is remembered until its delay has passed, in whatever order the settings are made.
    #[test]
    fn a_key_that_waits_is_not_forgotten() {
        for is_last in [false, true] {
            let (clock, time) = Clock::mock();
            let limiter = ItemFastSlow::new(ms(1_000), ms(1_000), 1).clock(clock);
            let limiter = if is_last { limiter } else { limiter.jitter(9.0).seed(1) };
            let limiter = limiter.retain_recent(ms(1));
            let limiter = if is_last { limiter.jitter(9.0).seed(1) } else { limiter };
            for key in 0..50 {
                time.advance(limiter.when(&key) - Duration::from_nanos(1));
                limiter.shrink_to_fit();
                assert_eq!(limiter.num_requeues(&key), 1, "key {key}, with the jitter last: {is_last}");
            }
        }
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

// ---- threads ----

/// Runs `run` in four threads that start together, with the number of each.
fn in_threads<R: Send>(run: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(4);
    let start = |n| {
        barrier.wait();
        run(n)
    };
    thread::scope(|s| {
        let start = &start;
        let threads = [0, 1, 2, 3].map(|n| s.spawn(move || start(n)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn each_reservation_takes_one_token_with_threads() {
    const EACH: u64 = 100_000;
    let (bucket, _time) = mock_bucket(1_000.0, 10);
    let mut delays = in_threads(|_| (0..EACH).map(|_| bucket.reserve().delay()).collect::<Vec<_>>()).concat();
    delays.sort_unstable();
    assert!(delays.into_iter().eq((0..4 * EACH).map(|n| ms(n.saturating_sub(9)))));
}

// ---- panics ----

/// Whether `run` panics with this fault injected.
fn panics<R>(fault: Fault, run: impl FnOnce() -> R) -> bool {
    arm(fault, 0);
    let result = catch_unwind(AssertUnwindSafe(run));
    disarm();
    result.is_err()
}

#[test]
fn a_key_that_panics_leaves_a_limiter_usable() {
    let limiters = [
        ItemExponentialFailure::new(ms(1), ms(100)),
        ItemExponentialFailure::new(ms(1), ms(100)).max_tracked(4),
        ItemExponentialFailure::new(ms(1), ms(100)).retain_recent(ms(5)).served_only(),
    ];
    for limiter in limiters {
        limiter.when(&Key::new(1));
        assert!(panics(Fault::Hash, || limiter.when(&Key::new(1))));
        assert!(panics(Fault::Eq, || limiter.when(&Key::new(1))));
        assert!(panics(Fault::Eq, || limiter.forget(&Key::new(1))));
        assert!(panics(Fault::Eq, || limiter.num_requeues(&Key::new(1))));
        assert!(panics(Fault::Clone, || limiter.when(&Key::new(2))));
        assert!(!panics(Fault::Clone, || limiter.when(&Key::new(1))), "a key that is known is not cloned");
        assert_eq!((limiter.tracked_len(), limiter.num_requeues(&Key::new(2))), (1, 0));
        for key in 2..20 {
            limiter.when(&Key::new(key));
        }
        assert!(limiter.num_requeues(&Key::new(19)) == 1 && limiter.tracked_len() > 1);
        (1..20).for_each(|key| limiter.forget(&Key::new(key)));
        assert_eq!(limiter.tracked_len(), 0);
    }
}

#[test]
fn a_key_that_panics_leaves_a_deduping_bucket_usable() {
    let (bucket, time) = mock_bucket(1.0, 1);
    let limiter = DedupingBucket::new(bucket);
    assert_eq!([1, 2].map(|key| limiter.when(&Key::new(key))), [ms(0), ms(1_000)]);
    assert!(panics(Fault::Hash, || limiter.when(&Key::new(2))));
    assert!(panics(Fault::Eq, || limiter.when(&Key::new(2))));
    assert!(panics(Fault::Clone, || limiter.when(&Key::new(3))));
    time.advance(ms(500));
    assert_eq!(limiter.when(&Key::new(2)), ms(500));
    assert_eq!(limiter.when(&Key::new(3)), ms(1_500), "the calls that panicked spent no token");
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

// ---- the queue ----

/// The queue must not count failures itself for a limiter that has settings or a history.
#[test]
fn a_limiter_with_settings_keeps_them_in_a_queue() {
    let plain = || ItemExponentialFailure::<u64>::new(ms(5), ms(1000));
    fn limited(limiter: impl RateLimiter<u64> + 'static) -> WorkQueue<u64> {
        manual(WorkQueue::builder().rate_limiter(limiter)).0.build()
    }
    let add = |queue: &WorkQueue<u64>, key| _ = queue.add_rate_limited(key);

    let (clock, time) = Clock::mock();
    let queue = limited(plain().served_only().clock(clock));
    (0..2).for_each(|_| add(&queue, 1));
    assert_eq!(queue.num_requeues(&1), 1, "the first delay had not expired");
    time.advance(ms(5));
    add(&queue, 1);
    assert_eq!(queue.num_requeues(&1), 2);

    let queue = limited(plain().max_tracked(2));
    (1..=4).for_each(|key| add(&queue, key));
    assert_eq!([1, 2, 4].map(|key| queue.num_requeues(&key)), [0, 0, 1]);

    let (clock, time) = Clock::mock();
    let queue = limited(plain().retain_recent(ms(2000)).clock(clock));
    add(&queue, 1);
    time.advance(ms(4000));
    add(&queue, 1);
    assert_eq!(queue.num_requeues(&1), 1);

    let used = plain();
    used.when(&1);
    assert_eq!(limited(used).num_requeues(&1), 1, "the failure counted before");

    let jittered = || plain().jitter(0.5).seed(7);
    let queue = limited(jittered());
    add(&queue, 1);
    assert_eq!(pairs(queue.take_delayed()), [(1, jittered().when(&1))]);
}
