//! Workloads for a deduplicating queue, for keyqueue and for its rivals.
//!
//! A workload does a fixed amount of work with any [`Subject`] and returns how long that took. The program that measures chooses the
//! number of runs.

pub mod charts;
pub mod control;
pub mod costs;
pub mod delays;
pub mod floors;
pub mod forms;
pub mod harness;
pub mod latency;
pub mod limits;
pub mod losses;
pub mod machine;
pub mod markdown;
pub mod matrix;
pub mod memory;
pub mod numbers;
pub mod page;
pub mod pin;
pub mod results;
pub mod rivals;
pub mod suite;
pub mod tables;
pub mod transfer;
pub mod workload;

pub use common::{Key, Ours, Subject};

/// The folder of the repository.
pub const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
