//! The same for limiters: subjects, rivals, workloads and the list of them.

mod bucket;
mod exponential;
mod retry;
pub mod workloads;

pub use self::bucket::{Acquire, Governor, GovernorStd, KeyedGovernor, KeyedGovernorStd, Reserve};
pub use self::exponential::DashLimiter;
pub use self::retry::{RetryOurs, RetryRival};

#[cfg(feature = "kube")]
use crate::delays::ManualKube;
use crate::delays::{ManualHeap, ManualTask, ManualWheel, NAMES, Run, Workload};
use common::limiter::{self, ParkingLotLimiter, StdLimiter};
use keyqueue::rate_limiter::{DedupingBucket, ItemExponentialFailure};
use std::time::Duration;

/// Tokens.
pub trait Tokens: Sync {
    fn make(limit: Limit) -> Self;

    /// Whether there was a token for now.
    fn take(&self) -> bool;
}

/// Tokens for keys.
pub trait KeyedTokens: Sync {
    fn make(limit: Limit) -> Self;

    /// Whether there was a token for now.
    fn take(&self, key: &u64) -> bool;
}

/// Tokens a second, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub rate: u32,
    pub burst: u32,
}

/// Tokens come faster than any machine asks.
const PLENTY: Limit = Limit { rate: 500_000_000, burst: 1_000_000 };
/// Nearly all that ask are refused.
const SCARCE: Limit = Limit { rate: 10, burst: 10 };

/// A queue with delays and an exponential backoff, that is told the time.
pub trait Retry {
    fn make() -> Self;

    fn add(&mut self, key: u64);

    /// Moves the clock on and queues the keys whose delays have expired; how many.
    fn advance(&mut self, by: Duration) -> usize;

    /// Takes a queued key, lends it to `work`, which says whether it succeeded, and retries it if not. There must be a queued
    /// key.
    fn process(&mut self, work: impl FnOnce(&u64) -> bool);
}

/// Workloads with the same subjects: keyqueue first, then the rivals.
pub struct Group {
    pub name: &'static str,
    pub subjects: &'static [&'static str],
    /// How many of the rivals, the first ones, the targets are about.
    pub rivals: usize,
    pub workloads: Vec<Workload>,
}

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
pub fn all(ops: u64) -> Vec<Group> {
    vec![exponential(5 * ops, ops / 4), bucket(5 * ops), keyed(5 * ops), retry(ops / 4)]
}

/// The runs with the names of their subjects.
fn named(names: &[&'static str], runs: Vec<Run>) -> Vec<(&'static str, Run)> {
    assert_eq!(names.len(), runs.len());
    names.iter().copied().zip(runs).collect()
}

fn exponential(ops: u64, keys: u64) -> Group {
    const NAMES: &[&str] = &["keyqueue", "parking_lot mutex", "std mutex, SipHash", "DashMap"];
    let mut workloads = Vec::new();
    let mut push = |name: String, figures, ops, runs| {
        workloads.push(Workload { name, figures, ops, subjects: named(NAMES, runs) });
    };
    for (threads, target) in [(1, 1.0), (2, 2.0), (4, 2.0)] {
        let figures = vec![("", Some(target))];
        push(format!("when, u64, {threads} threads"), figures, ops, exponential!(u64; when(1024, threads, ops)));
    }
    push("when, String, 1 threads".into(), vec![("", Some(1.0))], ops, exponential!(String; when(1024, 1, ops)));
    let figures = vec![("when", None), ("forget", None)];
    push(format!("{keys} new keys, u64"), figures, keys, exponential!(u64; when_forget(keys)));
    Group { name: "exponential", subjects: NAMES, rivals: 2, workloads }
}

fn bucket(ops: u64) -> Group {
    const NAMES: &[&str] = &["keyqueue", "governor", "governor, std clock"];
    let mut workloads = Vec::new();
    let mut push = |name, runs| {
        workloads.push(Workload { name, figures: vec![("", Some(1.0))], ops, subjects: named(NAMES, runs) });
    };
    for threads in [1, 2, 4] {
        let runs = subjects!(Acquire, Governor, GovernorStd; tokens(PLENTY, threads, ops));
        push(format!("try_acquire, admitted, {threads} threads"), runs);
    }
    for threads in [1, 2, 4] {
        let runs = subjects!(Reserve, Governor, GovernorStd; tokens(PLENTY, threads, ops));
        push(format!("when, admitted, {threads} threads"), runs);
    }
    for threads in [1, 2, 4] {
        let runs = subjects!(Acquire, Governor, GovernorStd; tokens(SCARCE, threads, ops));
        push(format!("try_acquire, refused, {threads} threads"), runs);
    }
    Group { name: "bucket", subjects: NAMES, rivals: 2, workloads }
}

fn keyed(ops: u64) -> Group {
    const NAMES: &[&str] = &["keyqueue", "governor", "governor, std clock"];
    let mut workloads = Vec::new();
    for (limit, outcome) in [(PLENTY, "admitted"), (SCARCE, "put off")] {
        for threads in [1, 2, 4] {
            let runs = subjects!(
                DedupingBucket<u64>, KeyedGovernor, KeyedGovernorStd; keyed_tokens(1024, limit, threads, ops)
            );
            let name = format!("{outcome}, {threads} threads");
            workloads.push(Workload { name, figures: vec![("", None)], ops, subjects: named(NAMES, runs) });
        }
    }
    Group { name: "bucket by key", subjects: NAMES, rivals: 2, workloads }
}

/// By the subjects with delays. A key that waits is not delayed again, so that those can do it, too, that know no earlier delay.
fn retry(keys: u64) -> Group {
    let workload = |name: &str, wave| {
        let runs = subjects!(
            RetryOurs, RetryRival<ManualHeap<u64>>, RetryRival<ManualTask<u64>>, RetryRival<ManualWheel<u64>>,
            #[cfg(feature = "kube")] RetryRival<ManualKube<u64>>;
            retry(keys, wave)
        );
        let figures = vec![("", Some(3.0))];
        Workload { name: format!("{keys} keys, {name}"), figures, ops: keys, subjects: named(NAMES, runs) }
    };
    let workloads = vec![workload("one by one", false), workload("in waves", true)];
    Group { name: "retry", subjects: NAMES, rivals: 1, workloads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::limiter::{BASE, Limiter, MAX};

    /// The workloads check themselves.
    #[test]
    fn each_workload_runs_on_each_subject() {
        for group in all(20_000) {
            for workload in group.workloads {
                assert_eq!(workload.subjects.len(), group.subjects.len(), "{}", workload.name);
                for (subject, run) in workload.subjects {
                    assert_eq!(run().len(), workload.figures.len(), "{}, {subject}", workload.name);
                }
            }
        }
    }

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
        fn check(take: impl Fn() -> bool) {
            let start = std::time::Instant::now();
            let taken = (0..1000).filter(|_| take()).count() as u64;
            assert!((5..=6 + start.elapsed().as_secs()).contains(&taken), "{taken}");
        }
        fn bucket<T: Tokens>() {
            let tokens = T::make(NO_MORE);
            check(|| tokens.take());
        }
        fn keyed<T: KeyedTokens>() {
            let tokens = T::make(NO_MORE);
            check(|| tokens.take(&7));
        }
        bucket::<Acquire>();
        bucket::<Reserve>();
        bucket::<Governor>();
        bucket::<GovernorStd>();
        keyed::<KeyedGovernor>();
        keyed::<KeyedGovernorStd>();
        keyed::<DedupingBucket<u64>>();
    }

    #[test]
    fn every_queue_waits_longer_after_each_failure_and_begins_anew_after_a_success() {
        fn check<Q: Retry>() {
            let mut queue = Q::make();
            queue.add(7);
            for outcome in [[false, false, false, true], [false, false, false, true]] {
                for (succeeds, millis) in outcome.into_iter().zip([5, 10, 20, 0]) {
                    queue.process(|&key| {
                        assert_eq!(key, 7);
                        succeeds
                    });
                    if !succeeds {
                        assert_eq!(queue.advance(Duration::from_millis(millis - 1)), 0);
                        assert_eq!(queue.advance(Duration::from_millis(1)), 1, "after {millis} ms");
                    }
                }
                assert_eq!(queue.advance(Duration::from_secs(3600)), 0);
                queue.add(7);
            }
        }
        check::<RetryOurs>();
        check::<RetryRival<ManualHeap<u64>>>();
        check::<RetryRival<ManualTask<u64>>>();
        check::<RetryRival<ManualWheel<u64>>>();
        #[cfg(feature = "kube")]
        check::<RetryRival<ManualKube<u64>>>();
    }
}
