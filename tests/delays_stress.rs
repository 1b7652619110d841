//! Delays from several threads at full speed, with the real clock and the driver thread.
//!
//! Checks, whatever the order in which calls meet:
//!
//! * **P1** no key has two holders at a time;
//! * **P2** the last hand-out of a key sees what was written, Relaxed, before every accepted add of it, delayed or not (for
//!   keys whose delays are never cancelled), and after it the key is neither queued nor delayed;
//! * the numbers of [`keyqueue::Stats`] add up, and in the end the queue is empty.
//!
//! `KEYQUEUE_STRESS=60` runs for about 60 seconds instead of two.

use keyqueue::{AddOptions, Added, DelayConflict, DelayedAdd, WorkQueue};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }
}

const PRODUCERS: usize = 3;
const WORKERS: usize = 2;

#[derive(Default)]
struct Key {
    held: AtomicBool,
    /// Written by each producer before it adds.
    published: [AtomicU64; PRODUCERS],
    /// The values of `published` that the last hand-out saw.
    seen: [AtomicU64; PRODUCERS],
}

fn run(policy: DelayedAdd, seed: u64, keys: u64, calls: u64) {
    println!("{policy:?}, seed {seed}, {keys} keys");
    let queue = WorkQueue::<u64>::builder().delayed_add(policy).build();
    let state: Vec<Key> = (0..keys).map(|_| Key::default()).collect();
    let produce = |producer: usize| {
        let mut random = Random(seed * 10 + producer as u64);
        for call in 1..=calls {
            let key = random.below(keys);
            let bits = random.below(21);
            let after = Duration::from_nanos(random.below(1 << bits));
            let options = AddOptions::new().after(after);
            state[key as usize].published[producer].store(call, Ordering::Relaxed);
            let added = match random.below(16) {
                0..5 => queue.add_after(key, after),
                5..8 => queue.add_with(key, options.conflict(DelayConflict::Replace)),
                8..10 => queue.add_with(key, options.conflict(DelayConflict::KeepExisting)),
                // Some delays of these keys are cancelled, so the hand-outs that they promised do not happen.
                10..12 if key % 4 == 0 => {
                    queue.cancel(&key);
                    continue;
                }
                12 => {
                    // A turn beside the driver thread does no harm.
                    queue.turn();
                    queue.add_after(key, after)
                }
                _ => queue.add(key),
            };
            assert_ne!(added, Added::Rejected);
            if random.below(200) == 0 {
                thread::sleep(Duration::from_micros(random.below(300)));
            }
        }
    };
    let work = |worker: usize| {
        let mut random = Random(seed * 10 + 5 + worker as u64);
        while let Some(item) = queue.get() {
            let key = &state[*item as usize];
            assert!(!key.held.swap(true, Ordering::Relaxed), "P1: {} has two holders", *item);
            for (seen, published) in key.seen.iter().zip(&key.published) {
                seen.store(published.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            if random.below(50) == 0 {
                thread::yield_now();
            }
            key.held.store(false, Ordering::Relaxed);
            if random.below(20) == 0 {
                item.requeue_after(Duration::from_micros(random.below(100)));
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        let producers: Vec<_> = (0..PRODUCERS).map(|producer| scope.spawn(move || produce(producer))).collect();
        let failed = producers.into_iter().map(|producer| producer.join().is_err()).fold(false, |a, b| a | b);
        // Workers requeue some keys, but fewer each time.
        let end = Instant::now() + Duration::from_secs(60);
        let busy = || {
            let stats = queue.stats();
            stats.delayed + stats.len + stats.processing > 0
        };
        while !failed && busy() && !workers.iter().any(thread::ScopedJoinHandle::is_finished) {
            assert!(Instant::now() < end, "a key is stuck: {queue:?}");
            thread::sleep(Duration::from_micros(100));
        }
        queue.shut_down();
        workers.into_iter().for_each(|worker| worker.join().expect("a worker failed"));
        assert!(!failed, "a producer failed");
    });
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.delayed), (0, 0, 0));
    assert_eq!(stats.pushed + stats.deferred, stats.handed_out);
    assert!(stats.expired <= stats.delays);
    for (number, key) in state.iter().enumerate() {
        if number % 4 != 0 {
            for (seen, published) in key.seen.iter().zip(&key.published) {
                let (seen, published) = (seen.load(Ordering::Relaxed), published.load(Ordering::Relaxed));
                assert_eq!(seen, published, "P2: no hand-out saw what came before an accepted add of {number}");
            }
        }
    }
}

#[test]
fn no_delayed_add_is_lost_and_no_key_has_two_holders() {
    let seconds = std::env::var("KEYQUEUE_STRESS").ok().map_or(2, |value| value.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let policies = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict];
    for seed in 1.. {
        let keys = [3, 40, 5000][seed as usize % 3];
        run(policies[seed as usize / 3 % 3], seed, keys, 20_000);
        if Instant::now() >= end && seed >= 9 {
            break;
        }
    }
}
