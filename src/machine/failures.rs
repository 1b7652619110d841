//! Failures, which the machine counts itself unless a limiter of the user's own does.

use super::{Claimed, EntryRef, Machine, Mode, Owed};
use crate::key::KeyHash;
use equivalent::Equivalent;

/// What an add has to do with failures.
#[derive(Clone, Copy)]
pub(crate) enum Failure<'s> {
    No,
    /// It is one. A limiter of the user's own has counted it, and has said how long the delay is, before the lock.
    Told,
    /// It is one, to be counted here. The function says how long the delay is at least; without one, the call has said it.
    Counted(Option<&'s FailureDelay>),
}

/// The delay in nanoseconds after a failure that has this number of failures before it. It runs under the lock, so it is none of the user's.
pub(crate) type FailureDelay = dyn Fn(u32) -> u64 + Send + Sync;

impl Failure<'_> {
    #[inline]
    pub(super) fn is_one(self) -> bool {
        !matches!(self, Self::No)
    }

    #[inline]
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Self::Counted(_))
    }
}

impl<K> Machine<K> {
    /// Forgets the failures of a key.
    pub(crate) fn forget_failures<Q>(&mut self, hand: &mut Option<K>, key: &Q, hash: KeyHash, mode: Mode) -> Owed
    where
        Q: Equivalent<K> + ?Sized,
    {
        let Some(entry) = self.find_failing(key, hash) else { return Owed::NOTHING };
        self.clear_failures(entry);
        self.forget_if_vacant(hand, entry, mode)
    }

    /// The number of failures of a key that were counted here.
    pub(crate) fn failures<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> u32 {
        self.find_failing(key, hash).map_or(0, |entry| self.failures_of(entry))
    }

    /// The same of a held key.
    pub(crate) fn failures_held(&self, claimed: &Claimed<K>) -> u32 {
        self.failures_of(self.held(claimed))
    }

    fn find_failing<Q: Equivalent<K> + ?Sized>(&self, key: &Q, hash: KeyHash) -> Option<EntryRef<K>> {
        if self.later.failing == 0 { None } else { self.keys.find(key, hash) }
    }

    fn failures_of(&self, entry: EntryRef<K>) -> u32 {
        if entry.state().has_failed() { self.later.records[entry.number()].failures } else { 0 }
    }

    /// If the add is a failure, counts it. Returns the delay that the add asks for, or the longer one of the schedule.
    #[inline(always)]
    pub(super) fn count_failure(
        &mut self,
        entry: EntryRef<K>,
        failure: Failure<'_>,
        delay: Option<u64>,
    ) -> Option<u64> {
        self.counts.failures += u64::from(failure.is_one());
        let Failure::Counted(delay_of) = failure else { return delay };
        delay.max(Some(self.count(entry, delay_of)))
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
            self.later.records[entry.number()].failures = 0;
            self.later.failing -= 1;
            entry.state().clear_failed();
        }
    }
}
