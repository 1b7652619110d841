//! What comes on top of the bare queue: metrics, and the loop of workers. Not against rivals but against the queue itself, and
//! against the loop that one writes by hand.

pub mod metrics;
mod spin;
pub mod workers;

pub use self::spin::Spin;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn each_workload_runs_on_each_subject() {
        metrics::all(20_000).iter().chain(&workers::all(20_000)).for_each(Workload::try_out);
    }
}
