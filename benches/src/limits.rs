//! Limiters: subjects, rivals, workloads and the list of them.

mod bucket;
mod exponential;
pub mod workloads;

pub use self::bucket::{Acquire, Deduping, Governor, GovernorStd, KeyedGovernor, KeyedGovernorStd, Reserve};
pub use self::exponential::DashLimiter;

#[cfg(feature = "kube")]
use crate::delays::ManualKube;
use crate::delays::{self, ManualHeap, ManualOurs, ManualTask, ManualWheel};
use crate::workload::{Run, Workload};
use common::limiter::{self, ParkingLotLimiter, StdLimiter};
use keyqueue::rate_limiter::ItemExponentialFailure;

/// A token bucket, or token buckets for keys.
pub trait Tokens: Sync {
    fn make(limit: Limit) -> Self;

    /// Takes a token if there is one now. Returns whether there was.
    fn take(&self, key: &u64) -> bool;
}

/// Tokens per second, and the burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub rate: u32,
    pub burst: u32,
}

/// More tokens per second than any machine takes.
const PLENTY: Limit = Limit { rate: 500_000_000, burst: 1_000_000 };
/// Nearly all calls are refused.
const SCARCE: Limit = Limit { rate: 10, burst: 10 };

macro_rules! subjects {
    ($($(#[$when:meta])* $subject:ty),*; $work:ident $arguments:tt) => {
        vec![$($(#[$when])* subjects!(@ $subject, $work $arguments)),*]
    };
    (@ $subject:ty, $work:ident($($argument:expr),*)) => {
        Box::new(move || workloads::$work::<$subject>($($argument),*)) as Run
    };
}

macro_rules! exponential {
    ($key:ty; $work:ident($($argument:expr),*)) => {
        vec![
            exponential!(@ ItemExponentialFailure<$key>, $key, $work($($argument),*)),
            exponential!(@ ParkingLotLimiter<$key>, $key, $work($($argument),*)),
            exponential!(@ StdLimiter<$key>, $key, $work($($argument),*)),
            exponential!(@ DashLimiter<$key>, $key, $work($($argument),*)),
        ]
    };
    (@ $subject:ty, $key:ty, $work:ident($($argument:expr),*)) => {
        Box::new(move || limiter::$work::<$key, $subject>($($argument),*)) as Run
    };
}

/// All workloads. Where each key lives its whole life, there are `ops / 4` keys. Where threads do nothing but call, there are `5 * ops`
/// calls: with fewer, the first thread would end before the last one gets a core.
pub fn all(ops: u64) -> Vec<Workload> {
    [exponential(5 * ops, ops / 4), bucket(5 * ops), keyed(5 * ops), retry(ops / 4)].into_iter().flatten().collect()
}

/// The subjects of a group, and the number of its rivals, from the first, to which the targets apply.
struct Group {
    name: &'static str,
    subjects: &'static [&'static str],
    rivals: usize,
}

impl Group {
    fn workload(&self, name: String, figures: Vec<(&'static str, Option<f64>)>, ops: u64, runs: Vec<Run>) -> Workload {
        assert_eq!(self.subjects.len(), runs.len());
        let subjects = self.subjects.iter().copied().zip(runs).collect();
        Workload { group: self.name, name, figures, ops, subjects, rivals: self.rivals }
    }
}

fn exponential(ops: u64, keys: u64) -> Vec<Workload> {
    const SUBJECTS: &[&str] = &["keyqueue", "parking_lot mutex", "std mutex, SipHash", "DashMap"];
    let group = Group { name: "exponential", subjects: SUBJECTS, rivals: 2 };
    let mut list = Vec::new();
    for (threads, target) in [(1, 1.0), (2, 2.0), (4, 2.0)] {
        let (name, figures) = (format!("when, u64, {threads} threads"), vec![("", Some(target))]);
        list.push(group.workload(name, figures, ops, exponential!(u64; when(1024, threads, ops))));
    }
    let runs = exponential!(String; when(1024, 1, ops));
    list.push(group.workload("when, String, 1 threads".into(), vec![("", Some(1.0))], ops, runs));
    let figures = vec![("when", None), ("forget", None)];
    list.push(group.workload(format!("{keys} new keys, u64"), figures, keys, exponential!(u64; when_forget(keys))));
    list
}

const GOVERNORS: &[&str] = &["keyqueue", "governor", "governor, std clock"];

fn bucket(ops: u64) -> Vec<Workload> {
    let group = Group { name: "bucket", subjects: GOVERNORS, rivals: 2 };
    let mut list = Vec::new();
    for (name, is_reserve, limit) in [
        ("try_acquire, admitted", false, PLENTY),
        ("when, admitted", true, PLENTY),
        ("try_acquire, refused", false, SCARCE),
    ] {
        for threads in [1, 2, 4] {
            let mut runs = subjects!(Acquire, Reserve, Governor, GovernorStd; tokens(0, limit, threads, ops));
            drop(runs.remove(usize::from(!is_reserve)));
            list.push(group.workload(format!("{name}, {threads} threads"), vec![("", Some(1.0))], ops, runs));
        }
    }
    list
}

fn keyed(ops: u64) -> Vec<Workload> {
    let group = Group { name: "bucket by key", subjects: GOVERNORS, rivals: 2 };
    let mut list = Vec::new();
    for (limit, outcome) in [(PLENTY, "admitted"), (SCARCE, "put off")] {
        for threads in [1, 2, 4] {
            let runs = subjects!(Deduping, KeyedGovernor, KeyedGovernorStd; tokens(1024, limit, threads, ops));
            list.push(group.workload(format!("{outcome}, {threads} threads"), vec![("", None)], ops, runs));
        }
    }
    list
}

/// For the subjects with delays. A delayed key is not delayed again, so subjects that cannot keep the earlier of two delays take part.
fn retry(keys: u64) -> Vec<Workload> {
    let group = Group { name: "retry", subjects: delays::NAMES, rivals: 1 };
    let workload = |name: &str, wave| {
        let runs = subjects!(
            ManualOurs, ManualHeap, ManualTask, ManualWheel,
            #[cfg(feature = "kube")] ManualKube;
            retry(keys, wave)
        );
        group.workload(format!("{keys} keys, {name}"), vec![("", Some(3.0))], keys, runs)
    };
    vec![workload("one by one", false), workload("in waves", true)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::limiter::{BASE, Limiter, MAX};

    #[test]
    fn every_limiter_doubles_up_to_the_maximum_and_forgets() {
        fn check<L: Limiter<u64>>() {
            let limiter = L::make();
            for _ in 0..2 {
                for failures in 0..100_u32 {
                    let exact = BASE.as_nanos() << failures.min(64);
                    assert_eq!(limiter.when(&1).as_nanos(), exact.min(MAX.as_nanos()), "after {failures}");
                    assert_eq!(limiter.num_requeues(&1), u64::from(failures) + 1);
                }
                assert_eq!((limiter.when(&2), limiter.num_requeues(&3)), (BASE, 0));
                limiter.forget(&1);
                limiter.forget(&2);
                assert_eq!((limiter.num_requeues(&1), limiter.num_requeues(&2)), (0, 0));
            }
        }
        check::<ItemExponentialFailure<u64>>();
        check::<ParkingLotLimiter<u64>>();
        check::<StdLimiter<u64>>();
        check::<DashLimiter<u64>>();
    }

    #[test]
    fn every_bucket_starts_full_and_runs_out() {
        const NO_MORE: Limit = Limit { rate: 1, burst: 5 };
        fn check<T: Tokens>() {
            let (tokens, start) = (T::make(NO_MORE), std::time::Instant::now());
            let taken = (0..1000).filter(|_| tokens.take(&7)).count() as u64;
            assert!((5..=6 + start.elapsed().as_secs()).contains(&taken), "{taken}");
        }
        check::<Acquire>();
        check::<Reserve>();
        check::<Governor>();
        check::<GovernorStd>();
        check::<KeyedGovernor>();
        check::<KeyedGovernorStd>();
        check::<Deduping>();
    }
}
