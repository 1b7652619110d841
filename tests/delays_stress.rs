//! Adds and delays from several threads at full speed, with the real clock and the driver thread, in queues with one shard and with many.
//! Threads and tasks get the keys in five forms of waiting.
//!
//! Checks, whatever the order in which calls meet:
//!
//! * **P1** no key has two holders at a time;
//! * **P2** the last hand-out of a key sees what was written, Relaxed, before every accepted add of it, delayed or not (for
//!   keys whose delays are never cancelled), and after it the key is neither queued nor delayed;
//! * the numbers of [`keyqueue::Stats`] add up, and in the end the queue is empty.
//!
//! `KEYQUEUE_STRESS=60` runs for about 60 seconds instead of two.

use fastrand::Rng;
use futures_executor::block_on;
use keyqueue::{AddOptions, Added, DelayConflict, DelayedAdd, Driver, GetTimeoutError, Item, Priority, WorkQueue};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

const PRODUCERS: usize = 3;
/// The forms of waiting of the workers. In half of the rounds each of them parks, so that a lost wake-up leaves a key in the queue.
const FORMS: [&[usize]; 2] = [&[0, 2, 3], &[0, 1, 2, 3, 4]];

#[derive(Default)]
struct Key {
    held: AtomicBool,
    /// Written by each producer before it adds.
    published: [AtomicU64; PRODUCERS],
    /// The values of `published` that the last hand-out saw.
    seen: [AtomicU64; PRODUCERS],
}

/// Gets keys in one of five ways. `None`: the queue is shut down and empty.
fn get(queue: &WorkQueue<u64>, form: usize) -> Option<Vec<Item<'_, u64>>> {
    match form {
        0 => queue.get().map(|item| vec![item]),
        1 => match queue.get_timeout(Duration::from_micros(50)) {
            Err(GetTimeoutError::ShutDown) => None,
            got => Some(got.into_iter().collect()),
        },
        2 => block_on(queue.get_async()).map(|item| vec![item]),
        3 => Some(queue.get_many(3)).filter(|items| !items.is_empty()),
        // Futures that are polled once and dropped.
        _ => match pin!(queue.get_async()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(item) => item.map(|item| vec![item]),
            Poll::Pending => {
                thread::yield_now();
                Some(Vec::new())
            }
        },
    }
}

/// The settings of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Plan {
    policy: DelayedAdd,
    shards: usize,
    measured: bool,
    priorities: bool,
    groups: bool,
    /// There is no driver thread, and a thread of the test makes the turns.
    turns: bool,
}

fn run(plan: Plan, seed: u64, keys: u64, calls: u64) {
    println!("{plan:?}, seed {seed}, {keys} keys");
    let builder = WorkQueue::<u64>::builder().delayed_add(plan.policy).shards(plan.shards).measure(plan.measured);
    let builder = if plan.groups { builder.fair_by(|key| key % 3) } else { builder };
    let queue = builder.driver(if plan.turns { Driver::Manual } else { Driver::Thread }).build();
    let state: Vec<Key> = (0..keys).map(|_| Key::default()).collect();
    let produce = |producer: usize| {
        let mut random = Rng::with_seed(seed * 10 + producer as u64);
        for call in 1..=calls {
            let key = random.u64(..keys);
            let bits = random.u64(..21);
            let after = Duration::from_nanos(random.u64(..1 << bits));
            let priority = if plan.priorities { random.i8(-1..=1) } else { 0 };
            let options = AddOptions::new().after(after).priority(Priority(priority));
            state[key as usize].published[producer].store(call, Ordering::Relaxed);
            let added = match random.u64(..16) {
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
                13 => {
                    _ = queue.add_all([key, key]);
                    continue;
                }
                _ => queue.add(key),
            };
            assert_ne!(added, Added::Rejected);
            if random.u64(..200) == 0 {
                thread::sleep(Duration::from_micros(random.u64(..300)));
            }
        }
    };
    let work = |form: usize| {
        let mut random = Rng::with_seed(seed * 10 + 5 + form as u64);
        for item in std::iter::from_fn(|| get(&queue, form)).flatten() {
            let key = &state[*item as usize];
            assert!(!key.held.swap(true, Ordering::Relaxed), "P1: {} has two holders", *item);
            for (seen, published) in key.seen.iter().zip(&key.published) {
                seen.store(published.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            if random.u64(..50) == 0 {
                thread::yield_now();
            }
            key.held.store(false, Ordering::Relaxed);
            if random.u64(..20) == 0 {
                item.requeue_after(Duration::from_micros(random.u64(..100)));
            }
        }
    };
    thread::scope(|scope| {
        let forms = FORMS[seed as usize % 2].iter();
        let workers: Vec<_> = forms.map(|form| scope.spawn(move || work(*form))).collect();
        let producers: Vec<_> = (0..PRODUCERS).map(|producer| scope.spawn(move || produce(producer))).collect();
        let failed = producers.into_iter().map(|producer| producer.join().is_err()).fold(false, |a, b| a | b);
        if plan.turns {
            scope.spawn(|| {
                while !queue.shutting_down() {
                    queue.turn();
                    thread::yield_now();
                }
            });
        }
        let mut stuck = None;
        // Workers requeue some keys, but fewer each time.
        let end = Instant::now() + Duration::from_secs(60);
        let busy = || {
            let stats = queue.stats();
            stats.delayed + stats.len + stats.processing > 0
        };
        while !failed && busy() && !workers.iter().any(thread::ScopedJoinHandle::is_finished) {
            if Instant::now() >= end {
                stuck = Some(format!("{queue:?}"));
                break;
            }
            thread::sleep(Duration::from_micros(100));
        }
        queue.shut_down(); // ends the workers, also those that wait for a wake-up
        workers.into_iter().for_each(|worker| worker.join().expect("a worker failed"));
        assert!(!failed, "a producer failed");
        assert_eq!(stuck, None, "a key is stuck");
    });
    let stats = queue.stats();
    assert_eq!((stats.len, stats.processing, stats.delayed, stats.waiters), (0, 0, 0, 0));
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
fn no_add_and_no_wake_up_is_lost_and_no_key_has_two_holders() {
    let seconds = std::env::var("KEYQUEUE_STRESS").ok().map_or(2, |value| value.parse().expect("a number"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let policies = [DelayedAdd::Independent, DelayedAdd::Promote, DelayedAdd::Strict];
    for seed in 1.. {
        let keys = [3, 40, 5000][seed as usize % 3];
        let shards = [1, 2, 16, 64][seed as usize % 4];
        run(Plan { policy: policies[seed as usize / 3 % 3], shards, ..Plan::default() }, seed, keys, 20_000);
        if Instant::now() >= end && seed >= 9 {
            break;
        }
    }
}

/// Each of these settings beside each other. In a debug build each critical section checks what it has published.
#[test]
fn all_settings_meet_in_real_time() {
    for bits in 0..32_usize {
        let has = |bit: usize| bits & 1 << bit != 0;
        let [measured, priorities, groups, turns] = [1, 2, 3, 4].map(has);
        let plan = Plan { shards: if has(0) { 4 } else { 1 }, measured, priorities, groups, turns, ..Plan::default() };
        run(plan, bits as u64, 300, 1500);
    }
}
