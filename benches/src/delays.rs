//! The same for delayed keys: subjects, rivals, workloads and the list of them.
//!
//! Real clocks do not go faster, so what depends on time passing is measured on [`Manual`] subjects, which have the structure
//! and no thread, and are told the time.

mod heap;
pub mod lateness;
mod ours;
mod tokio;
pub mod workloads;

pub use self::heap::{HeapQueue, ManualHeap};
pub use self::ours::ManualOurs;
pub use self::tokio::{ManualTask, TaskQueue};

use crate::{Key, Ours, Subject};
use std::time::Duration;

/// A queue with delays, on the real clock, with a thread of its own that delivers.
pub trait DelaySubject<K: Key>: Subject<K> {
    fn add_after(&self, key: K, delay: Duration);

    /// Returns when all calls so far have taken effect; how many keys are delayed then.
    fn settle(&self) -> usize;
}

/// A queue with delays that is told the time.
pub trait Manual<K: Key> {
    fn make() -> Self;

    fn add(&mut self, key: K);

    fn add_after(&mut self, key: K, delay: Duration);

    /// Whether there was a delay.
    fn cancel(&mut self, key: &K) -> bool;

    /// Moves the clock on and puts in line what is due; how many keys came due.
    fn advance(&mut self, by: Duration) -> usize;

    /// Takes a key that is in line, lends it to `work`, is done with it.
    fn process(&mut self, work: impl FnOnce(&K)) -> bool;
}

/// One workload with everything that can run it: keyqueue first, then the rivals.
pub struct Workload {
    pub name: String,
    /// What a run is timed for, and how many times faster than each rival it is meant to be.
    pub figures: Vec<(&'static str, Option<f64>)>,
    /// Operations a run.
    pub ops: u64,
    pub subjects: Vec<Run>,
}

/// Runs a workload once: a time for each of its figures.
pub type Run = Box<dyn Fn() -> Vec<Duration>>;

/// What the tables call the subjects.
pub const NAMES: [&str; 3] =
    [<Ours<u64> as Subject<u64>>::NAME, <HeapQueue<u64> as Subject<u64>>::NAME, <TaskQueue<u64> as Subject<u64>>::NAME];

/// How many times faster than each rival it is meant to be.
const TARGET: Option<f64> = Some(3.0);

macro_rules! subjects {
    ($($queue:ty),*; $work:ident $arguments:tt) => { vec![$(subjects!(@ $queue, $work $arguments)),*] };
    (@ $queue:ty, $work:ident($($argument:expr),*)) => {
        Box::new(move || workloads::$work::<$queue>($($argument),*)) as Run
    };
}

macro_rules! threaded {
    ($($run:tt)*) => { subjects!(Ours<u64>, HeapQueue<u64>, TaskQueue<u64>; $($run)*) };
}

macro_rules! manual {
    ($($run:tt)*) => { subjects!(ManualOurs<u64>, ManualHeap<u64>, ManualTask<u64>; $($run)*) };
}

/// All workloads, with that many keys a run.
pub fn all(keys: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push = |name: String, figures, subjects| list.push(Workload { name, figures, ops: keys, subjects });
    for threads in [1, 2] {
        let figures = vec![("all set", TARGET), ("calls return", None)];
        push(format!("insert, {threads} threads"), figures, threaded!(insert(keys, threads)));
    }
    for threads in [1, 2] {
        let figures = vec![("all set", None)];
        push(format!("re-add, {threads} threads"), figures, threaded!(re_add(keys / 10, threads, keys)));
    }
    push("expire".into(), vec![("all in line", TARGET), ("all done", TARGET)], manual!(expire(keys)));
    let figures = vec![("", None)];
    push("insert, cancel, expire".into(), figures, manual!(mixed(keys / 10, keys)));
    list
}

/// Bytes that each of `keys` delayed keys takes, for each subject.
pub fn bytes_a_key(keys: u64) -> [f64; 3] {
    fn one<Q: DelaySubject<u64>>(keys: u64) -> f64 {
        crate::memory::live_bytes(|| workloads::filled::<Q>(keys)) as f64 / keys as f64
    }
    [one::<Ours<u64>>(keys), one::<HeapQueue<u64>>(keys), one::<TaskQueue<u64>>(keys)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workloads check themselves.
    #[test]
    fn each_workload_runs_on_each_subject() {
        for workload in all(20_000) {
            for run in workload.subjects {
                assert_eq!(run().len(), workload.figures.len(), "{}", workload.name);
            }
        }
    }

    #[test]
    fn every_subject_knows_the_earlier_delay_the_cancelled_one_and_the_order() {
        fn check<Q: Manual<u64>>() {
            let seconds = Duration::from_secs;
            let mut queue = Q::make();
            queue.add(0);
            for (key, delay) in [(1, 10), (2, 20), (3, 5), (2, 7), (1, 12), (4, 8)] {
                queue.add_after(key, seconds(delay));
            }
            assert!(queue.cancel(&4));
            assert!(!queue.cancel(&4));
            queue.add_after(4, seconds(50));
            assert_eq!(queue.advance(seconds(4)), 0);
            assert_eq!(queue.advance(seconds(5)), 2);
            assert_eq!(queue.advance(seconds(100)), 2);
            let mut out = Vec::new();
            (0..5).for_each(|_| assert!(queue.process(|key| out.push(*key))));
            assert_eq!(out, [0, 3, 2, 1, 4]);
        }
        check::<ManualOurs<u64>>();
        check::<ManualHeap<u64>>();
        check::<ManualTask<u64>>();
    }

    #[test]
    fn every_subject_delivers_by_itself() {
        fn check<Q: DelaySubject<u64>>() {
            assert_eq!(lateness::lateness::<Q>(100, true).late.len(), 100);
        }
        check::<Ours<u64>>();
        check::<HeapQueue<u64>>();
        check::<TaskQueue<u64>>();
    }
}
