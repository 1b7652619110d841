//! BENCHMARKS.md: the texts of `benches/text/`, one for each section. Names in double braces are placeholders for tables and numbers.

use crate::results::{Results, TAILS};
use crate::{losses, tables};

macro_rules! texts {
    ($($name:literal),* $(,)?) => { [$(include_str!(concat!("../text/", $name, ".md"))),*] };
}

/// The texts of `BENCHMARKS.md`.
pub const SHORT: [&str; 1] = texts!["short"];

/// The texts of `benches/TABLES.md`, in their order.
pub const TEXTS: [&str; 16] = texts![
    "head",
    "queues",
    "matrix",
    "parts",
    "threads",
    "shards",
    "order",
    "keys",
    "memory",
    "latency",
    "delays",
    "limiters",
    "metrics",
    "workers",
    "falls-short",
    "designs",
];

/// `BENCHMARKS.md`: what a reader takes in at a glance.
pub fn short(results: &Results, matrices: &[Results]) -> String {
    page_of(&SHORT, results, matrices)
}

/// `benches/TABLES.md`: all figures.
pub fn tables(results: &Results, matrices: &[Results]) -> String {
    page_of(&TEXTS, results, matrices)
}

/// A section whose places are all empty is left out.
fn page_of(texts: &[&str], results: &Results, matrices: &[Results]) -> String {
    let sections = texts.iter().filter_map(|text| fill(text, results, matrices));
    sections.map(|section| section.trim().to_owned() + "\n").collect::<Vec<_>>().join("\n")
}

fn fill(text: &str, results: &Results, matrices: &[Results]) -> Option<String> {
    let mut filled = String::new();
    let (mut places, mut values) = (0, 0);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("a place ends");
        let value = place(name, results, matrices);
        if !matches!(
            name,
            "machine"
                | "commit"
                | "rounds"
                | "few rounds"
                | "wakes"
                | "delays keys"
                | "shards run"
                | "tails run"
                | "order run"
        ) {
            places += 1;
            values += usize::from(!value.is_empty());
        }
        filled.push_str(before);
        filled.push_str(&value);
        rest = after;
    }
    filled.push_str(rest);
    (places == 0 || values > 0).then(|| filled.replace("\n\n\n", "\n\n"))
}

/// # Panics
/// If there is no such place.
fn place(name: &str, results: &Results, matrices: &[Results]) -> String {
    match name {
        "machine" => results.run.machine.clone(),
        "commit" => results.run.commit.clone(),
        "won" => losses::won(results, matrices),
        "lost" => losses::lost(results, matrices),
        "rounds" => results.run.rounds.to_string(),
        "few rounds" => results.run.few_rounds.to_string(),
        "wakes" => results.run.wakes.to_string(),
        "delays keys" => results.run.delays.to_string(),
        "run" => tables::run(results),
        "workloads" => tables::workloads(results),
        "mean" => tables::mean(results),
        "matrix" => tables::matrices(matrices),
        "parts" => tables::parts(results),
        "threads" => tables::scaling(results, "threads", "threads"),
        "pairs" => tables::scaling(results, "pairs", "pairs"),
        "shards" => tables::shards(results),
        "shards run" => tables::run_of(results, "--bin shards"),
        "shards latencies" => tables::percentiles(results, "shards", ""),
        "tails" => tables::tails(results),
        "turns" => tables::turns(results),
        "tails run" => tables::run_of(results, TAILS),
        "turns and tails" => tables::turns_and_tails(results),
        "order" => tables::order(results),
        "order run" => tables::run_of(results, "--bin order"),
        "keys fill" => tables::keys(results, "fill"),
        "keys touch" => tables::keys(results, "touch"),
        "keys delays" => tables::keys(results, "delays"),
        "memory" => tables::memory(results),
        "wake-up" => tables::percentiles(results, "latency", "wake-up"),
        "under load" => tables::percentiles(results, "latency", "under load"),
        "delays" => tables::delays(results),
        "lateness" => tables::lateness(results),
        "limiters" => tables::limiters(results),
        "metrics" => tables::costs(results, "metrics"),
        "scrape" => tables::scrape(results),
        "workers" => tables::costs(results, "workers"),
        _ => panic!("no place is called {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts;
    use crate::results::tests::made_up;

    fn matrix() -> Results {
        let mut matrix = Results::default();
        matrix.run.machine = "a <processor>".into();
        crate::matrix::record(&mut matrix, "16-off", "ring, 1 thread\tkeyqueue\t25\n").unwrap();
        matrix
    }

    #[test]
    fn every_processor_has_a_table() {
        let other = Results { run: Default::default(), ..matrix() };
        let page = tables(&made_up(), &[matrix(), other]);
        assert_eq!(page.matches("\n| ring, 1 thread | 16-off | 25.0 |").count(), 2, "{page}");
    }

    #[test]
    fn every_place_is_filled_and_every_section_there() {
        let page = tables(&made_up(), &[matrix()]);
        assert!(!short(&made_up(), &[]).contains("{{"));
        assert!(!page.contains("{{") && !page.contains("}}"));
        assert!(!page.contains("\n\n\n"), "two empty lines");
        let titles = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
        assert_eq!(titles(&page), TEXTS.iter().map(|text| titles(text)).sum::<usize>());
    }

    #[test]
    fn a_section_that_was_not_measured_is_left_out() {
        let mut results = made_up();
        results.times.retain(|times| times.section != "limiters");
        let page = tables(&results, &[]);
        assert!(
            !page.contains("## Limiters")
                && !page.contains("## In every build")
                && page.contains("## Delays")
                && page.contains("## Where it falls short")
        );
    }

    #[test]
    fn every_chart_is_shown_once_and_every_picture_is_a_chart() {
        let pages = [short(&made_up(), &[]), tables(&made_up(), &[matrix()])];
        let mut shown: Vec<_> = ["(benches/charts/", "(charts/"]
            .into_iter()
            .zip(&pages)
            .flat_map(|(place, page)| page.split("![").skip(1).map(move |rest| rest.split_once(place).unwrap().1))
            .map(|rest| rest.split(')').next().unwrap())
            .collect();
        let mut drawn: Vec<_> = charts::all(&made_up()).into_iter().map(|(name, _)| name).collect();
        shown.sort_unstable();
        drawn.sort_unstable();
        assert_eq!(shown, drawn);
    }
}
