//! The results of one subject in one workload.

use crate::numbers::median;
use serde::{Deserialize, Serialize};

/// Nanoseconds per operation, round by round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    pub name: String,
    pub ns: Vec<f64>,
}

impl Subject {
    pub fn median(&self) -> f64 {
        median(&self.ns)
    }

    pub fn least(&self) -> f64 {
        self.ns.iter().copied().fold(f64::INFINITY, f64::min)
    }
}
