//! What delays and failures need: a timing wheel, and a record for each slot whose key is delayed or has failed.
//!
//! ```text
//!   key DELAYED ──▶ record of its slot: priority, beginning, placement ◀──▶ entry in the wheel, by deadline
//!                                       the later delay, if there are two
//!   key FAILED ───▶ record of its slot: failures
//! ```
//!
//! A key can have two delays: one that a caller has set, and one that a holder has set. The earlier one is in the wheel (I9).

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
    /// Those of them that have two delays.
    doubles: usize,
    /// Keys whose failures are counted.
    pub(super) failing: usize,
    /// The latest time that a call has told. Never goes back.
    time: u64,
    /// No delay expires before this.
    pub(super) until: u64,
    /// The number of times that a key has become delayed.
    pub(super) begun: u64,
}

/// What is kept for a slot: 32 bytes.
#[derive(Default)]
pub(super) struct Record {
    /// The deadline of the later delay, if there are two.
    later: u64,
    /// Of the earlier delay.
    placement: Placement,
    pub(super) failures: u32,
    /// The number of times that a key had become delayed when this one did, without the high bits.
    began: u32,
    /// Of the earlier delay and of the later one.
    priorities: [i8; 2],
    /// Of the earlier delay and of the later one.
    kinds: [Kind; 2],
}

/// What a delay is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Kind {
    /// There is none.
    #[default]
    Nothing,
    /// Set by a caller.
    Callers,
    /// The same, for a failure.
    CallersRetry,
    /// Set by the holder of the key, at the end of its hand-out.
    Holders,
    /// The same, for a failure.
    HoldersRetry,
}

impl Kind {
    pub(super) fn of_caller(is_retry: bool) -> Self {
        if is_retry { Self::CallersRetry } else { Self::Callers }
    }

    pub(super) fn of_holder(is_retry: bool) -> Self {
        if is_retry { Self::HoldersRetry } else { Self::Holders }
    }

    pub(super) fn is_holders(self) -> bool {
        matches!(self, Self::Holders | Self::HoldersRetry)
    }

    pub(super) fn is_retry(self) -> bool {
        matches!(self, Self::CallersRetry | Self::HoldersRetry)
    }
}

/// One delay of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) deadline: u64,
    /// The priority that the key will have.
    pub(super) priority: i8,
    pub(super) kind: Kind,
}

/// The delays of a key: the caller's and the holder's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Dues {
    pub(super) caller: Option<Due>,
    pub(super) holder: Option<Due>,
}

impl Dues {
    /// The one of the same setter.
    pub(super) fn of(&mut self, kind: Kind) -> &mut Option<Due> {
        if kind.is_holders() { &mut self.holder } else { &mut self.caller }
    }

    /// The one for whose end an add waits ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)): the earlier retry.
    pub(super) fn retry(&mut self) -> Option<&mut Due> {
        let dues = [&mut self.caller, &mut self.holder].into_iter().flatten();
        dues.filter(|due| due.kind.is_retry()).min_by_key(|due| due.deadline)
    }
}

impl Record {
    /// Of the earlier delay.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.placement.deadline()
    }

    /// Of the earlier delay.
    #[inline]
    pub(super) fn priority(&self) -> i8 {
        self.priorities[0]
    }

    /// The highest of the delays of the key.
    pub(super) fn highest(&self) -> i8 {
        if self.has_two() { self.priorities[0].max(self.priorities[1]) } else { self.priorities[0] }
    }

    fn has_two(&self) -> bool {
        self.kinds[1] != Kind::Nothing
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
        Self { wheel: None, old: None, records, delayed: 0, doubles: 0, failing: 0, time: 0, until: NEVER, begun: 0 }
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
    pub(super) fn begin(&mut self, number: u32, due: Due) -> Owed {
        self.delayed += 1;
        self.begun += 1;
        let began = self.begun as u32;
        let record = self.records.make(number);
        record.began = began;
        (record.priorities[0], record.kinds) = (due.priority, [due.kind, Kind::Nothing]);
        self.insert(number, due.deadline)
    }

    /// A key that has left the wheel is not delayed any more.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        self.delayed -= 1;
        if self.doubles > 0 {
            self.forget_later(number);
        }
    }

    #[cold]
    fn forget_later(&mut self, number: u32) {
        let kind = &mut self.records[number].kinds[1];
        self.doubles -= usize::from(*kind != Kind::Nothing);
        *kind = Kind::Nothing;
    }

    /// The delays of a delayed key.
    pub(super) fn dues(&self, number: u32) -> Dues {
        let record = &self.records[number];
        let deadlines = [record.deadline(), record.later];
        let mut dues = Dues::default();
        for ((deadline, priority), kind) in deadlines.into_iter().zip(record.priorities).zip(record.kinds) {
            if kind != Kind::Nothing {
                *dues.of(kind) = Some(Due { deadline, priority, kind });
            }
        }
        dues
    }

    /// Sets the delays of a delayed key, of which there is one at least. The wheel changes only if the earlier deadline does. (If one was
    /// set that is not the earliest, the caller's comes first.)
    pub(super) fn set(&mut self, number: u32, dues: Dues) -> Owed {
        let Dues { caller, holder } = dues;
        let is_callers = holder.is_none_or(|holder| caller.is_some_and(|caller| caller.deadline <= holder.deadline));
        let (earlier, later) = if is_callers { (caller, holder) } else { (holder, caller) };
        let earlier = earlier.expect("a delayed key has a delay");
        let record = &mut self.records[number];
        let had_two = record.has_two();
        record.kinds = [earlier.kind, later.map_or(Kind::Nothing, |later| later.kind)];
        record.priorities = [earlier.priority, later.map_or(0, |later| later.priority)];
        record.later = later.map_or(0, |later| later.deadline);
        self.doubles = self.doubles + usize::from(later.is_some()) - usize::from(had_two);
        if record.deadline() == earlier.deadline {
            return Owed::NOTHING;
        }
        self.remove(number);
        self.insert(number, earlier.deadline).and(self.garbage())
    }

    /// The earlier delay of a key has left the wheel. If there is another one, that takes its place, and the priority with which the key is
    /// added now is returned.
    #[inline]
    pub(super) fn next_due(&mut self, number: u32, is_waited_for: impl FnOnce() -> bool) -> Option<(i8, Owed)> {
        if self.doubles == 0 { None } else { self.later_takes_its_place(number, is_waited_for()) }
    }

    #[cold]
    fn later_takes_its_place(&mut self, number: u32, is_waited_for: bool) -> Option<(i8, Owed)> {
        // In a full wheel the two delays expire together.
        let has_room = self.has_room();
        let record = &mut self.records[number];
        if !record.has_two() || !has_room {
            return None;
        }
        // The add that waits may wait for the other delay.
        let priority = if is_waited_for { record.highest() } else { record.priorities[0] };
        let later = record.priorities[1];
        (record.priorities[0], record.kinds) = (later, [record.kinds[1], Kind::Nothing]);
        self.doubles -= 1;
        let deadline = record.later;
        Some((priority, self.insert(number, deadline)))
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
    fn insert(&mut self, number: u32, deadline: u64) -> Owed {
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
