//! How long keys were queued and processing: histograms, which the caller reads for its metrics.

use crate::histogram::Histogram;
use crate::order::NORMAL;
use std::collections::BTreeMap;
use std::time::Duration;

/// A number of nanoseconds, if it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaybeNanos(u64);

impl MaybeNanos {
    pub(crate) const UNKNOWN: Self = Self(u64::MAX);

    #[inline]
    pub(crate) fn new(nanos: u64) -> Self {
        Self(nanos.min(u64::MAX - 1))
    }

    #[inline]
    pub(super) fn known(self) -> Option<u64> {
        (self != Self::UNKNOWN).then_some(self.0)
    }

    pub(crate) fn duration(self) -> Option<Duration> {
        self.known().map(Duration::from_nanos)
    }
}

/// Durations of which not all were measured.
#[derive(Default)]
struct Sampled {
    known: Histogram,
    /// The number of unknown ones since the last known one, for which the next known one will stand, too.
    unknown: u64,
    last: u64,
}

impl Sampled {
    #[inline]
    fn record(&mut self, nanos: MaybeNanos) {
        match nanos.known() {
            None => self.unknown += 1,
            Some(nanos) => {
                self.known.record(nanos, 1 + std::mem::take(&mut self.unknown));
                self.last = nanos;
            }
        }
    }

    /// All durations. Unknown ones since the last known one count as equal to it, so that a count never goes back.
    fn all(&mut self) -> &Histogram {
        if self.known.count() > 0 {
            self.known.record(self.last, std::mem::take(&mut self.unknown));
        }
        &self.known
    }
}

#[derive(Default)]
pub(crate) struct Durations {
    /// How long keys of priority NORMAL were queued, and those of others.
    normal: Sampled,
    others: BTreeMap<i8, Sampled>,
    worked: Sampled,
}

impl Durations {
    #[inline]
    pub(crate) fn note_waited(&mut self, priority: i8, waited: MaybeNanos) {
        // With priorities every key is measured, so an unmeasured one was added before, with NORMAL.
        let of = match priority {
            _ if waited == MaybeNanos::UNKNOWN => &mut self.normal,
            NORMAL => &mut self.normal,
            other => self.others.entry(other).or_default(),
        };
        of.record(waited);
    }

    #[inline]
    pub(crate) fn note_worked(&mut self, worked: MaybeNanos) {
        self.worked.record(worked);
    }

    pub(crate) fn waited(&mut self) -> &Histogram {
        self.normal.all()
    }

    /// How long keys were queued that have the lowest priority from this one on, but for NORMAL.
    pub(crate) fn waited_from(&mut self, priority: i8) -> Option<(i8, &Histogram)> {
        let (priority, waited) = self.others.range_mut(priority..).next()?;
        Some((*priority, waited.all()))
    }

    /// How long keys were queued, by priority, NORMAL first.
    #[cfg(test)]
    pub(crate) fn waited_by_priority(&mut self) -> impl Iterator<Item = (i8, &Histogram)> {
        let others = self.others.iter_mut().map(|(priority, waited)| (*priority, waited.all()));
        std::iter::once((NORMAL, self.normal.all())).chain(others)
    }

    pub(crate) fn worked(&mut self) -> &Histogram {
        self.worked.all()
    }
}
