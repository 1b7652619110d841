//! Limiters that several threads call, and retries with the delays that they return: P1 to P4, P7, P9, P12, W2, W4.
#![cfg(loom)]

use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{AddOptions, Added, Clock, MockClock, OwnedItem, WorkQueue};
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Nosy, check, manual, ns, with};
use std::hash::{Hash, Hasher};
use std::sync::RwLock;
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

/// The same while the clock advances by one token, which is added unless the bucket is full. A thread that has read the time
/// before the advance does not undo it.
#[test]
fn bucket_never_over_admits_as_time_passes() {
    for burst in [1, 2] {
        check(move || {
            let (bucket, time) = bucket(burst);
            let others = [(); 2].map(|()| with(&bucket, |bucket| bucket.try_acquire().is_ok()));
            time.advance(TOKEN);
            let mine = usize::from(bucket.try_acquire().is_ok());
            let admitted = others.map(|other| usize::from(other.join().unwrap())).iter().sum::<usize>() + mine;
            let left = std::iter::from_fn(|| bucket.try_acquire().ok()).count();
            // At least one call comes after the advance. If none came before it, the bucket was full, and the new token is lost.
            assert!((1..=3).contains(&admitted));
            assert!([burst as usize, burst as usize + 1].contains(&(admitted + left)), "{admitted}, {left} left");
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

/// The key is forgotten between: its token stays spent, and a later caller reserves another one.
#[test]
fn token_of_a_forgotten_key_stays_spent() {
    check(|| {
        let (clock, _time) = Clock::mock();
        let limiter = Arc::new(DedupingBucket::new(Bucket::with_clock(RATE, 1, clock)));
        assert_eq!(limiter.when(&0_u64), Duration::ZERO);
        let other = with(&limiter, |limiter| limiter.when(&1));
        let forgetter = with(&limiter, |limiter| limiter.forget(&1));
        let waits = sorted([limiter.when(&1), other.join().unwrap()]);
        forgetter.join().unwrap();
        assert!([[TOKEN, TOKEN], [TOKEN, 2 * TOKEN]].contains(&waits), "{waits:?}");
        assert_eq!(limiter.when(&2), waits[1] + TOKEN);
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

/// A key fails while two others evict it: its count goes on or starts again, and from then on the key is one of the latest.
#[test]
fn when_races_eviction() {
    check(|| {
        let limiter = Arc::new(exponential().max_tracked(2));
        assert_eq!([(); 2].map(|()| limiter.when(&1_u64)), [BASE, 2 * BASE]);
        let other = with(&limiter, |limiter| [2, 3].map(|key| limiter.when(&key)));
        let delay = limiter.when(&1);
        assert_eq!(other.join().unwrap(), [BASE; 2]);
        let counts = [1, 2, 3].map(|key| limiter.num_requeues(&key));
        // The failure came before both, between them, or after both.
        let orders = [(4 * BASE, [0, 1, 1]), (4 * BASE, [3, 0, 1]), (BASE, [1, 0, 1])];
        assert!(orders.contains(&(delay, counts)), "{delay:?}, {counts:?}");
        assert_eq!(limiter.tracked_len(), 2);
    });
}

/// A key at the age limit is forgotten by one thread and fails in another, while a third thread's call evicts old keys: a
/// forgotten key does not come back, and no key is lost too early.
#[test]
fn expiry_of_old_keys_races_forget() {
    check(|| {
        let (clock, time) = Clock::mock();
        let limiter = Arc::new(exponential().clock(clock).retain_recent(8 * BASE));
        assert_eq!(limiter.when(&1_u64), BASE);
        time.advance(8 * BASE);
        let other = with(&limiter, |limiter| limiter.when(&2));
        let forgetter = with(&limiter, |limiter| limiter.forget(&1));
        let delay = limiter.when(&1);
        assert_eq!(other.join().unwrap(), BASE);
        forgetter.join().unwrap();
        let left = limiter.num_requeues(&1);
        assert!([(BASE, 1), (2 * BASE, 0)].contains(&(delay, left)), "{delay:?}, {left} left");
        assert_eq!((limiter.num_requeues(&2), limiter.tracked_len()), (1, 1 + left));
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

/// A retry, like `requeue_after` and `requeue_with`, is one step: `stats` shows the key as processing, queued or delayed, and in
/// one of these states only.
#[test]
fn retry_is_one_step() {
    fn model(end: fn(OwnedItem<u64>) -> Added, added: Added) {
        check(move || {
            let queue = manual().0.build();
            queue.add(1);
            let item = queue.get().unwrap().into_owned();
            let looker = with(&queue, |queue| {
                for _ in 0..2 {
                    let stats = queue.stats();
                    assert_eq!(stats.processing + stats.delayed + stats.len, 1, "{stats:?}");
                }
            });
            assert_eq!(end(item), added);
            looker.join().unwrap();
        });
    }
    model(OwnedItem::retry, Added::Delayed);
    model(|item| item.requeue_after(BASE), Added::Delayed);
    model(|item| item.requeue_with(AddOptions::new()), Added::Deferred);
}

/// A limiter that takes its queue's lock whenever it is called. If the calling thread holds the lock, the model deadlocks.
#[derive(Default)]
struct Looking(RwLock<Option<WorkQueue<u64>>>);

impl Looking {
    fn look(&self) -> usize {
        self.0.read().unwrap().as_ref().unwrap().stats().delayed
    }
}

impl RateLimiter<u64> for Looking {
    fn when(&self, _: &u64) -> Duration {
        self.look();
        BASE
    }

    fn forget(&self, _: &u64) {
        self.look();
    }

    fn num_requeues(&self, _: &u64) -> usize {
        self.look()
    }
}

/// W4 for limiters, which are user code.
#[test]
fn limiter_is_called_without_the_lock() {
    check(|| {
        let limiter = Arc::new(Looking::default());
        let queue = manual().0.rate_limiter(Arc::clone(&limiter)).build();
        *limiter.0.write().unwrap() = Some(queue.clone());
        queue.add_all([1, 2, 3]);
        let [a, b, c] = [(); 3].map(|()| queue.get().unwrap().into_owned());
        let other = with(&queue, |queue| {
            assert_eq!(queue.add_rate_limited(4), Added::Delayed);
            assert!((1..=3).contains(&queue.num_requeues(&4)));
            queue.forget(&4);
        });
        assert!(a.num_requeues() <= 1);
        a.retry();
        b.succeed();
        c.requeue_after(BASE);
        other.join().unwrap();
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.processing), (3, 0));
        // Otherwise the queue and the limiter keep each other alive.
        *limiter.0.write().unwrap() = None;
    });
}

/// W4 for the copies of keys that the queue and the limiter make: none is dropped under the lock.
#[test]
fn limits_drop_keys_without_the_lock() {
    check(|| {
        let (builder, time) = manual::<Nosy>();
        let queue = builder.rate_limiter(exponential()).build();
        queue.add(Nosy(1, queue.clone()));
        let item = queue.get().unwrap().into_owned();
        let other = with(&queue, |queue| {
            queue.add_rate_limited(Nosy(1, queue.clone()));
            queue.forget(&Nosy(1, queue.clone()));
        });
        item.retry();
        other.join().unwrap();
        time.advance(4 * BASE);
        assert_eq!(queue.turn(), 1);
        // Otherwise the keys and the queue keep each other alive.
        queue.get().unwrap().succeed();
        queue.add(Nosy(2, queue.clone()));
        let item = queue.get().unwrap();
        queue.shut_down();
        assert_eq!(item.retry(), Added::Rejected);
        queue.forget(&Nosy(2, queue.clone()));
        assert_eq!((queue.processing_len(), queue.delayed_len()), (0, 0));
    });
}

/// A key that has failed is done while another thread forgets it: the later of the two calls frees it (I4, I10).
#[test]
fn failed_key_is_freed_when_done_and_forgotten() {
    for succeed in [false, true] {
        check(move || {
            let (builder, time) = manual();
            let queue = builder.rate_limiter(exponential()).build();
            let key = std::sync::Arc::new(1_u64);
            queue.add(key.clone());
            queue.get().unwrap().retry();
            time.advance(BASE);
            assert_eq!(queue.turn(), 1);
            let item = queue.get().unwrap().into_owned();
            assert_eq!(item.num_requeues(), 1);
            let worker = thread::spawn(move || if succeed { item.succeed() } else { item.done() });
            queue.forget(&key);
            worker.join().unwrap();
            assert_eq!(queue.num_requeues(&key), 0);
            assert_eq!(std::sync::Arc::strong_count(&key), 1, "the queue still has the key");
        });
    }
}
