//! The list of workloads, for the report and for criterion alike.

use crate::rivals::{DashSeg, parking_lot_mutex, std_mutex};
use crate::workloads::{cycle, duplicates, fill_and_drain, ring, unique};
use crate::{Ours, Subject};
use std::time::Duration;

/// One workload with everything that can run it. The first subject is keyqueue, the next two are the rivals to be measured
/// against, and the last shows another design.
pub struct Workload {
    pub group: &'static str,
    pub name: String,
    /// How much faster than the faster mutex queue it is meant to be.
    pub target: f64,
    /// Operations a run.
    pub ops: u64,
    pub subjects: Vec<(&'static str, Run)>,
}

/// Runs a workload once.
pub type Run = Box<dyn Fn() -> Duration>;

/// How many subjects of a workload count as rivals, after keyqueue itself.
pub const RIVALS: std::ops::Range<usize> = 1..3;

macro_rules! subjects {
    ($key:ty, $work:ident($($argument:expr),*)) => {
        vec![
            subjects!(@ Ours<$key>, $key, $work($($argument),*)),
            subjects!(@ parking_lot_mutex::Queue<$key>, $key, $work($($argument),*)),
            subjects!(@ std_mutex::Queue<$key>, $key, $work($($argument),*)),
            subjects!(@ DashSeg<$key>, $key, $work($($argument),*)),
        ]
    };
    (@ $queue:ty, $key:ty, $work:ident($($argument:expr),*)) => {
        (<$queue as Subject<$key>>::NAME, Box::new(move || $work::<$key, $queue>($($argument),*)) as Run)
    };
}

/// All workloads; `ops` is the size of one run, as long as the workload does not say itself.
pub fn all(ops: u64) -> Vec<Workload> {
    let mut list = Vec::new();
    let mut push =
        |group, name: String, target, ops, subjects| list.push(Workload { group, name, target, ops, subjects });
    for keys in [1, 1024, 100_000] {
        push("cycle u64", format!("{keys} keys"), 1.0, ops, subjects!(u64, cycle(keys, ops)));
    }
    for keys in [1, 1024, 100_000] {
        push("cycle String", format!("{keys} keys"), 1.5, ops, subjects!(String, cycle(keys, ops)));
    }
    for (threads, keys) in [(1, 1), (1, 1024), (2, 1), (2, 1024)] {
        let name = format!("{threads} threads, {keys} keys");
        push("duplicate add", name, 1.0, ops, subjects!(u64, duplicates(keys, threads, ops)));
    }
    for threads in [1, 2, 4, 16] {
        push("ring", format!("{threads} threads"), 1.0, ops, subjects!(u64, ring(1024, threads, ops)));
    }
    for (backlog, target) in [(1000, 3.0), (100_000, 1.0)] {
        for pairs in [1, 2, 8] {
            let name = format!("{pairs}x{pairs}, backlog {backlog}");
            push("unique", name, target, ops, subjects!(u64, unique(pairs, backlog, ops)));
        }
    }
    push("fill, drain", "300000 keys".into(), 1.0, 300_000, subjects!(u64, fill_and_drain(300_000)));
    list
}
