//! One small program (the package `matrix`) in several builds: the list of builds, the results, and the tables.

pub mod builds;
pub mod results;
pub mod tables;
