//! Delayed keys: subjects, rivals, workloads and the list of them.
//!
//! Workloads in which much time has to pass run on [`Manual`] subjects: the data structure without a thread, on a mock clock.

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

/// A queue with delays, on the real clock, with a thread of its own that queues expired keys.
pub trait DelaySubject<K: Key>: Subject<K> {
    fn add_after(&self, key: K, delay: Duration);

    /// Waits until all calls so far have taken effect. Returns the number of delayed keys, if the subject knows it.
    fn settle(&self) -> Option<usize>;
}

/// A queue with delays, on a mock clock.
pub trait Manual<K: Key> {
    /// The name in the tables, the same as that of the subject with its thread.
    const NAME: &'static str;

    fn make() -> Self;

    fn add(&mut self, key: K);

    fn add_after(&mut self, key: K, delay: Duration);

    /// Advances the clock, queues the keys whose delays have expired, and returns their number.
    fn advance(&mut self, by: Duration) -> usize;

    /// Takes a queued key, lends it to `work`, and finishes it. Returns `false` if no key is queued.
    fn process(&mut self, work: impl FnOnce(&K)) -> bool;
}

/// A subject that can cancel delays.
pub trait Cancel<K: Key>: Manual<K> {
    /// Returns whether there was a delay.
    fn cancel(&mut self, key: &K) -> bool;
}

/// The subjects' names in the tables, in the order of the columns.
pub(crate) const NAMES: &[&str] = &[
    <Ours<u64> as Subject<u64>>::NAME,
    <HeapQueue<u64> as Subject<u64>>::NAME,
    <TaskQueue<u64> as Subject<u64>>::NAME,
    <WheelTimer<u64> as Subject<u64>>::NAME,
    #[cfg(feature = "kube")]
    <KubeTask<u64> as Subject<u64>>::NAME,
];

/// The target: how many times faster than each rival keyqueue is meant to be.
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
        // Without the subject that cannot keep the earlier of two delays.
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
    push("expire".into(), vec![("all queued", TARGET), ("all done", TARGET)], subjects);
    // Without the subject that cannot cancel.
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
    fn every_re_add_subject_keeps_the_earlier_delay() {
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
    fn every_cancel_subject_keeps_the_order_and_drops_cancelled_delays() {
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
    fn every_subject_queues_expired_keys_by_itself() {
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
