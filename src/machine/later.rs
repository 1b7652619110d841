//! What delays and failures need: a timing wheel, and a record for each slot whose key is delayed or has failed.
//!
//! ```text
//!   key DELAYED ──▶ record of its slot: priority, beginning, placement ◀──▶ entry in the wheel, by deadline
//!   key FAILED ───▶ record of its slot: failures
//! ```

use super::Owed;
use crate::key::SideArray;
use crate::time::wheel::{Block, Placement, Placements, Popped, Wheel};

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The message of a panic.
pub(crate) const WHEEL_IS_FULL: &str = "the delays of a shard would take more than 17 GB";

pub(super) struct Later {
    /// `None`: there was no delay so far. (A wheel is 20 KB.)
    wheel: Option<Box<Wheel>>,
    /// A wheel to be freed.
    old: Option<Box<Wheel>>,
    /// Of the slots whose keys are delayed or have failed, and some others.
    pub(super) records: SideArray<Record>,
    /// Keys in the wheel.
    pub(super) delayed: usize,
    /// Keys whose failures are counted.
    pub(super) failing: usize,
    /// The latest time that a call has told. Never goes back.
    time: u64,
    /// No delay expires before this.
    pub(super) until: u64,
    /// The number of times that a key has become delayed.
    pub(super) begun: u64,
}

/// What is kept for a slot: 24 bytes.
#[derive(Default)]
pub(super) struct Record {
    placement: Placement,
    pub(super) failures: u32,
    /// The number of times that a key had become delayed when this one did, without the high bits.
    began: u32,
    /// The priority that the key will have.
    pub(super) priority: i8,
}

impl Record {
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.placement.deadline()
    }
}

impl Placements for SideArray<Record> {
    #[inline]
    fn placement(&mut self, number: u32) -> &mut Placement {
        &mut self[number].placement
    }
}

impl Later {
    /// `slots`: the number of slots in a chunk.
    pub(super) fn new(slots: usize) -> Self {
        let records = SideArray::new(slots);
        Self { wheel: None, old: None, records, delayed: 0, failing: 0, time: 0, until: NEVER, begun: 0 }
    }

    /// When a delay expires that a call has asked for.
    #[inline]
    pub(super) fn deadline(&mut self, now: u64, delay: u64) -> u64 {
        self.time = self.time.max(now);
        self.time.saturating_add(delay)
    }

    /// Whether one more delay can be set.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.wheel.as_mut().is_none_or(|wheel| wheel.reserve())
    }

    /// Panics if no more delay can be set: before anything is changed.
    #[inline]
    pub(super) fn reserve(&mut self) {
        assert!(self.has_room(), "{WHEEL_IS_FULL}");
    }

    /// A key becomes delayed.
    #[inline(always)]
    pub(super) fn begin(&mut self, number: u32, priority: i8) {
        self.delayed += 1;
        self.begun += 1;
        let began = self.begun as u32;
        let record = self.records.make(number);
        (record.began, record.priority) = (began, priority);
    }

    /// The earliest deadline, or an earlier time while the wheel sorts deadlines.
    pub(super) fn earliest(&self) -> Option<u64> {
        self.wheel.as_ref()?.earliest()
    }

    /// Which of the beginnings of a delay this one was.
    pub(super) fn began(&self, number: u32) -> u64 {
        // Of the numbers with these low bits the latest that was used.
        let low = self.records[number].began;
        self.begun - u64::from((self.begun as u32).wrapping_sub(low))
    }

    /// Puts the deadline of a slot into the wheel. Owes the news if no delay expires as early.
    #[inline(always)]
    pub(super) fn insert(&mut self, number: u32, deadline: u64) -> Owed {
        if self.wheel.is_none() {
            self.make_wheel();
        }
        let wheel = self.wheel.as_mut().expect("made above");
        wheel.insert(&mut self.records, number, deadline);
        let is_first = deadline < self.until;
        if is_first {
            self.until = deadline;
        }
        Owed::only_if(is_first, Owed::DEADLINE)
    }

    /// Not inlined, as it would make the stack frame of each caller as large as a wheel.
    #[cold]
    #[inline(never)]
    fn make_wheel(&mut self) {
        self.wheel = Some(Box::new(Wheel::new(self.time)));
    }

    /// Takes the deadline of a slot out of the wheel.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let wheel = self.wheel.as_mut().expect("a key is delayed");
        wheel.remove(&mut self.records, number);
    }

    /// Takes out a deadline that is past, or says why there is none.
    #[inline]
    pub(super) fn pop(&mut self, now: u64, budget: &mut usize) -> Popped {
        self.time = self.time.max(now);
        let Some(wheel) = &mut self.wheel else { return Popped::Empty };
        let popped = wheel.pop(&mut self.records, now, budget);
        if popped == Popped::NeedsCascade {
            wheel.cascade(&mut self.records, budget);
        }
        popped
    }

    /// Deadlines are still to be sorted.
    #[cfg(test)]
    pub(super) fn is_sorting(&mut self) -> bool {
        let wheel = self.wheel.as_mut().expect("there were delays");
        wheel.pop(&mut self.records, self.time, &mut 1) == Popped::NeedsCascade
    }

    /// There is a wheel; there is memory of one to be freed.
    #[cfg(all(test, not(loom)))]
    pub(super) fn has_memory(&self) -> (bool, bool) {
        let has_retired = self.wheel.as_ref().is_some_and(|wheel| wheel.has_retired());
        (self.wheel.is_some(), self.old.is_some() || has_retired)
    }

    #[inline]
    pub(super) fn garbage(&self) -> Owed {
        let has_some = self.old.is_some() || self.wheel.as_ref().is_some_and(|wheel| wheel.has_retired());
        Owed::only_if(has_some, Owed::GARBAGE)
    }

    pub(super) fn take_garbage(&mut self) -> (Option<Box<Wheel>>, Vec<Box<Block>>) {
        (self.old.take(), self.wheel.as_mut().map(|wheel| wheel.retired()).unwrap_or_default())
    }

    /// A wheel without delays is not needed. The next delay makes a new one.
    pub(super) fn drop_empty_wheel(&mut self) {
        if self.delayed == 0 {
            self.old = self.wheel.take();
        }
    }
}
