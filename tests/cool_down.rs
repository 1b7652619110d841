//! Cool-downs: `Item::cool_down`, `Outcome::Cooldown` and `WorkersBuilder::min_interval`.
//!
//! What any history of calls does is compared with the plain queue of `reference/`. Here are the sentences of the docs, each with the smallest
//! input; keys whose drops panic; and threads with the real clock.

mod support {
    pub(crate) mod manual;
}

use keyqueue::{AddOptions, Added, DelayConflict, Item, MockClock, OnPanic, Outcome, WorkQueue};
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};
use support::manual::{manual, manual_queue, pairs};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A key that was handed out once, and cools down for ten seconds.
fn resting() -> (WorkQueue<u32>, MockClock) {
    let (queue, time) = manual_queue();
    queue.add(1);
    queue.get().unwrap().cool_down(secs(10));
    (queue, time)
}

/// Advances the time, and returns the number of keys that became queued.
fn advance(queue: &WorkQueue<u32>, time: &MockClock, seconds: u64) -> usize {
    time.advance(secs(seconds));
    queue.turn()
}

#[test]
fn adds_meanwhile_become_one_run_and_without_an_add_there_is_none() {
    let (queue, time) = resting();
    assert_eq!((queue.add(1), queue.add(1), queue.is_empty()), (Added::Delayed, Added::Coalesced, true));
    assert_eq!((advance(&queue, &time, 9), advance(&queue, &time, 1), queue.len()), (0, 1, 1));
    queue.get().unwrap().succeed();
    assert_eq!(queue.add(1), Added::Queued, "the next run sets a new cool-down, or none");

    let (queue, time) = resting();
    assert_eq!((advance(&queue, &time, 10), queue.len()), (0, 0));
    assert_eq!(queue.add(1), Added::Queued);
}

#[test]
fn without_an_add_nobody_sees_the_key() {
    let (queue, time) = resting();
    let stats = queue.stats();
    assert_eq!((stats.delayed, stats.next_deadline, queue.delayed_len()), (0, None, 0));
    queue.wait_idle();
    assert!(queue.take_delayed().is_empty() && queue.inspect().delayed_keys().is_empty());
    assert!(!queue.cancel(&1) && !queue.remove(&1));
    assert_eq!(queue.add(1), Added::Delayed, "it cools down all the same");
    assert_eq!((queue.delayed_len(), queue.stats().next_deadline), (1, Some(secs(10))));
    assert!(!queue.cancel(&1), "a cancel leaves an add that is held back");
    assert!(queue.remove(&1), "and a remove takes it");
    assert_eq!((queue.delayed_len(), advance(&queue, &time, 10)), (0, 0));
}

#[test]
fn an_add_that_is_held_back_is_a_delayed_key() {
    let (queue, time) = resting();
    queue.add(1);
    time.advance(secs(4));
    assert_eq!(pairs(queue.take_delayed()), [(1, secs(6))]);
    queue.add(1);
    let workers = queue.workers().build();
    assert_eq!(pairs(workers.drain().delayed), [(1, secs(6))], "a drain does not wait for it");
}

#[test]
fn a_key_that_is_dirty_when_it_is_done_is_held_back() {
    for shuts_down in [false, true] {
        let (queue, time) = manual_queue();
        queue.add(1);
        let item = queue.get().unwrap();
        assert_eq!(queue.add(1), Added::Deferred);
        if shuts_down {
            queue.shut_down();
        }
        item.cool_down(secs(10));
        // A drain hands out what is left.
        assert_eq!((queue.len(), queue.delayed_len()), if shuts_down { (1, 0) } else { (0, 1) });
        if shuts_down {
            continue;
        }
        let stats = queue.stats();
        assert_eq!(stats.pushed + stats.deferred, stats.handed_out + stats.taken, "the counters add up");
        assert_eq!(advance(&queue, &time, 10), 1);
    }
}

/// What would come earlier waits, and what comes later is not changed.
#[test]
fn delays_wait_for_the_end() {
    let add = |queue: &WorkQueue<u32>, seconds| queue.add_after(1, secs(seconds));
    let due = |queue: &WorkQueue<u32>| pairs(queue.inspect().delayed_keys());
    let (queue, _time) = resting();
    assert_eq!((add(&queue, 3), due(&queue)), (Added::Delayed, vec![(1, secs(10))]));
    let (queue, time) = resting();
    assert_eq!((add(&queue, 30), due(&queue)), (Added::Delayed, vec![(1, secs(30))]));
    queue.add(1);
    assert_eq!(due(&queue), [(1, secs(10))]);
    assert_eq!((advance(&queue, &time, 10), due(&queue)), (1, vec![(1, secs(20))]), "both happen");

    let (queue, _time) = manual_queue();
    queue.add(1);
    let item = queue.get().unwrap();
    add(&queue, 3);
    item.cool_down(secs(10));
    assert_eq!(due(&queue), [(1, secs(10))], "a delay from before the cool-down");
    let replaces = AddOptions::new().after(secs(5)).conflict(DelayConflict::Replace);
    assert_eq!((queue.add_with(1, replaces), due(&queue)), (Added::Delayed, vec![(1, secs(10))]));
}

/// Ends one run of a key by this outcome, in a loop of workers with an interval of ten seconds. `None`: the task is dropped.
fn run_once(queue: &WorkQueue<u32>, outcome: Option<fn() -> Outcome>) {
    let workers = queue.workers().min_interval(secs(10)).build();
    let mut work = pin!(workers.run_async(async |_: &Item<'_, u32>| match outcome {
        Some(outcome) => outcome(),
        None => std::future::pending().await,
    }));
    queue.add(1);
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn the_interval_is_kept_after_each_kind_of_run() {
    type Run = (&'static str, Option<fn() -> Outcome>, u64);
    let runs: [Run; 9] = [
        ("success", Some(|| Outcome::Success), 10),
        ("failed", Some(|| Outcome::failed("it fails")), 10),
        ("requeue", Some(|| Outcome::RequeueAfter(secs(3))), 10),
        ("a later requeue", Some(|| Outcome::RequeueAfter(secs(60))), 10),
        ("requeue at once", Some(|| Outcome::RequeueWith(AddOptions::new())), 10),
        ("give up", Some(|| Outcome::GiveUp("no".into())), 10),
        ("panic", Some(|| panic!("a handler")), 10),
        ("a longer cool-down", Some(|| Outcome::Cooldown(secs(25))), 25),
        ("the task is dropped", None, 10),
    ];
    for on_panic in [OnPanic::Retry, OnPanic::Done] {
        for (name, outcome, seconds) in runs {
            let (builder, time) = manual(WorkQueue::builder());
            let queue = builder.on_panic(on_panic).build();
            run_once(&queue, outcome);
            queue.add(1);
            assert_eq!((queue.len(), queue.delayed_len(), queue.processing_len()), (0, 1, 0), "{name}");
            assert_eq!((advance(&queue, &time, seconds - 1), queue.len()), (0, 0), "{name}");
            advance(&queue, &time, 1);
            assert_eq!(queue.len(), 1, "{name}");
        }
    }
}

/// The rest begins when the limiter has answered, which may take long.
#[test]
fn a_slow_limiter_uses_nothing_up() {
    struct Slow(MockClock);
    impl keyqueue::rate_limiter::RateLimiter<u32> for Slow {
        fn when(&self, _: &u32) -> Duration {
            self.0.advance(secs(10));
            secs(1)
        }
        fn forget(&self, _: &u32) {
            self.0.advance(secs(10));
        }
        fn num_requeues(&self, _: &u32) -> usize {
            0
        }
    }
    for outcome in [|| Outcome::Success, || Outcome::failed("it fails"), || Outcome::GiveUp("no".into())] {
        let (builder, time) = manual(WorkQueue::builder());
        let queue = builder.rate_limiter(Slow(time.clone())).build();
        run_once(&queue, Some(outcome));
        assert_eq!((queue.turn(), queue.is_empty()), (0, true));
        queue.add(1);
        assert_eq!(advance(&queue, &time, 9), 0);
        advance(&queue, &time, 1);
        assert_eq!(queue.len(), 1);
    }
}

/// A queue that measures counts the time of a rest as no wait.
#[test]
fn a_rest_is_no_wait() {
    let (builder, time) = manual(WorkQueue::builder());
    let queue = builder.measure(true).build();
    queue.add_all(0..100);
    for _ in 0..100 {
        let item = queue.get().unwrap();
        queue.add(*item);
        item.cool_down(secs(10));
    }
    advance(&queue, &time, 10);
    (0..100).for_each(|_| assert!(queue.get().unwrap().waited().unwrap_or_default() < secs(1)));
}

/// With `Strict`: each add is served once, though the retry for which it has waited was moved or dropped.
#[test]
fn an_add_that_was_served_waits_no_longer() {
    let strict = || {
        let (builder, time) = manual(WorkQueue::builder());
        let backoff = keyqueue::rate_limiter::ItemExponentialFailure::new(secs(10), secs(1000));
        let queue = builder.delayed_add(keyqueue::DelayedAdd::Strict).rate_limiter(backoff).build();
        queue.add_rate_limited(1);
        queue.add(1);
        queue.add_after(1, secs(5));
        assert_eq!(queue.add(1), Added::Queued, "there is no retry any more");
        (queue, time)
    };
    let (queue, time) = strict();
    queue.get().unwrap().cool_down(secs(2));
    assert_eq!(advance(&queue, &time, 2), 0);
    let (queue, _time) = strict();
    queue.get().unwrap().done();
    assert!(queue.cancel(&1) && queue.is_empty());
    let (queue, _time) = strict();
    let item = queue.get().unwrap();
    queue.add(1);
    item.retry();
    queue.get().unwrap().succeed();
    assert!(queue.is_empty());
}

/// An add that is held back waits for no retry: without the interval it would have run at once.
#[test]
fn strict_adds_that_came_before_the_retry_wait_for_the_interval_alone() {
    let (builder, time) = manual(WorkQueue::builder());
    let backoff = keyqueue::rate_limiter::ItemExponentialFailure::new(secs(100), secs(1000));
    let queue = builder.delayed_add(keyqueue::DelayedAdd::Strict).rate_limiter(backoff).build();
    let workers = queue.workers().min_interval(secs(1)).build();
    let mut work = pin!(workers.run_async(async |item: &Item<'_, u32>| {
        if item.num_requeues() == 0 {
            queue.add(1);
        }
        Err::<(), _>("it fails")
    }));
    queue.add(1);
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((advance(&queue, &time, 1), queue.len()), (1, 1));
}

/// Of two `Workers` on one queue, that counts whose loop has made the run.
#[test]
fn the_interval_is_that_of_the_run() {
    let (queue, time) = manual_queue();
    run_once(&queue, Some(|| Outcome::Success));
    queue.add(1);
    assert_eq!(advance(&queue, &time, 10), 1);
    let others = queue.workers().build();
    let mut work = pin!(others.run_async(async |_: &Item<'_, u32>| ()));
    assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((queue.add(1), queue.len()), (Added::Queued, 1));
}

/// A key whose cool-down ends is dropped by the driver, or by a getter: its drop may panic, and the others must not be lost.
#[test]
fn a_key_whose_drop_panics_ends_its_cool_down() {
    #[derive(PartialEq, Eq, Hash, Clone)]
    struct Key(u32);
    impl Drop for Key {
        fn drop(&mut self) {
            assert!(self.0 != 7 || thread::panicking(), "the drop of a key");
        }
    }
    let (queue, time) = manual_queue();
    for key in 6..9 {
        queue.add(Key(key));
        queue.get().unwrap().cool_down(secs(1));
    }
    queue.add(Key(8));
    time.advance(secs(1));
    assert_eq!((queue.turn(), queue.len(), queue.stats().caught_panics), (1, 1, 1));
    drop(queue.get().unwrap());
    assert_eq!(queue.add(Key(6)), Added::Queued);
}

/// A million keys that cool down leave nothing behind.
#[test]
fn keys_that_have_cooled_down_are_gone() {
    let keys = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let (queue, time) = manual_queue();
    for key in 0..keys {
        queue.add(key);
        queue.get().unwrap().cool_down(secs(1 + u64::from(key % 100)));
    }
    queue.add(5);
    assert_eq!((advance(&queue, &time, 200), queue.len()), (1, 1));
    assert_eq!((0..keys).map(|key| usize::from(queue.add(key) == Added::Queued)).sum::<usize>(), keys as usize - 1);
}

/// With threads and the real clock: an object that changes all the time runs at most once in an interval, and its last change is seen.
#[test]
fn many_events_are_few_runs() {
    const INTERVAL: Duration = Duration::from_millis(20);
    for shards in [1, 4] {
        let queue = WorkQueue::<u32>::builder().shards(shards).build();
        let (version, runs) = (AtomicU64::new(0), Mutex::new(Vec::<(u32, Instant, Instant, u64)>::new()));
        thread::scope(|scope| {
            let workers = queue.workers().min_interval(INTERVAL).build();
            for _ in 0..2 {
                let (workers, version, runs) = (workers.clone(), &version, &runs);
                scope.spawn(move || {
                    workers.run(|item| {
                        let (start, seen) = (Instant::now(), version.load(Ordering::Relaxed));
                        runs.lock().unwrap().push((*item.key(), start, Instant::now(), seen));
                    });
                });
            }
            let start = Instant::now();
            while start.elapsed() < 10 * INTERVAL {
                version.fetch_add(1, Ordering::Relaxed);
                queue.add_all(0..8);
                thread::sleep(Duration::from_micros(100));
            }
            queue.wait_idle();
            let _leftover = workers.drain();
        });
        let runs = runs.into_inner().unwrap();
        for key in 0..8 {
            let of_key: Vec<_> = runs.iter().filter(|run| run.0 == key).collect();
            assert_eq!(of_key.last().expect("it ran").3, version.load(Ordering::Relaxed), "the last event was seen");
            for pair in of_key.windows(2) {
                let between = pair[1].1.duration_since(pair[0].2);
                assert!(between >= INTERVAL, "{between:?} between the runs of key {key}");
            }
        }
    }
}
