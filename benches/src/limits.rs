//! Limiters: subjects, rivals, workloads and the list of them.

mod bucket;
pub mod workloads;

pub use self::bucket::{Acquire, Deduping, Governor, KeyedGovernor, Reserve};

use self::workloads::{retry, tokens};
use crate::delays::{Manual, ManualHeap, ManualOurs, ManualWheel};
use crate::subjects;
use crate::workload::{Run, Workload};
use common::limiter::{self, Limiter, ParkingLotLimiter, StdLimiter};
use keyqueue::rate_limiter::ItemExponentialFailure;

/// A token bucket, or token buckets for keys.
pub trait Tokens: Sync {
    /// The subject's name in the tables.
    const NAME: &'static str;

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

macro_rules! exponential {
    ($key:ty; $work:ident $arguments:tt) => {
        vec![
            exponential!(@ ItemExponentialFailure<$key>, $key, $work $arguments),
            exponential!(@ ParkingLotLimiter<$key>, $key, $work $arguments),
            exponential!(@ StdLimiter<$key>, $key, $work $arguments),
        ]
    };
    (@ $subject:ty, $key:ty, $work:ident($($argument:expr),*)) => {
        (<$subject as Limiter<$key>>::NAME, Box::new(move || limiter::$work::<$key, $subject>($($argument),*)) as Run)
    };
}

/// All workloads. Where each key lives its whole life, there are `ops / 4` keys. Where threads do nothing but call, there are `5 * ops`
/// calls: with fewer, the first thread would end before the last one gets a core.
pub fn all(ops: u64) -> Vec<Workload> {
    let (calls, keys) = (5 * ops, ops / 4);
    let mut list = Vec::new();
    let mut push = |group, name, figures, ops, subjects, rivals| {
        list.push(Workload { group, name, figures, ops, subjects, rivals });
    };
    for (threads, target) in [(1, 1.0), (2, 2.0), (4, 2.0)] {
        let subjects = exponential!(u64; when(1024, threads, calls));
        push("exponential", format!("when, u64, {threads} threads"), vec![("", Some(target))], calls, subjects, 2);
    }
    let subjects = exponential!(String; when(1024, 1, calls));
    push("exponential", "when, String, 1 threads".into(), vec![("", Some(1.0))], calls, subjects, 2);
    let figures = vec![("when", None), ("forget", None)];
    push("exponential", format!("{keys} new keys, u64"), figures, keys, exponential!(u64; when_forget(keys)), 2);
    for (name, is_reserve, limit) in [
        ("try_acquire, admitted", false, PLENTY),
        ("when, admitted", true, PLENTY),
        ("try_acquire, refused", false, SCARCE),
    ] {
        for threads in [1, 2, 4] {
            let mut subjects = subjects!(Tokens; Acquire, Reserve, Governor; tokens(0, limit, threads, calls));
            drop(subjects.remove(usize::from(!is_reserve)));
            push("bucket", format!("{name}, {threads} threads"), vec![("", Some(1.0))], calls, subjects, 1);
        }
    }
    for (limit, outcome) in [(PLENTY, "admitted"), (SCARCE, "put off")] {
        for threads in [1, 2, 4] {
            let subjects = subjects!(Tokens; Deduping, KeyedGovernor; tokens(1024, limit, threads, calls));
            push("bucket by key", format!("{outcome}, {threads} threads"), vec![("", None)], calls, subjects, 1);
        }
    }
    // A delayed key is not delayed again, so subjects that cannot keep the earlier of two delays take part.
    for (name, wave) in [("one by one", false), ("in waves", true)] {
        let subjects = subjects!(Manual; ManualOurs, ManualHeap, ManualWheel; retry(keys, wave));
        push("retry", format!("{keys} keys, {name}"), vec![("", Some(3.0))], keys, subjects, 1);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::limiter::{BASE, MAX};

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
    }
}
