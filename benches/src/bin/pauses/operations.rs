//! The operations that may keep other threads from the queue. To measure one more, add it to the list: it makes a queue, and calls
//! `probe.during(&queue, ...)` once with what is to be measured.

use crate::probe::{Probe, Queue};
use keyqueue::{Clock, Driver, MockClock};
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

pub struct Operation {
    pub name: &'static str,
    /// Is measured with concurrent adds of new keys too.
    pub new: bool,
    pub run: fn(&mut Probe),
}

/// Measured with concurrent adds of a known key, and of new keys.
const fn both(name: &'static str, run: fn(&mut Probe)) -> Operation {
    Operation { name, new: true, run }
}

/// Measured with concurrent adds of a known key only: new keys would wake the waiters, or there is no second thread.
const fn known(name: &'static str, run: fn(&mut Probe)) -> Operation {
    Operation { name, new: false, run }
}

/// How many futures wait, unless there are fewer keys.
const FUTURES: u64 = 30_000;

/// How many threads wait.
const THREADS: usize = 200;

/// What a queued `u64` takes, roughly.
const BYTES_A_KEY: usize = 50;

const PAGE: usize = 4096;

/// How many calls of what is short.
const CALLS: usize = 1000;

pub const OPERATIONS: &[Operation] = &[
    // What the machine adds by itself: the first write to each page of fresh memory, as much as a filled queue takes. No queue.
    known("control: a page of fresh memory", |probe| {
        let mut memory: Vec<u8> = Vec::with_capacity(probe.keys as usize * BYTES_A_KEY);
        probe.own(|stopwatch| {
            for page in memory.spare_capacity_mut().chunks_mut(PAGE) {
                black_box(page[0].write(1));
                stopwatch.lap();
            }
        });
        drop(memory);
    }),
    known("fill: own add", |probe| {
        let (queue, keys) = (Queue::new(), probe.keys);
        probe.own(|stopwatch| {
            for key in 0..keys {
                queue.add(key);
                stopwatch.lap();
            }
        });
    }),
    both("fill: add beside", |probe| {
        let (queue, keys) = (Queue::new(), probe.keys);
        probe.during(&queue, || fill(&queue, keys));
    }),
    both("drain: get and done", |probe| {
        let queue = filled(probe.keys);
        let keys = probe.keys;
        probe.during(&queue, || (0..keys).for_each(|_| drop(queue.try_get())));
    }),
    both("get_many", |probe| {
        let queue = filled(probe.keys);
        let batch = probe.batch as usize;
        let items = probe.during(&queue, || queue.get_many(batch));
        drop(items);
    }),
    both("take_where: every second key", |probe| {
        let queue = filled(probe.keys);
        let taken = probe.during(&queue, || queue.take_where(|key| key % 2 == 0));
        drop(taken);
    }),
    both("done of all keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.keys as usize);
        probe.during(&queue, || drop(items));
    }),
    both("done of the last keys, but for one", |probe| {
        let queue = filled(probe.keys);
        let mut items = queue.get_many(probe.keys as usize);
        let last = items.split_off(items.len() - CALLS);
        let first = items.swap_remove(0);
        drop(items);
        probe.during(&queue, || drop(last));
        drop(first);
    }),
    both("shrink_to_fit: drained", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize));
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    both("shrink_to_fit: half of the keys done", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize / 2));
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    both("shrink_to_fit: one key in 1000 left", |probe| {
        let queue = filled(probe.keys);
        let left: Vec<_> = queue.get_many(probe.keys as usize).into_iter().step_by(1000).collect();
        probe.during(&queue, || queue.shrink_to_fit());
        drop(left);
    }),
    both("shrink_to_fit: capacity", |probe| {
        let queue = Queue::builder().capacity(probe.keys as usize).build();
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    both("processing_keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.batch as usize);
        let listed = probe.during(&queue, || queue.processing_keys());
        drop((listed, items));
    }),
    both("take_delayed", |probe| {
        let (queue, _clock) = delayed(probe.batch);
        assert_eq!(probe.during(&queue, || queue.take_delayed()).len(), probe.batch as usize);
    }),
    both("turn: all due at one moment", |probe| {
        let (queue, clock) = delayed(probe.batch);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(probe.during(&queue, || queue.turn()), probe.batch as usize);
    }),
    both("Workers::stop", |probe| {
        let queue = filled(probe.batch);
        let workers = queue.workers().build();
        let leftover = probe.during(&queue, || workers.stop());
        assert!(!leftover.is_empty());
    }),
    both("stats", |probe| {
        let queue = measured(probe.keys);
        probe.during(&queue, || (0..CALLS).for_each(|_| _ = black_box(queue.stats())));
    }),
    both("metrics", |probe| {
        let queue = measured(probe.keys);
        probe.during(&queue, || (0..CALLS).for_each(|_| _ = black_box(queue.metrics())));
    }),
    known("shut_down: futures wait for keys", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let futures = waiting(probe, || queue.get_async());
        probe.during(&queue, || queue.shut_down());
        drop((futures, item));
    }),
    known("shut_down: threads wait for keys", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        thread::scope(|scope| {
            let getters: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| assert!(queue.get().is_none()))).collect();
            while queue.stats().waiters < THREADS {
                thread::yield_now();
            }
            probe.during(&queue, || {
                queue.shut_down();
                getters.into_iter().for_each(|getter| getter.join().expect("a getter panicked"));
            });
        });
        drop(item);
    }),
    known("shut_down: futures wait for the end", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let futures = waiting(probe, || queue.shut_down_with_drain_async());
        probe.during(&queue, || queue.shut_down());
        drop((futures, item));
    }),
    known("futures that wait are polled", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, || futures.iter_mut().for_each(poll));
        drop((futures, item));
    }),
    known("futures that wait are dropped", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, || drop(futures));
        drop(item);
    }),
];

/// A queue with these keys queued: the key 0 is the first.
fn filled(keys: u64) -> Queue {
    let queue = Queue::new();
    fill(&queue, keys);
    queue
}

fn fill(queue: &Queue, keys: u64) {
    (0..keys).for_each(|key| _ = queue.add(key));
}

/// The same, and it keeps times.
fn measured(keys: u64) -> Queue {
    let queue = Queue::builder().measure(true).build();
    fill(&queue, keys);
    queue
}

/// A queue with a delay of an hour for each of these keys.
fn delayed(keys: u64) -> (Queue, MockClock) {
    let (clock, mock) = Clock::mock();
    let queue = Queue::builder().clock(clock).driver(Driver::Manual).build();
    (1..=keys).for_each(|key| _ = queue.add_after(key, Duration::from_secs(3600)));
    (queue, mock)
}

/// Futures that were polled once. Their wakers do nothing.
fn waiting<F: Future>(probe: &Probe, future: impl Fn() -> F) -> Vec<Pin<Box<F>>> {
    let mut futures: Vec<_> = (0..FUTURES.min(probe.keys)).map(|_| Box::pin(future())).collect();
    futures.iter_mut().for_each(poll);
    futures
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) {
    assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Adds;

    #[test]
    fn every_operation_is_measured_once() {
        for Operation { name, new, run } in OPERATIONS {
            for adds in [Adds::Known, Adds::New].into_iter().take(1 + usize::from(*new)) {
                let mut probe = Probe::new(2000, 1000, adds);
                run(&mut probe);
                let longest = probe.measured().longest;
                assert!(!longest.gross.is_zero() && longest.net <= longest.gross, "{name}");
            }
        }
    }
}
