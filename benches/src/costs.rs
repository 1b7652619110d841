//! What comes on top of the bare queue: metrics, and the loop of workers. Not against rivals but against the queue itself, and
//! against the loop that one writes by hand.

pub mod metrics;
mod spin;
pub mod workers;

pub use self::spin::Spin;

use crate::suite::Run;

/// One workload: what it costs without, then with.
pub struct Workload {
    pub name: String,
    /// Operations a run.
    pub ops: u64,
    /// For each subject of the group.
    pub runs: Vec<Run>,
}

/// Workloads with the same subjects.
pub struct Group {
    pub name: &'static str,
    /// What the tables call them, and how many times as long as the first each may take.
    pub subjects: &'static [(&'static str, Option<f64>)],
    pub workloads: Vec<Workload>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workloads check themselves.
    #[test]
    fn each_workload_runs_on_each_subject() {
        for group in metrics::all(20_000).into_iter().chain(workers::all(20_000)) {
            for workload in group.workloads {
                assert_eq!(workload.runs.len(), group.subjects.len(), "{}", workload.name);
                for run in workload.runs {
                    run();
                }
            }
        }
    }
}
