//! The operations that may keep other threads from the queue. Each makes a queue, and calls `probe.during(&queue, ...)` once with what is
//! to be measured.

use crate::probe::{Probe, Queue};
use keyqueue::{Clock, Driver, MockClock};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// How many futures wait, unless there are fewer keys.
const FUTURES: u64 = 30_000;
/// How many threads wait.
const THREADS: usize = 200;
/// How many calls of what is short.
const CALLS: usize = 1000;

/// A name, and what is measured.
type Operation = (&'static str, fn(&mut Probe));

pub const OPERATIONS: &[Operation] = &[
    // What the machine adds by itself: no queue, for a second.
    ("control: readings of the clock", |probe| {
        let start = Instant::now();
        probe.beside(|_| _ = Instant::now(), || while start.elapsed() < Duration::from_secs(1) {});
    }),
    ("fill: add", |probe| {
        let (queue, keys) = (Queue::new(), probe.keys);
        probe.during(&queue, || (0..keys).for_each(|key| _ = queue.add(key)));
    }),
    ("drain: get and done", |probe| {
        let (queue, keys) = (filled(probe.keys), probe.keys);
        probe.during(&queue, || (0..keys).for_each(|_| drop(queue.try_get())));
    }),
    ("get_many", |probe| {
        let (queue, batch) = (filled(probe.keys), probe.batch as usize);
        drop(probe.during(&queue, || queue.get_many(batch)));
    }),
    ("take_where: every second key", |probe| {
        let queue = filled(probe.keys);
        drop(probe.during(&queue, || queue.take_where(|key| key % 2 == 0)));
    }),
    ("done of all keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.keys as usize);
        probe.during(&queue, || drop(items));
    }),
    ("done of the last keys, but for one", |probe| {
        let queue = filled(probe.keys);
        let mut items = queue.get_many(probe.keys as usize);
        let last = items.split_off(items.len() - CALLS);
        let first = items.swap_remove(0);
        drop(items);
        probe.during(&queue, || drop(last));
        drop(first);
    }),
    ("shrink_to_fit: drained", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize));
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    ("shrink_to_fit: half of the keys done", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize / 2));
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    ("shrink_to_fit: one key in 1000 left", |probe| {
        let queue = filled(probe.keys);
        let left: Vec<_> = queue.get_many(probe.keys as usize).into_iter().step_by(1000).collect();
        probe.during(&queue, || queue.shrink_to_fit());
        drop(left);
    }),
    ("shrink_to_fit: capacity", |probe| {
        let queue = Queue::builder().capacity(probe.keys as usize).build();
        probe.during(&queue, || queue.shrink_to_fit());
    }),
    ("processing_keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.batch as usize);
        drop((probe.during(&queue, || queue.inspect().processing_keys()), items));
    }),
    ("take_delayed", |probe| {
        let (queue, _clock) = delayed(probe.batch);
        assert_eq!(probe.during(&queue, || queue.take_delayed()).len(), probe.batch as usize);
    }),
    ("turn: all due at one moment", |probe| {
        let (queue, clock) = delayed(probe.batch);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(probe.during(&queue, || queue.turn()), probe.batch as usize);
    }),
    ("Workers::stop", |probe| {
        let queue = filled(probe.batch);
        let workers = queue.workers().build();
        assert!(!probe.during(&queue, || workers.stop()).is_empty());
    }),
    ("stats and metrics", |probe| {
        let queue = Queue::builder().measure(true).build();
        queue.add_all(0..probe.keys);
        probe.during(&queue, || (0..CALLS).for_each(|_| _ = (queue.stats(), queue.inspect().metrics())));
    }),
    ("shut_down: futures wait for keys", |probe| {
        let queue = empty();
        let futures = waiting(probe, || queue.get_async());
        probe.during(&queue, || queue.shut_down());
        drop(futures);
    }),
    ("shut_down: threads wait for keys", |probe| {
        let queue = empty();
        thread::scope(|scope| {
            let getters: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| while queue.get().is_some() {})).collect();
            while queue.stats().waiters < THREADS {
                thread::yield_now();
            }
            probe.during(&queue, || {
                queue.shut_down();
                getters.into_iter().for_each(|getter| getter.join().expect("a getter panicked"));
            });
        });
    }),
    ("shut_down: futures wait for the end", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let futures = waiting(probe, || queue.shut_down_with_drain_async());
        probe.during(&queue, || queue.shut_down());
        drop((futures, item));
    }),
    ("futures that wait are polled", |probe| {
        let queue = empty();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, || futures.iter_mut().for_each(|future| _ = poll(future)));
        drop(futures);
    }),
    ("futures that wait are dropped", |probe| {
        let queue = empty();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, || drop(futures));
    }),
];

/// A queue with these keys queued: the key 0 is the first.
fn filled(keys: u64) -> Queue {
    let queue = Queue::new();
    queue.add_all(0..keys);
    queue
}

/// A queue in which nothing is queued, and the key 0 is held for good: its adds wake no one.
fn empty() -> Queue {
    let queue = filled(1);
    std::mem::forget(queue.try_get());
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
    assert!(futures.iter_mut().all(poll));
    futures
}

/// Whether it still waits.
fn poll<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
