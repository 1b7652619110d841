//! Delayed keys: subjects, rivals, workloads and the list of them.
//!
//! Workloads in which much time has to pass run on [`Manual`] subjects: the data structure without a thread, on a mock clock.

mod heap;
pub mod lateness;
mod ours;
mod tokio;
mod wheel;
pub mod workloads;

pub use self::heap::{HeapQueue, ManualHeap};
pub use self::ours::ManualOurs;
pub use self::tokio::TaskQueue;
pub use self::wheel::ManualWheel;

use self::workloads::{expire, insert, mixed, re_add};
use crate::workload::Workload;
use crate::{Ours, Subject, subjects};
use common::limiter::{Limiter, ParkingLotLimiter};
use common::mutex::Inner as Ready;
use parking_lot::Mutex;
use std::time::Duration;

/// A queue with delays, on the real clock, with a thread of its own that queues expired keys.
pub trait DelaySubject: Subject<u64> {
    fn add_after(&self, key: u64, delay: Duration);

    /// Waits until all calls so far have taken effect. Returns the number of delayed keys.
    fn settle(&self) -> usize;
}

/// A queue with delays, on a mock clock.
pub trait Manual {
    /// The name in the tables, the same as that of the subject with its thread.
    const NAME: &'static str;

    fn make() -> Self;

    fn add(&mut self, key: u64);

    fn add_after(&mut self, key: u64, delay: Duration);

    /// Advances the clock, queues the keys whose delays have expired, and returns their number.
    fn advance(&mut self, by: Duration) -> usize;

    /// Takes a queued key, lends it to `work`, and finishes it. Returns `false` if no key is queued.
    fn process(&mut self, work: impl FnOnce(&u64)) -> bool;

    /// The same, and retries the key if `work` returns `false`. A key must be queued.
    fn process_or_retry(&mut self, work: impl FnOnce(&u64) -> bool);

    /// Returns whether there was a delay.
    fn cancel(&mut self, key: &u64) -> bool;
}

/// The delays of a rival without its thread, on a mock clock.
pub trait Timer {
    const NAME: &'static str;

    fn make() -> Self;

    fn set(&mut self, key: u64, delay: Duration);

    /// Advances the clock, queues the keys whose delays have expired, and returns their number.
    fn advance(&mut self, by: Duration, ready: &mut Ready<u64>) -> usize;

    fn cancel(&mut self, key: &u64) -> bool;
}

/// A rival without its thread: these delays, the data of the mutex queue under its lock, and the mutex limiter.
pub struct ManualRival<T> {
    ready: Mutex<Ready<u64>>,
    timer: T,
    limiter: ParkingLotLimiter<u64>,
}

impl<T: Timer> Manual for ManualRival<T> {
    const NAME: &'static str = T::NAME;

    fn make() -> Self {
        Self { ready: Mutex::default(), timer: T::make(), limiter: Limiter::make() }
    }

    #[inline]
    fn add(&mut self, key: u64) {
        self.ready.lock().add(key);
    }

    #[inline]
    fn add_after(&mut self, key: u64, delay: Duration) {
        self.timer.set(key, delay);
    }

    fn advance(&mut self, by: Duration) -> usize {
        self.timer.advance(by, &mut self.ready.lock())
    }

    #[inline]
    fn process(&mut self, work: impl FnOnce(&u64)) -> bool {
        let Some(key) = self.ready.lock().take() else { return false };
        work(&key);
        self.ready.lock().done(key);
        true
    }

    /// Sets the delay after `done`. With several threads it would be set before; the steps are the same.
    #[inline]
    fn process_or_retry(&mut self, work: impl FnOnce(&u64) -> bool) {
        let key = self.ready.lock().take().expect("a key is queued");
        if work(&key) {
            self.limiter.forget(&key);
            self.ready.lock().done(key);
        } else {
            let delay = self.limiter.when(&key);
            self.ready.lock().done(key);
            self.timer.set(key, delay);
        }
    }

    #[inline]
    fn cancel(&mut self, key: &u64) -> bool {
        self.timer.cancel(key)
    }
}

/// The target: how many times faster than each rival keyqueue is meant to be.
const TARGET: Option<f64> = Some(3.0);

/// All workloads; `keys` is the number of keys in a run.
pub fn all(keys: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push = |name, figures, rivals, subjects| {
        list.push(Workload { group: "", name, figures, ops: keys, subjects, rivals });
    };
    for threads in [1, 2] {
        let figures = vec![("all set", TARGET), ("calls return", None)];
        let subjects = subjects!(Subject<u64>; Ours<u64>, HeapQueue, TaskQueue; insert(keys, threads));
        push(format!("insert, {threads} threads"), figures, 2, subjects);
    }
    for threads in [1, 2] {
        let subjects = subjects!(Subject<u64>; Ours<u64>, HeapQueue, TaskQueue; re_add(keys / 10, threads, keys));
        push(format!("re-add, {threads} threads"), vec![("all set", None)], 2, subjects);
    }
    let subjects = subjects!(Manual; ManualOurs, ManualHeap, ManualWheel; expire(keys));
    push("expire".into(), vec![("all queued", TARGET), ("all done", TARGET)], 1, subjects);
    let subjects = subjects!(Manual; ManualOurs, ManualHeap, ManualWheel; mixed(keys / 10, keys));
    push("insert, cancel, expire".into(), vec![("", None)], 1, subjects);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not early by a part of a millisecond, and at most a millisecond late.
    #[test]
    fn every_subject_keeps_the_order_and_cancels_and_if_it_can_keeps_the_earlier_delay() {
        fn check<Q: Manual>(keeps_the_earlier: bool) {
            let micros = Duration::from_micros;
            let mut queue = Q::make();
            queue.add(0);
            for (key, delay) in [(1, 10_300), (2, 7000), (3, 5000), (5, 8000)] {
                queue.add_after(key, micros(delay));
            }
            if keeps_the_earlier {
                queue.add_after(1, micros(12_000));
                queue.add_after(4, micros(60_000));
            }
            assert!(queue.cancel(&5) && !queue.cancel(&5));
            queue.add_after(4, micros(50_000));
            for (by, due) in [(4999, 0), (4001, 2), (1299, 0), (701, 1), (38_000, 0), (3000, 1), (1_000_000, 0)] {
                assert_eq!(queue.advance(micros(by)), due, "{}, by {by}", Q::NAME);
            }
            let mut out = Vec::new();
            (0..5).for_each(|_| assert!(queue.process(|key| out.push(*key))));
            assert_eq!(out, [0, 3, 2, 1, 4], "{}", Q::NAME);
        }
        check::<ManualOurs>(true);
        check::<ManualHeap>(true);
        check::<ManualWheel>(false);
    }
}
