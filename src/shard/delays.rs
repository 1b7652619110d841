//! Delays: how they are set, moved, cancelled and taken out.
//!
//! A delay is a bit of its key's word and an entry in the wheel, and both change in one step (I9). So that step also decides which of two
//! deadlines counts, whether an add takes the place of a delay, and whether a delay was cancelled or had expired before.

use super::{AddedWith, Known, Shard};
use crate::key::SideArray;
use crate::line::Group;
use crate::time::wheel::{self, Placement, Placements, Wheel};
use crate::time::{nanos, time_left};
use crate::{AddOptions, Added, DelayConflict};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// The deadline of a delay that never expires.
pub(crate) const NEVER: u64 = u64::MAX;

/// What delays and failures need.
pub(super) struct Later {
    /// The deadlines of delayed keys. `None`: there was no delay so far.
    pub(super) wheel: Option<Box<Wheel>>,
    /// Where delayed keys are in the wheel, and the failures of keys, by slot number.
    pub(super) records: SideArray<Record>,
    /// Keys in the wheel.
    pub(super) delayed: usize,
    /// Keys whose failures are counted.
    pub(super) failing: usize,
    /// The latest time that a call has read from the clock. Never goes back.
    pub(super) time: u64,
}

/// What is kept for a key that is delayed or has failed: 16 bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    placement: Placement,
    pub(super) failures: u32,
}

impl Placements for SideArray<Record> {
    #[inline]
    fn placement(&mut self, number: u32) -> &mut Placement {
        &mut self[number].placement
    }
}

/// A delay that was taken out.
pub(crate) struct Delay<K> {
    pub(crate) deadline: u64,
    /// An add waits for it ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)).
    pub(crate) waited: bool,
    pub(crate) priority: i8,
    pub(crate) group: Group,
    pub(crate) key: K,
}

impl Later {
    /// `slots`: the number of slots in a chunk.
    pub(super) fn new(slots: usize) -> Self {
        Self { wheel: None, records: SideArray::new(slots), delayed: 0, failing: 0, time: 0 }
    }

    /// The time until the next delay expires.
    pub(super) fn next_deadline(&self, now: u64) -> Option<Duration> {
        self.wheel.as_ref()?.earliest().map(|at| time_left(at, now))
    }

    /// When the delay of the key in this slot expires. Only for a key that is delayed.
    #[inline]
    pub(super) fn deadline(&self, number: u32) -> u64 {
        self.records[number].placement.deadline()
    }

    /// Memory that the wheel does not need any more, for the caller to free after the lock.
    pub(super) fn take_retired(&mut self) -> Option<Vec<Box<wheel::Block>>> {
        self.wheel.as_mut().filter(|wheel| wheel.has_retired()).map(|wheel| wheel.retired())
    }

    /// Not inlined: a wheel is 20 KB, and would make the stack frame of every caller as large, on every call.
    #[cold]
    #[inline(never)]
    fn make_wheel(&mut self) {
        self.wheel = Some(Box::new(Wheel::new(self.time)));
    }
}

/// The message of a panic.
pub(crate) const WHEEL_IS_FULL: &str = "the delays of a shard would take more than 17 GB";

impl<K> Shard<K> {
    /// Makes sure that a delay can be set, for a call that must not panic later. `false`: the wheel is full.
    #[inline]
    pub(crate) fn reserve_delay(&mut self) -> bool {
        self.later.wheel.as_mut().is_none_or(|wheel| wheel.reserve())
    }
}

impl<K> Known<'_, K> {
    /// Sets or moves the delay (P9). If the wheel is full, panics before it changes anything. **Linearization point of a delayed add.**
    pub(crate) fn set_delay(self, now: Option<u64>, options: &AddOptions) -> AddedWith {
        let number = self.number();
        let delayed = self.state().is_delayed();
        let later = &mut self.shard.later;
        later.time = later.time.max(now.unwrap_or_default());
        let deadline = later.time.saturating_add(nanos(options.delay.unwrap_or_default()));
        if later.wheel.is_none() {
            later.make_wheel();
        }
        let wheel = later.wheel.as_mut().expect("made above");
        if delayed {
            let stands = match options.conflict {
                DelayConflict::EarliestWins => later.records[number].placement.deadline() <= deadline,
                DelayConflict::Replace => false,
                DelayConflict::KeepExisting => true,
            };
            if stands {
                self.shard.counts.coalesced += 1;
                return Added::Coalesced.into();
            }
        }
        assert!(wheel.reserve(), "{WHEEL_IS_FULL}"); // before anything changes
        if delayed {
            wheel.remove(&mut later.records, number);
        } else {
            later.records.make(number);
        }
        wheel.insert(&mut later.records, number, deadline);
        self.shard.counts.delays += 1;
        if !delayed {
            later.delayed += 1;
            self.state().set_delayed();
        }
        AddedWith { added: Added::Delayed, deadline }
    }

    /// Takes the key out of the wheel. Returns whether an add waited for the delay.
    pub(crate) fn remove_delay(&mut self) -> bool {
        let number = self.number();
        let later = &mut self.shard.later;
        let wheel = later.wheel.as_mut().expect("a key is delayed");
        wheel.remove(&mut later.records, number);
        self.shard.effects.pending |= wheel.has_retired();
        self.note_delay_removed()
    }

    /// When the delay of a delayed key expires.
    pub(crate) fn deadline(&self) -> u64 {
        self.shard.later.deadline(self.number())
    }

    /// The key has left the wheel (I9). Returns whether an add waited for the delay.
    #[inline]
    pub(super) fn note_delay_removed(&mut self) -> bool {
        self.shard.later.delayed -= 1;
        self.state().clear_delayed()
    }
}

impl<K> Shard<K> {
    /// The latest time that a call has read from the clock.
    pub(crate) fn time(&self) -> u64 {
        self.later.time
    }
}

impl<K: Clone> Shard<K> {
    /// Takes one delay out. If the key has to be cloned, and the clone panics, the delay stays.
    pub(crate) fn take_delay(&mut self) -> Option<Delay<K>> {
        let wheel = self.later.wheel.as_mut()?;
        let (number, deadline) = wheel.pop_any()?;
        self.effects.pending |= wheel.has_retired();
        let mut known = self.at(number);
        let waited = known.note_delay_removed();
        let priority = known.delayed_priority();
        let group = known.group();
        let key = if known.state().is_vacant() {
            known.remove_if_vacant().expect("no bit is set")
        } else {
            catch_unwind(AssertUnwindSafe(|| known.view().key().clone())).unwrap_or_else(|payload| {
                known.put_delay_back(number, deadline, waited);
                resume_unwind(payload)
            })
        };
        Some(Delay { deadline, waited, priority, group, key })
    }
}

impl<K> Known<'_, K> {
    /// Undoes [`Shard::take_delay`].
    fn put_delay_back(&mut self, number: u32, deadline: u64, waited: bool) {
        let later = &mut self.shard.later;
        later.wheel.as_mut().expect("it was just used").insert(&mut later.records, number, deadline);
        later.delayed += 1;
        self.state().set_delayed();
        let _waits = waited && self.state().defer_add();
    }
}
