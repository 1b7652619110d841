//! The comparisons in which a rival is faster, or smaller, than keyqueue.

use crate::results::{OURS, Results};
use std::fmt::Write as _;

/// The sections with rivals; the others compare keyqueue with itself.
const SECTIONS: [&str; 6] = ["queue", "threads", "pairs", "keys", "delays", "limiters"];

/// A comparison with one rival.
struct Bout {
    rival: String,
    /// The group of the workload, and its name in the group.
    group: String,
    name: String,
    /// How many times as fast as keyqueue the rival is.
    factor: f64,
}

/// For each rival, the comparisons that it wins.
pub fn wins(results: &Results) -> String {
    let bouts = bouts(results);
    let mut rivals: Vec<&str> = Vec::new();
    for bout in &bouts {
        if !rivals.contains(&&*bout.rival) {
            rivals.push(&bout.rival);
        }
    }
    let mut text = String::new();
    for rival in rivals {
        let of: Vec<_> = bouts.iter().filter(|bout| bout.rival == rival).collect();
        // A ratio that would be printed as 1.00 is a draw.
        let won: Vec<_> = of.iter().filter(|bout| bout.factor >= 1.005).collect();
        writeln!(text, "\n**{rival}**: {} of {}.\n", won.len(), of.len()).unwrap();
        let mut groups: Vec<&str> = Vec::new();
        for bout in &won {
            if !groups.contains(&&*bout.group) {
                groups.push(&bout.group);
            }
        }
        for group in groups {
            let won = won.iter().filter(|bout| bout.group == group);
            let list: Vec<_> =
                won.map(|bout| format!("{} **{:.2}**", bout.name, bout.factor).trim().to_owned()).collect();
            writeln!(text, "* {group}: {}", list.join("; ")).unwrap();
        }
    }
    text.trim().to_owned()
}

fn bouts(results: &Results) -> Vec<Bout> {
    let mut bouts = Vec::new();
    for section in SECTIONS {
        for times in results.times(section) {
            for rival in times.subjects.iter().skip(1) {
                let group = match (section, &*times.group) {
                    ("queue", group) => group.into(),
                    (_, "") => section.into(),
                    (_, group) => format!("{section}, {group}"),
                };
                let name = match times.at {
                    Some(at) => keyqueue_benches::numbers::short(at),
                    None => [&*times.name, &*times.figure].join(" ").trim().to_owned(),
                };
                let factor = times.subjects[0].median() / rival.median();
                bouts.push(Bout { rival: rival.name.clone(), group, name, factor });
            }
        }
    }
    // A thread without a queue is no rival.
    for spread in results.spreads.iter().filter(|spread| spread.subject != OURS && spread.subject != "a bare thread") {
        let ours = results.spreads(&spread.section, &spread.what).find(|other| other.subject == OURS);
        for percentile in [50.0, 99.0] {
            let (Some(ours), Some(theirs)) = (ours.and_then(|ours| ours.micros(percentile)), spread.micros(percentile))
            else {
                continue;
            };
            let (group, name) = (format!("{}, {}", spread.section, spread.what), format!("p{percentile}"));
            bouts.push(Bout { rival: spread.subject.clone(), group, name, factor: ours / theirs });
        }
    }
    for bytes in results.bytes.iter().filter(|bytes| bytes.subject != OURS) {
        let same = |other: &&crate::results::Bytes| {
            other.subject == OURS && other.what == bytes.what && other.keys == bytes.keys
        };
        if let Some(ours) = results.bytes.iter().find(same) {
            let (rival, group, name) = (bytes.subject.clone(), "memory".into(), bytes.what.clone());
            bouts.push(Bout { rival, group, name, factor: ours.bytes / bytes.bytes });
        }
    }
    bouts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made_up;

    fn of<'a>(text: &'a str, rival: &str) -> &'a str {
        let start = text.find(&format!("**{rival}**")).unwrap_or_else(|| panic!("no {rival} in\n{text}"));
        text[start..].split("\n\n**").next().unwrap()
    }

    #[test]
    fn each_rival_has_its_wins_and_no_others() {
        let text = wins(&made_up());
        assert_eq!(of(&text, "governor"), "**governor**: 1 of 1.\n\n* limiters, bucket: refused **1.04**");
        assert_eq!(of(&text, "DelayQueue"), "**DelayQueue**: 0 of 1.");
        let mutex = of(&text, "parking_lot mutex");
        assert!(mutex.contains("\n* fill, drain: 300000 keys **1.33**"), "{mutex}");
        assert!(mutex.contains("\n* pairs: 1 **1.50**; 2 **1.50**; 16 **1.50**; 512 **1.50**"), "{mutex}");
        assert!(!mutex.contains("cycle"), "{mutex}");
        assert!(!text.contains("bare thread"));
    }

    #[test]
    fn less_memory_and_an_earlier_tail_are_wins_too() {
        let mut results = made_up();
        results.bytes[1].bytes = 25.0;
        for spread in &mut results.spreads {
            if spread.subject == "parking_lot mutex" && spread.what == "quiet" {
                spread.curve.iter_mut().for_each(|point| point.1 /= 2.2);
            }
        }
        let text = wins(&results);
        assert!(of(&text, "std mutex").contains("\n* memory: queued **2.00**"), "{text}");
        assert!(of(&text, "parking_lot mutex").contains("\n* lateness, quiet: p50 **2.00**; p99 **2.00**"), "{text}");
    }
}
