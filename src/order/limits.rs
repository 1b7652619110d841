//! The limits of groups. Most groups share theirs, so a group has the number of its limits in a table.

use crate::rate_limiter::{Rate, limit};
use std::collections::HashMap;

/// What holds a group back, and its share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Limits {
    /// The number of keys that the group gives in a turn, or of quanta of handler time. At least 1.
    pub(crate) weight: u16,
    /// At most this number of its keys are processing. At least 1.
    pub(crate) max_processing: u32,
    pub(crate) rate: Option<PerSecond>,
}

/// A rate as the caller has said it: how many hand-outs in a second, as bits, and how many at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PerSecond(u64, u32);

impl PerSecond {
    pub(crate) fn new(rate: f64, burst: u32) -> Self {
        Self(rate.to_bits(), burst)
    }

    pub(crate) fn get(self) -> (f64, u32) {
        (f64::from_bits(self.0), self.1)
    }
}

/// Limits in the table, with what is computed of them once.
#[derive(Clone, Copy)]
struct Known {
    limits: Limits,
    rate: Option<Rate>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { weight: 1, max_processing: u32::MAX, rate: None }
    }
}

impl Limits {
    /// Whether the group may be full or throttled.
    pub(crate) fn holds_back(&self) -> bool {
        self.max_processing < u32::MAX || self.rate.is_some()
    }
}

/// The limits of all groups by number, each with the number of its groups.
#[derive(Default)]
pub(super) struct LimitTable {
    all: Vec<(Known, u32)>,
    vacant: Vec<u32>,
    numbers: HashMap<Limits, u32>,
    /// The limits that were asked for last, which are probably those of the next group, too.
    last: Option<(Limits, u32)>,
    /// The number of those in use that have a rate.
    pub(super) rates: u32,
}

impl LimitTable {
    /// The number of these limits, for one more group.
    pub(super) fn take(&mut self, limits: Limits) -> u32 {
        let last = self.last.filter(|last| last.0 == limits).map(|last| last.1);
        let number = last.or_else(|| self.numbers.get(&limits).copied()).unwrap_or_else(|| self.make(limits));
        self.last = Some((limits, number));
        self.all[number as usize].1 += 1;
        number
    }

    #[cold]
    fn make(&mut self, limits: Limits) -> u32 {
        let rate = limits.rate.map(PerSecond::get).and_then(|(rate, burst)| limit(rate, burst));
        self.rates += u32::from(rate.is_some());
        let known = (Known { limits, rate }, 0);
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.all.push(known);
            self.all.len() as u32 - 1
        });
        self.all[number as usize] = known;
        self.numbers.insert(limits, number);
        number
    }

    /// A group less has these limits.
    pub(super) fn give_back(&mut self, number: u32) {
        let (known, users) = &mut self.all[number as usize];
        *users -= 1;
        if *users == 0 {
            self.rates -= u32::from(known.rate.is_some());
            self.numbers.remove(&known.limits);
            self.vacant.push(number);
            self.last = None;
        }
    }

    #[inline]
    pub(super) fn of(&self, number: u32) -> &Limits {
        &self.all[number as usize].0.limits
    }

    #[inline]
    pub(super) fn rate_of(&self, number: u32) -> Option<&Rate> {
        self.all[number as usize].0.rate.as_ref()
    }

    /// Gives back memory, if no group is left.
    pub(super) fn shrink(&mut self) {
        if self.numbers.is_empty() {
            *self = Self::default();
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<(Known, u32)>() + self.numbers.capacity() * size_of::<(Limits, u32)>()
    }
}
