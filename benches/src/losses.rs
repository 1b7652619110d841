//! All figures in which keyqueue is compared with rivals, those that keyqueue loses, and those that it wins.

use crate::markdown::Table;
use crate::numbers::figures;
use crate::results::{OURS, Results, Spread, is_ours, is_rival, joined};
use crate::tables::percentile_head;

/// A figure is lost if it is more than this many times that of a rival, and won if that of each rival is more than this many times its own.
const MARGIN: f64 = 1.05;

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
        let name = joined(&[name.trim_start(), part, subject.trim_start_matches("keyqueue").trim_start_matches(", ")]);
        list.push(Figure { family, heading, name, unit, ours: *ours, rivals: rivals.clone() });
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
        add(&mut list, &times.section, [&times.group, &times.name, &times.figure], "ns", row);
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
            add(&mut list, &section, ["", &times.name, &times.figure], "ns", row);
        }
    }
    for spread in results.spreads.iter().filter(|spread| is_ours(&spread.subject)) {
        let same = |other: &&Spread| other.subject == spread.subject || is_rival(&other.subject);
        for (percentile, _) in &spread.curve {
            let row = results.spreads(&spread.section, &spread.what).filter(same);
            let row = row.filter_map(|spread| Some((spread.subject.clone(), spread.micros(*percentile)?)));
            let name = percentile_head(*percentile);
            add(&mut list, &spread.section, [&spread.what, &name, ""], "µs", row.collect());
        }
    }
    for ours in results.bytes.iter().filter(|bytes| bytes.subject == OURS) {
        let same = results.bytes.iter().filter(|bytes| (&bytes.what, bytes.keys) == (&ours.what, ours.keys));
        let row = same.map(|bytes| (bytes.subject.clone(), bytes.bytes)).collect();
        add(&mut list, "memory", [&ours.what, &format!("{} keys", ours.keys), ""], "bytes", row);
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

/// A row for each family that has lost figures, and all of these, the worst first.
pub fn lost(results: &Results, matrices: &[Results]) -> String {
    let mut list = all(results, matrices);
    list.sort_by(|a, b| b.worst().total_cmp(&a.worst()));
    let head = ["workloads", "figures lost", "the worst of them", "keyqueue", "rival", "", "ratio", "all ratios"];
    let mut table = Table::new(head);
    let mut rows = Table::new(["figure", "keyqueue", "rivals that are better, and the ratios"]);
    let all = families(&list);
    for lost in families(list.iter().filter(|figure| figure.worst() > MARGIN)) {
        let worst = lost[0];
        let of = all.iter().find(|family| family[0].family == worst.family).expect("it is a part of it").len();
        table.row([
            format!("[{}](benches/TABLES.md#{})", worst.family, worst.heading),
            format!("{} of {of}", lost.len()),
            worst.name.clone(),
            worst.with_unit(worst.ours),
            worst.with_unit(worst.rivals[0].1),
            worst.rivals[0].0.clone(),
            format!("**{:.2}**", worst.worst()),
            range(lost.iter().map(|figure| figure.worst())),
        ]);
    }
    for figure in list.iter().filter(|figure| figure.worst() > MARGIN) {
        let better = figure.rivals.iter().filter(|rival| figure.ratio(rival) > MARGIN);
        let cell = |rival: &(String, f64)| {
            format!("{} {} (**{:.2}**)", rival.0, figure.with_unit(rival.1), figure.ratio(rival))
        };
        let cells: Vec<_> = better.map(cell).collect();
        let name = joined(&[&figure.family, &figure.name]);
        rows.row([name, figure.with_unit(figure.ours), cells.join("; ")]);
    }
    format!("{table}\n\n<details>\n<summary>Every figure that keyqueue loses</summary>\n\n{rows}\n\n</details>")
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

    /// `BENCHMARKS.md` as it is in the repository has each loss, and its table counts them.
    #[test]
    fn every_loss_in_the_stored_data_is_on_the_page() {
        let page = read("BENCHMARKS.md");
        let section = page.split("\n## Where it loses\n").nth(1).unwrap().split("\n## ").next().unwrap();
        let (table, list) = section.split_once("<details>").unwrap();
        let mut losses = 0;
        for (words, row) in stored() {
            let no_rivals = ["keyqueue", "no dedup", "bare thread", "draft", "try_get", "get_async", "Workers"];
            let rivals = row.iter().filter(|(rival, _)| no_rivals.iter().all(|word| !rival.contains(word)));
            let rivals: Vec<_> = rivals.collect();
            let ours = row.iter().filter(|(subject, _)| subject.starts_with("keyqueue"));
            for (subject, ours) in ours {
                let form = subject.trim_start_matches("keyqueue").trim_start_matches(", ");
                let better: Vec<_> = rivals.iter().filter(|(_, theirs)| ours / theirs > 1.05).collect();
                losses += usize::from(!better.is_empty());
                for (rival, theirs) in better {
                    // Of 1.455 either: the page divides other units.
                    let ratio = [1.0 - 1e-9, 1.0 + 1e-9].map(|by| format!("(**{:.2}**)", ours / theirs * by));
                    let there = list.lines().any(|line| {
                        let (name, rest) = line.trim_start_matches("| ").split_once(" | ").unwrap_or_default();
                        // The page may have a comma between the words of a row: "unique, 1x1".
                        let name = format!("{name},").replace(',', "");
                        words.iter().all(|word| name.contains(&word.replace(',', "")))
                            && name.contains(&form.replace(',', ""))
                            && rest.split(';').any(|loss| {
                                loss.contains(rival.as_str()) && ratio.iter().any(|ratio| loss.contains(ratio))
                            })
                    });
                    assert!(there, "BENCHMARKS.md lacks: {words:?}, {subject} {ours}, {rival} {theirs}, {ratio:?}");
                }
            }
        }
        let counts =
            table.lines().filter_map(|line| line.split(" | ").nth(1)?.split_once(" of ")?.0.parse::<usize>().ok());
        assert_eq!(counts.sum::<usize>(), losses, "the table has another number of losses than the data");
        assert!(losses > 50, "{losses}");

        // The reasons are those of the families in the table, and no others.
        let tables = read("benches/TABLES.md");
        let reasons =
            tables.split("\n## Where it falls short\n").nth(1).unwrap().split("\nRows in which").next().unwrap();
        let heads = reasons.lines().filter_map(|line| line.strip_prefix("* **")?.split("**: ").next());
        let mut reasons: Vec<_> = heads.flat_map(|head| head.split("**; **")).collect();
        let mut lost: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| [")?.split(']').next()).collect();
        reasons.sort_unstable();
        lost.sort_unstable();
        assert_eq!(reasons, lost);
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
        assert_eq!(
            [page.matches(".svg)").count(), tables.matches(".svg)").count()].iter().sum::<usize>(),
            charts.len()
        );
        let headings = tables.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
        let headings: Vec<_> = headings.map(|title| title.to_lowercase().replace(' ', "-")).collect();
        for link in page.split("TABLES.md#").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            assert!(headings.iter().any(|heading| heading == link), "{link}");
        }
        assert!(read("README.md").contains("(BENCHMARKS.md#where-it-loses)"));
    }
}
