//! All tests as one program, which builds in half the time of one for each file.

mod common;
mod formats;
mod membership;
mod simulation;
mod stores;
mod trouble;
mod workers;
