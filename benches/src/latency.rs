//! How long a key waits.

use crate::delays::lateness::histogram;
use crate::floors::{Channel, Line};
use crate::rivals::{DashSeg, parking_lot_mutex, std_mutex};
use crate::workloads::{under_load, wake_latency};
use crate::{Ours, Subject};
use hdrhistogram::Histogram;

/// How many times the subjects take turns.
const TURNS: u64 = 10;

/// A measurement of so many keys.
type Measure = fn(u64) -> Histogram<u64>;

/// What is measured, for how many times as many keys as there are wake-ups, and by which subjects.
type Distribution = (&'static str, u64, Vec<(&'static str, Measure)>);

macro_rules! subjects {
    ($work:ident; $($(#[$when:meta])* $queue:ty),*) => {
        [$($(#[$when])* (<$queue as Subject<u64>>::NAME, $work::<$queue> as Measure)),*].into()
    };
}

macro_rules! everyone {
    ($work:ident) => {
        subjects!(
            $work;
            Ours<u64>, parking_lot_mutex::Queue<u64>, std_mutex::Queue<u64>, DashSeg<u64>, Channel<u64>, Line<u64>,
            #[cfg(feature = "kube")] crate::kube::KubeQueue<u64>
        )
    };
}

/// What was measured, by whom, and the nanoseconds:
///
/// * "wake-up": from `add` to the return of a get that was parked, with nobody else there.
/// * "under load": from the moment at which a key was to be added until it is handed out, with a worker that is busy half of
///   the time. Ten times as many keys.
///
/// The subjects take turns.
pub fn distributions(wakes: u64) -> Vec<(&'static str, &'static str, Histogram<u64>)> {
    let distributions: [Distribution; 2] =
        [("wake-up", 1, everyone!(wake_latency)), ("under load", 10, everyone!(under_load))];
    let mut list = Vec::new();
    for (what, times, subjects) in distributions {
        let mut all: Vec<_> = subjects.iter().map(|_| histogram()).collect();
        for turn in 0..TURNS {
            for subject in (0..subjects.len()).map(|n| (n + turn as usize) % subjects.len()) {
                let latencies = subjects[subject].1((wakes * times).div_ceil(TURNS));
                all[subject].add(latencies).expect("resizes by itself");
            }
        }
        list.extend(subjects.iter().zip(all).map(|((name, _), latencies)| (what, *name, latencies)));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_counted_for_every_subject() {
        let distributions = distributions(20);
        assert_eq!(distributions.len(), if cfg!(feature = "kube") { 14 } else { 12 });
        for (what, subject, latencies) in distributions {
            let keys = if what == "wake-up" { 20 } else { 200 };
            assert_eq!(latencies.len(), keys, "{what}, {subject}");
        }
    }
}
