//! Wake-ups: how late keys are handed out when a woken getter does not run, and how many wake-ups a burst costs. For
//! comparison, queues of a mutex and a condition variable.
//!
//! Linux only. Where other programs run too: `chrt -f 1 target/release/late`.

mod burst;
mod not_running;
mod system;

use burst::{burst, single};
use clap::Parser;
use common::mutex::{parking_lot_mutex, std_mutex};
use keyqueue_benches::machine::{load, processor};
use keyqueue_benches::{Ours, Subject};
use not_running::{held_up, idle};

/// Measures wake-ups.
#[derive(Parser)]
struct Options {
    /// The number of rounds; their median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only scenarios whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// What one round of a scenario measures, with its unit.
type Values = Vec<(&'static str, f64)>;

/// A name, the function for each subject, and the number that it is called with.
struct Scenario(&'static str, [fn(usize) -> Values; 3], usize);

macro_rules! subjects {
    ($work:ident) => {
        [$work::<Ours<u64>>, $work::<parking_lot_mutex::Queue<u64>>, $work::<std_mutex::Queue<u64>>]
    };
}

const SCENARIOS: &[Scenario] = &[
    Scenario("first parked getter held up", subjects!(held_up), 0),
    Scenario("last parked getter held up", subjects!(held_up), 1),
    Scenario("first parked getter SCHED_IDLE", subjects!(idle), 0),
    Scenario("one key, 1 getter", subjects!(single), 1000),
    Scenario("burst of 1000, 1 getter", subjects!(burst), 1),
    Scenario("burst of 1000, 2 getters", subjects!(burst), 2),
    Scenario("burst of 1000, 4 getters", subjects!(burst), 4),
];

fn main() {
    let options = Options::parse();
    assert!(options.rounds > 0, "at least one round");
    println!("{}, load {}; {} rounds\n", processor(), load(), options.rounds);
    let names = [Ours::<u64>::NAME, parking_lot_mutex::Queue::<u64>::NAME, std_mutex::Queue::<u64>::NAME];
    let [ours, first, second] = names;
    println!(
        "| {:30} | {:26} | {ours:>9} | {first:>17} | {second:>9} | ratios to the two |",
        "scenario", "median of the rounds"
    );
    println!("|{0:-<32}|{0:-<28}|{1:->11}|{1:->19}|{1:->11}|{1:->19}|", "", ":");
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.0.contains(&options.only)) {
        measure(scenario, options.rounds);
    }
}

/// Prints a row for each value. The subjects take turns.
fn measure(Scenario(name, subjects, number): &Scenario, rounds: usize) {
    let mut all: [Vec<Values>; 3] = Default::default();
    for turn in 0..3 * rounds {
        let subject = (turn + turn / 3) % 3;
        all[subject].push(subjects[subject](*number));
    }
    for (row, (value, _)) in all[0][0].iter().enumerate() {
        let [ours, first, second] = [0, 1, 2].map(|subject| {
            let mut values: Vec<f64> = all[subject].iter().map(|values| values[row].1).collect();
            quantile(&mut values, 0.5)
        });
        let (to_first, to_second) = (ours / first, ours / second);
        println!(
            "| {name:30} | {value:26} | {ours:9.1} | {first:17.1} | {second:9.1} | {to_first:8.2} {to_second:8.2} |"
        );
    }
}

/// The smallest value that at least this share of the values does not exceed.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * part).ceil() as usize).max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantile_is_one_of_the_values() {
        let mut values = [3.0, 1.0, 2.0];
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| quantile(&mut values, part)), [1.0, 2.0, 3.0, 3.0]);
    }

    /// Scenarios run one after the other: only one thread at a time can be held up.
    #[test]
    fn all_subjects_measure_the_same_in_every_scenario() {
        for Scenario(name, subjects, number) in SCENARIOS {
            let [ours, first, second] = subjects.map(|run| run(*number));
            let names = |values: &Values| -> Vec<_> { values.iter().map(|(name, _)| *name).collect() };
            assert_eq!([names(&first), names(&second)], [names(&ours), names(&ours)], "{name}");
            let all = [ours, first, second].concat();
            assert!(all.iter().all(|(_, value)| value.is_finite() && *value > 0.0), "{name}: {all:?}");
        }
    }
}
