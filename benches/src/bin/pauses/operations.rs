//! The operations that may keep other threads from the queue. To measure one more, add it to the list: it makes a queue, and calls
//! `probe.during(&queue, ...)` once with what is to be measured.

use crate::probe::{Probe, Queue};
use crate::stopwatch::SameCall;
use crossbeam_utils::sync::Parker;
use keyqueue::{Clock, Driver, MockClock};
use std::hint::{black_box, spin_loop};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

pub struct Operation {
    pub name: &'static str,
    /// Is measured with concurrent adds of new keys too.
    pub new: bool,
    pub run: fn(&mut Probe<'_>),
}

impl Operation {
    /// Measures the machine, without a queue.
    pub fn is_control(&self) -> bool {
        self.name.starts_with("control")
    }
}

/// Measured with concurrent adds of a known key, and of new keys.
const fn both(name: &'static str, run: fn(&mut Probe<'_>)) -> Operation {
    Operation { name, new: true, run }
}

/// Measured with concurrent adds of a known key only: new keys would wake the waiters, or there is no second thread.
const fn known(name: &'static str, run: fn(&mut Probe<'_>)) -> Operation {
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

/// Between two wake-ups of the control.
const APART: Duration = Duration::from_micros(100);

const LAST_STEP: u64 = u64::MAX;

pub const OPERATIONS: &[Operation] = &[
    both("fill: add", |probe| {
        let (queue, keys) = (Queue::new(), probe.keys);
        probe.during(&queue, |own| (0..keys).for_each(|key| timed(own, || queue.add(key))));
    }),
    both("drain: get and done", |probe| {
        let queue = filled(probe.keys);
        let keys = probe.keys;
        probe.during(&queue, |own| (0..keys).for_each(|_| timed(own, || drop(queue.try_get()))));
    }),
    both("get_many", |probe| {
        let queue = filled(probe.keys);
        let batch = probe.batch as usize;
        let items = probe.during(&queue, |_| queue.get_many(batch));
        drop(items);
    }),
    both("take_where: every second key", |probe| {
        let queue = filled(probe.keys);
        let taken = probe.during(&queue, |_| queue.take_where(|key| key % 2 == 0));
        drop(taken);
    }),
    both("done of all keys", |probe| {
        let queue = filled(probe.keys);
        let mut items = queue.get_many(probe.keys as usize);
        probe.during(&queue, |own| items.drain(..).for_each(|item| timed(own, || drop(item))));
    }),
    both("done of the last keys, but for one", |probe| {
        let queue = filled(probe.keys);
        let mut items = queue.get_many(probe.keys as usize);
        let last = items.split_off(items.len() - CALLS);
        let first = items.swap_remove(0);
        drop(items);
        probe.during(&queue, |own| last.into_iter().for_each(|item| timed(own, || drop(item))));
        drop(first);
    }),
    both("shrink_to_fit: drained", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize));
        probe.during(&queue, |_| queue.shrink_to_fit());
    }),
    both("shrink_to_fit: half of the keys done", |probe| {
        let queue = filled(probe.keys);
        drop(queue.get_many(probe.keys as usize / 2));
        probe.during(&queue, |_| queue.shrink_to_fit());
    }),
    both("shrink_to_fit: one key in 1000 left", |probe| {
        let queue = filled(probe.keys);
        let left: Vec<_> = queue.get_many(probe.keys as usize).into_iter().step_by(1000).collect();
        probe.during(&queue, |_| queue.shrink_to_fit());
        drop(left);
    }),
    both("shrink_to_fit: capacity", |probe| {
        let queue = Queue::builder().capacity(probe.keys as usize).build();
        probe.during(&queue, |_| queue.shrink_to_fit());
    }),
    both("processing_keys", |probe| {
        let queue = filled(probe.keys);
        let items = queue.get_many(probe.batch as usize);
        let listed = probe.during(&queue, |_| queue.inspect().processing_keys());
        drop((listed, items));
    }),
    both("take_delayed", |probe| {
        let (queue, _clock) = delayed(probe.batch);
        assert_eq!(probe.during(&queue, |_| queue.take_delayed()).len(), probe.batch as usize);
    }),
    both("turn: all due at one moment", |probe| {
        let (queue, clock) = delayed(probe.batch);
        clock.advance(Duration::from_secs(3600));
        assert_eq!(probe.during(&queue, |_| queue.turn()), probe.batch as usize);
    }),
    both("Workers::stop", |probe| {
        let queue = filled(probe.batch);
        let workers = queue.workers().build();
        let leftover = probe.during(&queue, |_| workers.stop());
        assert!(!leftover.is_empty());
    }),
    both("stats", |probe| {
        let queue = measured(probe.keys);
        probe.during(&queue, |own| (0..CALLS).for_each(|_| timed(own, || queue.stats())));
    }),
    both("metrics", |probe| {
        let queue = measured(probe.keys);
        probe.during(&queue, |own| (0..CALLS).for_each(|_| timed(own, || queue.inspect().metrics())));
    }),
    known("shut_down: futures wait for keys", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let futures = waiting(probe, || queue.get_async());
        probe.during(&queue, |_| queue.shut_down());
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
            probe.during(&queue, |_| {
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
        probe.during(&queue, |_| queue.shut_down());
        drop((futures, item));
    }),
    known("futures that wait are polled", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, |own| futures.iter_mut().for_each(|future| timed(own, || poll(future))));
        drop((futures, item));
    }),
    known("futures that wait are dropped", |probe| {
        let queue = filled(1);
        let item = queue.try_get();
        let mut futures = waiting(probe, || queue.get_async());
        fastrand::Rng::with_seed(1).shuffle(&mut futures);
        probe.during(&queue, |own| futures.drain(..).for_each(|future| timed(own, || drop(future))));
        drop(item);
    }),
    // What the machine adds by itself. The controls have no queue. The first two run for as long as the longest operation took.
    //
    // The other thread waits for the next step of this one, without parking: a pause of either makes it wait.
    known("control: steps", |probe| {
        let (steps, time) = (AtomicU64::new(0), probe.control);
        let call = || {
            let mut seen = 0;
            let steps = &steps;
            move || {
                while seen != LAST_STEP && steps.load(Ordering::Relaxed) == seen {
                    spin_loop();
                }
                seen = steps.load(Ordering::Relaxed);
            }
        };
        probe.beside(call, |_| {
            until(time, || _ = steps.fetch_add(1, Ordering::Relaxed));
            steps.store(LAST_STEP, Ordering::Relaxed);
        });
    }),
    // The other thread parks, and this one wakes it.
    known("control: wake-ups", |probe| {
        let (parker, time) = (Parker::new(), probe.control);
        let (unparker, over) = (parker.unparker().clone(), AtomicBool::new(false));
        let call = || {
            let over = &over;
            move || {
                if !over.load(Ordering::Relaxed) {
                    parker.park();
                }
            }
        };
        probe.beside(call, |_| {
            until(time, || {
                until(APART, || ());
                unparker.unpark();
            });
            over.store(true, Ordering::Relaxed);
            unparker.unpark();
        });
    }),
    // Both threads write to fresh pages, this one to as many as a filled queue takes.
    known("control: fresh memory", |probe| {
        let size = probe.keys as usize * BYTES_A_KEY;
        let mut memory = [(); 2].map(|()| Vec::with_capacity(size));
        let [own_pages, mut other_pages] =
            memory.each_mut().map(|memory: &mut Vec<u8>| memory.spare_capacity_mut().chunks_mut(PAGE));
        probe.beside(
            || move || _ = other_pages.next().map(|page| black_box(page[0].write(1))),
            |own| own_pages.for_each(|page| timed(own, || page[0].write(1))),
        );
    }),
];

/// Calls `what` again and again until `time` has passed.
fn until(time: Duration, mut what: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < time {
        what();
    }
}

/// One of many calls.
fn timed<T>(own: &mut SameCall, call: impl FnOnce() -> T) {
    black_box(call());
    own.lap();
}

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
fn waiting<F: Future>(probe: &Probe<'_>, future: impl Fn() -> F) -> Vec<Pin<Box<F>>> {
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
                let mut same_call = SameCall::new(2000);
                let mut probe = Probe::new(2000, 1000, Duration::from_millis(10), adds, &mut same_call);
                run(&mut probe);
                let longest = probe.measured().longest;
                assert!(!longest.gross.is_zero() && longest.net <= longest.gross, "{name}");
            }
        }
    }
}
