//! The cost of metrics and of the loop of workers. There are no rivals: metrics are compared with the plain queue, workers with a loop
//! written by hand.

pub mod metrics;
pub mod spin;
pub mod workers;
