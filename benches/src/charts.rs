//! The charts: a line for each subject, on logarithmic axes.
//!
//! ```text
//!   title
//!   y │      ___/‾‾‾  ── a name beside each line's colour, in the order of the lines' ends
//!     │  ___/  ___--  ── (keyqueue: thick)
//!     └─────────────
//!           x
//! ```

use crate::numbers::short;
use crate::results::{DEFAULT, OURS, Results};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

const SIZE: (u32, u32) = (840, 450);
/// The room of the names, to the right of the plot.
const NAMES: u32 = 260;
/// From one name to the next.
const LINE: i32 = 20;

struct Chart {
    title: &'static str,
    /// What is drawn from left to right, and from bottom to top.
    units: [&'static str; 2],
    lines: Vec<(String, Vec<(f64, f64)>)>,
    /// The values of x with a label, and how they are written.
    ticks: Vec<f64>,
    written: fn(f64) -> String,
}

/// File name, section, group or distribution, title.
const CHARTS: [[&str; 4]; 6] = [
    ["threads.svg", "threads", "", "Each thread adds and processes"],
    ["pairs.svg", "pairs", "", "Pairs of an adding and a processing thread"],
    ["keys-fill.svg", "keys", "fill", "All keys added, then drained"],
    ["latency-load.svg", "latency", "under load", "Under a steady load: until a key is handed out"],
    ["tails.svg", "tails", "turn, 32 threads", "A turn (get, add, done) by 32 threads"],
    ["lateness-flood.svg", "lateness", "flood", "Lateness of delays, under a flood of new delays"],
];

/// File names and SVG. Charts without data are left out.
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let draw = |[name, section, of, title]: [&'static str; 4]| {
        let chart = match section {
            "keys" => by_place(results, [section, of], title, ["keys", "nanoseconds an operation"]),
            "threads" | "pairs" => by_place(results, [section, of], title, [section, "million operations a second"]),
            _ => by_percentile(results, [section, of], title, if section == "tails" { 0.001 } else { 1.0 }),
        };
        let apart = results.apart(crate::results::TAILS).machine;
        let machine = if section == "tails" { &apart } else { &results.run.machine };
        (!chart.lines.is_empty()).then(|| (name, chart.svg(machine).expect("a string takes it all")))
    };
    CHARTS.into_iter().filter_map(draw).collect()
}

/// A point for each row that has a number of threads, pairs or keys.
fn by_place(results: &Results, [section, group]: [&str; 2], title: &'static str, units: [&'static str; 2]) -> Chart {
    let (mut lines, mut ticks) = (Vec::<(String, Vec<_>)>::new(), Vec::new());
    for times in results.times(section).filter(|times| group.is_empty() || times.group == group) {
        let place = times.at.expect("a place on the axis") as f64;
        ticks.push(place);
        for subject in &times.subjects {
            let value = if units[0] == "keys" { subject.median() } else { 1000.0 / subject.median() };
            match lines.iter_mut().find(|line| line.0 == subject.name) {
                Some(line) => line.1.push((place, value)),
                None => lines.push((subject.name.clone(), vec![(place, value)])),
            }
        }
    }
    Chart { title, units, lines, ticks, written: |place| short(place as u64) }
}

/// Rarer values are further to the right: x is one in how many values is above the percentile. Less than `least` microseconds are drawn as
/// `least`.
fn by_percentile(results: &Results, [section, what]: [&str; 2], title: &'static str, least: f64) -> Chart {
    let rarity = |percentile: f64| 100.0 / (100.0 - percentile);
    let line = |spread: &crate::results::Spread| {
        let points = spread.curve.iter().filter(|point| point.0 < 100.0);
        (spread.subject.clone(), points.map(|(at, ns)| (rarity(*at), (ns / 1000.0).max(least))).collect::<Vec<_>>())
    };
    let lines: Vec<_> = results.spreads(section, what).map(line).collect();
    let last = lines.iter().flat_map(|line| &line.1).map(|point| point.0).fold(0.0, f64::max);
    let ticks = [0.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99].map(rarity);
    let ticks = ticks.into_iter().filter(|tick| *tick <= last).collect();
    let written = |tick: f64| format!("{}", ((100.0 - 100.0 / tick) * 1000.0).round() / 1000.0);
    Chart { title, units: ["percentile", "microseconds"], lines, ticks, written }
}

impl Chart {
    fn svg(&self, machine: &str) -> Result<String, Box<dyn Error + '_>> {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |size: u32, colour: &RGBColor, side| {
            ("sans-serif", size).into_font().color(colour).pos(Pos::new(side, VPos::Center))
        };
        root.draw_text(self.title, &text(19, &INK, HPos::Left), (20, 26))?;
        root.draw_text(machine, &text(10, &FAINT, HPos::Right), (SIZE.0 as i32 - 8, SIZE.1 as i32 - 8))?;

        let points = || self.lines.iter().flat_map(|line| &line.1);
        let ends = |all: &mut dyn Iterator<Item = f64>| {
            all.fold(f64::INFINITY..0.0_f64, |ends, value| ends.start.min(value)..ends.end.max(value))
        };
        let (across, up) = (ends(&mut points().map(|point| point.0)), ends(&mut points().map(|point| point.1)));
        let rows = decades(up.start, up.end);
        let mut chart = ChartBuilder::on(&root)
            .margin_top(50)
            .margin_bottom(8)
            .margin_left(8)
            .margin_right(NAMES)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (across.start * 0.95..across.end * 1.05).log_scale().with_key_points(self.ticks.clone()),
                (rows[0] * 0.99..rows[rows.len() - 1] * 1.01).log_scale().with_key_points(rows.clone()),
            )?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
            .axis_style(FAINT)
            .x_labels(self.ticks.len())
            .y_labels(rows.len())
            .x_label_formatter(&|tick| (self.written)(*tick))
            .y_label_formatter(&|tick| if *tick < 1000.0 { tick.to_string() } else { short(*tick as u64) })
            .label_style(("sans-serif", 15, &INK))
            .axis_desc_style(("sans-serif", 16, &INK))
            .x_desc(self.units[0])
            .y_desc(self.units[1])
            .draw()?;
        // The first is drawn last, on top.
        for (name, points) in self.lines.iter().rev() {
            let (colour, width) = style(name);
            let line = points.iter().copied();
            chart.draw_series(LineSeries::new(line, colour.filled().stroke_width(width)).point_size(width + 1))?;
        }
        let mut names: Vec<_> = self.lines.iter().map(|(name, points)| (name, points[points.len() - 1].1)).collect();
        names.sort_by(|a, b| b.1.total_cmp(&a.1));
        let left = (SIZE.0 - NAMES) as i32;
        for (n, (name, _)) in (0..).zip(names) {
            let (y, (colour, width)) = (70 + n * LINE, style(name));
            root.draw(&PathElement::new([(left + 8, y), (left + 28, y)], colour.stroke_width(width)))?;
            root.draw_text(name, &text(15, &INK, HPos::Left), (left + 34, y))?;
        }
        root.present()?;
        drop((chart, root));
        Ok(svg.replacen("\n", &format!("\n{DARK}\n"), 1))
    }
}

/// 1, 2, 5, 10 … from below the least to above the most; 1, 10 … if these are far apart.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let marks: &[f64] = if most / least > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = least.log10().floor() as i32 - 1..=most.log10().ceil() as i32;
    let all: Vec<f64> = powers.flat_map(|power| marks.iter().map(move |mark| mark * 10_f64.powi(power))).collect();
    let below = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let above = all.iter().position(|tick| *tick >= most).unwrap_or(all.len() - 1);
    all[below..=above].to_vec()
}

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// A colour of Okabe and Ito's palette and a width, the same for a subject on all charts. The first part that is in the name counts.
/// keyqueue is blue, its lock-free engine black, and each is thick where it has several shards.
fn style(subject: &str) -> (RGBColor, u32) {
    let styles = [
        ("lock-free, 16 shards", INK, 4),
        ("lock-free", INK, 2),
        (DEFAULT, RGBColor(0x00, 0x72, 0xb2), 2),
        (OURS, RGBColor(0x00, 0x72, 0xb2), 4),
        ("bare thread", FAINT, 1),
        ("channel", FAINT, 1),
        ("no dedup", RGBColor(0xbb, 0xbb, 0xbb), 1),
        ("parking_lot", RGBColor(0xd5, 0x5e, 0x00), 2),
        ("heap", RGBColor(0xd5, 0x5e, 0x00), 2),
        ("std mutex", RGBColor(0xe6, 0x9f, 0x00), 2),
        ("DashMap", RGBColor(0x00, 0x9e, 0x73), 2),
        ("DelayQueue", RGBColor(0x00, 0x9e, 0x73), 2),
        ("kube", RGBColor(0xcc, 0x79, 0xa7), 2),
        ("papaya", RGBColor(0xcc, 0x79, 0xa7), 2),
        ("", RGBColor(0x56, 0xb4, 0xe9), 2),
    ];
    let (_, colour, width) = styles.into_iter().find(|(part, ..)| subject.contains(part)).expect("the last is in each");
    (colour, width)
}

/// The same colours on a dark page: an image follows the reader's setting.
const DARK: &str = "<style>@media (prefers-color-scheme: dark) {\
    [fill='#FFFFFF'] { fill: #0d1117 } [fill='#222222'] { fill: #e6edf3 } [fill='#777777'] { fill: #9aa4ae } \
    [stroke='#777777'] { stroke: #9aa4ae } [stroke='#222222'] { stroke: #e6edf3 } [stroke='#DDDDDD'] { stroke: #30363d } \
    [fill='#0072B2'] { fill: #4aa8e8 } [stroke='#0072B2'] { stroke: #4aa8e8 } \
    }</style>";
