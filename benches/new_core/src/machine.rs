//! The machine behind the crate's lock, beside the crate's queue, and beside queues that are written by hand: one table.
//!
//! ```text
//!   cargo run --release --manifest-path benches/Cargo.toml -p new-core --bin machine -- [rows] [rounds] [what]
//!   CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 cargo run …    the same in the other build
//! ```
//!
//! `rows`: only those whose names contain this; all without it, or if it is empty. `rounds`: 9. `what`: nothing for times, `--slowest`,
//! `--memory`, or `--check`, which measures nothing: it compares what the subjects do. `--jsonl`: the data of each round.
//! (With `--config profile.release.codegen-units=1` the program is the same, but it does not know how it was built.)

#![allow(dead_code, unused_imports, reason = "the files of the crate have more than is measured here")]
#![allow(unreachable_pub, reason = "they are private here")]

mod check;
#[path = "../../../src/key/mod.rs"]
mod key;
#[path = "../../../src/machine/mod.rs"]
mod machine;
#[path = "../../../src/numbers.rs"]
mod numbers;
#[path = "../../../src/options.rs"]
mod options;
#[path = "../../../src/order/mod.rs"]
mod order;
#[path = "../../../src/panics.rs"]
mod panics;
#[path = "../../../src/prefetch.rs"]
mod prefetch;
mod queue;
mod queues;
mod rivals;
#[path = "../../../src/sync/mod.rs"]
mod sync;
mod table;

/// What these files need of the rest of the crate.
#[path = "../../../src/time"]
mod time {
    use crate::numbers;
    use std::time::Duration;

    pub(crate) mod wheel;
    pub(crate) mod clock {
        pub(crate) fn now_real() -> u64 {
            unreachable!("the machine has no clock")
        }
    }

    pub(crate) fn nanos(delay: Duration) -> u64 {
        u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
    }
}
#[path = "../../../src/observe"]
mod observe {
    mod histogram;
    pub(crate) use histogram::Histogram;
}
mod rate_limiter {
    pub(crate) trait Schedule {
        fn delay(&self, failures: u32) -> std::time::Duration;
    }
}
use keyqueue::Added;
use options::{DelayConflict, DelayedAdd};

#[global_allocator]
static ALLOCATOR: common::memory::Counting = common::memory::Counting;

fn main() {
    table::run();
}
