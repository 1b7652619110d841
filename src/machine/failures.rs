//! Failures, which the machine counts unless a limiter of the user's own does.

use super::{Claimed, EntryRef, Machine, Mode, Owed};
use crate::key::KeyHash;
use equivalent::Equivalent;

/// Whether an add stands for a failure, and who counts it.
#[derive(Clone, Copy)]
pub(crate) enum Failure<'s> {
    No,
    /// A failure that a limiter of the user's own has counted before the lock. It has also said how long the delay is.
    Told,
    /// A failure that the machine counts. The delay is at least the function's, or the caller's alone if there is no function.
    Counted(Option<&'s FailureDelay>),
    /// The same after the last retry: the delay is the caller's alone, and the key is given up, if it was not before.
    PastLast,
}

/// The delay in nanoseconds after a failure that has this number of failures before it. It runs under the lock, so it must not be the
/// user's code.
pub(crate) type FailureDelay = dyn Fn(u32) -> u64 + Send + Sync;

impl Failure<'_> {
    #[inline]
    pub(super) fn is_one(self) -> bool {
        !matches!(self, Self::No)
    }

    #[inline]
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Self::Counted(_) | Self::PastLast)
    }
}

impl<K> Machine<K> {
    /// Returns whether the machine had counted failures of this key.
    pub(crate) fn forget_failures<Q>(
        &mut self,
        hand: &mut Option<K>,
        key: &Q,
        hash: KeyHash,
        mode: Mode,
    ) -> (bool, Owed)
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.find_failing(key, hash) else { return (false, Owed::NOTHING) };
        self.clear_failures(entry);
        (true, self.forget_if_vacant(hand, entry, mode))
    }

    /// The number of failures of a key that the machine has counted.
    pub(crate) fn failures<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> u32 {
        self.find_failing(key, hash).map_or(0, |entry| self.failures_of(entry))
    }

    pub(crate) fn failures_held(&self, claimed: &Claimed<K>) -> u32 {
        self.failures_of(self.held(claimed))
    }

    /// Whether a held key was given up by a failure [after its last retry](Failure::PastLast).
    pub(crate) fn is_given_up_held(&self, claimed: &Claimed<K>) -> bool {
        self.is_given_up(self.held(claimed))
    }

    pub(super) fn is_given_up(&self, entry: EntryRef<K>) -> bool {
        entry.state().has_failed() && self.later.records[entry.number()].is_given_up
    }

    fn find_failing<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        if self.later.failing == 0 { None } else { self.keys.find(key, hash) }
    }

    pub(super) fn failures_of(&self, entry: EntryRef<K>) -> u32 {
        if entry.state().has_failed() { self.later.records[entry.number()].failures } else { 0 }
    }

    /// Counts the failure, if there is one. Returns the delay that the add asks for, or that of the schedule if it is longer.
    #[inline(always)]
    pub(super) fn count_failure(
        &mut self,
        entry: EntryRef<K>,
        failure: Failure<'_>,
        delay: Option<u64>,
    ) -> Option<u64> {
        self.counts.failures += u64::from(failure.is_one());
        match failure {
            Failure::No | Failure::Told => delay,
            Failure::Counted(delay_of) => delay.max(Some(self.count(entry, delay_of))),
            Failure::PastLast => {
                self.count(entry, None);
                let was_given_up = std::mem::replace(&mut self.later.records[entry.number()].is_given_up, true);
                self.counts.given_up += u64::from(!was_given_up);
                delay
            }
        }
    }

    #[inline]
    fn count(&mut self, entry: EntryRef<K>, delay_of: Option<&FailureDelay>) -> u64 {
        let failures = &mut self.later.records.make(entry.number()).failures;
        let before = *failures;
        *failures = before.saturating_add(1);
        self.later.failing += usize::from(before == 0);
        entry.state().set_failed();
        delay_of.map_or(0, |delay_of| delay_of(before))
    }

    pub(super) fn clear_failures(&mut self, entry: EntryRef<K>) {
        if entry.state().has_failed() {
            let record = &mut self.later.records[entry.number()];
            (record.failures, record.is_given_up) = (0, false);
            self.later.failing -= 1;
            entry.state().clear_failed();
        }
    }
}
