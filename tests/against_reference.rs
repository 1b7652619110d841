//! Each feature crossed with each other: random lives and all short ones, on the crate and on the plain queue of `tests/reference/`.
//!
//! `REFERENCE_SECONDS` is how long random lives go on, in as many threads as there are CPUs (4 by default), and `REFERENCE_SEED` is the first
//! of them: the number that a failure names. `REFERENCE_WORDS` is the length of the short ones (3). `REFERENCE_TABLE=print` prints what was
//! crossed; with `check`, the test fails for a cell that is empty.
//!
//! A life is the same each time, but for one thing: keys of two shards that are stamped at one moment are ordered by a counter of the
//! process, which other threads move on. A failure with several shards that does not come again may do so on one CPU (`taskset -c 0`).

mod reference;

use reference::events::Events;
use reference::plan::Plan;
use reference::{crossings, methods, swarm, words};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{available_parallelism, scope};
use std::time::{Duration, Instant};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

#[test]
fn random_lives() {
    let time = Duration::from_secs(setting("REFERENCE_SECONDS").unwrap_or(4));
    let first = setting("REFERENCE_SEED").unwrap_or(0);
    words::rare_lives();
    let start = Instant::now();
    let (lives, steps, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let run = || {
        while !is_over.load(Relaxed) {
            let from = first + lives.fetch_add(100, Relaxed);
            let batch = catch_unwind(|| swarm::lives(from..from + 100));
            is_over.fetch_or(batch.is_err() || start.elapsed() >= time, Relaxed);
            steps.fetch_add(batch.unwrap_or_else(|panic| resume_unwind(panic)), Relaxed);
        }
    };
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(run);
        }
    });
    println!("{} lives, {} steps", lives.into_inner(), steps.into_inner());
    println!("judged by handler time: {} times", crossings::judged_by_handler_time());
    let (table, wrong) = crossings::table();
    match std::env::var("REFERENCE_TABLE").as_deref() {
        Ok("check") => assert!(wrong.is_empty(), "{table}\n{} cells are wrong:\n{}", wrong.len(), wrong.join("\n")),
        Ok(_) => println!("{table}\n{} cells are wrong:\n{}", wrong.len(), wrong.join("\n")),
        Err(_) => {}
    }
}

#[test]
fn all_short_lives() {
    let length = setting("REFERENCE_WORDS").unwrap_or(3) as u32;
    for alphabet in words::alphabets() {
        let count = words::words(&alphabet, length);
        println!("{}: {count} words of {length} letters", alphabet.name);
    }
}

/// So a life with several shards that has failed fails again.
#[test]
fn a_plan_has_its_keys_in_the_same_shards_each_time() {
    let plan = Plan { shards: 64, ..Plan::plain() };
    let shards = |plan: &Plan| plan.shards_of(&plan.build(&Events::default()).0);
    assert_eq!(shards(&plan), shards(&plan));
    assert_ne!(shards(&plan), shards(&Plan { seed: 1, ..plan.clone() }));
}

#[test]
fn no_public_call_is_left_out() {
    methods::check();
}

/// The corpus of the fuzz target `all_features`. An input that fails is printed as steps: so put there what the fuzzer has found.
/// `REFERENCE_CORPUS=plain` puts the inputs into the form that lasts: see `fuzz/README.md`.
#[test]
fn what_the_fuzzer_has_kept() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/all_features");
    let mut count = 0;
    for file in corpus.read_dir().expect("the corpus is committed") {
        let path = file.expect("an entry").path();
        let (name, data) = (path.display().to_string(), std::fs::read(&path).expect("a readable file"));
        if std::env::var("REFERENCE_CORPUS").as_deref() == Ok("plain") {
            std::fs::write(&path, swarm::of_bytes(&data).2).expect("a writable file");
        }
        swarm::run_kept(&data, &name);
        count += 1;
    }
    assert!(count > 0);
}
