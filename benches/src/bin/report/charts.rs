//! The list of charts, and what each shows.

mod axis;
mod bars;
mod lines;
mod overview;
mod style;

use self::axis::Axis;
use self::bars::{Bar, Bars};
use self::lines::{Line, Lines};
use crate::results::{Results, Spread, TAILS, Times};
use keyqueue_benches::numbers::short;

/// File names and SVG. Charts without data are left out.
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let keys = |group| move |results: &Results| keys(results, group);
    let charts: [(&str, Option<String>); 12] = [
        ("overview.svg", overview::overview(results).map(|bars| bars.draw())),
        ("threads.svg", throughput(results, "threads", "Each thread adds and processes", "threads")),
        ("pairs.svg", throughput(results, "pairs", "Pairs of an adding and a processing thread", "pairs of threads")),
        ("keys-fill.svg", keys("fill")(results)),
        ("keys-touch.svg", keys("touch")(results)),
        ("keys-delays.svg", keys("delays")(results)),
        ("memory.svg", memory(results)),
        (
            "latency-wake-up.svg",
            percentiles(results, "latency", "wake-up", "Waking one parked getter: from add to get", 1000.0),
        ),
        (
            "latency-load.svg",
            percentiles(results, "latency", "under load", "Under a steady load: until a key is handed out", 1000.0),
        ),
        ("tails.svg", percentiles(results, "tails", "turn, 32 threads", "A turn (get, add, done) by 32 threads", 1.0)),
        ("lateness-quiet.svg", percentiles(results, "lateness", "quiet", "Lateness of delays, quiet", 1000.0)),
        (
            "lateness-flood.svg",
            percentiles(results, "lateness", "flood", "Lateness of delays, under a flood of new delays", 1000.0),
        ),
    ];
    let machine = |name| if name == "tails.svg" { results.apart(TAILS).machine } else { results.run.machine.clone() };
    charts.into_iter().filter_map(|(name, svg)| Some((name, style::finish(&svg?, &machine(name))))).collect()
}

/// A line for each subject, with a point for each row that has it.
fn series(rows: &[&Times], y: impl Fn(f64) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for times in rows {
        for subject in &times.subjects {
            let point = (times.at.expect("a place on the axis") as f64, y(subject.median()));
            match lines.iter_mut().find(|line| line.name == subject.name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name: subject.name.clone(), points: vec![point] }),
            }
        }
    }
    lines
}

fn throughput(results: &Results, section: &str, title: &str, unit: &str) -> Option<String> {
    let rows: Vec<_> = results.times(section).collect();
    let lines = series(&rows, |ns| 1000.0 / ns);
    let places: Vec<_> = rows.iter().filter_map(|times| times.at).collect();
    let x = Axis::logarithmic(unit, places.iter().map(|at| (*at as f64, short(*at))));
    let y = Axis::decades("million operations a second", lines::values(&lines));
    (!rows.is_empty()).then(|| Lines { title: title.into(), x, y, lines }.draw())
}

fn keys(results: &Results, group: &str) -> Option<String> {
    let title = match group {
        "fill" => "All keys added, then drained",
        "touch" => "All keys queued, and one of them added again",
        _ => "All keys delayed, and one of them moved",
    };
    let rows: Vec<_> = results.times("keys").filter(|times| times.group == group).collect();
    let lines = series(&rows, |ns| ns);
    let places: Vec<_> = rows.iter().filter_map(|times| times.at).collect();
    let x = Axis::logarithmic("keys", places.iter().map(|at| (*at as f64, short(*at))));
    let y = Axis::decades("nanoseconds an operation", lines::values(&lines));
    (!rows.is_empty()).then(|| Lines { title: title.into(), x, y, lines }.draw())
}

/// The horizontal axis is the share of values above a percentile, on a logarithmic scale: rarer values are further to the right. Values
/// of less than `least` nanoseconds are drawn as `least`.
fn percentiles(results: &Results, section: &str, what: &str, title: &str, least: f64) -> Option<String> {
    let spreads: Vec<&Spread> = results.spreads(section, what).collect();
    let rarity = |percentile: f64| 100.0 / (100.0 - percentile);
    let line = |spread: &&Spread| {
        let below = spread.curve.iter().filter(|point| point.0 < 100.0);
        let points = below.map(|(percentile, ns)| (rarity(*percentile), ns.max(least) / 1000.0)).collect();
        Line { name: spread.subject.clone(), points }
    };
    let lines: Vec<_> = spreads.iter().map(line).collect();
    let last = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
    let ticks = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99].into_iter().filter(|tick| rarity(*tick) <= last);
    let x = Axis::logarithmic("percentile", ticks.map(|tick| (rarity(tick), tick.to_string())));
    let y = Axis::decades("microseconds", lines::values(&lines));
    (!lines.is_empty()).then(|| Lines { title: title.into(), x, y, lines }.draw())
}

fn memory(results: &Results) -> Option<String> {
    if results.bytes.is_empty() {
        return None;
    }
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for bytes in &results.bytes {
        let heading = format!("{}, {} keys", bytes.what, short(bytes.keys));
        let bar = Bar {
            name: bytes.subject.clone(),
            value: bytes.bytes,
            text: format!("{:.0}", bytes.bytes),
            colour: style::of(&bytes.subject).colour,
            tick: None,
        };
        match groups.iter_mut().find(|(other, _)| *other == heading) {
            Some((_, bars)) => bars.push(bar),
            None => groups.push((heading, vec![bar])),
        }
    }
    let most = results.bytes.iter().map(|bytes| bytes.bytes).fold(0.0, f64::max);
    let x = Axis::linear("bytes a key", most);
    Some(Bars { title: "Memory".into(), x, origin: 0.0, groups }.draw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made_up;

    fn chart(name: &str) -> String {
        let charts = all(&made_up());
        charts.into_iter().find(|chart| chart.0 == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// All text on a chart, unescaped.
    fn words(svg: &str) -> Vec<String> {
        let texts = svg.split("<text ").skip(1);
        let inside = texts.map(|rest| rest.split_once('>').unwrap().1.split("</text>").next().unwrap().trim());
        inside.map(|text| text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")).collect()
    }

    fn has(svg: &str, expected: &[&str]) {
        let words = words(svg);
        for word in expected {
            assert_eq!(words.iter().filter(|other| other == word).count(), 1, "{word} in {words:?}");
        }
    }

    #[test]
    fn lines_have_all_series_ticks_and_units() {
        let four = ["keyqueue", "parking_lot mutex", "std mutex", "DashMap + SegQueue"];
        let threads = chart("threads.svg");
        has(&threads, &four);
        has(&threads, &["1", "16", "512", "threads", "million operations a second", "Each thread adds and processes"]);
        has(&chart("keys-fill.svg"), &["10M", "keys", "nanoseconds an operation"]);
        has(&chart("keys-fill.svg"), &four);
        has(&chart("lateness-flood.svg"), &["keyqueue", "a bare thread", "90", "99.9", "percentile", "microseconds"]);
    }

    #[test]
    fn bars_have_their_names_values_and_targets() {
        let memory = chart("memory.svg");
        assert_eq!(words(&memory).iter().filter(|word| *word == "keyqueue").count(), 2);
        has(&memory, &["queued, 1M keys", "delayed, 1M keys", "bytes a key"]);
        let overview = chart("overview.svg");
        has(&overview, &["fill, drain, 300000 keys", "0.75", "refused", "in waves", "2.34"]);
        assert!(!words(&overview).contains(&"512 threads".into()), "scaling is elsewhere");
    }

    #[test]
    fn each_is_small_the_same_each_time_and_has_a_background() {
        for ((name, svg), (_, again)) in all(&made_up()).into_iter().zip(all(&made_up())) {
            assert_eq!(svg, again, "{name}");
            assert!(svg.len() < 60_000, "{name}: {}", svg.len());
            assert!(svg.contains("fill=\"#FFFFFF\""), "{name}");
        }
    }

    #[test]
    fn charts_without_data_are_not_drawn() {
        assert!(all(&Results::default()).is_empty());
    }
}
