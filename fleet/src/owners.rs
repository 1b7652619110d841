//! For how long partitions have been without an owner, wanted, or about to be handed over: for statistics, and for time-outs of releases.

use crate::protocol::member::{Member, Ownership, Time};

/// Since when partitions have had no owner, this member has wanted them, and it has been about to hand them over.
#[derive(Debug)]
pub(crate) struct Owners {
    unowned_since: Vec<Option<Time>>,
    wanted_since: Vec<Option<Time>>,
    releasing_since: Vec<Option<Time>>,
    /// Whether the handlers of a release were told to stop.
    told: Vec<bool>,
    stale: usize,
}

impl Owners {
    pub(crate) fn new(partitions: u32) -> Self {
        let none = || vec![None; partitions as usize];
        let told = vec![false; partitions as usize];
        Self { unowned_since: none(), wanted_since: none(), releasing_since: none(), told, stale: 0 }
    }

    /// `deadline`: the member's own.
    pub(crate) fn update(&mut self, member: &Member, now: Time, deadline: Time) {
        let note = |since: &mut Option<Time>, holds: bool| *since = holds.then(|| since.unwrap_or(now));
        self.stale = 0;
        for partition in 0..self.unowned_since.len() {
            let ownership = member.ownership(partition as u32, now, deadline);
            self.stale += usize::from(ownership == Ownership::Stale);
            note(&mut self.unowned_since[partition], ownership == Ownership::None);
            note(&mut self.wanted_since[partition], member.wants(partition as u32));
            note(&mut self.releasing_since[partition], member.is_releasing(partition as u32));
            self.told[partition] &= self.releasing_since[partition].is_some();
        }
    }

    /// Calls `tell` for each release that takes longer than `timeout`, once. Returns when the next one does.
    pub(crate) fn overdue(&mut self, timeout: Time, now: Time, mut tell: impl FnMut(u32)) -> Option<Time> {
        let mut next = None;
        for (partition, since) in (0..).zip(&self.releasing_since) {
            let Some(at) = since.map(|since| since.saturating_add(timeout)) else { continue };
            let told = &mut self.told[partition as usize];
            if !*told && at <= now {
                *told = true;
                tell(partition);
            } else if !*told {
                next = Some(next.map_or(at, |next: Time| next.min(at)));
            }
        }
        next
    }

    /// The number of partitions without an owner, and the earliest time since when.
    pub(crate) fn unowned(&self) -> (usize, Option<Time>) {
        count(&self.unowned_since)
    }

    /// The number of partitions that are to be handed over, and the earliest time since when.
    pub(crate) fn releasing(&self) -> (usize, Option<Time>) {
        count(&self.releasing_since)
    }

    /// The number of partitions whose owner's deadline is reached.
    pub(crate) fn stale(&self) -> usize {
        self.stale
    }

    pub(crate) fn wanted(&self) -> usize {
        count(&self.wanted_since).0
    }

    pub(crate) fn wanted_since(&self, partition: u32) -> Option<Time> {
        self.wanted_since[partition as usize]
    }
}

fn count(since: &[Option<Time>]) -> (usize, Option<Time>) {
    let times = since.iter().flatten();
    (times.clone().count(), times.min().copied())
}
