//! Instruction counts of keyqueue's hot paths: what the benchmarks in `gungraun/` and `main.rs` share.

use ahash::random_state::{RandomSource, set_random_source};

#[cfg(not(fuzzing))]
compile_error!(
    "these counts need `--cfg fuzzing`, which has ahash take fixed seeds: run `ci/instructions.sh`, or cargo inside \
     `benches/instructions/` with RUSTFLAGS unset (it replaces the flags in .cargo/config.toml)"
);

/// The number of calls in each benchmark. Counts are per call.
pub const CALLS: u64 = 10_000;

/// Makes every table hash alike from now on, in every process: with other seeds a table has other chains, and other counts.
///
/// One half of a seed comes from here. The other half ahash draws from the system, once per process, but not under `--cfg fuzzing`.
pub fn fix_seeds() {
    struct Same;
    impl RandomSource for Same {
        fn gen_hasher_seed(&self) -> usize {
            0
        }
    }
    // A second call fails, and is not needed.
    _ = set_random_source(Same);
}
