//! All figures in which keyqueue is compared with rivals, those that keyqueue loses, and those that it wins.

use crate::markdown::Table;
use crate::numbers::figures;
use crate::results::{OURS, Results, Spread, form, is_ours, is_rival, joined};
use crate::tables::percentile_head;
use itertools::Itertools;

/// A figure is lost if it is more than this many times that of a rival, and won if that of each rival is more than this many times its own.
const MARGIN: f64 = 1.05;

/// The percentiles that `BENCHMARKS.md` shows. Those that are further out depend on the few longest pauses of one run.
const SHOWN: [f64; 3] = [50.0, 99.0, 99.9];

/// The workloads of `BENCHMARKS.md`, and why keyqueue loses figures of them. A section is headed by the workload's name. Its paragraphs are
/// the families of figures that belong to it, the reason in a few words, and, if there is more to say, the rest for `benches/TABLES.md`.
const REASONS: &str = include_str!("../text/reasons.md");

/// Each section of the data, and the heading in `benches/TABLES.md` above its tables.
const HEADINGS: [(&str, &str); 13] = [
    ("queue", "workloads"),
    ("builds", "in-every-build"),
    ("threads", "by-number-of-threads"),
    ("pairs", "by-number-of-threads"),
    ("shards", "shards"),
    ("tails", "tails"),
    ("order", "priorities-and-groups"),
    ("keys", "by-number-of-keys"),
    ("memory", "memory"),
    ("latency", "latency"),
    ("delays", "delays"),
    ("lateness", "lateness"),
    ("limiters", "limiters"),
];

/// A figure of keyqueue's, and the same figure of its rivals. Less is better.
struct Figure {
    /// The workloads to which it belongs, and the section that has their tables.
    family: String,
    heading: &'static str,
    name: String,
    /// The form of keyqueue.
    form: String,
    /// Whether `BENCHMARKS.md` may show it: a median, a p99, a p99.9, or bytes.
    is_shown: bool,
    unit: &'static str,
    ours: f64,
    /// The best first.
    rivals: Vec<(String, f64)>,
}

impl Figure {
    /// How many times the rival's figure this one is.
    fn ratio(&self, rival: &(String, f64)) -> f64 {
        self.ours / rival.1
    }

    /// The highest ratio: that to the best rival.
    fn worst(&self) -> f64 {
        self.ratio(&self.rivals[0])
    }

    fn is_lost(&self) -> bool {
        self.worst() > MARGIN
    }

    /// The rivals to which it is lost.
    fn better(&self) -> impl Iterator<Item = &(String, f64)> {
        self.rivals.iter().filter(|rival| self.ratio(rival) > MARGIN)
    }

    fn full_name(&self) -> String {
        joined(&[&self.family, &self.name])
    }

    fn with_unit(&self, value: f64) -> String {
        format!("{} {}", figures(value), self.unit)
    }
}

/// Adds a figure for each form of keyqueue that has a rival.
fn add(
    list: &mut Vec<Figure>,
    section: &str,
    [group, name, part]: [&str; 3],
    unit: &'static str,
    is_shown: bool,
    row: Vec<(String, f64)>,
) {
    let mut rivals: Vec<_> = row.iter().filter(|(subject, _)| is_rival(subject)).cloned().collect();
    rivals.sort_by(|a, b| a.1.total_cmp(&b.1));
    for (subject, ours) in row.iter().filter(|(subject, _)| is_ours(subject) && !rivals.is_empty()) {
        let heading = HEADINGS.iter().find(|(known, _)| section.starts_with(known)).expect("a section with tables").1;
        // A row without a group belongs to the workload that its name begins with: "insert, 2 threads" is an insert.
        let (group, name) = match group {
            "" => name.split_at(number_in(name)),
            group => (group, name),
        };
        let section = if section == "queue" { "" } else { section };
        let family = joined(&[section, group.trim_end_matches([',', ' '])]);
        let form = form(subject).to_owned();
        let name = joined(&[name.trim_start(), part, &form]);
        list.push(Figure { family, heading, name, form, is_shown, unit, ours: *ours, rivals: rivals.clone() });
    }
}

/// Where the first word that begins with a digit begins, or the end.
fn number_in(name: &str) -> usize {
    let name = format!(" {name}");
    (0..10).filter_map(|digit| name.find(&format!(" {digit}"))).min().unwrap_or(name.len() - 1)
}

/// Every figure that is stored, in the order of the data.
fn all(results: &Results, matrices: &[Results]) -> Vec<Figure> {
    let mut list = Vec::new();
    for times in &results.times {
        let row = times.subjects.iter().map(|subject| (subject.name.clone(), subject.median())).collect();
        add(&mut list, &times.section, [&times.group, &times.name, &times.figure], "ns", true, row);
    }
    for matrix in matrices {
        for times in &matrix.times {
            let named = |name: &str| match name {
                "try_get" | "get_async" | "Workers" => format!("keyqueue, {name}"),
                "draft" => "draft (no waiting)".into(),
                name => name.into(),
            };
            let row = times.subjects.iter().map(|subject| (named(&subject.name), subject.median())).collect();
            let section = format!("builds on {}", matrix.run.machine);
            add(&mut list, &section, ["", &times.name, &times.figure], "ns", true, row);
        }
    }
    for spread in results.spreads.iter().filter(|spread| is_ours(&spread.subject)) {
        let same = |other: &&Spread| other.subject == spread.subject || is_rival(&other.subject);
        for (percentile, _) in &spread.curve {
            let row = results.spreads(&spread.section, &spread.what).filter(same);
            let row = row.filter_map(|spread| Some((spread.subject.clone(), spread.micros(*percentile)?)));
            let name = percentile_head(*percentile);
            add(&mut list, &spread.section, [&spread.what, &name, ""], "µs", SHOWN.contains(percentile), row.collect());
        }
    }
    for ours in results.bytes.iter().filter(|bytes| bytes.subject == OURS) {
        let same = results.bytes.iter().filter(|bytes| (&bytes.what, bytes.keys) == (&ours.what, ours.keys));
        let row = same.map(|bytes| (bytes.subject.clone(), bytes.bytes)).collect();
        add(&mut list, "memory", [&ours.what, &format!("{} keys", ours.keys), ""], "bytes", true, row);
    }
    list
}

/// The families of these figures, in their order; of each the figures.
fn families<'a>(list: impl IntoIterator<Item = &'a Figure>) -> Vec<Vec<&'a Figure>> {
    let mut families: Vec<Vec<&Figure>> = Vec::new();
    for figure in list {
        match families.iter_mut().find(|family| family[0].family == figure.family) {
            Some(family) => family.push(figure),
            None => families.push(vec![figure]),
        }
    }
    families
}

fn range(ratios: impl Iterator<Item = f64> + Clone) -> String {
    let [least, most] =
        [ratios.clone().fold(f64::MAX, f64::min), ratios.fold(0.0, f64::max)].map(|r| format!("{r:.2}"));
    if least == most { most } else { format!("{least} to {most}") }
}

/// A row for each family that has won figures.
pub fn won(results: &Results, matrices: &[Results]) -> String {
    let list = all(results, matrices);
    let mut table = Table::new(["workloads", "figures won", "all ratios"]);
    for family in families(&list) {
        let won = family.iter().map(|figure| 1.0 / figure.worst()).filter(|ratio| *ratio > MARGIN);
        let count = won.clone().count();
        if count > 0 {
            table.row([family[0].family.clone(), format!("{count} of {}", family.len()), range(won)]);
        }
    }
    table.to_string()
}

/// A workload of `BENCHMARKS.md`: its figures, and why some of them are lost.
struct Workload<'a> {
    name: String,
    why: String,
    /// Empty if the few words say it all.
    more: &'static str,
    figures: Vec<&'a Figure>,
}

impl Workload<'_> {
    /// The figures that are lost, the worst first.
    fn lost(&self) -> Vec<&Figure> {
        let lost = self.figures.iter().copied().filter(|figure| figure.is_lost());
        lost.sorted_by(|a, b| b.worst().total_cmp(&a.worst())).collect()
    }

    fn worst_shown(&self) -> Option<&Figure> {
        self.lost().into_iter().find(|figure| figure.is_shown)
    }

    /// The forms of keyqueue that lose.
    fn losers(&self) -> String {
        let forms = self.figures.iter().filter(|figure| figure.is_lost()).map(|figure| figure.form.as_str());
        forms.map(|form| if ["", "1 shard"].contains(&form) { "default" } else { form }).unique().join("; ")
    }

    /// A row for each figure that is lost, and a column for each rival that is better in one of them.
    fn all_lost(&self) -> String {
        let lost = self.lost();
        let rivals = lost.iter().flat_map(|figure| figure.better()).map(|rival| rival.0.as_str());
        let rivals = rivals.unique().sorted().collect_vec();
        let mut table = Table::new([&self.name, "keyqueue"].into_iter().chain(rivals.iter().copied()));
        for figure in lost {
            let cells = rivals.iter().map(|name| {
                let rival = figure.better().find(|rival| rival.0 == *name);
                rival.map_or(String::new(), |rival| format!("{} (**{:.2}**)", figures(rival.1), figure.ratio(rival)))
            });
            table.row([figure.full_name(), figure.with_unit(figure.ours)].into_iter().chain(cells));
        }
        table.to_string()
    }
}

/// The workloads that have lost figures: the highest ratio that may be shown first. A family without a reason is a workload by itself.
fn workloads(list: &[Figure]) -> Vec<Workload<'_>> {
    let known = REASONS.split("\n## ").skip(1).map(|section| {
        let mut parts = section.splitn(4, "\n\n").map(str::trim).chain(["", "", ""]);
        let [name, of, why, more] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let why = why.replace('\n', " ");
        (Workload { name: name.into(), why, more, figures: Vec::new() }, of.split("; ").map(str::trim).collect_vec())
    });
    let mut all = known.collect_vec();
    for family in families(list) {
        let name = &family[0].family;
        match all.iter_mut().find(|(_, of)| of.contains(&name.as_str())) {
            Some((workload, _)) => workload.figures.extend(family),
            None => all.push((Workload { name: name.clone(), why: String::new(), more: "", figures: family }, vec![])),
        }
    }
    let lost = all.into_iter().map(|(workload, _)| workload).filter(|workload| !workload.lost().is_empty());
    let ratio = |workload: &Workload<'_>| workload.worst_shown().map_or(0.0, Figure::worst);
    lost.sorted_by(|a, b| ratio(b).total_cmp(&ratio(a))).collect()
}

/// A row for each workload that has lost figures, with the worst of those that may be shown.
pub fn lost(results: &Results, matrices: &[Results]) -> String {
    let list = all(results, matrices);
    let head = ["workload", "lost", "by", "the worst of them", "keyqueue", "rival", "ratio", "why"];
    let mut table = Table::new(head);
    for workload in workloads(&list) {
        let lost = workload.lost();
        let worst = match workload.worst_shown() {
            None => ["none of median, p99 and p99.9", "–", "–", "–"].map(str::to_owned),
            Some(figure) => [
                figure.full_name(),
                figure.with_unit(figure.ours),
                format!("{}, {}", figure.with_unit(figure.rivals[0].1), figure.rivals[0].0),
                format!("**{:.2}**", figure.worst()),
            ],
        };
        let head = [
            format!("[{}](benches/TABLES.md#{})", workload.name, lost[0].heading),
            format!("{} of {}", lost.len(), workload.figures.len()),
            workload.losers(),
        ];
        table.row(head.into_iter().chain(worst).chain([workload.why.clone()]));
    }
    table.to_string()
}

/// The reasons of which `BENCHMARKS.md` has only a few words.
pub fn reasons(results: &Results, matrices: &[Results]) -> String {
    let list = all(results, matrices);
    let workloads = workloads(&list).into_iter().filter(|workload| !workload.more.is_empty());
    workloads.map(|workload| format!("**{}.** {}. {}", workload.name, workload.why, workload.more)).join("\n\n")
}

/// Every figure that is lost, a table for each workload.
pub fn all_lost(results: &Results, matrices: &[Results]) -> String {
    let list = all(results, matrices);
    workloads(&list).iter().map(Workload::all_lost).join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REPOSITORY;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn read(path: impl AsRef<Path>) -> String {
        std::fs::read_to_string(Path::new(REPOSITORY).join(path)).unwrap()
    }

    /// All that is stored: of the report and the binaries apart, and of each processor.
    fn data() -> (Results, Vec<Results>) {
        let mut results = Results::from_lines(&read("benches/charts/results.jsonl")).unwrap();
        Results::read_apart().unwrap().into_iter().for_each(|run| results.add(run));
        (results, crate::matrix::read_all().unwrap())
    }

    /// The subjects and values of every row, by the words that name it. Medians without code of the report.
    fn stored() -> BTreeMap<Vec<String>, Vec<(String, f64)>> {
        let (results, matrices) = data();
        let mut rows = BTreeMap::<_, Vec<_>>::new();
        let mut add = |words: &[&str], subject: &str, value: f64| {
            let words = words.iter().filter(|word| !word.is_empty() && **word != "queue");
            let words = words.map(|word| (*word).to_owned()).collect();
            rows.entry(words).or_default().push((subject.to_owned(), value));
        };
        for (run, processor) in [(&results, "")].into_iter().chain(matrices.iter().map(|run| (run, &*run.run.machine)))
        {
            for times in &run.times {
                for subject in &times.subjects {
                    let mut rounds = subject.ns.clone();
                    rounds.sort_by(f64::total_cmp);
                    let words = [&*times.section, &times.group, &times.name, &times.figure, processor];
                    add(&words, &subject.name, rounds[rounds.len() / 2]);
                }
            }
        }
        for spread in &results.spreads {
            for (percentile, ns) in &spread.curve {
                let percentile = format!(", p{percentile},").replace("p100", "max");
                add(&[&spread.section, &spread.what, &percentile], &spread.subject, *ns);
            }
        }
        results.bytes.iter().for_each(|row| add(&["memory", &row.what], &row.subject, row.bytes));
        rows
    }

    /// The cells of the head and of each row of a table.
    fn cells(table: &str) -> Vec<Vec<&str>> {
        let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        rows.map(|row| row.split(" | ").map(str::trim).collect()).collect()
    }

    fn section<'a>(page: &'a str, title: &str) -> &'a str {
        let after = page.split(&format!("\n## {title}\n")).nth(1).expect(title);
        after.split("\n## ").next().unwrap()
    }

    /// The pages as they are in the repository: `benches/TABLES.md` has each loss, and `BENCHMARKS.md` a row for its workload, with the
    /// number of its losses and a reason.
    #[test]
    fn every_loss_in_the_stored_data_is_on_the_pages() {
        let (page, tables) = (read("BENCHMARKS.md"), read("benches/TABLES.md"));
        let list = section(&tables, "Where it falls short").split_once("<details>").unwrap().1;
        let list: Vec<_> = list.split("\n\n").map(cells).filter(|table| !table.is_empty()).collect();
        let mut losses = 0;
        for (words, row) in stored() {
            // "(without limits)" does less work, as "no dedup" does.
            let no_rivals = [
                "keyqueue",
                "lock-free",
                "no dedup",
                "without limits",
                "bare thread",
                "draft",
                "try_get",
                "get_async",
                "Workers",
            ];
            let rivals = row.iter().filter(|(rival, _)| no_rivals.iter().all(|word| !rival.contains(word)));
            let rivals: Vec<_> = rivals.collect();
            let ours = row.iter().filter(|(name, _)| name.starts_with("keyqueue") || name.starts_with("lock-free"));
            for (subject, ours) in ours {
                let form = subject.trim_start_matches("keyqueue").trim_start_matches(", ");
                let better: Vec<_> = rivals.iter().filter(|(_, theirs)| ours / theirs > 1.05).collect();
                losses += usize::from(!better.is_empty());
                for (rival, theirs) in better {
                    // Of 1.455 either: the page divides other units.
                    let ratio = [1.0 - 1e-9, 1.0 + 1e-9].map(|by| format!("(**{:.2}**)", ours / theirs * by));
                    let there = list.iter().any(|table| {
                        let column = table[0].iter().position(|head| head == rival);
                        column.is_some_and(|column| {
                            table[1..].iter().any(|row| {
                                // The page may have a comma between the words of a row: "unique, 1x1".
                                let name = format!("{},", row[0]).replace(',', "");
                                words.iter().all(|word| name.contains(&word.replace(',', "")))
                                    && name.ends_with(&form.replace(',', ""))
                                    && ratio.iter().any(|ratio| row[column].ends_with(ratio))
                            })
                        })
                    });
                    assert!(there, "TABLES.md lacks: {words:?}, {subject} {ours}, {rival} {theirs}, {ratio:?}");
                }
            }
        }
        let by_workload: BTreeMap<_, _> = list.iter().map(|table| (table[0][0], table.len() - 1)).collect();
        assert_eq!(by_workload.values().sum::<usize>(), losses, "TABLES.md has another number of losses than the data");
        assert!(losses > 50, "{losses}");

        let mut shown = BTreeMap::new();
        for row in &cells(section(&page, "Where it loses"))[1..] {
            let [workload, lost, _, worst, .., why] = row[..] else { panic!("{row:?}") };
            let workload = workload.trim_start_matches('[').split(']').next().unwrap();
            let lost: usize = lost.split(" of ").next().unwrap().parse().unwrap();
            assert!(shown.insert(workload, lost).is_none(), "two rows: {workload}");
            assert!(!why.is_empty(), "benches/text/reasons.md lacks {workload}");
            let percentiles = worst.split([',', ' ']).filter(|word| word.starts_with('p') && word.len() <= 6);
            let mut far = percentiles.filter(|word| word[1..].parse().is_ok_and(|at: f64| !SHOWN.contains(&at)));
            assert!(far.next().is_none() && !worst.contains("max"), "one run does not show it: {worst}");
        }
        assert_eq!(shown, by_workload, "BENCHMARKS.md has other losses than TABLES.md");
    }

    #[test]
    fn the_reasons_name_families_of_the_data() {
        let (results, matrices) = data();
        let list = all(&results, &matrices);
        for section in REASONS.split("\n## ").skip(1) {
            for family in section.split("\n\n").nth(1).unwrap().split("; ") {
                assert!(list.iter().any(|figure| figure.family == family), "no family of figures: {family}");
            }
        }
    }

    #[test]
    fn both_pages_are_drawn_from_the_stored_data_and_all_links_lead_to_tables() {
        let (results, matrices) = data();
        let hint = "is old: `report --draw benches/charts/results.jsonl --write`";
        let (page, tables) = (read("BENCHMARKS.md"), read("benches/TABLES.md"));
        assert!(crate::page::short(&results, &matrices) == page, "BENCHMARKS.md {hint}");
        assert!(crate::page::tables(&results, &matrices) == tables, "benches/TABLES.md {hint}");
        let charts = crate::charts::all(&results);
        for (name, svg) in &charts {
            assert!(read(Path::new("benches/charts").join(name)) == *svg, "{name} {hint}");
            let shown = [&page, &tables].map(|page| page.matches(&format!("charts/{name})")).count());
            assert_eq!(shown.iter().sum::<usize>(), 1, "{name}");
        }
        assert_eq!([&page, &tables].map(|page| page.matches(".svg)").count()), [5, charts.len() - 5]);
        assert!(page.lines().count() <= 150, "BENCHMARKS.md is too long for a reader");
        let headings = tables.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
        let headings: Vec<_> = headings.map(|title| title.to_lowercase().replace(' ', "-")).collect();
        for link in page.split("TABLES.md#").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            assert!(headings.iter().any(|heading| heading == link), "{link}");
        }
        assert!(read("README.md").contains("(BENCHMARKS.md#where-it-loses)"));
    }
}
