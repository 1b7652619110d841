//! Runs the committed corpus of the fuzz targets (`fuzz/corpus/<target>/`) through the same functions that the targets call,
//! on stable and without a fuzzer. What a fuzzer has found interesting stays tested; a new find is one more file there.
//!
//! The checks are described at the top of `support/{wheel,limiter}.rs`. The corpus of `all_features` is run by `against_reference.rs`.

mod support {
    pub(crate) mod limiter;
    pub(crate) mod limits;
    pub(crate) mod side;
    pub(crate) mod wheel;
}

use std::path::Path;
use support::{limiter, wheel};

/// Runs `target` on every file of its corpus, and returns the number of files.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> =
        corpus.read_dir().expect("the corpus is committed").map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in &files {
        // Shown only if the replay fails.
        println!("{name}: {}", file.file_name().unwrap_or_default().to_string_lossy());
        target(&std::fs::read(file).expect("a readable file"));
    }
    files.len()
}

#[test]
fn wheel_vs_btree() {
    assert!(replay("wheel_vs_btree", wheel::run_bytes) > 0);
}

#[test]
fn limiter_vs_integer_model() {
    assert!(replay("limiter_vs_integer_model", limiter::run_bytes) > 0);
}

/// Random calls beside the corpus, the same ones each time.
fn random_lives<const BYTES: usize>(count: usize, target: fn(&[u8])) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut data = [0; BYTES];
    for _ in 0..count {
        random.fill(&mut data);
        target(&data[..random.usize(..BYTES)]);
    }
}

#[test]
fn random_lives_of_wheels() {
    random_lives::<2000>(4_000, wheel::run_bytes);
}

#[test]
fn random_lives_of_limiters() {
    random_lives::<600>(20_000, limiter::run_bytes);
}
