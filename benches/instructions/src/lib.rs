//! Instruction counts of keyqueue's hot paths: what the benchmarks in `gungraun/` and the comparison in `main.rs` share.

pub mod counts;

use ahash::random_state::{RandomSource, set_random_source};

#[cfg(not(fuzzing))]
compile_error!(
    "these counts need `--cfg fuzzing`, which has ahash take fixed seeds: run `ci/instructions.sh`, or cargo inside \
     `benches/instructions/` with RUSTFLAGS unset (it replaces the flags in .cargo/config.toml)"
);

/// How often each benchmark makes its call. Counts are per call.
pub const CALLS: u64 = 10_000;

/// From now on, every table hashes alike, in every process: a table with other seeds has other chains, and other counts.
///
/// One half of a seed is drawn here, the other once per process, from the system. The latter ahash leaves out under
/// `--cfg fuzzing`.
pub fn fix_seeds() {
    struct Same;
    impl RandomSource for Same {
        fn gen_hasher_seed(&self) -> usize {
            0
        }
    }
    // A second call is refused, and has nothing to add.
    _ = set_random_source(Same);
}
