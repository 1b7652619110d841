//! Axes: the place of each value, and the values with a label.

use keyqueue_benches::numbers::figures;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::ops::Range;

#[derive(Clone)]
pub struct Axis {
    pub label: String,
    log: bool,
    /// Both ends, on the scale of the axis.
    span: Range<f64>,
    /// Values with a label.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a little more than `most`, which is not 0.
    pub fn linear(label: &str, most: f64) -> Self {
        assert!(most > 0.0);
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * 10_f64.powf((most / 10.0).log10().floor()));
        let step = steps.into_iter().find(|step| most / step <= 10.0).unwrap_or(most);
        let ticks =
            (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= most).map(|tick| (tick, tick.to_string()));
        Self { label: label.into(), log: false, span: 0.0..most * 1.08, ticks: ticks.collect() }
    }

    /// Logarithmic, from the first of these ticks to the last.
    pub fn logarithmic(label: &str, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        let ticks: Vec<_> = ticks.into_iter().collect();
        let places = ticks.iter().map(|tick| tick.0.log10());
        let ends =
            places.fold(f64::INFINITY..f64::NEG_INFINITY, |ends, place| ends.start.min(place)..ends.end.max(place));
        let room = ((ends.end - ends.start) * 0.02).max(0.01);
        Self { label: label.into(), log: true, span: ends.start - room..ends.end + room, ticks }
    }

    /// Logarithmic, with ticks at 1, 2, 5, 10 ... around these values; at 1, 10 ... if there are more than four decades.
    pub fn decades(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) =
            values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        if most == 0.0 {
            return Self::logarithmic(label, [(1.0, "1".into())]);
        }
        let marks: &[f64] = if most / least > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let all = (least.log10().floor() as i32 - 1..=most.log10().ceil() as i32)
            .flat_map(|power| marks.iter().map(move |mark| mark * 10_f64.powi(power)));
        let all: Vec<f64> = all.collect();
        let below = all.iter().copied().rfind(|tick| *tick <= least * 1.001).unwrap_or(least);
        let above = all.iter().copied().find(|tick| *tick >= most * 0.999).unwrap_or(most);
        let within = all.into_iter().filter(|tick| (below..=above).contains(tick));
        Self::logarithmic(label, within.map(|tick| (tick, plain(tick))))
    }

    /// The place of a value on the axis, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let place = if self.log { value.log10() } else { value };
        (place - self.span.start) / (self.span.end - self.span.start)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        first + (self.place(*value) * f64::from(last - first)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.iter().map(|tick| tick.0).collect() }
    }

    fn range(&self) -> Range<f64> {
        if self.log { 10_f64.powf(self.span.start)..10_f64.powf(self.span.end) } else { self.span.clone() }
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|tick| tick.0 == *value);
        tick.map_or(String::new(), |tick| tick.1.clone())
    }
}

/// A round number, without needless zeros.
fn plain(tick: f64) -> String {
    match tick {
        t if t >= 1000.0 => keyqueue_benches::numbers::short(t.round() as u64),
        t if t >= 1.0 => format!("{t:.0}"),
        t if t >= 0.01 => figures(t).trim_end_matches('0').into(),
        t => format!("{t:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| &*tick.1).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(names(&Axis::decades("", [1.3, 30.0].into_iter())), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(names(&Axis::decades("", [0.3, 8000.0].into_iter())), ["0.1", "1", "10", "100", "1k", "10k"]);
        assert_eq!(names(&Axis::decades("", [1.0, 10.0].into_iter())), ["1", "2", "5", "10"]);
        assert_eq!(names(&Axis::linear("", 104.0)), ["0", "20", "40", "60", "80", "100"]);
        for (least, most) in [(0.013, 9.9), (51.0, 5100.0)] {
            let axis = Axis::decades("", [least, most].into_iter());
            assert!((0.0..=1.0).contains(&axis.place(least)) && (0.0..=1.0).contains(&axis.place(most)));
        }
    }

    #[test]
    fn decades_have_equal_widths_and_the_given_labels() {
        let axis = Axis::logarithmic("keys", [(10.0, "ten".into()), (1000.0, "1k".into())]);
        let [ten, hundred, thousand] = [10.0, 100.0, 1000.0].map(|value| axis.map(&value, (0, 10_000)));
        assert!((hundred - ten - (thousand - hundred)).abs() <= 1 && ten > 0 && thousand < 10_000);
        assert_eq!((&*axis.format_ext(&1000.0), &*axis.format_ext(&2.0)), ("1k", ""));
        assert_eq!(Axis::linear("", 100.0).map(&54.0, (0, 1000)), 500);
    }
}
