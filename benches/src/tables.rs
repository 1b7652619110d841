//! The tables of the two pages. A table without data is empty.

use crate::markdown::Table;
use crate::matrix::tables::{best_and_worst, summary};
use crate::numbers::{figures, geometric_mean, short};
use crate::results::{OURS, Results, Run, Spread, Subject, Times, is_ours, is_rival};

/// The highest acceptable ratio of the p99 to that of a bare parked thread.
const QUIET_TARGET: f64 = 1.5;
/// The highest acceptable ratio of the p99 under the flood to that of the quiet run.
const FLOOD_TARGET: f64 = 2.0;

pub fn run(results: &Results) -> String {
    let run = &results.run;
    let mut table = Table::new(["", ""]);
    table.row(["machine", &run.machine]);
    table.row(["commit", &run.commit]);
    table.row(["compiler", &run.compiler]);
    table.row(["command", &format!("`{}`", run.command)]);
    let quick = "\n\n**A quick run**: few rounds of little work. It shows that everything runs, and little more.";
    format!("{table}{}", if run.quick { quick } else { "" })
}

/// The queues: one ratio, to the faster of the rivals.
pub fn workloads(results: &Results) -> String {
    let rows: Vec<_> = results.times("queue").collect();
    let names = subjects(&rows);
    let mut table =
        Table::new(["workload", ""].into_iter().chain(names.iter().copied()).chain(["ratio", "target", ""]));
    for times in &rows {
        let words = [times.group.clone(), times.name.clone()];
        table.row(words.into_iter().chain(cells(times, &names)).chain([
            bold(times.least_ratio()),
            target(times),
            verdict(times),
        ]));
    }
    table.to_string()
}

pub fn mean(results: &Results) -> String {
    let ratios: Vec<_> = results.times("queue").filter_map(Times::least_ratio).collect();
    match &ratios[..] {
        [] => String::new(),
        ratios => format!("Geometric mean of the ratios: **{:.2}** (target 1.5).", geometric_mean(ratios)),
    }
}

/// For each processor a table of the worst of all builds, and the best and the worst build of each workload.
pub fn matrices(matrices: &[Results]) -> String {
    let sections = matrices.iter().map(|matrix| {
        let Run { machine, cores, commit, compiler, rounds, ops, .. } = &matrix.run;
        let (cores, ops) = (cores.unwrap_or(0), ops.unwrap_or(0));
        format!(
            "**{machine}, {cores} cores.** Commit {commit}, {compiler}, medians of {rounds} rounds of {ops} keys.\n\n{}\n\n\
             The fastest and the slowest build of each workload, nanoseconds a key:\n\n{}",
            summary(matrix),
            best_and_worst(matrix),
        )
    });
    sections.collect::<Vec<_>>().join("\n\n")
}

pub fn parts(results: &Results) -> String {
    let mut table = Table::new(["keys", "cycle", "parts", "cycle / parts"]);
    for times in results.times("parts") {
        let [cycle, parts] = ["cycle", "parts"].map(|name| times.median(name).expect("both"));
        table.row([times.name.clone(), format!("{cycle:.1}"), format!("{parts:.1}"), format!("{:.2}", cycle / parts)]);
    }
    table.to_string()
}

/// A row for each number of threads; the last row is the throughput of the most threads divided by that of two.
pub fn scaling(results: &Results, section: &str, unit: &str) -> String {
    let rows: Vec<_> = results.times(section).collect();
    let names = subjects(&rows);
    let mut table = medians_of(unit, &rows, place);
    if let (Some(two), Some(most)) = (rows.iter().find(|times| times.at == Some(2)), rows.last()) {
        let left = |name: &&str| match (two.median(name), most.median(name)) {
            (Some(two), Some(most)) => format!("**{:.2}**", two / most),
            _ => "–".into(),
        };
        let label = format!("{} / 2", short(most.at.expect("a number of threads")));
        table.row([label].into_iter().chain(names.iter().map(left)));
    }
    table.to_string()
}

pub fn keys(results: &Results, group: &str) -> String {
    let rows: Vec<_> = results.times("keys").filter(|times| times.group == group).collect();
    medians_of("keys", &rows, place).to_string()
}

pub fn shards(results: &Results) -> String {
    medians_of("", &results.times("shards").collect::<Vec<_>>(), |times| times.name.clone()).to_string()
}

/// The rings and turns of the run of tails.
pub fn turns(results: &Results) -> String {
    medians_of("", &results.times("tails").collect::<Vec<_>>(), |times| times.name.clone()).to_string()
}

/// For each setting a table: a row for each call and subject. The settings are in the names: "get, 2 threads".
pub fn tails(results: &Results) -> String {
    let mut settings = Vec::new();
    for spread in results.spreads.iter().filter(|spread| spread.section == "tails") {
        push_new(&mut settings, call_and_setting(spread).1);
    }
    let table = |setting: &str| {
        let head = [setting, ""].map(str::to_owned).into_iter();
        let mut table = Table::new(head.chain(TAIL.map(percentile_head)));
        let mut rows: Vec<_> = results.spreads.iter().filter(|spread| spread.section == "tails").collect();
        rows.retain(|spread| call_and_setting(spread).1 == setting);
        rows.sort_by_key(|spread| {
            ["get", "add", "done"].iter().position(|call| *call == call_and_setting(spread).0).unwrap_or(3)
        });
        for spread in rows {
            let cells = TAIL.map(|percentile| spread.micros(percentile).map_or("–".into(), figures));
            table.row([call_and_setting(spread).0.to_owned(), spread.subject.clone()].into_iter().chain(cells));
        }
        table.to_string()
    };
    settings.into_iter().map(table).collect::<Vec<_>>().join("\n\n")
}

fn call_and_setting(spread: &Spread) -> (&str, &str) {
    spread.what.split_once(", ").expect("a call and a setting")
}

/// Means beside tails, a row for each subject: its rings, and the 99.9th percentile of each call in the two harder settings.
pub fn turns_and_tails(results: &Results) -> String {
    let rings: Vec<_> = results.times("tails").filter(|times| times.name.starts_with("ring")).collect();
    let names = subjects(&rings).into_iter().filter(|name| is_ours(name) || is_rival(name));
    let mut whats = Vec::new();
    for spread in results.spreads.iter().filter(|spread| spread.section == "tails") {
        push_new(&mut whats, spread.what.as_str());
    }
    whats.retain(|what| !what.starts_with("turn") && !what.ends_with(", 2 threads"));
    let head = rings.iter().map(|times| format!("{}, ns", times.name));
    let mut table = Table::new(
        [String::new()].into_iter().chain(head).chain(whats.iter().map(|what| format!("{what}, p99.9, µs"))),
    );
    for name in names {
        let mean = rings.iter().map(|times| times.median(name).map_or("–".into(), figures));
        let tail = whats.iter().map(|what| {
            let spread = results.spreads("tails", what).find(|spread| spread.subject == name);
            spread.and_then(|spread| spread.micros(99.9)).map_or("–".into(), figures)
        });
        table.row([name.to_owned()].into_iter().chain(mean).chain(tail));
    }
    table.to_string()
}

pub fn order(results: &Results) -> String {
    by_group(results, "order", |group, rows| medians_of(group, rows, |times| times.name.clone()).to_string())
}

/// Where a binary apart from the report has run.
pub fn run_of(results: &Results, command: &str) -> String {
    let run = results.apart(command);
    if run.machine.is_empty() { String::new() } else { format!("{}, commit {}", run.machine, run.commit) }
}

/// The number of threads, pairs or keys.
fn place(times: &Times) -> String {
    short(times.at.expect("a place on the axis"))
}

/// A row of medians for each workload.
fn medians_of(title: &str, rows: &[&Times], first: impl Fn(&Times) -> String) -> Table {
    let names = subjects(rows);
    let mut table = Table::new([title].into_iter().chain(names.iter().copied()));
    for times in rows {
        table.row([first(times)].into_iter().chain(cells(times, &names)));
    }
    table
}

/// Bytes per key: a row for each kind, a column for each subject.
pub fn memory(results: &Results) -> String {
    let (mut names, mut kinds) = (Vec::new(), Vec::new());
    for bytes in &results.bytes {
        push_new(&mut names, bytes.subject.as_str());
        push_new(&mut kinds, (bytes.what.as_str(), bytes.keys));
    }
    let mut table = Table::new(["bytes a key", "keys"].into_iter().chain(names.iter().copied()));
    for (what, keys) in kinds {
        let cell = |name: &&str| {
            let bytes = results.bytes.iter().find(|row| row.what == what && row.keys == keys && row.subject == *name);
            bytes.map_or("–".into(), |row| format!("{:.0}", row.bytes))
        };
        table.row([what.to_owned(), short(keys)].into_iter().chain(names.iter().map(cell)));
    }
    table.to_string()
}

/// The percentiles in the tables. 100 is the maximum.
const PERCENTILES: [f64; 7] = [50.0, 90.0, 95.0, 97.5, 99.0, 99.9, 100.0];

/// The percentiles of calls.
const TAIL: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

pub fn percentile_head(percentile: f64) -> String {
    if percentile == 100.0 { "max".into() } else { format!("p{percentile}") }
}

/// In microseconds: all distributions of a section, or one.
pub fn percentiles(results: &Results, section: &str, what: &str) -> String {
    let rows: Vec<_> = results.spreads.iter().filter(|spread| spread.section == section).collect();
    let rows: Vec<_> = rows.into_iter().filter(|spread| what.is_empty() || spread.what == what).collect();
    let stored = |percentile: &f64| rows.iter().any(|spread| spread.micros(*percentile).is_some());
    let shown: Vec<_> = PERCENTILES.into_iter().filter(stored).collect();
    let head = ["", ""].map(str::to_owned).into_iter();
    let mut table = Table::new(head.chain(shown.iter().map(|percentile| percentile_head(*percentile))));
    for spread in rows {
        let cells = shown.iter().map(|percentile| spread.micros(*percentile).map_or("–".into(), figures));
        table.row([spread.what.clone(), spread.subject.clone()].into_iter().chain(cells));
    }
    table.to_string()
}

pub fn lateness(results: &Results) -> String {
    let head = ["", ""].map(str::to_owned).into_iter().chain(PERCENTILES.map(percentile_head));
    let ends = ["target p99", "", "other threads, millions a second"].map(str::to_owned);
    let mut table = Table::new(head.chain(ends));
    let p99 = |what, subject| {
        results
            .spreads("lateness", what)
            .find(|spread| spread.subject == subject)
            .and_then(|spread| spread.micros(99.0))
    };
    for (what, most) in [
        ("quiet", p99("quiet", "a bare thread").map(|bare| QUIET_TARGET * bare)),
        ("flood", p99("quiet", OURS).map(|quiet| FLOOD_TARGET * quiet)),
    ] {
        for spread in results.spreads("lateness", what) {
            let cells = PERCENTILES.map(|percentile| spread.micros(percentile).map_or("–".into(), figures));
            let (target, verdict) = match most {
                Some(most) if spread.subject == OURS => {
                    (format!("{most:.0}"), if spread.micros(99.0) > Some(most) { "missed" } else { "" })
                }
                _ => (String::new(), ""),
            };
            let beside = spread.beside.map_or(String::new(), |beside| format!("{:.2}", beside / 1e6));
            let words = [spread.subject.clone(), spread.what.clone()].into_iter();
            table.row(words.chain(cells).chain([target, verdict.into(), beside]));
        }
    }
    table.to_string()
}

/// Delays in one table, limiters in one for each group: a ratio to each rival.
pub fn delays(results: &Results) -> String {
    against_each("delays", &results.times("delays").collect::<Vec<_>>())
}

pub fn limiters(results: &Results) -> String {
    by_group(results, "limiters", against_each)
}

pub fn costs(results: &Results, section: &str) -> String {
    by_group(results, section, against_first)
}

pub fn scrape(results: &Results) -> String {
    let rows: Vec<_> = results.times("metrics scrape").collect();
    let [report, scrape] = &rows[..] else { return String::new() };
    format!(
        "Where it is reported: a `MetricsObserver`'s report after {} keys takes **{:.1}** ns for each of them, and\n\
         the exporter's scrape **{:.1}**. The exporter takes durations one by one, so both grow with the number of keys.",
        report.name,
        report.subjects[0].median(),
        scrape.subjects[0].median(),
    )
}

fn by_group(results: &Results, section: &str, table: impl Fn(&str, &[&Times]) -> String) -> String {
    let rows: Vec<_> = results.times(section).collect();
    let mut groups = Vec::new();
    rows.iter().for_each(|times| push_new(&mut groups, times.group.as_str()));
    let tables = groups.into_iter().map(|group| {
        let rows: Vec<_> = rows.iter().copied().filter(|times| times.group == group).collect();
        table(group, &rows)
    });
    tables.collect::<Vec<_>>().join("\n\n")
}

fn against_each(title: &str, rows: &[&Times]) -> String {
    let names = subjects(rows);
    let ratios = names.iter().skip(1).map(|name| format!("ratio, {name}"));
    let head = [title, ""].map(str::to_owned).into_iter().chain(names.iter().map(|name| (*name).into())).chain(ratios);
    let mut table = Table::new(head.chain(["target", ""].map(Into::into)));
    for times in rows {
        let words = [times.name.clone(), times.figure.clone()];
        let ratios = names.iter().skip(1).map(|name| bold(times.ratio(name)));
        table.row(words.into_iter().chain(cells(times, &names)).chain(ratios).chain([target(times), verdict(times)]));
    }
    table.to_string()
}

/// Each subject's time divided by that of the first, from medians, and in brackets from the shortest rounds. The target is an upper
/// bound.
fn against_first(title: &str, rows: &[&Times]) -> String {
    let names = subjects(rows);
    let ratios = names.iter().skip(1).map(|name| format!("ratio, {name}"));
    let head = [title.to_owned()].into_iter().chain(names.iter().map(|name| (*name).into())).chain(ratios);
    let mut table = Table::new(head.chain(["target", ""].map(Into::into)));
    for times in rows {
        let cell = |subject: &Subject| format!("{:.1} ({:.1})", subject.median(), subject.least());
        let first = &times.subjects[0];
        let ratio = |subject: &Subject| (subject.median() / first.median(), subject.least() / first.least());
        let others = &times.subjects[1..];
        let too_long = |subject: &&Subject| {
            times.rivals.contains(&subject.name) && times.target.is_some_and(|target| ratio(subject).0 > target)
        };
        let missed: Vec<_> = others.iter().filter(too_long).map(|subject| subject.name.as_str()).collect();
        let verdict = match missed.len() {
            0 => String::new(),
            _ if others.len() == 1 => "missed".into(),
            _ => format!("missed: {}", missed.join(", ")),
        };
        let ratios = others.iter().map(ratio).map(|(median, least)| format!("**{median:.2}** ({least:.2})"));
        let words = [times.name.clone()].into_iter().chain(times.subjects.iter().map(cell));
        table.row(words.chain(ratios).chain([target(times), verdict]));
    }
    table.to_string()
}

/// All subjects of these rows, in the order in which they first come.
fn subjects<'a>(rows: &[&'a Times]) -> Vec<&'a str> {
    let mut names = Vec::new();
    rows.iter().flat_map(|times| &times.subjects).for_each(|subject| push_new(&mut names, subject.name.as_str()));
    names
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Medians; a dash for a subject that cannot do the work.
fn cells(times: &Times, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| times.median(name).map_or("–".into(), figures)).collect()
}

fn bold(ratio: Option<f64>) -> String {
    ratio.map_or("–".into(), |ratio| format!("**{ratio:.2}**"))
}

fn target(times: &Times) -> String {
    times.target.map_or("–".into(), |target| target.to_string())
}

fn verdict(times: &Times) -> String {
    if times.missed() { "missed".into() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made_up;

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|other| other == line), "no {line} in\n{text}");
    }

    #[test]
    fn ratios_targets_and_misses_are_in_the_rows() {
        let results = made_up();
        let text = workloads(&results);
        has(&text, "| cycle u64 | 1 keys | 50.0 | 60.0 | 180 | 80.0 | **1.20** | 1 |  |");
        has(&text, "| fill, drain | 300000 keys | 120 | 90.0 | 250 | 160 | **0.75** | 1 | missed |");
        assert_eq!(mean(&results), "Geometric mean of the ratios: **0.95** (target 1.5).");
        has(
            &delays(&results),
            "| insert, 1 threads |  | 200 | 300 | 170 | 190 | **1.50** | **0.85** | **0.95** | 1 | missed |",
        );
        assert_eq!(limiters(&results).matches("| target |").count(), 2);
        has(
            &costs(&results, "workers"),
            "| 1 keys | 50.0 (25.0) | 60.0 (30.0) | 80.0 (40.0) | **1.20** (1.20) | **1.60** (1.60) | 1 | missed: a, b |",
        );
    }

    #[test]
    fn a_subject_that_cannot_do_the_work_has_a_dash() {
        let mut results = made_up();
        results.times[1].subjects.remove(3);
        has(&workloads(&results), "| fill, drain | 300000 keys | 120 | 90.0 | 250 | – | **0.75** | 1 | missed |");
        assert_eq!(workloads(&Results::default()), "");
    }

    #[test]
    fn the_last_row_compares_the_throughput_of_the_most_threads_with_that_of_two() {
        let text = scaling(&made_up(), "threads", "threads");
        has(&text, "| 512 | 100 | 120 | 180 | 81.0 |");
        has(&text, "| 512 / 2 | **0.75** | **0.75** | **1.00** | **1.00** |");
    }

    #[test]
    fn lateness_is_compared_with_the_bare_thread_and_the_quiet_run() {
        let mut results = made_up();
        has(&lateness(&results), "| keyqueue | quiet | 10.2 | 11.0 | 12.0 | 14.0 | 20.0 | 109 | 10010 | 27 |  |  |");
        for spread in &mut results.spreads {
            if spread.section == "lateness" && spread.what == "flood" {
                spread.curve.iter_mut().for_each(|point| point.1 *= 3.0);
            }
        }
        assert!(lateness(&results).contains("| missed | 2.50 |"));
    }
}
