//! The pace, a limit of hand-outs of the whole queue (P31). The plain queue of `reference/` has one, too, and judges each hand-out by it; here is
//! what takes threads, real time or a driver thread.

#[path = "support/tasks.rs"]
mod tasks;
#[path = "support/until.rs"]
mod until;

use keyqueue::{AddOptions, Clock, Driver, MockClock, Priority, WorkQueue, WorkQueueBuilder};
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tasks::{Calls, poll};
use until::wait_until;

const MS: Duration = Duration::from_millis(1);
/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(if cfg!(miri) { 3000 } else { 60 });

/// With a mock clock and no driver thread.
fn mocked(rate: f64, burst: u32) -> (WorkQueueBuilder<u32>, MockClock) {
    let (clock, time) = Clock::mock();
    (WorkQueue::builder().clock(clock).driver(Driver::Manual).pace(rate, burst), time)
}

/// `get_many`, unless it would wait for its first key.
fn many<K: Hash + Eq>(queue: &WorkQueue<K>, n: usize) -> usize {
    let waits = queue.is_empty() || queue.stats().paced_for.is_some();
    if waits { 0 } else { queue.get_many(n).len() }
}

const YEARLY: f64 = 1.0 / (365.0 * 86_400.0);

#[test]
fn bad_settings_are_errors() {
    let error = |rate, burst| {
        let error = WorkQueue::<u32>::builder().pace(rate, burst).try_build().unwrap_err();
        assert_eq!(error.argument(), "pace");
        error.to_string()
    };
    for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0, 0.0] {
        assert!(error(rate, 1).contains("positive and finite"), "{rate}");
    }
    for rate in [f64::MIN_POSITIVE, 1e-300, 0.99 / (366.0 * 86_400.0)] {
        assert!(error(rate, 1).contains("at least one in a year"), "{rate}");
    }
    assert_eq!(error(5.0, 0), "pace is (5.0, 0): with a burst of 0 no key would be handed out");
    assert!(std::panic::catch_unwind(|| drop(mocked(0.0, 1).0.build())).is_err());
    for rate in [YEARLY, 1e9, 2e9, f64::MAX] {
        let (builder, _time) = mocked(rate, u32::MAX);
        let queue = builder.build();
        queue.add(1);
        assert!(queue.try_get().is_ok(), "{rate}");
    }
}

#[test]
#[cfg(feature = "lock-free")]
fn a_lock_free_queue_has_no_pace() {
    let error = WorkQueue::<u32>::builder().lock_free().pace(1.0, 1).try_build().unwrap_err();
    assert_eq!(error.argument(), "pace");
}

/// A rate above a token for each nanosecond is no limit, and the lowest one gives its burst, and a key in a year.
#[test]
fn extreme_rates() {
    let [(unlimited, _), (yearly, time)] = [2e9, YEARLY].map(|rate| mocked(rate, 3));
    let [unlimited, yearly] = [unlimited, yearly].map(|builder| builder.build());
    unlimited.add_all(0..100);
    assert_eq!((many(&unlimited, 100), unlimited.stats().paced_for), (100, None));
    yearly.add_all(0..100);
    assert_eq!(many(&yearly, 100), 3);
    let year = yearly.stats().paced_for.unwrap();
    assert_eq!(year.as_secs_f64().round() * YEARLY, 1.0);
    time.advance(year);
    assert_eq!(many(&yearly, 100), 1);
}

/// At each moment exactly as many keys come as the rate says, in any shards and by any form of `get`.
#[test]
fn exact_by_a_mock_clock() {
    for (shards, period, burst) in [(1, 10, 1), (1, 7, 5), (16, 10, 3), (64, 1_000_000, 20)] {
        let rate = 1e9 / period as f64;
        let is_whole = 1_000_000_000 % period == 0;
        let (builder, time) = mocked(rate, burst);
        let queue = builder.shards(shards).build();
        let mut random = fastrand::Rng::with_seed(7);
        // In units of a nanosecond; a token takes `period`.
        let (mut now, mut full, room) = (0, u64::from(burst) * period, u64::from(burst) * period);
        let mut next = 0;
        for step in 0..2000 {
            for _ in 0..random.u32(..8) {
                queue.add(next);
                next += 1;
            }
            let keys = queue.len() as u64;
            let tokens = full / period;
            let wanted = random.u64(..6);
            let got = if random.bool() {
                many(&queue, wanted as usize) as u64
            } else {
                (0..wanted).map_while(|_| queue.try_get().ok()).count() as u64
            };
            let expected = wanted.min(tokens).min(keys);
            // A rate that takes no whole number of nanoseconds may be off by four of them.
            assert!(
                got == expected || !is_whole && got.abs_diff(expected) <= 1,
                "{got} of {expected} at {now}, step {step}"
            );
            full -= got.min(tokens) * period;
            let by = random.u64(..2 * period);
            time.advance(Duration::from_nanos(by));
            now += by;
            full = (full + by).min(room);
            if is_whole {
                let left = (full < period).then(|| Duration::from_nanos(period - full));
                assert_eq!(queue.stats().paced_for, left);
            }
        }
    }
}

/// All getters together stay below the rate in each span, by the times that they read around their calls: the crate's reading of a hand-out
/// lies between them.
#[test]
fn exact_with_threads_and_the_real_clock() {
    const RATE: u64 = 20_000;
    const BURST: u64 = 8;
    const KEYS: u64 = if cfg!(miri) { 30 } else { 6_000 };
    let queue = WorkQueue::builder().shards(16).pace(RATE as f64, BURST as u32).build();
    queue.add_all(0..KEYS);
    let begin = Instant::now();
    let nanos = || begin.elapsed().as_nanos() as u64;
    let left = AtomicU64::new(KEYS);
    let mut seen: Vec<(u64, u64)> = thread::scope(|scope| {
        let getters: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = Vec::new();
                    while left.load(Ordering::Relaxed) > 0 {
                        let before = nanos();
                        if let Ok(item) = queue.try_get() {
                            seen.push((before, nanos()));
                            left.fetch_sub(1, Ordering::Relaxed);
                            item.done();
                        }
                    }
                    seen
                })
            })
            .collect();
        getters.into_iter().flat_map(|getter| getter.join().unwrap()).collect()
    });
    assert_eq!(seen.len() as u64, KEYS);
    assert!(nanos() >= (KEYS - BURST) * 1_000_000_000 / RATE);
    seen.sort_unstable();
    // For each begin, the hand-outs from there on, by their ends.
    for from in (0..seen.len()).step_by(if KEYS > 100 { 17 } else { 1 }) {
        let begin = seen[from].0;
        let mut ends: Vec<u64> = seen[from..].iter().map(|(_, after)| *after).collect();
        ends.sort_unstable();
        for (count, end) in (1..).zip(ends) {
            let most = BURST + (end - begin) * RATE / 1_000_000_000;
            assert!(count <= most, "{count} keys in {} ns, at most {most}", end - begin);
        }
    }
}

/// Whoever waits gets the next token by itself: threads with a driver thread and without, and tasks with one.
#[test]
fn getters_wait_for_tokens() {
    const KEYS: u32 = 20;
    for (driver, is_task, shards) in
        [(Driver::Thread, false, 1), (Driver::Manual, false, 1), (Driver::Thread, true, 1), (Driver::Thread, false, 4)]
    {
        let queue = WorkQueue::builder().driver(driver).shards(shards).pace(1000.0, 1).build();
        queue.add_all(0..KEYS);
        let begin = Instant::now();
        thread::scope(|scope| {
            for getter in 0..3 {
                let queue = &queue;
                scope.spawn(move || {
                    loop {
                        let got = match (is_task, getter) {
                            (true, _) => futures_executor::block_on(queue.get_async()).is_some(),
                            (false, 0) => queue.get().is_some(),
                            (false, 1) => queue.get_timeout(LONG).is_ok(),
                            _ => !queue.get_batch(5).is_empty(),
                        };
                        if !got {
                            break;
                        }
                    }
                });
            }
            wait_until(|| queue.stats().handed_out == u64::from(KEYS));
            assert!(begin.elapsed() >= (KEYS - 1) * MS, "{:?}", begin.elapsed());
            queue.shut_down();
        });
    }
}

/// A thread parks in real time for as long as a clock that is a function has to go.
#[test]
fn a_thread_waits_by_a_function() {
    let begin = Instant::now();
    let clock = Clock::from_fn(move || begin.elapsed());
    let queue = WorkQueue::builder().clock(clock).driver(Driver::Manual).pace(100.0, 1).build();
    queue.add_all([1, 2]);
    assert!(queue.get().is_some() && queue.get().is_some());
    assert!(begin.elapsed() >= 10 * MS);
}

/// Threads without a driver: each that is woken by its own time-out wakes the next, so that not one of them gets all keys.
#[test]
fn threads_without_a_driver_all_get_keys() {
    let queue: WorkQueue<u32> = WorkQueue::builder().driver(Driver::Manual).pace(1000.0, 1).build();
    let held = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let item = queue.get_timeout(LONG).unwrap();
                held.fetch_add(1, Ordering::Relaxed);
                wait_until(|| held.load(Ordering::Relaxed) == 3); // it takes no other key
                item.done();
            });
        }
        wait_until(|| queue.stats().waiters == 3);
        queue.add_all([1, 2, 3]);
    });
}

/// With a mock clock a move of the time wakes the driver thread, which wakes one getter for each token, and pushes wake nobody meanwhile.
#[test]
fn the_driver_wakes_one_getter_for_each_token() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).pace(1000.0, 1).build();
    queue.add_all(0..10);
    drop(queue.try_get().unwrap());
    let calls: Vec<_> = (0..4).map(|_| Arc::<Calls>::default()).collect();
    let mut gets: Vec<_> = (0..4).map(|_| Box::pin(queue.get_async())).collect();
    for (get, calls) in gets.iter_mut().zip(&calls) {
        assert!(poll(get.as_mut(), calls).is_pending());
    }
    let woken = || calls.iter().map(|calls| calls.count()).collect::<Vec<_>>();
    queue.add_all(10..20);
    queue.add(20);
    thread::sleep(5 * MS);
    assert_eq!(woken(), [0; 4], "there is no token");
    time.advance(MS);
    wait_until(|| woken() == [1, 0, 0, 0]);
    thread::sleep(5 * MS);
    assert_eq!(woken(), [1, 0, 0, 0]);
    // It is not polled, and the next token wakes the next.
    time.advance(MS);
    wait_until(|| woken() == [1, 1, 0, 0]);
    // The burst is 1, so one of them finds no token.
    assert!(poll(gets[1].as_mut(), &calls[1]).is_ready());
    assert!(poll(gets[0].as_mut(), &calls[0]).is_pending());
    time.advance(MS);
    wait_until(|| woken() == [2, 1, 0, 0]);
    queue.shut_down();
    let _left = queue.take_where(|_| true);
}

/// A getter that was woken for the token gives up: another one gets it, and the token was not spent.
#[test]
fn a_getter_that_gives_up_passes_the_token_on() {
    let (clock, time) = Clock::mock();
    let queue = WorkQueue::builder().clock(clock).pace(1000.0, 1).build();
    queue.add_all(0..3);
    drop(queue.try_get().unwrap());
    let calls = [(); 2].map(|()| Arc::<Calls>::default());
    let mut first = Box::pin(queue.get_async());
    let mut second = Box::pin(queue.get_async());
    assert!(poll(first.as_mut(), &calls[0]).is_pending());
    assert!(poll(second.as_mut(), &calls[1]).is_pending());
    time.advance(MS);
    wait_until(|| calls[0].count() == 1);
    drop(first);
    assert_eq!(calls[1].count(), 1, "the drop wakes the next");
    assert!(poll(second.as_mut(), &calls[1]).is_ready());
}

/// Without a driver thread, `turn` wakes tasks.
#[test]
fn turn_wakes_a_task_for_each_token() {
    let (builder, time) = mocked(1000.0, 2);
    let queue = builder.build();
    queue.add_all(0..10);
    assert_eq!(many(&queue, 10), 2);
    let calls: Vec<_> = (0..4).map(|_| Arc::<Calls>::default()).collect();
    let mut gets: Vec<_> = (0..4).map(|_| Box::pin(queue.get_async())).collect();
    for (get, calls) in gets.iter_mut().zip(&calls) {
        assert!(poll(get.as_mut(), calls).is_pending());
    }
    let woken = || calls.iter().map(|calls| calls.count()).collect::<Vec<_>>();
    queue.turn();
    assert_eq!(woken(), [0; 4]);
    time.advance(2 * MS);
    assert_eq!(woken(), [0; 4]);
    queue.turn();
    assert_eq!(woken(), [1, 1, 0, 0]);
    assert!(gets[..2].iter_mut().zip(&calls).all(|(get, calls)| poll(get.as_mut(), calls).is_ready()));
}

/// The stream of items waits as `get_async` does.
#[test]
#[cfg(feature = "stream")]
fn a_stream_waits_for_tokens() {
    use futures_util::Stream;
    let (builder, time) = mocked(1000.0, 1);
    let queue = builder.build();
    queue.add_all(0..3);
    let mut stream = std::pin::pin!(queue.stream());
    let calls = Arc::<Calls>::default();
    let mut next =
        || stream.as_mut().poll_next(&mut std::task::Context::from_waker(&Arc::clone(&calls).into())).is_ready();
    assert!(next() && !next());
    time.advance(MS);
    queue.turn();
    assert_eq!(calls.count(), 1);
    assert!(next() && !next());
}

#[test]
fn many_and_batches_are_as_many_as_there_are_tokens() {
    for shards in [1, 16] {
        let (builder, time) = mocked(10.0, 5);
        let queue = builder.shards(shards).build();
        queue.add_all(0..100);
        assert_eq!(queue.get_batch(3).len(), 3);
        assert_eq!(many(&queue, 100), 2);
        assert_eq!(many(&queue, 100), 0);
        assert!(queue.try_get().unwrap_err().is_empty());
        assert!(queue.get_timeout(Duration::ZERO).unwrap_err().is_timeout());
        time.advance(Duration::from_secs(3600));
        assert_eq!(queue.get_batch(100).len(), 5);
        assert_eq!((queue.len(), queue.is_empty()), (90, false));
    }
}

/// Calls that take keys out need no token, and spend none.
#[test]
fn taking_out_is_not_paced() {
    let (builder, _time) = mocked(10.0, 2);
    let queue = builder.build();
    queue.add_all(0..100);
    assert_eq!(queue.take_where(|key| *key < 50).queued.len(), 50);
    assert!(queue.remove(&99));
    assert_eq!(many(&queue, 100), 2, "the burst is there");
    assert_eq!(queue.take_where(|_| true).queued.len(), 47);
}

/// Neither an empty queue nor a full group costs a token.
#[test]
fn only_hand_outs_spend() {
    let (builder, _time) = mocked(10.0, 3);
    let queue = builder.fair_by(|key| key % 2).max_processing_per_group(1).build();
    for _ in 0..100 {
        assert!(queue.try_get().is_err() && queue.get_timeout(Duration::ZERO).is_err());
    }
    queue.add_all([0, 2, 4, 1]);
    let held = queue.get_many(10);
    assert_eq!(held.len(), 2);
    assert!(queue.try_get().is_err(), "the group is full");
    drop(held);
    assert_eq!(many(&queue, 10), 1, "the third token");
    assert!(queue.try_get().is_err());
    assert_eq!(queue.len(), 1);
}

/// The next token goes to the key that is first when it comes.
#[test]
fn a_token_goes_to_the_highest_priority() {
    for shards in [1, 16] {
        let (builder, time) = mocked(1000.0, 1);
        let queue = builder.shards(shards).build();
        queue.add_all(0..100);
        drop(queue.try_get().unwrap());
        _ = queue.add_with(1000, AddOptions::new().priority(Priority::HIGH));
        assert!(queue.try_get().is_err());
        let place = (1..).find(|_| {
            time.advance(MS);
            *queue.try_get().unwrap() == 1000
        });
        assert!(
            place == Some(1) || shards > 1 && place <= Some(4),
            "with several shards a getter stays with one for some keys"
        );
        // Lower levels have their turns: one of 16.
        (0..200).for_each(|key| _ = queue.add_with(2000 + key, AddOptions::new().priority(Priority::HIGH)));
        let mut lower = 0;
        for _ in 0..160 {
            time.advance(MS);
            lower += u32::from(*queue.try_get().unwrap() < 1000);
            assert!(queue.try_get().is_err());
        }
        assert!((8..=11).contains(&lower), "{lower} lower ones with {shards} shards");
    }
}

/// Delays expire while there is no token, and their keys wait for one.
#[test]
fn delayed_keys_are_paced() {
    let (builder, time) = mocked(1000.0, 1);
    let queue = builder.build();
    (0..3).for_each(|key| _ = queue.add_after(key, MS));
    time.advance(MS);
    assert_eq!((queue.turn(), queue.len()), (3, 3));
    for key in 0..3 {
        assert_eq!(*queue.try_get().unwrap(), key);
        assert!(queue.try_get().is_err());
        time.advance(MS);
    }
}

/// After a shut-down getters wait for tokens until no key is queued, and all of them learn of the end: with a driver thread that starts
/// only then, and without one.
#[test]
fn a_shut_down_keeps_the_pace() {
    for (driver, shards) in [(Driver::Thread, 1), (Driver::Thread, 4), (Driver::Manual, 1), (Driver::Manual, 4)] {
        for is_task in [false, true] {
            if is_task && driver == Driver::Manual {
                continue; // tasks need a `turn`
            }
            let queue = WorkQueue::builder().driver(driver).shards(shards).pace(1000.0, 1).build();
            queue.add_all(0..10_u32);
            let begin = Instant::now();
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        if is_task {
                            while futures_executor::block_on(queue.get_async()).is_some() {}
                        } else {
                            while queue.get().is_some() {}
                        }
                    });
                }
                queue.shut_down_with_drain();
            });
            assert!(begin.elapsed() >= 9 * MS);
            assert!(queue.try_get().unwrap_err().is_shut_down());
        }
    }
}

/// A drain with a deadline says what is left, and a getter that waits for a token learns of the end when the last key is taken out.
#[test]
fn a_drain_ends_at_its_deadline() {
    let queue = WorkQueue::builder().pace(0.001, 1).build();
    queue.add_all([1, 2, 3]);
    thread::scope(|scope| {
        let getters: Vec<_> =
            (0..2).map(|_| scope.spawn(|| std::iter::from_fn(|| queue.get().map(drop)).count())).collect();
        wait_until(|| queue.stats().waiters == 2);
        let error = queue.shut_down_with_drain_timeout(5 * MS).unwrap_err();
        assert_eq!((error.queued, error.processing), (2, 0));
        assert!(queue.try_get().unwrap_err().is_empty());
        assert!(queue.remove(&2) && queue.remove(&3));
        assert_eq!(getters.into_iter().map(|getter| getter.join().unwrap()).sum::<usize>(), 1);
    });
}

/// `stop`, and a drain at its deadline, return the keys at once.
#[test]
fn workers_stop_at_once() {
    for is_drain in [false, true] {
        let queue = WorkQueue::builder().pace(0.001, 2).build();
        let workers = queue.workers().spawn(3, |_| {}).unwrap();
        queue.add_all(0..10);
        wait_until(|| workers.tally().succeeded == 2 && queue.stats().waiters == 3);
        let begin = Instant::now();
        let left = if is_drain { workers.drain_timeout(5 * MS) } else { workers.stop() };
        assert_eq!(left.queued, (2..10).collect::<Vec<_>>());
        workers.join();
        assert!(begin.elapsed() < LONG);
    }
}

/// `wait_idle` waits for keys that wait for a token.
#[test]
fn an_idle_wait_waits_for_tokens() {
    let queue = WorkQueue::builder().pace(1000.0, 1).build();
    let workers = queue.workers().spawn(2, |_| {}).unwrap();
    let begin = Instant::now();
    queue.add_all(0..20);
    queue.wait_idle();
    assert!(begin.elapsed() >= 19 * MS);
    let _left = workers.drain();
}

/// Getters come and go with time-outs, tasks are dropped, keys come and go: nobody is forgotten.
#[test]
fn getters_that_come_and_go_lose_no_key() {
    const KEYS: u64 = if cfg!(miri) { 20 } else { 1000 };
    for shards in [1, 4] {
        let queue = WorkQueue::builder().shards(shards).pace(10_000.0, 2).build();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..3 {
                let (queue, is_over) = (&queue, &is_over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let calls = Arc::<Calls>::default();
                    while !is_over.load(Ordering::Relaxed) {
                        if random.bool() {
                            _ = queue.get_timeout(Duration::from_micros(random.u64(..300)));
                        } else {
                            let mut get = Box::pin(queue.get_async());
                            _ = poll(Pin::new(&mut get), &calls);
                            thread::sleep(Duration::from_micros(random.u64(..300)));
                        }
                    }
                });
            }
            // One that stays, and takes no part in the time-outs.
            scope.spawn(|| while queue.get().is_some() {});
            for key in 0..KEYS {
                queue.add(key);
                if key % 50 == 49 {
                    wait_until(|| queue.is_empty());
                }
            }
            queue.shut_down_with_drain();
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(queue.stats().handed_out, KEYS);
    }
}
