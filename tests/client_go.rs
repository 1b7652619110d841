//! client-go's own test cases, written again for this queue.
//!
//! The cases are those of `util/workqueue/queue_test.go`, `delaying_queue_test.go`, `default_rate_limiters_test.go` and
//! `rate_limiting_queue_test.go` in kubernetes/client-go (Apache-2.0); the code is not a translation. Where the original sleeps
//! to let another goroutine make progress, these tests wait for that progress; and where it polls for keys that its background
//! loop adds, these tests call `turn` once.
//!
//! Checks P1 to P7, and P15 for keys that are done; of delays, that they are never early, that the earliest of a key wins,
//! and that keys come in order of deadline; of limiters, the delays, the counts, and what `forget` does. Two cases that the
//! original gets wrong are added (kubernetes#141079).

mod support {
    pub(crate) mod manual;
    pub(crate) mod until;
}

use keyqueue::rate_limiter::{ItemExponentialFailure, ItemFastSlow, MaxOf, RateLimiter, Step, WithMaxWait};
use keyqueue::{Added, Clock, Driver, MockClock, WorkQueue};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use support::manual::{manual_queue, pairs};
use support::until::wait_until;

/// The two ends of a queue, each of which lets the getters take what is queued.
const ENDS: [fn(&WorkQueue<usize>); 2] = [WorkQueue::shut_down, WorkQueue::shut_down_with_drain];

/// Producers and consumers run at the same time: all keys are processed, and none has two holders.
#[test]
fn basic() {
    ENDS.into_iter().for_each(produce_and_consume);
}

fn produce_and_consume(shut_down: fn(&WorkQueue<usize>)) {
    const PRODUCERS: usize = 50;
    const CONSUMERS: usize = 10;
    const ADDS: usize = 50;
    let queue = WorkQueue::<usize>::new();
    let start = Barrier::new(PRODUCERS + CONSUMERS);
    let busy: Vec<AtomicBool> = (0..PRODUCERS).map(|_| AtomicBool::new(false)).collect();
    let worked = Mutex::new(HashMap::<usize, usize>::new());
    thread::scope(|s| {
        for _ in 0..CONSUMERS {
            s.spawn(|| {
                start.wait();
                while let Some(item) = queue.get() {
                    assert!(!busy[*item].swap(true, Ordering::Relaxed), "key {} has two holders", *item);
                    *worked.lock().unwrap().entry(*item).or_default() += 1;
                    thread::yield_now();
                    assert!(busy[*item].swap(false, Ordering::Relaxed));
                }
            });
        }
        let producer = |key| {
            start.wait();
            for _ in 0..ADDS {
                assert!(queue.add(key).is_accepted());
                thread::yield_now();
            }
        };
        let producers: Vec<_> = (0..PRODUCERS).map(|key| s.spawn(move || producer(key))).collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        shut_down(&queue);
        assert_eq!(queue.add(0), Added::Rejected);
    });
    assert!(queue.is_empty());
    let worked = worked.into_inner().unwrap();
    assert_eq!(worked.len(), PRODUCERS);
    assert!(worked.values().all(|&times| (1..=ADDS).contains(&times)));
}

/// Every consumer adds the key that it holds: the key is handed out again, but only after `done`.
#[test]
fn add_while_processing() {
    ENDS.into_iter().for_each(produce_and_add_again);
}

fn produce_and_add_again(shut_down: fn(&WorkQueue<usize>)) {
    const KEYS: usize = 50;
    let queue = WorkQueue::<usize>::new();
    let worked = Mutex::new(HashMap::<usize, usize>::new());
    thread::scope(|s| {
        for _ in 0..10 {
            s.spawn(|| {
                while let Some(item) = queue.get() {
                    let first_time = {
                        let mut worked = worked.lock().unwrap();
                        let times = worked.entry(*item).or_default();
                        *times += 1;
                        *times == 1
                    };
                    if first_time {
                        assert_eq!(queue.add(*item), Added::Deferred);
                    }
                }
            });
        }
        (0..KEYS).for_each(|key| assert_eq!(queue.add(key), Added::Queued));
        // Only keys that were added before the shut-down come back after it.
        wait_until(|| worked.lock().unwrap().len() == KEYS && queue.stats().deferred == KEYS as u64);
        shut_down(&queue);
    });
    assert!(queue.is_empty());
    assert_eq!(*worked.lock().unwrap(), (0..KEYS).map(|key| (key, 2)).collect());
}

#[test]
fn len_counts_queued_keys() {
    let queue = WorkQueue::new();
    for (key, added, len) in [("foo", Added::Queued, 1), ("bar", Added::Queued, 2), ("foo", Added::Coalesced, 2)] {
        assert_eq!((queue.add(key), queue.len()), (added, len));
    }
    assert_eq!(queue.get_many(3).len(), 2, "it should not have been added again");
}

#[test]
fn reinsert_while_processing() {
    let queue = WorkQueue::new();
    queue.add("foo");
    let first = queue.get().unwrap();
    queue.add(*first);
    assert_eq!(queue.len(), 0, "queued only at done");
    first.done();
    let second = queue.get().unwrap();
    assert_eq!(*second, "foo");
    second.done();
    assert_eq!(queue.len(), 0);
}

#[test]
fn adds_coalesce_while_processing() {
    let queue = WorkQueue::new();
    queue.add("bar");
    let item = queue.get().unwrap();
    assert_eq!(queue.add("bar"), Added::Deferred);
    assert_eq!(queue.add("bar"), Added::Coalesced);
    assert_eq!(queue.len(), 0);
    thread::scope(|s| {
        let other = s.spawn(|| *queue.get().unwrap());
        item.done();
        assert_eq!(other.join().unwrap(), "bar");
    });
    assert_eq!((queue.len(), queue.processing_len()), (0, 0));
}

#[test]
fn drain_waits_for_processing_items_and_for_dirty_ones_to_be_processed_again() {
    let queue = WorkQueue::new();
    queue.add("foo");
    queue.add("bar");
    let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
    queue.add("foo");
    queue.add("bar");
    thread::scope(|s| {
        let drain = s.spawn(|| queue.shut_down_with_drain());
        wait_until(|| queue.stats().drainers == 1);
        first.done();
        assert!(!drain.is_finished(), "one is still processing");
        second.done();
        assert!(!drain.is_finished(), "both are queued again");
        let (first, second) = (queue.get().unwrap(), queue.get().unwrap());
        assert_eq!((*first, *second), ("foo", "bar"));
        assert!(queue.get().is_none());
        first.done();
        assert!(!drain.is_finished());
        second.done();
        drain.join().unwrap();
    });
}

#[test]
fn a_plain_shut_down_releases_a_drain() {
    let queue = WorkQueue::new();
    queue.add("foo");
    queue.add("bar");
    let _never_done = (queue.get().unwrap(), queue.get().unwrap());
    thread::scope(|s| {
        let drain = s.spawn(|| queue.shut_down_with_drain());
        wait_until(|| queue.stats().drainers == 1);
        queue.shut_down();
        drain.join().unwrap();
    });
    assert_eq!(queue.processing_len(), 2);
}

/// The count of an `Arc` shows whether the queue still has it.
#[test]
fn a_key_is_kept_once_and_not_after_it_is_done() {
    let (queue, key) = (WorkQueue::new(), Arc::new(1));
    for _ in 0..3 {
        queue.add(Arc::clone(&key));
    }
    assert_eq!(Arc::strong_count(&key), 2);
    let item = queue.get().unwrap();
    for _ in 0..3 {
        queue.add(Arc::clone(&key));
    }
    assert_eq!(Arc::strong_count(&key), 2);
    item.done();
    queue.get().unwrap().done();
    assert_eq!(Arc::strong_count(&key), 1, "done, but still in the queue");
    queue.shut_down();
    queue.add(Arc::clone(&key));
    assert_eq!(Arc::strong_count(&key), 1, "a rejected key is not kept either");
}

#[test]
fn drain_waits_for_queued_and_processing_keys() {
    // client-go returns as soon as no key is processing, although keys are queued.
    let queue = WorkQueue::new();
    queue.add_all([1, 2, 3]);
    let drained = AtomicBool::new(false);
    let (step, next) = mpsc::channel();
    thread::scope(|s| {
        s.spawn(|| {
            queue.shut_down_with_drain();
            drained.store(true, Ordering::Release);
        });
        s.spawn(|| {
            for () in next {
                queue.get().expect("queued before the shut-down").done();
            }
        });
        wait_until(|| queue.stats().drainers == 1);
        for left in (0..3).rev() {
            assert!(!drained.load(Ordering::Acquire), "{} keys are queued", left + 1);
            step.send(()).unwrap();
            wait_until(|| queue.len() == left && queue.processing_len() == 0);
        }
        drop(step);
    });
    assert!(drained.into_inner());
    assert!(queue.get().is_none());
}

#[test]
fn two_drainers_both_return() {
    // client-go wakes only one of them.
    for plain_shut_down in [false, true] {
        let queue = WorkQueue::new();
        queue.add(1);
        let item = queue.get().unwrap();
        thread::scope(|s| {
            let drainers = [s.spawn(|| queue.shut_down_with_drain()), s.spawn(|| queue.shut_down_with_drain())];
            wait_until(|| queue.stats().drainers == 2);
            if plain_shut_down {
                queue.shut_down();
            } else {
                item.done();
            }
            drainers.into_iter().for_each(|drainer| drainer.join().unwrap());
        });
        assert_eq!(queue.stats().drainers, 0);
    }
}

// ---- the delaying queue ----

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Advances the clock, expects that `due` delays expire, and takes the queued keys.
fn step<K>(queue: &WorkQueue<K>, clock: &MockClock, by: Duration, due: usize) -> Vec<K>
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
{
    clock.advance(by);
    assert_eq!(queue.turn(), due);
    std::iter::from_fn(|| queue.try_get().ok().map(|item| item.key().clone())).collect()
}

#[test]
fn a_delayed_add_is_handed_out_once() {
    let (queue, clock) = manual_queue();
    assert_eq!(queue.add_after("foo", ms(50)), Added::Delayed);
    assert_eq!((queue.len(), queue.delayed_len()), (0, 1), "it should not have been added yet");
    assert_eq!(step(&queue, &clock, ms(60), 1), ["foo"]);
    // Past the next heartbeat of the original.
    assert!(step(&queue, &clock, ms(10_000), 0).is_empty());
}

#[test]
fn of_several_delays_of_a_key_the_earliest_expires() {
    let (queue, clock) = manual_queue();
    assert_eq!(queue.add_after("foo", ms(50)), Added::Delayed);
    assert_eq!(queue.add_after("foo", ms(70)), Added::Coalesced);
    assert_eq!((queue.len(), queue.delayed_len()), (0, 1));
    assert_eq!(step(&queue, &clock, ms(60), 1), ["foo"]);
    assert!(step(&queue, &clock, ms(20), 0).is_empty(), "past the second add");

    // Again, but this time the later add is the earlier one.
    assert_eq!(queue.add_after("foo", ms(50)), Added::Delayed);
    assert_eq!(queue.add_after("foo", ms(30)), Added::Delayed);
    assert_eq!((queue.len(), queue.delayed_len()), (0, 1));
    assert_eq!(step(&queue, &clock, ms(40), 1), ["foo"]);
    assert!(step(&queue, &clock, ms(20), 0).is_empty(), "past the first add");

    // A key that is processing can be delayed.
    queue.add("foo");
    let item = queue.get().unwrap();
    assert_eq!(queue.add_after("foo", ms(5)), Added::Delayed);
    assert_eq!((queue.delayed_len(), item.is_dirty()), (1, false));
    item.done();
    assert_eq!((queue.len(), queue.delayed_len()), (0, 1));
}

#[test]
fn a_later_add_with_an_earlier_deadline_comes_first() {
    let (queue, clock) = manual_queue();
    queue.add_after("foo", ms(1_000));
    queue.add_after("bar", ms(50));
    assert_eq!(queue.len(), 0);
    assert_eq!(step(&queue, &clock, ms(60), 1), ["bar"]);
    queue.add_after("baz", ms(2_000));
    assert_eq!(step(&queue, &clock, ms(1_000), 1), ["foo"]);
    assert_eq!(step(&queue, &clock, ms(2_000), 1), ["baz"]);
}

#[test]
fn keys_that_expire_together_come_in_order_of_deadline() {
    let (queue, clock) = manual_queue();
    queue.add_after("foo", ms(1_000));
    queue.add_after("bar", ms(500));
    queue.add_after("baz", ms(250));
    assert_eq!(queue.len(), 0);
    assert_eq!(step(&queue, &clock, ms(2_000), 3), ["baz", "bar", "foo"]);
}

// ---- the limiters, and the queue with one ----

/// `forget` resets its key only.
#[test]
fn each_limiter_has_its_delays_for_each_key() {
    type Limiter = Box<dyn RateLimiter<&'static str>>;
    let exponential = || ItemExponentialFailure::new(ms(1), ms(1_000));
    let longest: Vec<Limiter> = vec![Box::new(ItemFastSlow::new(ms(5), ms(3_000), 3)), Box::new(exponential())];
    let capped = WithMaxWait::new(Step::new([(0, ms(5)), (3, ms(1_000_000))]), ms(500));
    let limiters: [(Limiter, [u64; 5]); 4] = [
        (Box::new(exponential()), [1, 2, 4, 8, 16]),
        (Box::new(ItemFastSlow::new(ms(5), ms(10_000), 3)), [5, 5, 5, 10_000, 10_000]),
        (Box::new(MaxOf::new(longest)), [5, 5, 5, 3_000, 3_000]),
        (Box::new(capped), [5, 5, 5, 500, 500]),
    ];
    for (limiter, delays) in limiters {
        assert_eq!(delays.map(|_| limiter.when(&"one")), delays.map(ms));
        assert_eq!(limiter.num_requeues(&"one"), delays.len());
        assert_eq!(
            [limiter.when(&"two"), limiter.when(&"two")],
            [ms(delays[0]), ms(delays[1])],
            "keys are independent"
        );
        assert_eq!(limiter.num_requeues(&"two"), 2);
        limiter.forget(&"one");
        assert_eq!((limiter.num_requeues(&"one"), limiter.num_requeues(&"two")), (0, 2));
        assert_eq!(limiter.when(&"one"), ms(delays[0]));
    }
}

#[test]
fn the_exponential_limiter_does_not_overflow() {
    let (minute, hour) = (ms(60_000), ms(3_600_000));
    for (base, max, failures, factor) in [(ms(1), ms(1_000_000), 5, 32), (minute, 1_000 * hour, 2, 4)] {
        let limiter = ItemExponentialFailure::new(base, max);
        (0..failures).for_each(|_| _ = limiter.when(&"few"));
        assert_eq!(limiter.when(&"few"), factor * base);
        (0..1_000).for_each(|_| _ = limiter.when(&"many"));
        assert_eq!(limiter.when(&"many"), max);
    }
}

#[test]
fn rate_limited_adds_back_off_and_forget_resets_the_backoff() {
    let (clock, time) = Clock::mock();
    let limiter = ItemExponentialFailure::new(ms(1), ms(1_000));
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).rate_limiter(limiter).build();
    // The original reads each add, and its delay, from the channel to its background loop. Here they are taken from the queue.
    let add = |key: &'static str| {
        assert_eq!(queue.add_rate_limited(key), Added::Delayed);
        let delays = pairs(queue.take_delayed());
        assert_eq!((delays.len(), delays[0].0), (1, key));
        delays[0].1
    };
    assert_eq!([add("one"), add("one")], [1, 2].map(ms));
    assert_eq!(queue.num_requeues(&"one"), 2);
    assert_eq!([add("two"), add("two")], [1, 2].map(ms));
    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    assert_eq!(add("one"), ms(1));
    assert_eq!(queue.add_rate_limited("two"), Added::Delayed);
    assert!(step(&queue, &time, ms(3), 0).is_empty());
    assert_eq!(step(&queue, &time, ms(1), 1), ["two"]);
}
