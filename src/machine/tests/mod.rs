//! The bare machine, driven by the one reference: random lives, and all short ones.
//!
//! `MACHINE_SECONDS` is how long random lives go on (1 by default), and `MACHINE_SEED` is the first of them: the number that a failure
//! names. `MACHINE_WORDS` is the length of the short ones (3), and `MACHINE_ALPHABET` is a part of the names of the alphabets that are used
//! (all).

mod bounds;
mod letters;
mod many;
mod memory;
mod reference;
mod rests;
mod run;
mod run_times;
mod sampling;
mod shards;
mod tokens;

use reference::{swarm, words};
use std::time::{Duration, Instant};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

#[test]
fn random_lives() {
    if cfg!(miri) {
        // They are short, and together saw the 32 kinds of answers that 300 lives saw.
        swarm::lives_of_a_machine([32, 54, 55, 152, 197, 283].into_iter());
        let seen = run::seen();
        assert!(seen.len() > 25, "other lives would see more: {seen:?}");
        return;
    }
    let time = Duration::from_secs(setting("MACHINE_SECONDS").unwrap_or(1));
    let first = setting("MACHINE_SEED").unwrap_or(0);
    let (mut lives, start) = (0, Instant::now());
    while lives < 300 || start.elapsed() < time {
        swarm::lives_of_a_machine(first + lives..first + lives + 20);
        lives += 20;
    }
    let seen = run::seen();
    println!("{lives} lives, {} steps, {seen:?}", run::steps());
    // Of 300 lives five or more see the rarest of these.
    for rare in ["two delays", "the later delay takes its place", "let go"] {
        assert!(seen.contains_key(rare), "no life has seen this: {rare}");
    }
}

#[test]
fn all_short_lives() {
    let length = setting("MACHINE_WORDS").unwrap_or(if cfg!(miri) { 1 } else { 3 }) as u32;
    let part = std::env::var("MACHINE_ALPHABET").unwrap_or_default();
    let alphabets: Vec<_> = letters::alphabets().into_iter().filter(|alphabet| alphabet.name.contains(&part)).collect();
    assert!(!alphabets.is_empty(), "MACHINE_ALPHABET={part} is in no name");
    for alphabet in alphabets {
        let (start, steps) = (Instant::now(), run::steps());
        let count = words::words(&alphabet, length);
        let (seconds, steps) = (start.elapsed().as_secs_f64(), run::steps() - steps);
        println!("{}: {count} words of {length} letters, {steps} steps, {seconds:.1} s", alphabet.name);
    }
}
