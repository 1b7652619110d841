//! Queues with several shards: no key is lost or handed out twice, whatever way of waiting is used, and the order holds as
//! promised (P18). That each call finds the shard of its key is judged by the plain queue of `reference/`.

use futures_executor::block_on;
use keyqueue::{GetTimeoutError, WorkQueue};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn sharded(shards: usize) -> WorkQueue<u64> {
    WorkQueue::builder().shards(shards).build()
}

#[test]
fn the_number_is_rounded_up_to_a_power_of_two_and_limited() {
    for (asked, got) in [(0, 1), (1, 1), (2, 2), (3, 4), (16, 16), (33, 64), (64, 64), (usize::MAX, 64)] {
        assert_eq!(sharded(asked).shards(), got);
    }
}

/// With one getter a key is overtaken by at most (shards + 2) groups of 64, however long the line is: one group in each shard, one for the
/// shard with which the getter stays, and one for the shard to which its thread has just added a key (P18).
#[test]
fn a_key_is_overtaken_by_a_bounded_number_of_later_ones() {
    for (shards, keys) in [(2, 100_000), (16, 5_000), (16, 300_000), (64, 300_000)] {
        let queue = sharded(shards);
        (0..keys).for_each(|key| _ = queue.add(key));
        let mut order = Vec::new();
        while let Ok(item) = queue.try_get() {
            order.push(*item);
        }
        // Whatever is handed out before the lowest key that is still queued, and is higher, overtakes it.
        let (mut worst, mut lowest) = (0, 0);
        let mut taken = vec![false; keys as usize];
        for (count, key) in order.iter().enumerate() {
            taken[*key as usize] = true;
            while lowest < taken.len() && taken[lowest] {
                lowest += 1;
            }
            worst = worst.max(count + 1 - lowest);
        }
        assert_eq!(order.len(), keys as usize);
        assert!(worst <= (shards + 2) * 64, "{shards} shards, {keys} keys: {worst}");
    }
}

/// The keys of one shard are first in, first out: each worker of a queue with one thread sees them in the order of the adds.
#[test]
fn a_key_that_is_added_again_goes_to_the_back_of_its_shard() {
    let queue = sharded(4);
    (0..400).for_each(|key| _ = queue.add(key));
    let mut times = vec![0; 400];
    for _ in 0..40_000 {
        let item = queue.try_get().unwrap();
        times[*item as usize] += 1;
        queue.add(*item);
    }
    // Nobody starves: each shard's turn comes, and each key's turn in its shard.
    let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*least >= 40 && *most <= 250, "{least} to {most}");
}

/// Few keys and many shards, so that getters mostly wait. Ten ways to wait at the same time; after each accepted add there is a hand-out
/// (P2), and no key has two holders (P1).
#[test]
fn no_wake_up_is_lost_in_any_form_of_waiting() {
    const KEYS: u64 = 12;
    for (shards, seed) in [(2, 1), (16, 2), (64, 3)] {
        let queue = sharded(shards);
        // For each key: the number of the last accepted add, and the number that its last hand-out has seen.
        let added: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let seen: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let held: Vec<AtomicBool> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
        let work = |key: u64| {
            let key = key as usize;
            assert!(!held[key].swap(true, Ordering::AcqRel), "P1: two holders");
            seen[key].fetch_max(added[key].load(Ordering::Relaxed), Ordering::Relaxed);
            if key == 3 {
                thread::yield_now();
            }
            held[key].store(false, Ordering::Release);
        };
        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..10 {
                let (queue, work, ended) = (queue.clone(), &work, &ended);
                scope.spawn(move || {
                    loop {
                        match worker % 5 {
                            0 => match queue.get() {
                                Some(item) => work(*item),
                                None => break,
                            },
                            1 => match queue.get_timeout(Duration::from_micros(50)) {
                                Ok(item) => work(*item),
                                Err(GetTimeoutError::Timeout) => {}
                                Err(_) => break,
                            },
                            2 => match block_on(queue.get_async()) {
                                Some(item) => work(*item),
                                None => break,
                            },
                            3 => {
                                let items = queue.get_many(3);
                                if items.is_empty() {
                                    break;
                                }
                                items.into_iter().for_each(|item| work(*item));
                            }
                            // Futures that are polled once and dropped.
                            _ => {
                                let mut future = std::pin::pin!(queue.get_async());
                                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                                match future.as_mut().poll(&mut context) {
                                    std::task::Poll::Ready(Some(item)) => work(*item),
                                    std::task::Poll::Ready(None) => break,
                                    std::task::Poll::Pending => thread::yield_now(),
                                }
                            }
                        }
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            for producer in 0..2_u64 {
                let (queue, added) = (queue.clone(), &added);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 2 + producer);
                    for n in 0..20_000_u64 {
                        let key = random.u64(0..KEYS / 2) * 2 + producer; // each has keys of its own
                        added[key as usize].store(n + 1, Ordering::Relaxed);
                        match random.u8(0..4) {
                            0 => _ = queue.add_all([key, key]),
                            1 => _ = queue.add_after(key, Duration::from_micros(random.u64(0..30))),
                            _ => _ = queue.add(key),
                        }
                        if random.u8(0..16) == 0 {
                            thread::sleep(Duration::from_micros(20)); // the getters park
                        }
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(60);
            let all_seen =
                || added.iter().zip(&seen).all(|(a, s)| a.load(Ordering::Relaxed) == s.load(Ordering::Relaxed));
            // The last add of each producer is accepted, so it is seen.
            loop {
                queue.wait_idle_timeout(Duration::from_secs(60)).expect("keys are handed out");
                if all_seen() && added.iter().map(|count| count.load(Ordering::Relaxed)).max() == Some(20_000) {
                    break;
                }
                assert!(Instant::now() < deadline, "a wake-up was lost: {queue:?}");
                thread::sleep(Duration::from_millis(1));
            }
            queue.shut_down_with_drain();
        });
        assert_eq!(ended.into_inner(), 10);
        let stats = queue.stats();
        assert_eq!((stats.len, stats.processing, stats.delayed, stats.waiters, stats.drainers), (0, 0, 0, 0, 0));
        assert_eq!(stats.pushed + stats.deferred, stats.handed_out);
    }
}

/// Drains and idle waits, while keys lead to keys of other shards.
#[test]
fn an_idle_wait_returns_after_the_last_of_a_chain_of_keys() {
    for _ in 0..200 {
        let queue = sharded(16);
        let last = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(item) = queue.get() {
                        if *item < 50 {
                            queue.add(*item + 1);
                        }
                        last.fetch_max(*item, Ordering::Relaxed);
                    }
                });
            }
            queue.add(1);
            queue.wait_idle();
            assert_eq!(last.load(Ordering::Relaxed), 50);
            queue.shut_down();
        });
    }
}

/// The delays of all shards are delivered by one thread, none early, and an earlier one wakes it.
#[test]
fn one_driver_serves_all_shards() {
    let queue = sharded(16);
    queue.add_after(u64::MAX, Duration::from_secs(3600));
    let begin = Instant::now();
    for key in 0..1000 {
        queue.add_after(key, Duration::from_micros(20_000 - key * 10));
    }
    for _ in 0..1000 {
        let item = queue.get_timeout(Duration::from_secs(20)).expect("it expires");
        assert!(begin.elapsed() >= Duration::from_micros(20_000 - *item * 10), "early");
    }
    assert_eq!((queue.len(), queue.delayed_len(), queue.stats().expired), (0, 1, 1000));
    #[cfg(target_os = "linux")]
    {
        let threads = std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        assert!(threads.filter(|name| name.trim() == "keyqueue-delay").count() >= 1);
    }
    assert_eq!(queue.take_delayed().len(), 1);
}
