//! The tables of a matrix: each workload beside its targets, and in its best and worst build. The data have all builds.

use super::builds::{BUILDS, LTO_BUILDS};
use crate::markdown::Table;
use crate::results::{OURS, Results, Subject, Times};

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
    let mut names: Vec<&str> = Vec::new();
    for subject in matrix.times.iter().flat_map(|times| &times.subjects) {
        if !names.contains(&&*subject.name) {
            names.push(&subject.name);
        }
    }
    let ratios = ["/ mutex", "/ draft", "get / try_get"];
    let mut table = Table::new(["workload", "build"].into_iter().chain(names.iter().copied()).chain(ratios));
    for workload in workloads(matrix) {
        let mut builds: Vec<&Times> = of(matrix, workload).filter(|times| times.median(OURS).is_some()).collect();
        builds.sort_by(|a, b| a.median(OURS).partial_cmp(&b.median(OURS)).expect("medians are numbers"));
        let ends = builds.first().into_iter().chain(builds.last().filter(|_| builds.len() > 1));
        for times in ends {
            let words = [workload.to_owned(), times.figure.clone()];
            let medians = names.iter().map(|name| times.median(name).map_or("–".into(), |ns| format!("{ns:.1}")));
            let ratios = [by_mutex(times, OURS), by(times, "draft"), by(times, "try_get")];
            let ratios = ratios.map(|ratio| ratio.map_or("–".into(), |ratio| format!("{ratio:.2}")));
            table.row(words.into_iter().chain(medians).chain(ratios));
        }
    }
    table.to_string()
}

/// A row for each workload: the worst ratio of all builds, and its target in brackets; bold where it is missed.
pub fn summary(matrix: &Results) -> String {
    let head = ["workload", "fastest", "slowest", "slowest / fastest", "/ mutex", "other loops / mutex", "/ draft"];
    let mut table = Table::new(head.into_iter().chain(["get / try_get", "/ 1 thread"]));
    for workload in workloads(matrix) {
        let lto: Vec<f64> = of(matrix, workload)
            .filter(|times| BUILDS[..LTO_BUILDS].iter().any(|build| build.name == times.figure))
            .filter_map(|times| times.median(OURS))
            .collect();
        let (fastest, slowest) = (lto.iter().copied().min_by(f64::total_cmp), worst(lto.iter().copied()));
        let spread = fastest.zip(slowest).map(|(fastest, slowest)| slowest / fastest);
        let ns = |ns: Option<f64>| ns.map_or("–".into(), |ns| format!("{ns:.1}"));
        let (mutex, draft) = targets(workload);
        let one = |times: &Times| {
            let one = of(matrix, ONE_THREAD).find(|one| one.figure == times.figure)?;
            Some(times.median(OURS)? / one.median(OURS)?)
        };
        let several = workload.starts_with("ring") && workload != ONE_THREAD;
        table.row([
            workload.to_owned(),
            ns(fastest),
            ns(slowest),
            against(spread, Some(SPREAD)),
            against(worst(of(matrix, workload).filter_map(|times| by_mutex(times, OURS))), Some(mutex)),
            against(worst(others(matrix, workload)), Some(1.0)),
            against(worst(of(matrix, workload).filter_map(|times| by(times, "draft"))), draft),
            against(worst(of(matrix, workload).filter_map(|times| by(times, "try_get"))), Some(BY_TRY_GET)),
            against(worst(of(matrix, workload).filter_map(one)).filter(|_| several), Some(BY_ONE_THREAD)),
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

/// keyqueue's other ways to write the loop, each divided by the faster mutex queue.
fn others<'a>(matrix: &'a Results, workload: &'a str) -> impl Iterator<Item = f64> + 'a {
    OTHER_LOOPS.iter().flat_map(move |name| of(matrix, workload).filter_map(|times| by_mutex(times, name)))
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

/// In the order in which they were measured.
fn workloads(matrix: &Results) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for times in &matrix.times {
        if !names.contains(&&*times.name) {
            names.push(&times.name);
        }
    }
    names
}

/// This workload, in the builds in which it was measured.
fn of<'a>(matrix: &'a Results, workload: &'a str) -> impl Iterator<Item = &'a Times> {
    matrix.times.iter().filter(move |times| times.name == workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::record;
    use crate::matrix::tests::made_up;

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
    }

    #[test]
    fn the_best_and_the_worst_build_have_a_row_of_medians_and_ratios() {
        let mut matrix = made_up();
        record(&mut matrix, "abort", "ring, 1 thread\tkeyqueue\t22\n").unwrap();
        let text = best_and_worst(&matrix);
        has(&text, "| ring, 1 thread | 16-off | 20.0 | 20.0 | 50.0 | 30.0 | 16.0 | 0.67 | 1.25 | 1.00 |");
        has(&text, "| ring, 1 thread | 16-thin | 24.0 | 20.0 | 50.0 | 30.0 | 16.0 | 0.80 | 1.50 | 1.20 |");
        has(&text, "| ring, 2 threads | 16-thin | 23.0 | – | – | – | – | – | – | – |");
        assert_eq!(text.lines().count(), 2 + 4);
    }

    #[test]
    fn the_worst_build_counts_and_a_missed_target_is_bold() {
        let text = summary(&made_up());
        has(
            &text,
            "| ring, 1 thread | 20.0 | 24.0 | **1.20** (1.15) | **0.80** (0.75) | 0.67 (1) | **1.50** (1.3) | **1.20** (1.1) | – |",
        );
        has(&text, "| ring, 2 threads | 23.0 | 23.0 | 1.00 (1.15) | – | – | – | – | 1.15 (1.2) |");
    }

    #[test]
    fn a_build_with_other_settings_does_not_count_for_the_spread() {
        let mut matrix = made_up();
        record(&mut matrix, "abort", "ring, 2 threads\tkeyqueue\t99\n").unwrap();
        has(&summary(&matrix), "| ring, 2 threads | 23.0 | 23.0 | 1.00 (1.15) | – | – | – | – | 1.15 (1.2) |");
    }

    #[test]
    fn each_workload_has_its_targets() {
        let all = ["ring, 16 threads", "unique 8x8, backlog 1000", "cycle, u64", "cycle, String", "when, known"];
        let expected = [(0.75, Some(1.3)), (1.0, Some(1.35)), (0.8, None), (0.5, None), (1.0, None)];
        assert_eq!(all.map(targets), expected);
    }
}
