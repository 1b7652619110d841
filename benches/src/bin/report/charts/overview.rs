//! All workloads with rivals on one chart: the fastest rival's time divided by keyqueue's.

use super::axis::Axis;
use super::bars::{Bar, Bars};
use super::style::{BEHIND, OURS};
use crate::results::{Results, Times};

const SECTIONS: [(&str, &str); 3] = [("queue", ""), ("delays", "delays"), ("limiters", "limiters: ")];

/// Bars start at 1 and extend to the right where keyqueue is faster, to the left where it is slower.
pub fn overview(results: &Results) -> Option<Bars> {
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for (section, prefix) in SECTIONS {
        for times in results.times(section) {
            let Some(ratio) = times.ratio_to_fastest() else { continue };
            let heading = match section {
                "queue" => "queue".to_owned(),
                _ => format!("{prefix}{}", times.group),
            };
            let bar = bar(times, section, ratio);
            match groups.iter_mut().find(|(other, _)| *other == heading) {
                Some((_, bars)) => bars.push(bar),
                None => groups.push((heading, vec![bar])),
            }
        }
    }
    let bars = groups.iter().flat_map(|(_, bars)| bars);
    let values = bars.flat_map(|bar| [bar.value, 1.0].into_iter().chain(bar.tick));
    let x = Axis::decades("the fastest rival's time / keyqueue's", values);
    let title = "Right of 1: keyqueue is faster than the fastest rival. The line is the target".into();
    (!groups.is_empty()).then_some(Bars { title, x, origin: 1.0, groups })
}

fn bar(times: &Times, section: &str, ratio: f64) -> Bar {
    let name = match section {
        "queue" => times.label(),
        _ => Times { group: String::new(), ..times.clone() }.label(),
    };
    let colour = if ratio < 1.0 { BEHIND } else { OURS };
    Bar { name, value: ratio, text: format!("{ratio:.2}"), colour, tick: times.target }
}
