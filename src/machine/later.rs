//! What delays and failures need: a timing wheel, and a record for each slot whose key is delayed or has failed.
//!
//! Of the two delays that a key can have, a caller's and a holder's, the earlier one is in the wheel (I9). While the key is cooling down,
//! the end of that is there instead, and neither delay ends before it.

use super::Owed;
use crate::key::SideArray;
use crate::time::wheel::{Pages, Placement, Placements, Popped, Wheel};
use std::collections::BTreeMap;

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

pub(crate) const WHEEL_IS_FULL: &str = "the delays of a shard would take more than 17 GB";

pub(super) struct Later {
    /// A wheel takes 20 KB, so there is none before the first delay.
    wheel: Option<Box<Wheel>>,
    /// A wheel for the caller to free.
    old: Option<Box<Wheel>>,
    /// By the number of the slot. There may be records that are not in use.
    pub(super) records: SideArray<Record>,
    /// The number of keys that are delayed.
    pub(super) delayed: usize,
    /// The number of those that have two delays.
    doubles: usize,
    /// The number of keys that are cooling down.
    pub(super) resting: usize,
    /// The later deadline of each key that is cooling down and has two delays, by the number of its slot.
    thirds: BTreeMap<u32, u64>,
    /// When the first add with a bound was made of each caller's delay that has one, by the number of the slot.
    pub(super) firsts: BTreeMap<u32, u64>,
    /// The number of keys that have failed.
    pub(super) failing: usize,
    /// The latest time that a call has passed.
    time: u64,
    /// No delay expires before this.
    pub(super) until: u64,
    /// The number of times that a key has become delayed.
    pub(super) begun: u64,
}

/// What is kept for a slot, in 32 bytes.
#[derive(Default)]
pub(super) struct Record {
    /// The first deadline that is not in the wheel. It is that of the later delay, or while the key cools down that of the earlier one, and
    /// then the later one is in [`Later::thirds`].
    other: u64,
    placement: Placement,
    pub(super) failures: u32,
    /// Whether one of the failures came after the last retry.
    pub(super) is_given_up: bool,
    /// The low bits of [`Later::begun`] when this key became delayed.
    began: u32,
    /// The priorities of the delays, by [`Setter`].
    priorities: [i8; 2],
    /// Two bits for each [`Setter`], which say whether there is a delay and whether it is a retry; and the other bits below.
    kinds: u8,
}

/// Who has set a delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Setter {
    Caller,
    Holder,
}

const SETTERS: [Setter; 2] = [Setter::Caller, Setter::Holder];
const IS_SET: u8 = 1;
const IS_RETRY: u8 = 2;
/// An add waits for the end of a rest.
const IS_HELD: u8 = 1 << 4;
/// The key cools down, and the end of that is in the wheel.
const IS_RESTING: u8 = 1 << 5;
/// There are two delays, and the holder's is the earlier one.
const IS_HOLDERS_FIRST: u8 = 1 << 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) deadline: u64,
    /// The priority with which the key will be added.
    pub(super) priority: i8,
    /// It was set for a failure.
    pub(super) is_retry: bool,
}

impl Due {
    /// The bits of this delay in a record.
    #[inline]
    fn kind(self) -> u8 {
        IS_SET | if self.is_retry { IS_RETRY } else { 0 }
    }
}

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

    /// The earlier one, which is the caller's if both have the same deadline.
    pub(super) fn earliest(&self) -> Option<(Setter, Due)> {
        match (self.caller, self.holder) {
            (Some(caller), Some(holder)) if holder.deadline < caller.deadline => Some((Setter::Holder, holder)),
            (Some(caller), _) => Some((Setter::Caller, caller)),
            (None, holder) => holder.map(|holder| (Setter::Holder, holder)),
        }
    }

    /// Takes out the earlier one.
    pub(super) fn take_earliest(&mut self) -> Option<Due> {
        self.earliest().and_then(|(setter, _)| self.of(setter).take())
    }

    /// The earlier retry, for whose end an add waits ([`DelayedAdd::Strict`](crate::DelayedAdd::Strict)).
    pub(super) fn retry(&mut self) -> Option<&mut Due> {
        let dues = [&mut self.caller, &mut self.holder].into_iter().flatten();
        dues.filter(|due| due.is_retry).min_by_key(|due| due.deadline)
    }

    pub(super) fn highest(&self) -> Option<i8> {
        [self.caller, self.holder].into_iter().flatten().map(|due| due.priority).max()
    }

    /// Puts off delays that would expire before this time.
    pub(super) fn not_before(&mut self, time: u64) {
        let dues = [&mut self.caller, &mut self.holder].into_iter().flatten();
        dues.for_each(|due| due.deadline = due.deadline.max(time));
    }
}

impl Record {
    /// The deadline of the entry in the wheel.
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
            firsts: BTreeMap::new(),
            failing: 0,
            time: 0,
            until: NEVER,
            begun: 0,
        }
    }

    /// The deadline of a delay that a call has asked for.
    #[inline]
    pub(super) fn deadline(&mut self, now: u64, delay: u64) -> u64 {
        self.time = self.time.max(now);
        self.time.saturating_add(delay)
    }

    /// The delay of a caller's add that is to end `at_most` this time after the first such add.
    #[cold]
    pub(super) fn bounded(&mut self, number: u32, now: u64, delay: u64, at_most: u64) -> u64 {
        self.time = self.time.max(now);
        let first = self.firsts.get(&number).copied().unwrap_or(self.time);
        let delay = delay.min(first.saturating_add(at_most).saturating_sub(self.time));
        if delay > 0 {
            self.firsts.insert(number, first);
        }
        delay
    }

    /// Whether one more delay can be set.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        self.wheel.as_mut().is_none_or(|wheel| wheel.has_room())
    }

    /// Panics if no more delay can be set. To be called before anything is changed.
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

    /// The same for a key that is in the wheel already, because it cools down.
    pub(super) fn count(&mut self, number: u32) {
        self.delayed += 1;
        self.begun += 1;
        self.records[number].began = self.begun as u32;
    }

    /// Notes that a key that has left the wheel is no longer delayed.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        self.delayed -= 1;
        if self.doubles + self.firsts.len() > 0 {
            self.write(number, Dues::default());
        }
    }

    /// Whether a key that leaves the wheel may have another delay, or be cooling down.
    #[inline]
    pub(super) fn has_special_keys(&self) -> bool {
        self.doubles + self.resting > 0
    }

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

    /// Writes the delays of a key to its record. The caller keeps the wheel in step, with the earlier deadline unless the key cools down.
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
        if dues.caller.is_none() {
            self.firsts.remove(&number);
        }
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

    /// Whether the key has one delay, a caller's, and does not cool down.
    #[inline]
    pub(super) fn has_callers_alone(&self, number: u32) -> bool {
        self.records[number].kinds & !IS_RETRY == IS_SET
    }

    /// Gives such a key another delay in place of its own, unless that `stands`. Of the two priorities the higher counts. Returns whether
    /// it has kept the old delay.
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

    /// Notes whether a key cools down. The caller then writes its delays anew.
    pub(super) fn set_resting(&mut self, number: u32, is_resting: bool) {
        let kinds = &mut self.records[number].kinds;
        *kinds = if is_resting { *kinds | IS_RESTING } else { *kinds & !IS_RESTING };
    }

    /// Whether an add waits until the key has cooled down, and for nothing else.
    pub(super) fn is_held(&self, number: u32) -> bool {
        self.records[number].kinds & IS_HELD != 0
    }

    pub(super) fn set_held(&mut self, number: u32, is_held: bool) {
        let kinds = &mut self.records[number].kinds;
        *kinds = if is_held { *kinds | IS_HELD } else { *kinds & !IS_HELD };
    }

    /// Moves the entry of a slot to this deadline.
    pub(super) fn put(&mut self, number: u32, deadline: u64) -> Owed {
        if self.records[number].deadline() == deadline {
            return Owed::NOTHING;
        }
        self.remove(number);
        self.insert(number, deadline).and(self.garbage())
    }

    /// The earliest deadline, or an earlier time while the wheel is sorting deadlines.
    pub(super) fn earliest(&self) -> Option<u64> {
        self.wheel.as_ref()?.earliest()
    }

    /// The value of [`begun`](Self::begun) when this key became delayed.
    pub(super) fn began(&self, number: u32) -> u64 {
        // The latest value with these low bits.
        let low = self.records[number].began;
        self.begun - u64::from((self.begun as u32).wrapping_sub(low))
    }

    /// Puts the deadline of a slot into the wheel. Owes [`Owed::DEADLINE`] if no other delay expires as early.
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

    /// Not inlined, because it would make the stack frame of each caller as large as a wheel.
    #[cold]
    #[inline(never)]
    fn make_wheel(&mut self) {
        self.wheel = Some(Box::new(Wheel::new(self.time)));
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        let wheel = self.wheel.as_mut().expect("a key is delayed");
        wheel.remove(&mut self.records, number);
    }

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

    /// Whether deadlines are still to be sorted.
    #[cfg(test)]
    pub(super) fn is_sorting(&mut self) -> bool {
        let wheel = self.wheel.as_mut().expect("there were delays");
        wheel.pop(&mut self.records, self.time, &mut 1) == Popped::NeedsCascade
    }

    /// Whether there is a wheel, and whether there is memory of one to be freed.
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

    /// Retires a wheel without delays. The next delay makes a new one.
    pub(super) fn drop_empty_wheel(&mut self) {
        if self.delayed + self.resting == 0 {
            self.old = self.wheel.take();
        }
    }
}
