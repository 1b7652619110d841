//! Delayed keys: subjects, rivals, workloads and the list of them.
//!
//! Work in which much time has to pass is measured on [`Manual`] subjects, which have the data structure and no thread, and are told
//! the time.

mod heap;
#[cfg(feature = "kube")]
mod kube;
pub mod lateness;
mod ours;
mod paused;
mod tokio;
mod wheel;
pub mod workloads;

pub use self::heap::{HeapQueue, ManualHeap};
#[cfg(feature = "kube")]
pub use self::kube::{KubeTask, ManualKube};
pub use self::ours::ManualOurs;
pub use self::tokio::{ManualTask, TaskQueue};
pub use self::wheel::{ManualWheel, WheelTimer};

use crate::workload::{Run, Workload};
use crate::{Key, Ours, Subject};
use std::time::Duration;

/// A queue with delays, on the real clock, with a thread of its own that delivers.
pub trait DelaySubject<K: Key>: Subject<K> {
    fn add_after(&self, key: K, delay: Duration);

    /// Returns when all calls so far have taken effect; how many keys are delayed then, where it can be told.
    fn settle(&self) -> Option<usize>;
}

/// A queue with delays, on a mock clock.
pub trait Manual<K: Key> {
    /// What the tables call it: as the same with its thread.
    const NAME: &'static str;

    fn make() -> Self;

    fn add(&mut self, key: K);

    fn add_after(&mut self, key: K, delay: Duration);

    /// Moves the clock on and queues the keys whose delays have expired; how many.
    fn advance(&mut self, by: Duration) -> usize;

    /// Takes a queued key, lends it to `work`, is done with it.
    fn process(&mut self, work: impl FnOnce(&K)) -> bool;
}

/// The same, where a key can be taken back.
pub trait Cancel<K: Key>: Manual<K> {
    /// Whether there was a delay.
    fn cancel(&mut self, key: &K) -> bool;
}

/// What the tables call the subjects, in their order.
pub(crate) const NAMES: &[&str] = &[
    <Ours<u64> as Subject<u64>>::NAME,
    <HeapQueue<u64> as Subject<u64>>::NAME,
    <TaskQueue<u64> as Subject<u64>>::NAME,
    <WheelTimer<u64> as Subject<u64>>::NAME,
    #[cfg(feature = "kube")]
    <KubeTask<u64> as Subject<u64>>::NAME,
];

/// How many times faster than each rival it is meant to be.
const TARGET: Option<f64> = Some(3.0);

/// A list of runs, by name.
macro_rules! subjects {
    ($subject:ident; $($(#[$when:meta])* $queue:ty),*; $work:ident $arguments:tt) => {
        vec![$($(#[$when])* (<$queue as $subject<u64>>::NAME, subjects!(@ $queue, $work $arguments))),*]
    };
    (@ $queue:ty, $work:ident($($argument:expr),*)) => {
        Box::new(move || workloads::$work::<$queue>($($argument),*)) as Run
    };
}

/// All workloads; `keys` is the number of keys in a run.
pub fn all(keys: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push = |name, figures, subjects| {
        list.push(Workload { group: "", name, figures, ops: keys, subjects, rivals: 2 });
    };
    for threads in [1, 2] {
        let figures = vec![("all set", TARGET), ("calls return", None)];
        let subjects = subjects!(
            Subject; Ours<u64>, HeapQueue<u64>, TaskQueue<u64>, WheelTimer<u64>, #[cfg(feature = "kube")] KubeTask<u64>;
            insert(keys, threads)
        );
        push(format!("insert, {threads} threads"), figures, subjects);
    }
    for threads in [1, 2] {
        // Without the one that knows no earlier delay.
        let subjects = subjects!(
            Subject; Ours<u64>, HeapQueue<u64>, TaskQueue<u64>, #[cfg(feature = "kube")] KubeTask<u64>;
            re_add(keys / 10, threads, keys)
        );
        push(format!("re-add, {threads} threads"), vec![("all set", None)], subjects);
    }
    let subjects = subjects!(
        Manual; ManualOurs<u64>, ManualHeap<u64>, ManualTask<u64>, ManualWheel<u64>, #[cfg(feature = "kube")] ManualKube<u64>;
        expire(keys)
    );
    push("expire".into(), vec![("all in line", TARGET), ("all done", TARGET)], subjects);
    // Without the one that cannot cancel.
    let subjects = subjects!(
        Manual; ManualOurs<u64>, ManualHeap<u64>, ManualTask<u64>, ManualWheel<u64>; mixed(keys / 10, keys)
    );
    push("insert, cancel, expire".into(), vec![("", None)], subjects);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_runs_on_each_subject() {
        all(20_000).iter().for_each(Workload::try_out);
    }

    #[test]
    fn every_subject_that_should_knows_the_earlier_delay() {
        fn check<Q: Manual<u64>>() {
            let seconds = Duration::from_secs;
            let mut queue = Q::make();
            queue.add(0);
            for (key, delay) in [(1, 10), (2, 20), (3, 5), (2, 7), (1, 12)] {
                queue.add_after(key, seconds(delay));
            }
            assert_eq!(queue.advance(seconds(4)), 0);
            assert_eq!(queue.advance(seconds(5)), 2);
            queue.add_after(4, seconds(50));
            assert_eq!(queue.advance(seconds(100)), 2);
            let mut out = Vec::new();
            (0..5).for_each(|_| assert!(queue.process(|key| out.push(*key))));
            assert_eq!(out, [0, 3, 2, 1, 4]);
        }
        check::<ManualOurs<u64>>();
        check::<ManualHeap<u64>>();
        check::<ManualTask<u64>>();
        #[cfg(feature = "kube")]
        check::<ManualKube<u64>>();
    }

    #[test]
    fn every_subject_that_should_knows_the_order_and_the_cancelled_delay() {
        fn check<Q: Cancel<u64>>() {
            let micros = Duration::from_micros;
            let mut queue = Q::make();
            queue.add(0);
            for (key, delay) in [(1, 10_300), (2, 7000), (3, 5000), (4, 8000)] {
                queue.add_after(key, micros(delay));
            }
            assert!(queue.cancel(&4));
            assert!(!queue.cancel(&4));
            queue.add_after(4, micros(50_000));
            assert_eq!(queue.advance(micros(4999)), 0, "{}", Q::NAME);
            assert_eq!(queue.advance(micros(4001)), 2, "{}", Q::NAME);
            // Not early by a part of a millisecond, and at most a millisecond late.
            assert_eq!(queue.advance(micros(1299)), 0, "{}", Q::NAME);
            assert_eq!(queue.advance(micros(701)), 1, "{}", Q::NAME);
            assert_eq!(queue.advance(micros(1_000_000)), 1, "{}", Q::NAME);
            let mut out = Vec::new();
            (0..5).for_each(|_| assert!(queue.process(|key| out.push(*key))));
            assert_eq!(out, [0, 3, 2, 1, 4], "{}", Q::NAME);
        }
        check::<ManualOurs<u64>>();
        check::<ManualHeap<u64>>();
        check::<ManualTask<u64>>();
        check::<ManualWheel<u64>>();
    }

    #[test]
    fn every_subject_delivers_by_itself() {
        fn check<Q: DelaySubject<u64>>() {
            assert_eq!(lateness::lateness::<Q>(100, true).late.len(), 100);
        }
        check::<Ours<u64>>();
        check::<HeapQueue<u64>>();
        check::<TaskQueue<u64>>();
        check::<WheelTimer<u64>>();
        #[cfg(feature = "kube")]
        check::<KubeTask<u64>>();
    }
}
