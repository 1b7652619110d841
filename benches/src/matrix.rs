//! One small program (the package `matrix`) in several builds: which builds there are, what was measured, and the tables.

pub mod builds;
pub mod results;
pub mod tables;
