//! The crate's queue beside queues that are written by hand: one table.
//!
//! ```text
//!   cargo run --release --manifest-path benches/Cargo.toml -p core-table -- [rows] [rounds] [what]
//!   CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 cargo run …    the same in the other build
//!   benches/core/beside.sh <commit> …                    the same, with the crate of another commit in one more column
//! ```
//!
//! `rows`: only those whose names contain this; all without it, or if it is empty. `rounds`: 9. `what`: nothing for times, `--slowest`,
//! `--memory`, or `--check`, which measures nothing: it compares what the subjects do. `--jsonl`: the data of each round.

#![allow(dead_code, reason = "the shared modules have more than is used here")]

mod check;
mod queues;
mod table;

#[global_allocator]
static ALLOCATOR: common::memory::Counting = common::memory::Counting;

fn main() {
    table::run();
}
