//! The runs that have a time limit: see [`time_limits`](super::time_limits).

use crate::key::SlotId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Tells the workers that a run is late, and how long it has lasted.
pub(crate) type Tell = Box<dyn FnOnce(Duration) + Send>;

/// The runs that have a limit and have not ended, under the hub's lock.
#[derive(Default)]
pub(super) struct LimitedRuns {
    runs: BTreeMap<SlotId, LimitedRun>,
    /// When those runs are late that were not found late, the first one first.
    limits: BTreeSet<(u64, SlotId)>,
    /// How many there were, which numbers them.
    begun: u64,
}

pub(super) struct LimitedRun {
    number: u64,
    pub(super) began: u64,
    pub(super) late_at: u64,
    /// `None`: the run was found late.
    pub(super) tell: Option<Tell>,
    /// It was found late, and this was told.
    pub(super) is_told: bool,
}

/// A run that was found late, for the caller to tell of it, and to say so then.
pub(super) struct Late {
    pub(super) began: u64,
    pub(super) tell: Tell,
    pub(super) run: (SlotId, u64),
}

impl LimitedRuns {
    pub(super) fn insert(&mut self, slot: SlotId, began: u64, late_at: u64, tell: Tell) {
        self.begun += 1;
        self.limits.insert((late_at, slot));
        let run = LimitedRun { number: self.begun, began, late_at, tell: Some(tell), is_told: false };
        self.runs.insert(slot, run);
    }

    pub(super) fn remove(&mut self, slot: SlotId) -> Option<LimitedRun> {
        let run = self.runs.remove(&slot)?;
        self.limits.remove(&(run.late_at, slot));
        Some(run)
    }

    pub(super) fn get(&self, slot: SlotId) -> Option<&LimitedRun> {
        self.runs.get(&slot)
    }

    /// When the next run is late that was not found late.
    pub(super) fn next(&self) -> Option<u64> {
        self.limits.first().map(|&(late_at, _)| late_at)
    }

    /// The runs that are late at this time and were not before.
    pub(super) fn take_late(&mut self, now: u64) -> Vec<Late> {
        let mut late = Vec::new();
        while self.next().is_some_and(|late_at| late_at <= now) {
            let (_, slot) = self.limits.pop_first().expect("looked at above");
            let run = self.runs.get_mut(&slot).expect("a run that has a limit");
            late.extend(run.tell.take().map(|tell| Late { began: run.began, tell, run: (slot, run.number) }));
        }
        late
    }

    /// Notes that it was told that a run is late. Returns whether the run has not ended meanwhile.
    pub(super) fn told(&mut self, (slot, number): (SlotId, u64)) -> bool {
        let run = self.runs.get_mut(&slot).filter(|run| run.number == number);
        run.map(|run| run.is_told = true).is_some()
    }
}
