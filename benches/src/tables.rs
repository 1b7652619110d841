//! The tables of the two pages. A table without data is empty.

use crate::markdown::{Table, words};
use crate::matrix::tables::best_and_worst;
use crate::numbers::{figures, geometric_mean, median, short};
use crate::results::{DEFAULT, OURS, Results, Run, Spread, Subject, Times, subjects};
use itertools::Itertools;

/// The highest acceptable ratio of the p99 to that of a bare parked thread.
const QUIET_TARGET: f64 = 1.5;
/// The highest acceptable ratio of the p99 under the flood to that of the quiet run.
const FLOOD_TARGET: f64 = 2.0;

/// The percentiles in the tables, and those of single calls. 100 is the maximum.
const PERCENTILES: [f64; 7] = [50.0, 90.0, 95.0, 97.5, 99.0, 99.9, 100.0];
const TAIL: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];

pub fn run(results: &Results) -> String {
    let Run { machine, commit, compiler, command, quick, thrown_away, .. } = &results.run;
    let mut table = Table::new(["", ""]);
    table.row(["machine", machine]);
    table.row(["commit", commit]);
    table.row(["compiler", compiler]);
    table.row(["command", &format!("`{command}`")]);
    if *thrown_away > 0 {
        table.row(["latencies measured again, as the machine was disturbed", &thrown_away.to_string()]);
    }
    let remark = "\n\n**A quick run**: few rounds of little work. It shows that everything runs, and little more.";
    format!("{table}{}", if *quick { remark } else { "" })
}

/// A row for each run whose figures the pages show.
pub fn runs(results: &Results, matrices: &[Results]) -> String {
    const CARGO: &str = "cargo run --release --manifest-path benches/Cargo.toml ";
    let what = |command: &str| match command {
        command if command.contains("--bin shards -- --all") => "shards and the lock-free engine, all workloads",
        command if command.contains("--bin shards") => "shards and the lock-free engine, rings and tails",
        command if command.contains("core-table") => "priorities and groups",
        _ => "the default queue, delays, limiters, memory",
    };
    let runs = std::iter::once(&results.run).chain(&results.apart).map(|run| (what(&run.command), run));
    let runs = runs.chain(matrices.iter().map(|matrix| ("the default queue in nine builds", &matrix.run)));
    let mut table = Table::new(["measured", "processor", "commit", "command"]);
    for (what, run) in runs {
        let cores = run.cores.map_or(String::new(), |cores| format!(", {cores} cores"));
        let machine = format!("{}{cores}", run.machine);
        let command = match run.command.replace(CARGO, "") {
            command if command.is_empty() => "–".into(),
            command => format!("`{command}`"),
        };
        table.row([what, &machine, &run.commit, &command]);
    }
    table.to_string()
}

/// The queues: one ratio, to the faster of the rivals.
pub fn workloads(results: &Results) -> String {
    let rows = results.times("queue").collect_vec();
    let names = subjects(&rows);
    let mut table = Table::new([words(["workload", ""]), words(&names), words(["ratio", "target", ""])].concat());
    for times in rows {
        let ratio = vec![bold(times.least_ratio())];
        table.row([words([&times.group, &times.name]), medians(times, &names), ratio, verdict(times)].concat());
    }
    table.to_string()
}

pub fn mean(results: &Results) -> String {
    let ratios = results.times("queue").filter_map(Times::least_ratio).collect_vec();
    if ratios.is_empty() {
        return String::new();
    }
    format!("Geometric mean of the ratios: **{:.2}** (target 1.5).", geometric_mean(&ratios))
}

/// For each processor the best and the worst build of each workload.
pub fn matrices(matrices: &[Results]) -> String {
    let section = |matrix: &Results| {
        let Run { machine, cores, commit, compiler, rounds, ops, .. } = &matrix.run;
        let (cores, ops) = (cores.unwrap_or(0), ops.unwrap_or(0));
        format!(
            "**{machine}, {cores} cores.** Commit {commit}, {compiler}, medians of {rounds} rounds of {ops} keys.\n\n{}",
            best_and_worst(matrix),
        )
    };
    matrices.iter().map(section).join("\n\n")
}

/// A row for each number of threads; the last row is the throughput of the most threads divided by that of two.
pub fn scaling(results: &Results, section: &str) -> String {
    let rows = results.times(section).collect_vec();
    let mut table = medians_of(section, &rows);
    if let (Some(two), Some(most)) = (rows.iter().find(|times| times.at == Some(2)), rows.last()) {
        let left = |name: &&str| bold(two.median(name).zip(most.median(name)).map(|(two, most)| two / most));
        let label = format!("{} / 2", first_word(most));
        table.row([vec![label], subjects(&rows).iter().map(left).collect()].concat());
    }
    table.to_string()
}

/// A table of medians, of all rows of a section or of those of one group.
pub fn plain(results: &Results, section: &str, group: &str, title: &str) -> String {
    let rows = results.times(section).filter(|times| group.is_empty() || times.group == group).collect_vec();
    medians_of(title, &rows).to_string()
}

/// The medians of a section, each with the median of the transfers before it in brackets.
pub fn with_transfers(results: &Results, section: &str) -> String {
    let rows = results.times(section).collect_vec();
    let names = subjects(&rows);
    let mut table = Table::new([words([""]), words(&names)].concat());
    for times in rows {
        let cells = names.iter().map(|name| {
            let transfers = times.subject(name).map(|subject| &*subject.transfers).filter(|all| !all.is_empty());
            let transfer = transfers.map_or(String::new(), |all| format!(" ({})", figures(median(all))));
            cell(times.median(name)) + &transfer
        });
        table.row([vec![first_word(times)], cells.collect()].concat());
    }
    table.to_string()
}

/// The same, a table for each group.
pub fn groups(results: &Results, section: &str) -> String {
    by_group(results, section, |group, rows| medians_of(group, rows).to_string())
}

/// For each setting a table: a row for each call and subject. The settings are in the names: "get, 2 threads".
pub fn tails(results: &Results) -> String {
    let all = results.spreads.iter().filter(|spread| spread.section == "tails");
    let all = all.map(|spread| (spread.what.split_once(", ").expect("a call and a setting"), spread)).collect_vec();
    let table = |setting: &str| {
        let rows = all
            .iter()
            .filter(|row| row.0.1 == setting)
            .sorted_by_key(|((call, _), _)| ["get", "add", "done"].iter().position(|known| known == call).unwrap_or(3));
        spread_table(setting, &TAIL, rows.map(|((call, _), spread)| ([*call, &spread.subject], *spread)))
    };
    all.iter().map(|row| row.0.1).unique().map(table).join("\n\n")
}

/// What one would use in place of the default queue. The first row is the default's time, the others are multiples of it. All values of a
/// column are of one run.
pub fn instead(results: &Results) -> String {
    let times = |section, name: &'static str| {
        let times = results.times(section).find(|times| times.name == name);
        Box::new(move |subject: &str| times?.median(subject)) as Box<dyn Fn(&str) -> Option<f64> + '_>
    };
    let get = |percentile| {
        Box::new(move |subject: &str| {
            let spread = results.spreads("tails", "get, 2 threads").find(|spread| spread.subject == subject)?;
            Some(1000.0 * spread.micros(percentile)?)
        }) as Box<_>
    };
    let columns = [
        ("1 thread", times("tails", "ring, 1 threads")),
        ("2 threads", times("tails", "ring, 2 threads")),
        ("2 threads, 30 ns of work", times("tails", "busy ring, 30 ns, 2 threads")),
        ("2 threads, 100 ns of work", times("tails", "busy ring, 100 ns, 2 threads")),
        ("new keys", times("shards", "unique 1x1, backlog 1000")),
        ("get, p99", get(99.0)),
        ("get, p99.9", get(99.9)),
    ];
    let mut table = Table::new(words([""]).into_iter().chain(columns.iter().map(|column| column.0.to_owned())));
    let rows = results.times("tails").filter(|times| times.name.starts_with("ring")).collect_vec();
    for name in subjects(&rows) {
        let cells = columns.iter().map(|(_, of)| match (of(name), of(DEFAULT)) {
            (Some(ns), _) if name == DEFAULT => format!("{} ns", figures(ns)),
            (Some(ns), Some(default)) => format!("{:.2}", ns / default),
            _ => "–".into(),
        });
        table.row(words([called(name)]).into_iter().chain(cells));
    }
    table.to_string()
}

/// As the one who would use it calls it.
fn called(subject: &str) -> &str {
    match subject {
        DEFAULT => "**keyqueue**, the default (one shard)",
        "keyqueue, 16 shards" => "keyqueue, `shards(16)`",
        "keyqueue, lock-free" => "keyqueue, `lock_free()`",
        "keyqueue, lock-free, 16 shards" => "keyqueue, `lock_free().shards(16)`",
        "parking_lot mutex" => "two sets and a deque, `parking_lot` mutex",
        "std mutex" => "the same, `std` mutex",
        _ => subject,
    }
}

/// Bytes per key: a row for each kind, a column for each subject.
pub fn memory(results: &Results) -> String {
    let names = results.bytes.iter().map(|bytes| &bytes.subject).unique().collect_vec();
    let mut table = Table::new([words(["bytes a key", "keys"]), words(&names)].concat());
    for (what, keys) in results.bytes.iter().map(|bytes| (&bytes.what, bytes.keys)).unique() {
        let cell = |name: &&String| {
            let bytes = results.bytes.iter().find(|row| (&row.what, row.keys, &row.subject) == (what, keys, *name));
            bytes.map_or("–".into(), |row| format!("{:.0}", row.bytes))
        };
        table.row([words([what, &short(keys)]), names.iter().map(cell).collect()].concat());
    }
    table.to_string()
}

/// In microseconds: all distributions of a section, or one.
pub fn percentiles(results: &Results, section: &str, what: &str) -> String {
    let rows = results.spreads.iter().filter(|spread| spread.section == section);
    let rows = rows.filter(|spread| what.is_empty() || spread.what == what).collect_vec();
    let is_stored = |percentile: &f64| rows.iter().any(|spread| spread.micros(*percentile).is_some());
    let shown = PERCENTILES.into_iter().filter(is_stored).collect_vec();
    spread_table("", &shown, rows.iter().map(|spread| ([spread.what.as_str(), &spread.subject], *spread)))
}

pub fn percentile_head(percentile: f64) -> String {
    if percentile == 100.0 { "max".into() } else { format!("p{percentile}") }
}

fn micros(spread: &Spread, percentiles: &[f64]) -> Vec<String> {
    percentiles.iter().map(|percentile| cell(spread.micros(*percentile))).collect()
}

fn spread_table<'a>(title: &str, shown: &[f64], rows: impl Iterator<Item = ([&'a str; 2], &'a Spread)>) -> String {
    let mut table = Table::new([words([title, ""]), shown.iter().copied().map(percentile_head).collect()].concat());
    rows.for_each(|(names, spread)| table.row([words(names), micros(spread, shown)].concat()));
    table.to_string()
}

pub fn lateness(results: &Results) -> String {
    let ends = words(["target p99", "", "other threads, millions a second"]);
    let mut table = Table::new([words(["", ""]), PERCENTILES.map(percentile_head).into(), ends].concat());
    let p99 = |what, subject| results.spreads("lateness", what).find(|spread| spread.subject == subject)?.micros(99.0);
    let bounds = [
        ("quiet", p99("quiet", "a bare thread").map(|bare| QUIET_TARGET * bare)),
        ("flood", p99("quiet", OURS).map(|quiet| FLOOD_TARGET * quiet)),
    ];
    for (what, most) in bounds {
        for spread in results.spreads("lateness", what) {
            let most = most.filter(|_| spread.subject == OURS);
            let is_missed = most.is_some_and(|most| spread.micros(99.0) > Some(most));
            table.row(
                [
                    words([&spread.subject, &spread.what]),
                    micros(spread, &PERCENTILES),
                    vec![most.map_or(String::new(), |most| format!("{most:.0}"))],
                    words([if is_missed { "missed" } else { "" }]),
                    vec![spread.beside.map_or(String::new(), |beside| format!("{:.2}", beside / 1e6))],
                ]
                .concat(),
            );
        }
    }
    table.to_string()
}

pub fn costs(results: &Results, section: &str) -> String {
    by_group(results, section, against_first)
}

/// A table for each group.
pub fn by_group(results: &Results, section: &str, table: impl Fn(&str, &[&Times]) -> String) -> String {
    let rows = results.times(section).into_group_map_by(|times| &times.group);
    let groups = results.times(section).map(|times| &times.group).unique();
    groups.map(|group| table(group, &rows[group])).join("\n\n")
}

/// The head of a table of ratios: words, the subjects, the ratios to all but the first.
fn ratio_head<const N: usize>(first: [&str; N], names: &[&str]) -> Vec<String> {
    let ratios = names.iter().skip(1).map(|name| format!("ratio, {name}")).collect();
    [words(first), words(names), ratios, words(["target", ""])].concat()
}

/// A table of these rows, with the ratio of each subject to the first.
pub fn against_each(title: &str, rows: &[&Times]) -> String {
    let names = subjects(rows);
    let mut table = Table::new(ratio_head([title, ""], &names));
    for times in rows {
        let ratios = names.iter().skip(1).map(|name| bold(times.ratio(name))).collect();
        table.row([words([&times.name, &times.figure]), medians(times, &names), ratios, verdict(times)].concat());
    }
    table.to_string()
}

/// Each subject's time divided by that of the first, from medians, and in brackets from the shortest rounds. The target is an upper
/// bound.
fn against_first(title: &str, rows: &[&Times]) -> String {
    let mut table = Table::new(ratio_head([title], &subjects(rows)));
    for times in rows {
        let (first, others) = times.subjects.split_first().expect("a subject");
        let times_of = |subject: &Subject| format!("{:.1} ({:.1})", subject.median(), subject.least());
        let ratio = |subject: &Subject| subject.median() / first.median();
        let ratios = |subject| format!("**{:.2}** ({:.2})", ratio(subject), subject.least() / first.least());
        let is_missed = |subject: &&Subject| {
            times.rivals.contains(&subject.name) && times.target.is_some_and(|target| ratio(subject) > target)
        };
        let missed = others.iter().filter(is_missed).map(|subject| &subject.name).join(", ");
        let verdict = match others.len() {
            _ if missed.is_empty() => missed,
            1 => "missed".into(),
            _ => format!("missed: {missed}"),
        };
        let cells = times.subjects.iter().map(times_of).chain(others.iter().map(ratios));
        table.row([words([&times.name]), cells.collect(), vec![target(times), verdict]].concat());
    }
    table.to_string()
}

/// A row of medians for each workload.
fn medians_of(title: &str, rows: &[&Times]) -> Table {
    let names = subjects(rows);
    let mut table = Table::new([words([title]), words(&names)].concat());
    rows.iter().for_each(|times| table.row([vec![first_word(times)], medians(times, &names)].concat()));
    table
}

/// The number of threads, pairs or keys, if there is one; or the name.
fn first_word(times: &Times) -> String {
    times.at.map_or_else(|| times.name.clone(), short)
}

fn medians(times: &Times, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| cell(times.median(name))).collect()
}

/// A dash for a subject that cannot do the work.
fn cell(value: Option<f64>) -> String {
    value.map_or("–".into(), figures)
}

fn bold(ratio: Option<f64>) -> String {
    ratio.map_or("–".into(), |ratio| format!("**{ratio:.2}**"))
}

fn target(times: &Times) -> String {
    times.target.map_or("–".into(), |target| target.to_string())
}

fn verdict(times: &Times) -> Vec<String> {
    vec![target(times), if times.missed() { "missed".into() } else { String::new() }]
}
