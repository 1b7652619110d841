//! The tables of a matrix: each workload beside its targets, and in its best and worst build. The data have all builds.

use super::builds::{BUILDS, LTO_BUILDS};
use crate::markdown::{Table, words};
use crate::results::{OURS, Results, Subject, Times, subjects};
use itertools::Itertools;

/// The highest acceptable ratio of the slowest to the fastest of the builds that differ in LTO and codegen units.
const SPREAD: f64 = 1.15;
/// The highest acceptable ratio of a loop with `get` to one with `try_get`.
const BY_TRY_GET: f64 = 1.1;
/// The highest acceptable ratio of a ring of several threads to a ring of one.
const BY_ONE_THREAD: f64 = 1.2;
const ONE_THREAD: &str = "ring, 1 thread";
const OTHER_LOOPS: &[&str] = &["try_get", "get_async", "Workers"];

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
            table.row([words([workload, &times.figure]), ns, ratios.map(|ratio| against(ratio, None)).into()].concat());
        }
    }
    table.to_string()
}

/// A row for each workload: the worst ratio of all builds, and its target in brackets; bold where it is missed.
pub fn summary(matrix: &Results) -> String {
    let head = ["workload", "fastest", "slowest", "slowest / fastest", "/ mutex", "other loops / mutex", "/ draft"];
    let mut table = Table::new(head.into_iter().chain(["get / try_get", "/ 1 thread"]));
    let all = workloads(matrix);
    let alone = all.iter().filter(|(name, _)| *name == ONE_THREAD).flat_map(|(_, builds)| builds).collect_vec();
    for (workload, builds) in &all {
        let is_of_lto = |times: &&&Times| BUILDS[..LTO_BUILDS].iter().any(|build| build.name == times.figure);
        let lto = builds.iter().filter(is_of_lto).filter_map(|times| times.median(OURS)).collect_vec();
        let (fastest, slowest) = (lto.iter().copied().min_by(f64::total_cmp), worst(lto.iter().copied()));
        let spread = fastest.zip(slowest).map(|(fastest, slowest)| slowest / fastest);
        let (mutex, draft) = targets(workload);
        let one = |times: &Times| {
            let one = alone.iter().find(|one| one.figure == times.figure)?;
            Some(times.median(OURS)? / one.median(OURS)?)
        };
        let several = workload.starts_with("ring") && *workload != ONE_THREAD;
        let of = |ratio: &dyn Fn(&Times) -> Option<f64>| worst(builds.iter().filter_map(|times| ratio(times)));
        // keyqueue's other ways to write the loop, each divided by the faster mutex queue.
        let others = worst(OTHER_LOOPS.iter().filter_map(|name| of(&|times| by_mutex(times, name))));
        table.row([
            (*workload).to_owned(),
            one_digit(fastest),
            one_digit(slowest),
            against(spread, Some(SPREAD)),
            against(of(&|times| by_mutex(times, OURS)), Some(mutex)),
            against(others, Some(1.0)),
            against(of(&|times| by(times, "draft")), draft),
            against(of(&|times| by(times, "try_get")), Some(BY_TRY_GET)),
            against(of(&one).filter(|_| several), Some(BY_ONE_THREAD)),
        ]);
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

/// The targets: the highest acceptable ratio of keyqueue's time to that of the faster mutex queue, and to that of the draft.
fn targets(workload: &str) -> (f64, Option<f64>) {
    match workload.split([',', ' ']).next().unwrap_or_default() {
        "ring" => (0.75, Some(1.3)),
        "unique" => (1.0, Some(1.35)),
        "cycle" if workload.ends_with("u64") => (0.8, None),
        "cycle" => (0.5, None),
        _ => (1.0, None),
    }
}

fn one_digit(ns: Option<f64>) -> String {
    ns.map_or("–".into(), |ns| format!("{ns:.1}"))
}

fn against(ratio: Option<f64>, target: Option<f64>) -> String {
    match (ratio, target) {
        (None, _) => "–".into(),
        (Some(ratio), None) => format!("{ratio:.2}"),
        (Some(ratio), Some(target)) if ratio > target => format!("**{ratio:.2}** ({target})"),
        (Some(ratio), Some(target)) => format!("{ratio:.2} ({target})"),
    }
}

fn worst(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    ratios.max_by(f64::total_cmp)
}

/// In the order in which they were measured, each in the builds in which it was.
fn workloads(matrix: &Results) -> Vec<(&str, Vec<&Times>)> {
    let names = matrix.times.iter().map(|times| times.name.as_str()).unique();
    names.map(|name| (name, matrix.times.iter().filter(|times| times.name == name).collect())).collect()
}
