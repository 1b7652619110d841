//! The times of a life, and what an observer would be told: all from answers of verbs.
//!
//! In some lives the machine measures each key, as under a given clock. Then all is exact. In the others it samples, by a clock that
//! stands still most of the time, so it skips many keys: what it knows of a key is exact, ages are not too high, and counts are right.

use super::reference::key::{Key, Name};
use super::reference::plan::Plan;
use super::run::{Run, hash, note};
use crate::Added;
use crate::machine::{Claimed, MaybeNanos};
use std::collections::BTreeMap;

pub(super) struct Times {
    /// Each key is measured.
    pub(super) are_exact: bool,
    /// What an observer would be told: adds by their answers; hand-outs, ends, and keys given up.
    pub(super) events: [u64; 5],
    handed_out: u64,
    done: u64,
    pub(super) given_up: u64,
    /// The times that it would be told, added up.
    sums: [u128; 2],
    /// By level: hand-outs, and how long these keys were queued, added up.
    levels: BTreeMap<i8, (u64, u128)>,
}

impl Times {
    pub(super) fn new(plan: &Plan) -> Self {
        // A setting that a machine does not see: so each plan has both.
        let are_exact = plan.on_panic.is_none();
        Self { are_exact, events: [0; 5], handed_out: 0, done: 0, given_up: 0, sums: [0; 2], levels: BTreeMap::new() }
    }
}

impl Run {
    /// After a verb that may have made a key dirty.
    pub(super) fn tell_time(&mut self) {
        if self.machine.wants_time() {
            self.machine.times().expect("it measures").dirty_at(self.reference.now);
        }
    }

    /// The answer that a machine gives, and the time that the reference says.
    fn judge(&self, answer: MaybeNanos, expected: u64) {
        match answer.known() {
            Some(nanos) => assert_eq!(nanos, expected),
            None => assert!(!self.times.are_exact || !self.plan.measure, "it measures each key"),
        }
        note(if answer == MaybeNanos::UNKNOWN { "not measured" } else { "measured" });
    }

    /// After a `get`.
    pub(super) fn started(&mut self, claimed: &Claimed<Key>) {
        let told = self.machine.started(claimed, || self.reference.now);
        let key = claimed.key().number();
        let (waited, _) = self.reference.times(key);
        self.judge(told, waited);
        self.times.handed_out += 1;
        self.times.sums[0] += told.duration().map_or(0, |told| told.as_nanos());
        let level = self.times.levels.entry(self.reference.held_priority(key)).or_default();
        *level = (level.0 + 1, level.1 + u128::from(waited));
    }

    /// Before the end of a processing.
    pub(super) fn ended(&mut self, claimed: &Claimed<Key>) {
        let told = self.machine.ended(claimed, || self.reference.now);
        let (_, worked) = self.reference.times(claimed.key().number());
        self.judge(told, worked);
        self.times.done += 1;
        self.times.sums[1] += told.duration().map_or(0, |told| told.as_nanos());
    }

    /// Compares what an observer would be told, histograms and ages.
    pub(super) fn check_times(&mut self) {
        let (reference, times) = (&self.reference, &self.times);
        let counts = reference.counts;
        let of = |added: Added| times.events[added as usize];
        let told = [Added::Queued, Added::Coalesced, Added::Deferred, Added::Rejected, Added::Delayed].map(of);
        let expected = [counts.pushed, counts.coalesced, counts.deferred, counts.rejected, counts.delays];
        assert_eq!(told, expected, "adds that an observer would be told");
        let done = counts.handed_out - reference.processing().len() as u64;
        assert_eq!((times.handed_out, times.done, times.given_up), (counts.handed_out, done, counts.given_up));
        let now = reference.now;
        let Some(ages) = self.machine.ages(now) else {
            assert!(!self.plan.measure);
            return;
        };
        let processing = reference.processing();
        let elapsed = |key: &u8| reference.times(*key).1;
        let longest = processing.iter().map(elapsed).max();
        let unfinished = processing.iter().map(elapsed).fold(0, u64::saturating_add);
        let mut known = Vec::new();
        for claimed in &self.held {
            let (waited, elapsed) = reference.times(claimed.key().number());
            let start = self.machine.started_at(self.machine.held(claimed)).expect("after `ages` each start is known");
            assert!(start >= now - elapsed, "a start is not too early");
            known.push(now - start);
            assert!(self.machine.waited(claimed).known().is_none_or(|nanos| nanos == waited), "waited");
        }
        assert_eq!(ages.longest_running, known.iter().copied().max(), "of the list");
        assert_eq!(ages.unfinished_work, known.iter().copied().fold(0, u64::saturating_add), "of the list");
        let durations = &mut self.machine.times().expect("it measures").durations;
        let worked = (durations.worked().count(), durations.worked().sum().as_nanos());
        let priorities: Vec<i8> = durations.waited_by_priority().skip(1).map(|(priority, _)| priority).collect();
        let waited: Vec<_> = durations
            .waited_by_priority()
            .map(|(level, waited)| (level, waited.count(), waited.sum().as_nanos()))
            .collect();
        assert!(waited.iter().map(|(level, ..)| *level).eq(std::iter::once(0).chain(priorities)));
        let cut = |sum: u128| sum.min(u64::MAX.into());
        if times.are_exact {
            assert_eq!((ages.longest_running, ages.unfinished_work), (longest, unfinished));
            assert_eq!(ages.oldest_queued, reference.oldest_queued());
            assert_eq!(times.sums, reference.sums, "the times that an observer would be told");
            assert_eq!(worked, (done, cut(reference.sums[1])));
            let waited = waited.into_iter().filter(|(_, count, _)| *count > 0);
            let levels = times.levels.iter().map(|(level, (count, sum))| (*level, *count, cut(*sum)));
            assert_eq!(sorted(waited.collect()), levels.collect::<Vec<_>>(), "by level");
        } else {
            let count: u64 = waited.iter().map(|(_, count, _)| count).sum();
            assert!([0, done].contains(&worked.0) && count <= counts.handed_out);
            let is_plain = times.levels.keys().all(|level| *level == 0);
            assert!(!is_plain || [0, counts.handed_out].contains(&count), "one stands for those before it");
        }
        for key in reference.all().filter(|key| !reference.is_dirty(*key)) {
            let entry = self.machine.keys.find(&Name::new(key), hash(key));
            assert!(entry.is_none_or(|entry| self.machine.queued_at(entry).is_none()), "key {key} is not dirty");
        }
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list
}
