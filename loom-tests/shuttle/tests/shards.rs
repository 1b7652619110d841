//! Queues with eight shards and eight threads, in random orders of their steps. A lost wake-up is a deadlock, which shuttle reports with a
//! schedule that repeats it.
//!
//! Each test runs `SHUTTLE_ITERATIONS` orders (500 unless set), half of them by PCT (probabilistic concurrency testing: each order has
//! random priorities of threads, and few changes of them), half uniformly at random.
#![cfg(loom)]

use keyqueue::{Added, WorkQueue};
use shuttle::thread;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// Changes of priority in an order.
const CHANGES: usize = 4;

fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    let orders = std::env::var("SHUTTLE_ITERATIONS").map_or(500, |set| set.parse().expect("a number"));
    shuttle::check_pct(model, orders / 2, CHANGES);
    shuttle::check_random(model, orders - orders / 2);
}

fn queue() -> WorkQueue<u64> {
    WorkQueue::builder().shards(8).build()
}

fn spawn<T: Send + 'static>(
    queue: &WorkQueue<u64>,
    run: impl FnOnce(WorkQueue<u64>) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || run(queue))
}

/// Takes keys until the shut-down.
fn works(queue: WorkQueue<u64>) -> usize {
    let mut taken = 0;
    while let Some(item) = queue.get() {
        taken += 1;
        item.done();
    }
    taken
}

/// A task is polled some times and then dropped, woken or not.
fn polls_and_cancels(queue: WorkQueue<u64>) -> usize {
    let mut taken = 0;
    for polls in 0..4 {
        let mut future = pin!(queue.get_async());
        for _ in 0..=polls {
            if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                taken += 1;
                break;
            }
            thread::yield_now();
        }
    }
    taken
}

/// Three threads add, three work, two are tasks that are cancelled (P2, W1, W2, W3). All keys are handed out before the shut-down.
#[test]
fn every_key_is_handed_out() {
    check(|| {
        let queue = queue();
        let adders = [0, 1, 2].map(|adder| {
            spawn(&queue, move |queue| (0..5).filter(|n| queue.add(adder * 5 + n) == Added::Queued).count())
        });
        let workers = [(); 3].map(|()| spawn(&queue, works));
        let tasks = [(); 2].map(|()| spawn(&queue, polls_and_cancels));
        let added: usize = adders.map(|adder| adder.join().unwrap()).iter().sum();
        let cancelled: usize = tasks.map(|task| task.join().unwrap()).iter().sum();
        queue.wait_idle();
        assert_eq!((added, queue.len()), (15, 0));
        queue.shut_down();
        assert_eq!(workers.map(|worker| worker.join().unwrap()).iter().sum::<usize>() + cancelled, added);
    });
}

/// As many getters as keys, so each must be woken (W2, W3). Two tasks are cancelled; if one has a key, it adds another.
#[test]
fn each_getter_takes_one_key() {
    check(|| {
        let queue = queue();
        let getters = [(); 4].map(|()| spawn(&queue, |queue| drop(queue.get().unwrap())));
        let tasks = [10, 20].map(|first| {
            spawn(&queue, move |queue| {
                let taken = polls_and_cancels(queue.clone()) as u64;
                (0..taken).for_each(|n| _ = queue.add(first + n));
            })
        });
        let adders = [0, 1].map(|adder| spawn(&queue, move |queue| (0..2).for_each(|n| _ = queue.add(adder * 2 + n))));
        adders.into_iter().chain(tasks).for_each(|adder| adder.join().unwrap());
        getters.into_iter().for_each(|getter| getter.join().unwrap());
        assert_eq!((queue.len(), queue.processing_len()), (0, 0));
    });
}

/// A key's holder adds the next key, of another shard, and then is done: the queue is never idle before the last.
#[test]
fn an_idle_wait_sees_work_that_changes_shards() {
    const LAST: u64 = 6;
    check(|| {
        let queue = queue();
        let workers = [(); 4].map(|()| {
            spawn(&queue, |queue| {
                while let Some(item) = queue.get() {
                    if *item < LAST {
                        queue.add(*item + 1);
                    }
                }
            })
        });
        queue.add(0);
        let idle = [(); 2].map(|()| {
            spawn(&queue, |queue| {
                queue.wait_idle();
                assert_eq!(queue.stats().handed_out, LAST + 1);
            })
        });
        idle.into_iter().for_each(|idle| idle.join().unwrap());
        queue.shut_down();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Two threads drain while three add and three work (P6, P7).
#[test]
fn drains_end_when_all_shards_are_quiet() {
    check(|| {
        let queue = queue();
        let adders = [0, 1, 2].map(|adder| {
            spawn(&queue, move |queue| (0..4).filter(|n| queue.add(adder * 4 + n) == Added::Queued).count())
        });
        let workers = [(); 3].map(|()| spawn(&queue, works));
        let drain = |queue: WorkQueue<u64>| {
            queue.shut_down_with_drain();
            assert_eq!((queue.len(), queue.processing_len()), (0, 0));
        };
        let other = spawn(&queue, drain);
        drain(queue.clone());
        other.join().unwrap();
        let added: usize = adders.map(|adder| adder.join().unwrap()).iter().sum();
        assert_eq!(workers.map(|worker| worker.join().unwrap()).iter().sum::<usize>(), added);
    });
}

/// One driver thread serves the delays of all shards (P8, I8).
#[test]
fn delays_of_all_shards_expire() {
    check(|| {
        let queue = queue();
        let adders = [0, 1].map(|adder| {
            spawn(&queue, move |queue| {
                for n in 0..4 {
                    queue.add_after(adder * 4 + n, Duration::from_nanos(1));
                }
            })
        });
        let workers = [(); 3].map(|()| spawn(&queue, |queue| (0..2).for_each(|_| drop(queue.get().unwrap()))));
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        (0..2).for_each(|_| drop(queue.get().unwrap()));
        queue.shut_down();
    });
}
