//! The table of a matrix: each workload in its best and its worst build. The data have all builds.

use crate::markdown::{Table, words};
use crate::results::{OURS, Results, Subject, Times, subjects};
use itertools::Itertools;

/// Two rows for each workload, the builds in which keyqueue is fastest and slowest: the subjects' medians, and keyqueue's divided by those
/// that it is compared with.
pub fn best_and_worst(matrix: &Results) -> String {
    let names = subjects(&matrix.times.iter().collect_vec());
    let ratios = words(["/ mutex", "/ draft", "get / try_get"]);
    let mut table = Table::new([words(["workload", "build"]), words(&names), ratios].concat());
    for (workload, builds) in workloads(matrix) {
        let builds = builds.into_iter().filter(|times| times.median(OURS).is_some());
        let builds = builds.sorted_by(|a, b| a.median(OURS).partial_cmp(&b.median(OURS)).expect("numbers"));
        let builds = builds.collect_vec();
        for times in builds.iter().take(1).chain(builds.iter().skip(1).last()) {
            let ns = names.iter().map(|name| one_digit(times.median(name))).collect();
            let ratios = [by_mutex(times, OURS), by(times, "draft"), by(times, "try_get")];
            table.row([words([workload, &times.figure]), ns, ratios.map(ratio).into()].concat());
        }
    }
    table.to_string()
}

/// The subject's time divided by that of the faster mutex queue.
fn by_mutex(times: &Times, subject: &str) -> Option<f64> {
    let mutexes = times.subjects.iter().filter(|subject| subject.name.ends_with(" mutex"));
    let fastest = mutexes.map(Subject::median).min_by(f64::total_cmp)?;
    Some(times.median(subject)? / fastest)
}

/// keyqueue's time divided by that of another subject.
fn by(times: &Times, subject: &str) -> Option<f64> {
    Some(times.median(OURS)? / times.median(subject)?)
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("–".into(), |ratio| format!("{ratio:.2}"))
}

fn one_digit(ns: Option<f64>) -> String {
    ns.map_or("–".into(), |ns| format!("{ns:.1}"))
}

/// In the order in which they were measured, each in the builds in which it was.
fn workloads(matrix: &Results) -> Vec<(&str, Vec<&Times>)> {
    let names = matrix.times.iter().map(|times| times.name.as_str()).unique();
    names.map(|name| (name, matrix.times.iter().filter(|times| times.name == name).collect())).collect()
}
