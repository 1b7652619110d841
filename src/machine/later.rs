//! What delays and failures need: a timing wheel, and a record for each slot whose key is delayed or has failed.
//!
//! ```text
//!   key DELAYED ──▶ record of its slot: priority, beginning, placement ◀──▶ entry in the wheel, by deadline
//!                                       the deadline of each delay
//!   key FAILED ───▶ record of its slot: failures
//! ```
//!
//! A key can have two delays: one that a caller has set, and one that a holder has set. The earlier one is in the wheel (I9). While the key
//! is cooling down, the end of that is in the wheel in their place, and neither of the two is earlier.

use super::Owed;
use crate::key::SideArray;
use crate::time::wheel::{Pages, Placement, Placements, Popped, Wheel};
use std::collections::BTreeMap;

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
    /// Keys that are delayed.
    pub(super) delayed: usize,
    /// Those of them that have two delays.
    doubles: usize,
    /// Keys that are cooling down.
    pub(super) resting: usize,
    /// Of those that are cooling down and have two delays, the later deadlines: by the number of the slot.
    thirds: BTreeMap<u32, u64>,
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
    /// The first deadline that is not in the wheel: of the later delay, or of the earlier one while the key cools down. (Then that of the
    /// later one is in [`Later::thirds`].)
    other: u64,
    placement: Placement,
    pub(super) failures: u32,
    /// The number of times that a key had become delayed when this one did, without the high bits.
    began: u32,
    /// Of the delays, by [`Setter`].
    priorities: [i8; 2],
    /// By [`Setter`], two bits each: whether there is a delay, and whether it is a retry. And the other bits below.
    kinds: u8,
}

/// Who has set a delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setter {
    /// A call of the queue.
    Caller,
    /// The end of a hand-out.
    Holder,
}

const SETTERS: [Setter; 2] = [Setter::Caller, Setter::Holder];
const IS_SET: u8 = 1;
const IS_RETRY: u8 = 2;
/// An add waits for the end of a rest.
const IS_HELD: u8 = 1 << 4;
/// The key cools down: the end of that is in the wheel.
const IS_RESTING: u8 = 1 << 5;
/// Of two delays the holder's is the earlier.
const IS_HOLDERS_FIRST: u8 = 1 << 6;

/// One delay of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) deadline: u64,
    /// The priority that the key will have.
    pub(super) priority: i8,
    /// It was set for a failure.
    pub(super) is_retry: bool,
}

impl Due {
    /// The bits of a record.
    #[inline]
    fn kind(self) -> u8 {
        IS_SET | if self.is_retry { IS_RETRY } else { 0 }
    }
}

/// The delays of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Dues {
    pub(super) caller: Option<Due>,
    pub(super) holder: Option<Due>,
}

impl Dues {
    fn of(&mut self, setter: Setter) -> &mut Option<Due> {
        match setter {
            Setter::Caller => &mut self.caller,
            Setter::Holder => &mut self.holder,
        }
    }

    /// The earlier one, which of two with one deadline is the caller's.
    pub(super) fn earliest(&self) -> Option<(Setter, Due)> {
        match (self.caller, self.holder) {
            (Some(caller), Some(holder)) if holder.deadline < caller.deadline => Some((Setter::Holder, holder)),
            (Some(caller), _) => Some((Setter::Caller, caller)),
            (None, holder) => holder.map(|holder| (Setter::Holder, holder)),
        }
    }

    /// The earlier one, taken out.
    pub(super) fn take_earliest(&mut self) -> Option<Due> {
        self.earliest().and_then(|(setter, _)| self.of(setter).take())
    }

    /// The one for whose end an add waits ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)): the earlier retry.
    pub(super) fn retry(&mut self) -> Option<&mut Due> {
        let dues = [&mut self.caller, &mut self.holder].into_iter().flatten();
        dues.filter(|due| due.is_retry).min_by_key(|due| due.deadline)
    }

    /// The highest priority.
    pub(super) fn highest(&self) -> Option<i8> {
        [self.caller, self.holder].into_iter().flatten().map(|due| due.priority).max()
    }

    /// No delay expires before this.
    pub(super) fn not_before(&mut self, time: u64) {
        let dues = [&mut self.caller, &mut self.holder].into_iter().flatten();
        dues.for_each(|due| due.deadline = due.deadline.max(time));
    }
}

impl Record {
    /// Of the entry in the wheel.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.placement.deadline()
    }

    fn has_two(&self) -> bool {
        self.kinds & IS_SET != 0 && self.kinds & IS_SET << 2 != 0
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
        Self {
            wheel: None,
            old: None,
            records,
            delayed: 0,
            doubles: 0,
            resting: 0,
            thirds: BTreeMap::new(),
            failing: 0,
            time: 0,
            until: NEVER,
            begun: 0,
        }
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
        self.wheel.as_mut().is_none_or(|wheel| wheel.has_room())
    }

    /// Panics if no more delay can be set: before anything is changed.
    #[inline]
    pub(super) fn reserve(&mut self) {
        assert!(self.has_room(), "{WHEEL_IS_FULL}");
    }

    /// A key that is not in the wheel becomes delayed.
    #[inline(always)]
    pub(super) fn begin(&mut self, number: u32, setter: Setter, due: Due) -> Owed {
        self.delayed += 1;
        self.begun += 1;
        let began = self.begun as u32;
        let record = self.records.make(number);
        record.began = began;
        record.priorities[setter as usize] = due.priority;
        record.kinds = due.kind() << (2 * setter as u8);
        self.insert(number, due.deadline)
    }

    /// The same for a key that is in the wheel, as it cools down.
    pub(super) fn count(&mut self, number: u32) {
        self.delayed += 1;
        self.begun += 1;
        self.records[number].began = self.begun as u32;
    }

    /// A key that has left the wheel is not delayed any more.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        self.delayed -= 1;
        if self.doubles > 0 {
            self.write(number, Dues::default());
        }
    }

    /// A key may have left the wheel that has another delay, or was cooling down.
    #[inline]
    pub(super) fn has_special_keys(&self) -> bool {
        self.doubles + self.resting > 0
    }

    /// The delays of a delayed key.
    pub(super) fn dues(&self, number: u32) -> Dues {
        let record = &self.records[number];
        let mut dues = Dues::default();
        let is_resting = record.kinds & IS_RESTING != 0;
        let mut setters = SETTERS;
        if record.kinds & IS_HOLDERS_FIRST != 0 {
            setters.reverse();
        }
        let later = || if is_resting { self.thirds[&number] } else { record.other };
        let mut is_first = true;
        for setter in setters {
            let kind = record.kinds >> (2 * setter as u8);
            if kind & IS_SET != 0 {
                let earlier = if is_resting { record.other } else { record.deadline() };
                let deadline = if is_first { earlier } else { later() };
                let priority = record.priorities[setter as usize];
                *dues.of(setter) = Some(Due { deadline, priority, is_retry: kind & IS_RETRY != 0 });
                is_first = false;
            }
        }
        dues
    }

    /// Notes the delays of a key that has a record. What is in the wheel is for the caller: the earlier deadline, unless the key cools down.
    #[cold]
    pub(super) fn write(&mut self, number: u32, mut dues: Dues) {
        let record = &mut self.records[number];
        self.doubles -= usize::from(record.has_two());
        record.kinds &= IS_HELD | IS_RESTING;
        for setter in SETTERS {
            if let Some(due) = dues.of(setter) {
                record.priorities[setter as usize] = due.priority;
                record.kinds |= due.kind() << (2 * setter as u8);
            }
        }
        self.doubles += usize::from(record.has_two());
        let first = dues.earliest().map(|(setter, _)| setter);
        let [earlier, later] = [dues.take_earliest(), dues.take_earliest()];
        if later.is_some() && first == Some(Setter::Holder) {
            record.kinds |= IS_HOLDERS_FIRST;
        }
        let is_resting = record.kinds & IS_RESTING != 0;
        let other = if is_resting { earlier } else { later };
        record.other = other.map_or(0, |due| due.deadline);
        match later.filter(|_| is_resting) {
            Some(later) => _ = self.thirds.insert(number, later.deadline),
            None => _ = self.thirds.remove(&number),
        }
    }

    /// The key has one delay, a caller's, and does not cool down.
    #[inline]
    pub(super) fn has_callers_alone(&self, number: u32) -> bool {
        self.records[number].kinds & !IS_RETRY == IS_SET
    }

    /// The same key gets another such delay in its place, or keeps the old one if that ends first (`stands`). Of the two priorities the
    /// higher counts. Returns whether it has kept the old one.
    #[inline]
    pub(super) fn move_callers(&mut self, number: u32, due: Due, stands: impl FnOnce(u64) -> bool) -> (bool, Owed) {
        let record = &mut self.records[number];
        let caller = Setter::Caller as usize;
        record.priorities[caller] = record.priorities[caller].max(due.priority);
        if stands(record.deadline()) {
            return (true, Owed::NOTHING);
        }
        record.kinds = due.kind();
        (false, self.put(number, due.deadline))
    }

    /// A key begins or ends to cool down. Its delays are to be written anew.
    pub(super) fn set_resting(&mut self, number: u32, is_resting: bool) {
        let kinds = &mut self.records[number].kinds;
        *kinds = if is_resting { *kinds | IS_RESTING } else { *kinds & !IS_RESTING };
    }

    /// An add waits until the key of a slot has cooled down, and for nothing else. It has a record.
    pub(super) fn is_held(&self, number: u32) -> bool {
        self.records[number].kinds & IS_HELD != 0
    }

    pub(super) fn set_held(&mut self, number: u32, is_held: bool) {
        let kinds = &mut self.records[number].kinds;
        *kinds = if is_held { *kinds | IS_HELD } else { *kinds & !IS_HELD };
    }

    /// Moves the entry of a slot, unless its deadline is this one.
    pub(super) fn put(&mut self, number: u32, deadline: u64) -> Owed {
        if self.records[number].deadline() == deadline {
            return Owed::NOTHING;
        }
        self.remove(number);
        self.insert(number, deadline).and(self.garbage())
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
        let has_surplus = self.wheel.as_ref().is_some_and(|wheel| wheel.has_surplus());
        (self.wheel.is_some(), self.old.is_some() || has_surplus)
    }

    #[inline]
    pub(super) fn garbage(&self) -> Owed {
        let has_some = self.old.is_some() || self.wheel.as_ref().is_some_and(|wheel| wheel.has_surplus());
        Owed::only_if(has_some, Owed::GARBAGE)
    }

    pub(super) fn take_garbage(&mut self) -> (Option<Box<Wheel>>, Option<Pages>) {
        (self.old.take(), self.wheel.as_mut().and_then(|wheel| wheel.surplus()))
    }

    /// A wheel without delays is not needed. The next delay makes a new one.
    pub(super) fn drop_empty_wheel(&mut self) {
        if self.delayed + self.resting == 0 {
            self.old = self.wheel.take();
        }
    }
}
