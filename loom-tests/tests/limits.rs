//! Limiters that several threads call: P14, P15, W4.

use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{Clock, MockClock};
use loom::sync::Arc;
use loom_tests::{check, ns, with};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The time between two tokens: a power of two, so no result is rounded.
const TOKEN: Duration = ns(16);
/// Tokens a second.
const RATE: f64 = 62_500_000.0;
/// The first delay of a key.
const BASE: Duration = ns(10);

fn bucket(burst: u32) -> (Arc<Bucket>, MockClock) {
    let (clock, time) = Clock::mock();
    (Arc::new(Bucket::with_clock(RATE, burst, clock)), time)
}

fn exponential<K>() -> ItemExponentialFailure<K> {
    ItemExponentialFailure::new(BASE, 8 * BASE)
}

fn sorted<T: Ord, const N: usize>(mut answers: [T; N]) -> [T; N] {
    answers.sort_unstable();
    answers
}

/// Threads try to acquire from a bucket that has been full for long: it admits as many as there are tokens, no more and no fewer.
#[test]
fn bucket_never_over_admits() {
    for burst in [1, 2] {
        check(move || {
            let (bucket, time) = bucket(burst);
            time.advance(5 * TOKEN);
            let others = [(); 2].map(|()| with(&bucket, |bucket| bucket.try_acquire().is_ok()));
            let mine = usize::from(bucket.try_acquire().is_ok());
            let admitted = others.map(|other| usize::from(other.join().unwrap())).iter().sum::<usize>() + mine;
            assert_eq!(admitted, burst as usize);
            assert_eq!(bucket.try_acquire().unwrap_err().wait(), TOKEN);
        });
    }
}

/// Threads reserve at the same time, and their reservations are one token apart.
#[test]
fn reservations_are_one_token_apart() {
    for (burst, delays) in [(1, [0, 1, 2]), (2, [0, 0, 1])] {
        check(move || {
            let (bucket, _time) = bucket(burst);
            let others = [(); 2].map(|()| with(&bucket, |bucket| bucket.when(&1)));
            let mine = bucket.reserve().delay();
            let [a, b] = others.map(|other| other.join().unwrap());
            assert_eq!(sorted([a, b, mine]), delays.map(|n| n * TOKEN));
        });
    }
}

/// A reservation is cancelled while other threads reserve: its token is returned to the bucket or lost. No two remaining
/// reservations are for the same time.
#[test]
fn cancelled_reservation_is_given_back_once_or_lost() {
    check(|| {
        let (bucket, _time) = bucket(1);
        let canceller = with(&bucket, |bucket| bucket.reserve().cancel());
        let other = with(&bucket, |bucket| bucket.reserve().delay());
        let mine = bucket.reserve().delay();
        let (lost, other) = (!canceller.join().unwrap(), other.join().unwrap());
        let last = bucket.reserve().delay();
        assert_eq!(last, (2 + u32::from(lost)) * TOKEN);
        let remaining = sorted([mine, other, last]);
        assert!(remaining[0] < remaining[1] && remaining[1] < remaining[2], "for the same time: {remaining:?}");
    });
}

/// Two reservations are cancelled at the same time: at least the token of the last one is returned.
#[test]
fn last_reservation_is_given_back() {
    check(|| {
        let (bucket, _time) = bucket(1);
        let other = with(&bucket, |bucket| bucket.reserve().cancel());
        let mine = bucket.reserve().cancel();
        let lost = [mine, other.join().unwrap()].map(|cancelled| u32::from(!cancelled)).iter().sum::<u32>();
        assert!(lost <= 1, "no thread has reserved after the last reservation");
        assert_eq!(bucket.reserve().delay(), lost * TOKEN);
    });
}

/// With `max_ahead`, a reservation that would have to wait longer spends no token.
#[test]
fn bucket_never_reserves_past_max_ahead() {
    check(|| {
        let (clock, time) = Clock::mock();
        let bucket = Arc::new(Bucket::with_clock(RATE, 1, clock).max_ahead(TOKEN));
        let others = [(); 2].map(|()| with(&bucket, |bucket| bucket.reserve().delay()));
        let mine = bucket.reserve().delay();
        let [a, b] = others.map(|other| other.join().unwrap());
        assert_eq!(sorted([a, b, mine]), [Duration::ZERO, TOKEN, TOKEN]);
        time.advance(2 * TOKEN);
        assert_eq!(bucket.reserve().delay(), Duration::ZERO, "two tokens were spent");
    });
}

/// Calls of a bucket with rate 0 until its word has the largest value, which it keeps. A reservation with an infinite delay has
/// spent no token, so it cannot be cancelled.
#[test]
fn bucket_word_saturates() {
    check(|| {
        let (clock, _time) = Clock::mock();
        let bucket = Arc::new(Bucket::with_clock(0.0, 1, clock));
        // With rate 0 a token is an eighth of the word's range.
        let delays = [(); 7].map(|()| bucket.reserve().delay());
        assert_eq!((delays[0], delays[6]), (Duration::ZERO, Duration::MAX));
        let other = with(&bucket, |bucket| bucket.reserve().cancel());
        let mine = bucket.reserve().cancel();
        assert_eq!([mine, other.join().unwrap()], [false; 2]);
        assert_eq!(bucket.try_acquire().unwrap_err().wait(), Duration::MAX);
    });
}

/// Two threads call `when` for one key: one token is spent, and both wait for it.
#[test]
fn deduping_bucket_spends_one_token() {
    check(|| {
        let (clock, _time) = Clock::mock();
        let limiter = Arc::new(DedupingBucket::new(Bucket::with_clock(RATE, 1, clock)));
        assert_eq!(limiter.when(&0_u64), Duration::ZERO);
        let other = with(&limiter, |limiter| limiter.when(&1));
        assert_eq!((limiter.when(&1), other.join().unwrap()), (TOKEN, TOKEN));
        assert_eq!((limiter.when(&2), limiter.tracked_len()), (2 * TOKEN, 3));
    });
}

/// Three failures of a new key at the same time: each makes the delay longer.
#[test]
fn when_counts_each_failure_once() {
    check(|| {
        let limiter = Arc::new(exponential());
        let others = [(); 2].map(|()| with(&limiter, |limiter| limiter.when(&1_u64)));
        let mine = limiter.when(&1);
        let [a, b] = others.map(|other| other.join().unwrap());
        assert_eq!(sorted([a, b, mine]), [BASE, 2 * BASE, 4 * BASE]);
        assert_eq!((limiter.num_requeues(&1), limiter.tracked_len()), (3, 1));
    });
}

/// A key fails twice while it is forgotten before, between or after the failures. `num_requeues` returns a count of one of these
/// orders.
#[test]
fn when_races_forget() {
    check(|| {
        let limiter = Arc::new(exponential());
        let failing = with(&limiter, |limiter| [limiter.when(&1_u64), limiter.when(&1)]);
        let forgetter = with(&limiter, |limiter| limiter.forget(&1));
        let seen = limiter.num_requeues(&1);
        let delays = failing.join().unwrap();
        forgetter.join().unwrap();
        let left = limiter.num_requeues(&1);
        let orders = [([BASE, 2 * BASE], 2), ([BASE, BASE], 1), ([BASE, 2 * BASE], 0)];
        assert!(orders.contains(&(delays, left)), "{delays:?}, {left} left");
        assert!(seen <= if delays[0] == delays[1] { 1 } else { 2 });
        assert_eq!(limiter.tracked_len(), left.min(1));
    });
}

/// Three keys with room for two: never more than two are remembered, and two at the end.
#[test]
fn bounded_limiter_keeps_its_bound() {
    check(|| {
        let limiter = Arc::new(exponential().max_tracked(2));
        let others = [1, 2].map(|key| with(&limiter, move |limiter| limiter.when(&key)));
        assert!(limiter.tracked_len() <= 2);
        let delay = limiter.when(&3_u64);
        assert!(limiter.tracked_len() <= 2);
        assert_eq!(others.map(|other| other.join().unwrap()), [BASE; 2]);
        let counts = [1, 2, 3].map(|key| limiter.num_requeues(&key));
        assert_eq!((delay, sorted(counts), limiter.tracked_len()), (BASE, [0, 1, 1], 2));
    });
}

/// A thread that has read the time before it advanced does not age keys.
#[test]
fn stale_time_forgets_no_key() {
    check(|| {
        let (clock, time) = Clock::mock();
        let limiter = Arc::new(exponential().clock(clock).retain_recent(8 * BASE));
        assert_eq!(limiter.when(&1_u64), BASE);
        let other = with(&limiter, |limiter| limiter.when(&1));
        time.advance(8 * BASE);
        let mine = limiter.when(&1);
        assert_eq!(sorted([mine, other.join().unwrap()]), [2 * BASE, 4 * BASE]);
    });
}

/// With a seed, the callers together get the delays of the seed, in any order.
#[test]
fn seeded_jitter_draws_each_number_once() {
    check(|| {
        let limiter = || exponential().jitter(0.5).seed(7);
        let alone = limiter();
        let want = sorted([1_u64, 2].map(|key| alone.when(&key)));
        assert_ne!(want[0], want[1], "otherwise the model proves nothing");
        let limiter = Arc::new(limiter());
        let other = with(&limiter, |limiter| limiter.when(&1));
        assert_eq!(sorted([limiter.when(&2), other.join().unwrap()]), want);
    });
}

/// A limiter that counts the keys that it remembers.
trait Count: Send + Sync {
    fn count(&self) -> usize;
}

impl Count for ItemExponentialFailure<Curious> {
    fn count(&self) -> usize {
        self.tracked_len()
    }
}

impl Count for DedupingBucket<Curious> {
    fn count(&self) -> usize {
        self.tracked_len()
    }
}

/// A key that takes its limiter's locks when it is hashed, cloned and dropped. If the thread that does so holds one, the model
/// deadlocks.
struct Curious(u64, std::sync::Arc<dyn Count>);

impl Clone for Curious {
    fn clone(&self) -> Self {
        self.1.count();
        Self(self.0, std::sync::Arc::clone(&self.1))
    }
}

impl PartialEq for Curious {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Curious {}

impl Hash for Curious {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.count();
        self.0.hash(state);
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        self.1.count();
    }
}

/// W4 for limiters: two threads call `when` for a new key, or one evicts keys, forgets one, or drops old ones. No key is hashed, cloned
/// or dropped under a lock.
#[test]
fn limiter_clones_and_drops_without_a_lock() {
    fn model(
        bounds: fn(ItemExponentialFailure<Curious>) -> ItemExponentialFailure<Curious>,
        other: fn(&ItemExponentialFailure<Curious>, &dyn Fn(u64) -> Curious),
        age: Duration,
    ) {
        check(move || {
            let (clock, time) = Clock::mock();
            let limiter = std::sync::Arc::new(bounds(exponential().clock(clock)));
            let key = {
                let limiter = std::sync::Arc::clone(&limiter);
                move |n| Curious(n, limiter.clone())
            };
            limiter.when(&key(1));
            time.advance(age);
            let other = with(&limiter, {
                let key = key.clone();
                move |limiter| other(limiter, &key)
            });
            limiter.when(&key(2));
            other.join().unwrap();
            // Otherwise the keys and the limiter keep each other alive.
            (1..=3).for_each(|n| limiter.forget(&key(n)));
            assert_eq!(limiter.tracked_len(), 0);
        });
    }
    model(|limiter| limiter, |limiter, key| _ = limiter.when(&key(2)), Duration::ZERO);
    model(|limiter| limiter, |limiter, key| limiter.forget(&key(1)), Duration::ZERO);
    model(|limiter| limiter.max_tracked(2), |limiter, key| _ = limiter.when(&key(3)), Duration::ZERO);
    model(|limiter| limiter.retain_recent(8 * BASE), |limiter, _| limiter.shrink_to_fit(), 16 * BASE);
}

/// The same for a `DedupingBucket`, and for keys that it need not remember any more (W4).
#[test]
fn deduping_bucket_drops_without_a_lock() {
    check(|| {
        let (clock, _time) = Clock::mock();
        // The rate is infinite, so no token is outstanding.
        let limiter = std::sync::Arc::new(DedupingBucket::new(Bucket::with_clock(f64::INFINITY, 1, clock)));
        let key = {
            let limiter = std::sync::Arc::clone(&limiter);
            move |n| Curious(n, limiter.clone())
        };
        // Under loom the table has two locks, and room for three keys under each at first.
        for n in 0..5 {
            limiter.when(&key(n));
        }
        let other = with(&limiter, {
            let key = key.clone();
            move |limiter| limiter.when(&key(5))
        });
        limiter.when(&key(6));
        other.join().unwrap();
        limiter.shrink_to_fit();
        assert_eq!(limiter.tracked_len(), 0);
    });
}
