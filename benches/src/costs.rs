//! The cost of metrics and of the loop of workers. There are no rivals: metrics are compared with the plain queue, workers with a loop
//! written by hand.

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
