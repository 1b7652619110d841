//! Limiters that several threads ask, and what the queue does with their answers: P1 to P4, P7, P9, P12, W2, W4 for keys that are
//! tried again.
#![cfg(loom)]

use keyqueue::rate_limiter::{Bucket, DedupingBucket, ItemExponentialFailure, RateLimiter};
use keyqueue::{AddOptions, Added, Clock, DelayedAdd, Driver, MockClock, OwnedItem, WorkQueue};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Nosy, check, ns, rest, with};
use std::hash::{Hash, Hasher};
use std::sync::RwLock;
use std::time::Duration;

/// A token: a power of two, so nothing is rounded.
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

/// A queue whose keys back off, and its time: it delivers when somebody turns.
fn backing_off(policy: DelayedAdd) -> (WorkQueue<u64>, MockClock) {
    let (clock, time) = Clock::mock();
    let builder = WorkQueue::builder().clock(clock).driver(Driver::Manual).delayed_add(policy);
    (builder.rate_limiter(exponential()).build(), time)
}

/// The same with one key, which is held.
fn holding(policy: DelayedAdd) -> (WorkQueue<u64>, MockClock, OwnedItem<u64>) {
    let (queue, time) = backing_off(policy);
    queue.add(1);
    let item = queue.get().unwrap().into_owned();
    (queue, time, item)
}

fn sorted<T: Ord, const N: usize>(mut answers: [T; N]) -> [T; N] {
    answers.sort_unstable();
    answers
}

/// All ask a bucket that has been full for long: as many are let through as there are tokens, no more, no fewer.
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

/// And while the time moves on, by a token: that one is there too, unless it came while the bucket was full. Who has read the
/// time before that does not take it back.
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
            // One at least came after the advance. If nobody came before it, the token that it brought did not fit in.
            assert!((1..=3).contains(&admitted));
            assert!([burst as usize, burst as usize + 1].contains(&(admitted + left)), "{admitted}, {left} left");
        });
    }
}

/// Tokens that are reserved at a time come one after the other.
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

/// A token that is given back while others reserve: it is there again, or it is lost. No two that stand are for one moment.
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
        let stand = sorted([mine, other, last]);
        assert!(stand[0] < stand[1] && stand[1] < stand[2], "for one moment: {stand:?}");
    });
}

/// Two are given back at a time: that which was reserved last at least is there again.
#[test]
fn last_reservation_is_given_back() {
    check(|| {
        let (bucket, _time) = bucket(1);
        let other = with(&bucket, |bucket| bucket.reserve().cancel());
        let mine = bucket.reserve().cancel();
        let lost = [mine, other.join().unwrap()].map(|cancelled| u32::from(!cancelled)).iter().sum::<u32>();
        assert!(lost <= 1, "nobody has reserved after the last one");
        assert_eq!(bucket.reserve().delay(), lost * TOKEN);
    });
}

/// With a limit to how far ahead: who would have to wait longer spends nothing.
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
        assert_eq!(bucket.reserve().delay(), Duration::ZERO, "two were spent");
    });
}

/// A bucket into which nothing comes, and that has been asked so often that its word is at the end: it stays there. Who is told
/// "never" has spent nothing to give back.
#[test]
fn bucket_word_saturates() {
    check(|| {
        let (clock, _time) = Clock::mock();
        let bucket = Arc::new(Bucket::with_clock(0.0, 1, clock));
        // A token is an eighth of the line then.
        let delays = [(); 7].map(|()| bucket.reserve().delay());
        assert_eq!((delays[0], delays[6]), (Duration::ZERO, Duration::MAX));
        let other = with(&bucket, |bucket| bucket.reserve().cancel());
        let mine = bucket.reserve().cancel();
        assert_eq!([mine, other.join().unwrap()], [false; 2]);
        assert_eq!(bucket.try_acquire().unwrap_err().wait(), Duration::MAX);
    });
}

/// Two threads ask for one key: one token, and both wait for that.
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

/// The key is forgotten meanwhile: its token stays spent, and who asks afterwards gets another.
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

/// Three failures at a time of a key that is new: each makes the delay longer.
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

/// A key fails twice while it is forgotten: before, in between, or after. And who looks finds one of these numbers.
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

/// Two keys that are new at a time, in one part, and one of them twice.
#[test]
fn two_new_keys_share_a_lock() {
    check(|| {
        // So few are in one part; and there is room for three without forgetting.
        let limiter = Arc::new(exponential().max_tracked(7));
        let others = [1, 2].map(|key| with(&limiter, move |limiter| limiter.when(&key)));
        let mine = limiter.when(&1_u64);
        let [one, two] = others.map(|other| other.join().unwrap());
        assert_eq!((sorted([mine, one]), two), ([BASE, 2 * BASE], BASE));
        assert_eq!([1, 2].map(|key| limiter.num_requeues(&key)), [2, 1]);
        assert_eq!(limiter.tracked_len(), 2);
    });
}

/// Three keys, and room for two: never more are remembered, and in the end no fewer.
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

/// A key fails while two others push it out: it goes on from its count, or begins again; and is one of the latest from then on.
#[test]
fn when_races_eviction() {
    check(|| {
        let limiter = Arc::new(exponential().max_tracked(2));
        assert_eq!([(); 2].map(|()| limiter.when(&1_u64)), [BASE, 2 * BASE]);
        let other = with(&limiter, |limiter| [2, 3].map(|key| limiter.when(&key)));
        let delay = limiter.when(&1);
        assert_eq!(other.join().unwrap(), [BASE; 2]);
        let counts = [1, 2, 3].map(|key| limiter.num_requeues(&key));
        // Before both, between them, after both.
        let orders = [(4 * BASE, [0, 1, 1]), (4 * BASE, [3, 0, 1]), (BASE, [1, 0, 1])];
        assert!(orders.contains(&(delay, counts)), "{delay:?}, {counts:?}");
        assert_eq!(limiter.tracked_len(), 2);
    });
}

/// A key that has grown old is forgotten by its user, asked for, and put aside by what others do: none of that brings it back,
/// and none loses it before its time.
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

/// Who has read the time before others moved on does not make keys older by that.
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

/// Of failures that come before the delay is served, one counts.
#[test]
fn served_only_counts_one_of_two() {
    check(|| {
        let (clock, time) = Clock::mock();
        let limiter = Arc::new(exponential().clock(clock).served_only());
        let other = with(&limiter, |limiter| limiter.when(&1_u64));
        let third = with(&limiter, |limiter| limiter.when(&1_u64));
        assert_eq!([other, third].map(|other| other.join().unwrap()), [BASE; 2]);
        assert_eq!(limiter.num_requeues(&1), 1);
        time.advance(BASE);
        assert_eq!(limiter.when(&1), 2 * BASE);
    });
}

/// With a seed, the delays are those of the seed, whoever gets which.
#[test]
fn seeded_jitter_draws_each_number_once() {
    check(|| {
        let limiter = || exponential().jitter(0.5).seed(7);
        let alone = limiter();
        let want = sorted([1_u64, 2].map(|key| alone.when(&key)));
        assert_ne!(want[0], want[1], "else nothing is seen here");
        let limiter = Arc::new(limiter());
        let other = with(&limiter, |limiter| limiter.when(&1));
        assert_eq!(sorted([limiter.when(&2), other.join().unwrap()]), want);
    });
}

/// Something that counts the keys that it remembers.
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

/// A key that looks at its limiter when it is hashed, cloned and dropped: it finds out who does that under a lock.
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

/// W4 for limiters: two threads ask for a new key, others push keys out, forget them, make them old.
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
            // Or the keys keep the limiter, and it the keys.
            (1..=3).for_each(|n| limiter.forget(&key(n)));
            assert_eq!(limiter.tracked_len(), 0);
        });
    }
    model(|limiter| limiter, |limiter, key| _ = limiter.when(&key(2)), Duration::ZERO);
    model(|limiter| limiter, |limiter, key| limiter.forget(&key(1)), Duration::ZERO);
    model(|limiter| limiter.max_tracked(2), |limiter, key| _ = limiter.when(&key(3)), Duration::ZERO);
    model(|limiter| limiter.retain_recent(8 * BASE), |limiter, _| limiter.shrink_to_fit(), 16 * BASE);
}

/// W4: also keys that need not be remembered any more.
#[test]
fn deduping_bucket_drops_without_a_lock() {
    check(|| {
        let (clock, _time) = Clock::mock();
        // No limit, so nothing is outstanding.
        let limiter = std::sync::Arc::new(DedupingBucket::new(Bucket::with_clock(f64::INFINITY, 1, clock)));
        let key = {
            let limiter = std::sync::Arc::clone(&limiter);
            move |n| Curious(n, limiter.clone())
        };
        // There are two parts under loom, and room for three keys in one at first.
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

/// A retry and an add of the key that is retried: the add is handed out, and the retry is when its delay is over; that of an add
/// which came later as the policy says.
fn retry_races_add(policy: DelayedAdd) {
    check(move || {
        let (queue, time, item) = holding(policy);
        let adder = with(&queue, |queue| queue.add(1));
        assert_eq!(item.retry(), Added::Delayed);
        let added = adder.join().unwrap();
        let now = rest(&queue).len();
        time.advance(BASE);
        let fired = queue.turn();
        let later = rest(&queue).len();
        let want = match (added, policy) {
            (Added::Queued, DelayedAdd::Promote) => (1, 0, 0),
            (Added::Queued, DelayedAdd::Independent) | (Added::Deferred, _) => (1, 1, 1),
            (Added::Coalesced, DelayedAdd::Strict) => (0, 1, 1),
            other => unreachable!("{other:?}"),
        };
        assert_eq!((now, fired, later), want, "{added:?}");
        assert_eq!((queue.delayed_len(), queue.processing_len(), queue.num_requeues(&1)), (0, 0, 1));
    });
}

#[test]
fn retry_races_add_independent() {
    retry_races_add(DelayedAdd::Independent);
}

#[test]
fn retry_races_add_promote() {
    retry_races_add(DelayedAdd::Promote);
}

#[test]
fn retry_races_add_strict() {
    retry_races_add(DelayedAdd::Strict);
}

/// P1, P2: a key that is retried and added has one holder, who sees what the last one did.
#[test]
fn retried_key_has_one_holder() {
    fn work(cell: &UnsafeCell<usize>) -> usize {
        cell.with_mut(|n| {
            // SAFETY: what is being checked: loom panics before this if two holders are here, or do not see each other's work.
            unsafe {
                *n += 1;
                *n
            }
        })
    }
    check(|| {
        let (queue, time, item) = holding(DelayedAdd::Independent);
        let cell = Arc::new(UnsafeCell::new(0));
        let adder = with(&queue, |queue| queue.add(1));
        let worker = with(&queue, {
            let cell = Arc::clone(&cell);
            move |queue| {
                let item = queue.get().unwrap();
                assert_eq!(work(&cell), 2);
                item.done();
            }
        });
        assert_eq!(work(&cell), 1);
        assert_eq!(item.retry(), Added::Delayed);
        time.advance(BASE);
        assert_eq!(queue.turn(), 1);
        worker.join().unwrap();
        adder.join().unwrap();
        // The add, and the retry; or one hand-out for both.
        let stats = queue.stats();
        assert_eq!((stats.queued + stats.deferred + stats.coalesced, stats.processing, stats.delayed), (3, 0, 0));
        assert_eq!(rest(&queue).len() as u64 + stats.coalesced, 1);
    });
}

/// A retry, or another way of putting the key off, is one step: who looks finds the key in work, or in line, or delayed, and at
/// one of these only.
#[test]
fn retry_is_one_step() {
    fn model(end: fn(OwnedItem<u64>) -> Added, added: Added) {
        check(move || {
            let (queue, _time, item) = holding(DelayedAdd::Independent);
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

/// P12: a retry meets the shut-down: refused, or kept as delayed by the time that adds are refused; done and counted in either
/// case.
#[test]
fn retry_races_shutdown() {
    check(|| {
        let (queue, _time, item) = holding(DelayedAdd::Independent);
        let drainer = with(&queue, |queue| {
            queue.shut_down();
            let taken = queue.take_delayed();
            queue.shut_down_with_drain();
            assert_eq!(queue.processing_len(), 0);
            taken
        });
        let added = item.retry();
        let taken = drainer.join().unwrap();
        match added {
            Added::Delayed => assert_eq!(taken, [(1, BASE)]),
            Added::Rejected => assert_eq!(taken, []),
            other => unreachable!("{other:?}"),
        }
        assert!(queue.get().is_none());
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.rejected), (0, u64::from(added == Added::Rejected)));
        assert_eq!(queue.num_requeues(&1), 1);
    });
}

/// P7: a retry is the end of the work for a drain, which may sleep by then.
#[test]
fn retry_ends_a_drain() {
    check(|| {
        let (queue, _time, item) = holding(DelayedAdd::Independent);
        let drainer = with(&queue, |queue| {
            queue.shut_down_with_drain();
            queue.take_delayed()
        });
        let added = item.retry();
        let taken = drainer.join().unwrap();
        assert_eq!(taken, if added == Added::Delayed { vec![(1, BASE)] } else { vec![] }, "{added:?}");
    });
}

/// A retry meets a `cancel` of its key: cancelled, and gone; or handed out again. The failure counts in either case.
#[test]
fn retry_races_cancel() {
    check(|| {
        let (queue, time, item) = holding(DelayedAdd::Independent);
        let canceller = with(&queue, |queue| queue.cancel(&1));
        assert_eq!(item.retry(), Added::Delayed);
        let cancelled = canceller.join().unwrap();
        time.advance(BASE);
        assert_eq!(queue.turn(), usize::from(!cancelled));
        assert_eq!(rest(&queue).len(), usize::from(!cancelled));
        assert_eq!((queue.delayed_len(), queue.num_requeues(&1)), (0, 1));
        assert_eq!(queue.add(1), Added::Queued);
    });
}

/// P9: two failures at a time: both count, and of their delays the shorter one, once.
#[test]
fn add_rate_limited_counts_both() {
    check(|| {
        let (queue, time) = backing_off(DelayedAdd::Independent);
        let other = with(&queue, |queue| queue.add_rate_limited(1));
        let added = [queue.add_rate_limited(1), other.join().unwrap()];
        assert!(added.iter().all(|added| matches!(added, Added::Delayed | Added::Coalesced)), "{added:?}");
        assert_eq!((queue.num_requeues(&1), queue.delayed_len()), (2, 1));
        time.advance(BASE);
        assert_eq!(queue.turn(), 1);
        time.advance(BASE);
        assert_eq!(queue.turn(), 0);
    });
}

/// P9: also if one of them is the retry of who holds the key.
#[test]
fn retry_races_add_rate_limited() {
    check(|| {
        let (queue, time, item) = holding(DelayedAdd::Independent);
        let other = with(&queue, |queue| queue.add_rate_limited(1));
        let added = [item.retry(), other.join().unwrap()];
        assert!(added.iter().all(|added| matches!(added, Added::Delayed | Added::Coalesced)), "{added:?}");
        let stats = queue.stats();
        assert_eq!((stats.delayed, stats.processing, stats.len, queue.num_requeues(&1)), (1, 0, 0, 2));
        time.advance(BASE);
        assert_eq!((queue.turn(), rest(&queue).len()), (1, 1));
        time.advance(BASE);
        assert_eq!((queue.turn(), rest(&queue).len()), (0, 0));
    });
}

/// Who is handed a key that succeeded finds it forgotten: that comes before `done`.
#[test]
fn next_holder_sees_no_failures() {
    fn model(end: fn(OwnedItem<u64>)) {
        check(move || {
            let (queue, time, item) = holding(DelayedAdd::Independent);
            item.retry();
            time.advance(BASE);
            assert_eq!(queue.turn(), 1);
            let item = queue.get().unwrap().into_owned();
            assert_eq!(item.num_requeues(), 1);
            let holder = thread::spawn(move || end(item));
            queue.add(1);
            assert_eq!(queue.get().unwrap().num_requeues(), 0);
            holder.join().unwrap();
            assert_eq!((queue.len(), queue.processing_len()), (0, 0));
        });
    }
    model(OwnedItem::succeed);
    model(|item| _ = item.requeue_after(BASE));
}

/// I8: the delay of a retry starts the driver, and wakes it from a longer sleep.
#[test]
fn retry_rearms_driver() {
    fn model(asleep: bool) {
        check(move || {
            // The clock that passes by being looked at, see `delays.rs`: nothing else wakes the driver.
            let limiter = ItemExponentialFailure::new(ns(1), ns(1));
            let queue = WorkQueue::builder().capacity(8).rate_limiter(limiter).build();
            queue.add(1);
            let item = queue.get().unwrap().into_owned();
            if asleep {
                queue.add_after(2, Duration::from_secs(3600));
            }
            let holder = thread::spawn(move || item.retry());
            assert_eq!(queue.get().as_deref(), Some(&1));
            assert_eq!(holder.join().unwrap(), Added::Delayed);
            queue.shut_down();
        });
    }
    model(false);
    model(true);
}

/// W2: a key that was added while in work goes in line with the retry, and wakes who sleeps.
#[test]
fn retry_of_a_dirty_key_wakes_a_getter() {
    check(|| {
        let (queue, _time, item) = holding(DelayedAdd::Independent);
        assert_eq!(queue.add(1), Added::Deferred);
        let getter = with(&queue, |queue| *queue.get().unwrap());
        assert_eq!(item.retry(), Added::Delayed);
        assert_eq!(getter.join().unwrap(), 1);
        assert_eq!(queue.delayed_len(), 1);
    });
}

/// A limiter that looks at its queue whenever it is asked: it finds out who asks it under the lock.
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
        let (clock, _time) = Clock::mock();
        let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(Arc::clone(&limiter)).build();
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
        // Or each keeps the other.
        *limiter.0.write().unwrap() = None;
    });
}

/// W4 for the keys that come and go with limits: the queue's copies, and the limiter's.
#[test]
fn limits_drop_keys_without_the_lock() {
    check(|| {
        let (clock, time) = Clock::mock();
        let builder = WorkQueue::<Nosy>::builder().clock(clock).driver(Driver::Manual);
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
        // Or the keys keep the queue, and it the keys.
        queue.get().unwrap().succeed();
        queue.add(Nosy(2, queue.clone()));
        let item = queue.get().unwrap();
        queue.shut_down();
        assert_eq!(item.retry(), Added::Rejected);
        queue.forget(&Nosy(2, queue.clone()));
        assert_eq!((queue.processing_len(), queue.delayed_len()), (0, 0));
    });
}

/// A key of which it is known whether it is still there.
#[derive(Clone)]
struct Kept(u64, Arc<()>);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A key that has failed is done while somebody has it forgotten: whoever is last drops it.
#[test]
fn failed_key_is_freed_when_done_and_forgotten() {
    for succeed in [false, true] {
        check(move || {
            let (clock, time) = Clock::mock();
            let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(exponential()).build();
            let key = Kept(1, Arc::new(()));
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
            assert_eq!(Arc::strong_count(&key.1), 1, "the queue still has it");
        });
    }
}

/// A key is forgotten while it is retried: before that, and the failure counts, or after it, and it is as if it were the first.
#[test]
fn retry_races_forget() {
    check(|| {
        let (queue, time, item) = holding(DelayedAdd::Independent);
        let worker = thread::spawn(move || item.retry());
        queue.forget(&1);
        assert_eq!(worker.join().unwrap(), Added::Delayed);
        let failures = queue.num_requeues(&1);
        assert!(failures <= 1);
        time.advance(BASE);
        assert_eq!(queue.turn(), 1, "it comes all the same");
        let item = queue.get().unwrap();
        assert_eq!(item.num_requeues(), failures);
        item.succeed();
        assert_eq!(queue.num_requeues(&1), 0);
    });
}
